//! `trueup plan`: what a run would do now.

use std::collections::BTreeMap;

use anyhow::anyhow;
use trueup_base::text::passed;
use trueup_capabilities::reading::cut;
use trueup_config::{Lbaas, Source};
use trueup_runtime::plan;
use trueup_runtime::state_lock::{StateLock, taken_by};
use trueup_work::plan::{KeyPlan, Orphan, Plan, sign};

use super::flags::{self, ConfigArg};
use crate::exit::{Ending, Exit};
use crate::output::{self, Output};

/// Shows what a run would do now, and changes nothing.
///
/// The guest's real decision logic runs to its end in a simulation that is filled from real reads, on a virtual clock.
/// For NEGs, the plan includes every step of a migration. Exits 3 if there are changes, 1 if
/// something would fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Also lists children of the configured load balancers that belong to no Service: without a Service's tag, or with
    /// that of a Service that neither the source nor the state folder has. A run leaves them alone.
    #[arg(long)]
    orphans: bool,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let mut config = flags::read(&args.config.path())?;
    // While a host runs, ask its simulated Engine, or Compute Engine: their file need not be up to date.
    if config.has_own_server()
        && let Some(pid) = StateLock::taken(&config.state_dir)?
        && !config.use_running_servers()
    {
        let taken = taken_by(&config.state_dir, pid);
        return Err(anyhow!("{taken}; or wait until its simulated server listens, and type the same again").into());
    }
    let plan = super::block_on(plan::plan(&config, &super::registry(), args.orphans))??;
    if output.is_text() {
        plan.problems.iter().chain(&plan.notes).for_each(output::warn);
        let hidden = config.source().map_or("", Source::hidden);
        let orphans = args.orphans && config.world::<Lbaas>().is_some();
        let lines = lines(&plan, hidden, orphans, output);
        let lines: Vec<String> = lines.iter().map(|line| output::printable(line)).collect();
        output::bytes(output::changes(&lines).as_bytes())?;
    } else {
        output::document(&plan, output)?;
    }
    Ok(if plan.has_failed() {
        Exit::Failed
    } else if plan.has_changes() {
        Exit::Differs
    } else {
        Exit::Done
    })
}

/// `hidden`: what in the source may name a key and can't be read.
fn lines(plan: &Plan, hidden: &str, orphans: bool, output: Output) -> Vec<String> {
    let mut lines = Vec::new();
    let mut guests: BTreeMap<&str, usize> = BTreeMap::new();
    for key in &plan.keys {
        *guests.entry(&key.key).or_default() += 1;
    }
    for key in &plan.keys {
        lines.push(match guests.get(&*key.key) {
            Some(1) => headline(key),
            _ => format!("{}/{}", key.guest, headline(key)),
        });
        let untagged = key.untagged.iter().map(shown);
        lines.extend(untagged.map(|shown| format!("{shown}: was created without its tag; a run tags it first")));
        for write in &key.writes {
            let details = match output {
                Output::Wide => write.details.clone(),
                _ => cut(&write.details),
            };
            let line = format!("  {} {:<8} {}  {details}", sign(write.action), write.kind, write.name);
            lines.push(line.trim_end().to_owned());
        }
    }
    let held = plan.held.iter();
    lines.extend(held.map(|key| format!("{key}  held: its objects are kept while {hidden}")));
    if orphans {
        let are = "resources of these load balancers that belong to no known Service";
        lines.push(format!("{} orphans: {are}", plan.orphans.len()));
        lines.extend(plan.orphans.iter().map(shown));
    }
    lines.extend(plan.summaries.values().cloned());
    lines
}

fn headline(key: &KeyPlan) -> String {
    let counts = key.counts().into_iter().map(|(sign, count)| format!("{sign}{count}"));
    let mut counts = counts.collect::<Vec<_>>().join(" ");
    counts.extend(key.waits_ms.map(|ms| format!(", {} of pauses", passed(ms))));
    let gone = if key.gone { " (gone)" } else { "" };
    let does = match (&key.error, counts.is_empty()) {
        (Some(error), true) => format!("fails: {error}"),
        (Some(error), false) => format!("{counts}, then fails: {error}"),
        (None, true) if !key.untagged.is_empty() => format!("{} to tag", key.untagged.len()),
        (None, true) => "nothing to do".to_owned(),
        (None, false) => counts,
    };
    format!("{}{gone}  {does}", key.key)
}

fn shown(orphan: &Orphan) -> String {
    let mut shown = format!("  ? {:<8} {}  {}", orphan.kind, orphan.name, orphan.identifier);
    shown.extend(orphan.service_uid.iter().map(|uid| format!("  of Service {uid}")));
    shown
}
