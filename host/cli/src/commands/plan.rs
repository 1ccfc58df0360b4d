//! `trueup plan`: what a run would do now.

mod negs;

use trueup_runtime::config::{Config, Lbaas, Neg, Source};
use trueup_runtime::plan::{self, Action, KeyPlan, Plan, Write};
use trueup_runtime::run::StateLock;

use super::run::ConfigArg;
use crate::exit::{Ending, Exit, Failure};
use crate::output::{self, Output};

/// Shows what a run would do now, and changes nothing.
///
/// The guest's real decision logic runs to its end in a simulation that is filled from real reads, on a virtual clock.
/// For NEGs, the plan includes the pauses of a migration and the steps after each. Exits 3 if there are changes, 1 if
/// something would fail.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Also lists children of the configured load balancers that no Service owns.
    #[arg(long)]
    orphans: bool,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let mut config = super::run::read(args.config.path(), &[])?;
    // An embedded simulated Engine, or Compute Engine, writes to the same file as that of a running host. While a host
    // runs, ask its servers instead.
    let _lock = if config.has_own_server() {
        match StateLock::try_take(&config.state_dir)? {
            Ok(lock) => Some(lock),
            Err(_) if config.use_running_servers() => None,
            Err(taken) => {
                let error = format!(
                    "{taken}; or plan beside it: give its simulated server a port, `listen = \"127.0.0.1:9480\"` in [sim.lbaas] or \
                     [sim.compute]"
                );
                return Err(Failure::Failed(anyhow::Error::msg(error)));
            }
        }
    } else {
        None
    };
    let plan = super::block_on(plan::plan(&config, &super::registry(), args.orphans))??;
    match output {
        Output::Json => output::json(&plan)?,
        Output::Text => {
            show(&config, &plan, args.orphans)?;
        }
    }
    Ok(if plan.has_failed() {
        Exit::Failed
    } else if plan.has_changes() {
        Exit::Differs
    } else {
        Exit::Done
    })
}

fn show(config: &Config, plan: &Plan, orphans: bool) -> anyhow::Result<()> {
    for problem in plan.problems.iter().chain(&plan.notes) {
        output::talk(&format!("warning: {problem}"));
    }
    for key in &plan.keys {
        output::line(&output::printable(&headline(key)))?;
        for orphan in &key.untagged {
            output::line(&format!(
                "  ? {:<8} {}  {}: was created without its tag; a run tags it first",
                orphan.kind, orphan.name, orphan.identifier
            ))?;
        }
        for write in &key.writes {
            output::line(&output::printable(&format!("  {}", line(write))))?;
        }
    }
    for key in &plan.negs {
        for line in negs::lines(key) {
            output::line(&line)?;
        }
    }
    let hidden = config.source().map_or("", Source::hidden);
    for key in &plan.held {
        output::line(&format!("{key}  held: its objects are kept while {hidden}"))?;
    }
    if orphans {
        output::line(&format!(
            "{} orphans: resources of these load balancers that no Service owns",
            plan.orphans.len()
        ))?;
        for orphan in &plan.orphans {
            output::line(&output::printable(&format!(
                "  ? {:<8} {}  {}",
                orphan.kind, orphan.name, orphan.identifier
            )))?;
        }
    }
    if config.world::<Neg>().is_some() {
        output::line(&negs::summary(&plan.negs))?;
    }
    if config.world::<Lbaas>().is_none() {
        return Ok(());
    }
    let word = if plan.keys.len() == 1 { "service" } else { "services" };
    let reset = if plan.reset() > 0 {
        format!(", {} to apply again", plan.reset())
    } else {
        String::new()
    };
    output::line(&format!(
        "{} {word}: {} to create, {} to destroy{reset}, {} failed",
        plan.keys.len(),
        plan.created(),
        plan.destroyed(),
        plan.failed()
    ))
}

fn headline(key: &KeyPlan) -> String {
    let count = |action| key.writes.iter().filter(|write| write.action == action).count();
    let (created, destroyed, reset) = (count(Action::Create), count(Action::Destroy), count(Action::Reset));
    let mut counts = Vec::new();
    if created > 0 {
        counts.push(format!("+{created}"));
    }
    if destroyed > 0 {
        counts.push(format!("-{destroyed}"));
    }
    if reset > 0 {
        counts.push(format!("~{reset}"));
    }
    let gone = if key.gone { " (gone)" } else { "" };
    match (&key.error, counts.is_empty()) {
        (Some(error), true) => format!("{}{gone}  fails: {error}", key.key),
        (Some(error), false) => format!("{}{gone}  {}, then fails: {error}", key.key, counts.join(" ")),
        (None, true) if !key.untagged.is_empty() => format!("{}{gone}  {} to tag", key.key, key.untagged.len()),
        (None, true) => format!("{}{gone}  nothing to do", key.key),
        (None, false) => format!("{}{gone}  {}", key.key, counts.join(" ")),
    }
}

fn line(write: &Write) -> String {
    let sign = match write.action {
        Action::Create => '+',
        Action::Reset => '~',
        Action::Destroy => '-',
    };
    format!("{sign} {:<8} {}  {}", write.kind, write.name, write.details)
        .trim_end()
        .to_owned()
}
