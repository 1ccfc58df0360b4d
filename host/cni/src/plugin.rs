//! One call of the plugin: plan, ask, conclude, and carry out the conclusion.

use std::panic::{self, UnwindSafe};
use std::time::Duration;

use crate::configuration::{Input, PluginSettings, Settings};
use crate::error::{CniError, IO, TRY_AGAIN_LATER};
use crate::outcome::{Outcome, conclude};
use crate::plan::{Ask, Plan, What, plan};
use crate::spool::{self, Release};
use crate::{answer::Answer, environment::Variables, host, request, result, version::Version};

/// How the call ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Ending {
    /// The version to write the answer in.
    pub(crate) version: Version,
    /// What the caller gets. A release in the spool comes with its log line.
    pub(crate) result: Result<Outcome, CniError>,
}

/// Does what the caller asked.
pub(crate) fn run(variables: &Variables, input: Input) -> Ending {
    let version = input.version();
    let result = match plan(variables, input) {
        Ok(Plan::PrintVersions) => result::of_version().map(Outcome::Prints),
        Ok(Plan::Ask(ask)) => call(&ask),
        Err(error) => Err(error),
    };
    Ending { version, result }
}

/// Runs `work` so that a panic also ends as an error on stdout: with an empty stdout, a runtime can't say what failed.
pub(crate) fn guarded(work: impl FnOnce() -> Ending + UnwindSafe) -> Ending {
    panic::catch_unwind(work).unwrap_or_else(|_| Ending {
        version: Version::NEWEST,
        result: Err(CniError::new(
            IO,
            "the plugin failed of itself: stderr says where; report it",
        )),
    })
}

fn call(ask: &Ask) -> Result<Outcome, CniError> {
    let request = request::line(ask)?;
    if let What::Add(_) = ask.what {
        take_back(ask)?;
    }
    let PluginSettings {
        socket,
        timeout_ms,
        spool_dir,
        ..
    } = &ask.settings.plugin;
    let line = host::exchange(socket.as_ref(), request, Duration::from_millis(*timeout_ms));
    let outcome = conclude(ask, line.and_then(|line| Answer::parse(&line)))?;
    let (Outcome::Spool(why), Some(dir)) = (&outcome, spool_dir) else {
        return Ok(outcome);
    };
    put(ask, why)?;
    Ok(Outcome::Spool(format!(
        "{why}; the release waits in the spool `{}`",
        dir.as_ref().display()
    )))
}

/// A waiting release of this key would free the address that this ADD is about to get.
fn take_back(ask: &Ask) -> Result<(), CniError> {
    let (Some(dir), Some(release)) = (&ask.settings.plugin.spool_dir, release(ask)) else {
        return Ok(());
    };
    let failed = |why: String| {
        let msg = format!("a waiting release of this container could not be taken back: {why}");
        CniError::new(IO, msg).about(&ask.subject())
    };
    spool::take_back(dir.as_ref(), release).map_err(failed)
}

fn put(ask: &Ask, why: &str) -> Result<(), CniError> {
    let (Some(dir), Some(release)) = (&ask.settings.plugin.spool_dir, release(ask)) else {
        return Ok(());
    };
    let failed = |also: String| {
        let msg = format!("{why}; and the release could not be kept for it: {also}");
        CniError::new(TRY_AGAIN_LATER, msg).about(&ask.subject())
    };
    spool::put(dir.as_ref(), release).map_err(failed)
}

fn release(ask: &Ask) -> Option<Release<'_>> {
    match &ask.what {
        What::Add(attachment) | What::Del(attachment) => {
            let Settings { network, plugin, .. } = &ask.settings;
            Some(Release::new(plugin.instance.as_deref(), network, attachment))
        }
        What::Check(..) | What::Status | What::Gc(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_error_5() {
        let ending = guarded(|| panic!("this line in the test's output is expected"));
        let error = ending.result.unwrap_err();
        assert_eq!(error.code, 5);
        assert!(
            error
                .to_json(ending.version)
                .starts_with(r#"{"cniVersion":"1.1.0","code":5,"msg":""#)
        );
    }
}
