//! `trueup check`: whether a host could run with a configuration, and what to type where it could not.

use serde::Serialize;
use trueup_base::text::counted;
use trueup_config::Config;
use trueup_runtime::check;
use trueup_work::needs::{Finding, Mark, Problem};
use trueup_worlds::sections;

use super::flags::ConfigArg;
use crate::exit::{Ending, Exit};
use crate::output::{self, Output};

/// Everything that was found.
#[derive(Serialize)]
struct Report {
    checks: Vec<Finding>,
    ok: usize,
    warnings: usize,
    failed: usize,
}

pub(crate) fn exec(config: &ConfigArg, output: Output) -> Ending {
    let path = &config.path();
    let mut checks = Vec::new();
    let mut tell = |finding: Finding| {
        if output.is_text() {
            lines(&finding).iter().for_each(|line| output::line_if_read(line));
        }
        checks.push(finding);
    };
    let wrong = match Config::load(path, &sections()) {
        Ok(config) => {
            let names: Vec<_> = config.guests().into_iter().map(|(name, _)| name).collect();
            let text = format!("{}: {}", config.file.display(), names.join(", "));
            tell(Finding::ok("configuration", text));
            super::block_on(check::check(&config, &super::registry(), tell))?;
            Exit::Failed
        }
        Err(error) => {
            let shown = path.display();
            let next = match path.exists() {
                true => format!("correct it, then: trueup check {shown}"),
                false => format!("trueup init {shown} --world WORLD"),
            };
            for problem in &error.problems {
                let problem = Problem::new(problem, next.clone());
                tell(Finding::wrong("configuration", Mark::Failed, problem));
            }
            Exit::Unusable
        }
    };
    let count = |mark| checks.iter().filter(|finding: &&Finding| finding.mark == mark).count();
    let report = Report {
        ok: count(Mark::Ok),
        warnings: count(Mark::Warning),
        failed: count(Mark::Failed),
        checks,
    };
    output::show(&report, output, |of| {
        let warnings = counted(of.warnings, "warning", "warnings");
        vec![format!("{} ok, {warnings}, {} failed", of.ok, of.failed)]
    })?;
    Ok(if report.failed == 0 { Exit::Done } else { wrong })
}

/// One line, and one with the next step if there is one.
fn lines(finding: &Finding) -> Vec<String> {
    let mark = match finding.mark {
        Mark::Ok => "ok",
        Mark::Warning => "warning",
        Mark::Failed => "failed",
    };
    // As wide as the longest name, `admin.metrics_listen`: lines come one by one.
    let line = format!("{mark:<8} {:<20} {}", finding.check, finding.text);
    let next = finding.next.iter().map(|next| format!("{:<8} next: {next}", ""));
    std::iter::once(line).chain(next).collect()
}
