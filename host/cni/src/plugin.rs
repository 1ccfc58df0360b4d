//! One call of the plugin: plan, ask, conclude, carry out the conclusion, and report it: stdout for the caller, a line
//! on stderr for the runtime's log, the exit status.

use std::io::{self, Write};
use std::panic::{self, UnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::answer::Answer;
use crate::configuration::{Input, Settings};
use crate::environment::{Variables, What};
use crate::error::{CniError, IO, TRY_AGAIN_LATER};
use crate::host;
use crate::outcome::{Outcome, conclude};
use crate::plan::{Ask, plan};
use crate::request;
use crate::result;
use crate::spool::{self, Release};
use crate::version::Version;

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
        Ok(None) => result::of_version().map(Outcome::Prints),
        Ok(Some(ask)) => call(&ask),
        Err(error) => Err(error),
    };
    Ending { version, result }
}

/// Runs `work` so that a panic also ends as an error on stdout: with an empty stdout, a runtime can't say what failed.
pub(crate) fn guarded(work: impl FnOnce() -> Ending + UnwindSafe) -> Ending {
    let msg = "the plugin failed of itself: stderr says where; report it";
    panic::catch_unwind(work).unwrap_or_else(|_| Ending {
        version: Version::NEWEST,
        result: Err(CniError::new(IO, msg)),
    })
}

fn call(ask: &Ask) -> Result<Outcome, CniError> {
    let request = request::line(ask)?;
    let spool = spool(ask);
    if let (What::Add(_), Some((dir, release))) = (&ask.what, spool) {
        // A waiting release of this key would free the address that this ADD is about to get.
        spool::take_back(dir, release).map_err(|why| {
            let msg = format!("a waiting release of this container could not be taken back: {why}");
            CniError::new(IO, msg).about(&ask.subject())
        })?;
    }
    let plugin = &ask.settings.plugin;
    let timeout = Duration::from_millis(plugin.timeout_ms);
    let line = host::exchange(&plugin.socket, request, timeout);
    let outcome = conclude(ask, line.and_then(|line| Answer::parse(&line)))?;
    let (Outcome::Spool(why), Some((dir, release))) = (&outcome, spool) else {
        return Ok(outcome);
    };
    spool::put(dir, release).map_err(|also| {
        let msg = format!("{why}; and the release could not be kept for it: {also}");
        CniError::new(TRY_AGAIN_LATER, msg).about(&ask.subject())
    })?;
    let dir = dir.display();
    Ok(Outcome::Spool(format!("{why}; the release waits in the spool `{dir}`")))
}

/// The spool, if there is one, and what frees this key there.
fn spool(ask: &Ask) -> Option<(&Path, Release<'_>)> {
    let (What::Add(attachment) | What::Del(attachment)) = &ask.what else {
        return None;
    };
    let Settings { network, plugin, .. } = &ask.settings;
    let release = Release::new(plugin.instance.as_deref(), network, attachment);
    Some((plugin.spool_dir.as_deref()?, release))
}

/// How many characters of `CNI_ARGS` a log line shows: a pod's name and namespace take up to 320.
const ARGS_CHARS_MAX: usize = 500;

/// Prints the ending; 0 for success, 1 for an error.
pub(crate) fn report(ending: &Ending, variables: &Variables) -> ExitCode {
    let (text, line, code) = match &ending.result {
        Ok(Outcome::Prints(text)) => (Some(text.clone()), None, ExitCode::SUCCESS),
        Ok(Outcome::Silent) => (None, None, ExitCode::SUCCESS),
        Ok(Outcome::Spool(note)) => (None, Some(log_line(variables, note)), ExitCode::SUCCESS),
        Err(error) => {
            let line = log_line(variables, &text_of(error));
            (Some(error.to_json(ending.version)), Some(line), ExitCode::FAILURE)
        }
    };
    let printed = text.map_or(Ok(()), |text| print(&text));
    if let Some(line) = line {
        log(&line);
    }
    match printed {
        Ok(()) => code,
        // The runtime did not get its answer, so it must not take this for success.
        Err(error) => {
            log(&log_line(variables, &format!("writing the result to stdout: {error}")));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Writes the line in one piece, so that the lines of plugins that share a log stay whole.
fn log(line: &str) {
    // Ignore the error: without stderr there is no other place to report to.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn text_of(error: &CniError) -> String {
    match &error.details {
        Some(details) => format!("{} ({details}; code {})", error.msg, error.code),
        None => format!("{} (code {})", error.msg, error.code),
    }
}

/// One line, whatever the texts contain.
fn log_line(variables: &Variables, text: &str) -> String {
    let shown = |name: &str| variables.get(name).to_string_lossy().into_owned();
    let mut command = shown("CNI_COMMAND");
    if !command.is_empty() {
        command += ": ";
    }
    let mut line = format!("trueup-cni: {command}{text}");
    let args: String = shown("CNI_ARGS").chars().take(ARGS_CHARS_MAX).collect();
    if !args.is_empty() {
        line += &format!(" [{args}]");
    }
    line.replace(char::is_control, " ")
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

    #[test]
    fn the_log_gets_one_line_with_the_pods_arguments() {
        let command = ("CNI_COMMAND", "ADD".into());
        let args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0";
        let variables = Variables([command, ("CNI_ARGS", args.into())].into());
        let error = CniError::new(11, "no address\nis free").about("net/c1/eth0");
        assert_eq!(
            log_line(&variables, &text_of(&error)),
            "trueup-cni: ADD: no address is free (net/c1/eth0; code 11) [K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0]"
        );
        let long = Variables([("CNI_ARGS", "ä".repeat(5000).into())].into());
        assert_eq!(
            log_line(&long, "x").chars().count(),
            "trueup-cni: x []".len() + ARGS_CHARS_MAX
        );
    }
}
