//! Reports the end of the call: stdout for the caller, a line on stderr for the runtime's log, the exit status.

use std::io::{self, Write};
use std::{fmt::Write as _, process::ExitCode};

use crate::{environment::Variables, error::CniError, outcome::Outcome, plugin::Ending};

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
    let shown =
        |value: &Option<std::ffi::OsString>| value.as_deref().unwrap_or_default().to_string_lossy().into_owned();
    let command = shown(&variables.command);
    let command = if command.is_empty() {
        command
    } else {
        format!("{command}: ")
    };
    let mut line = format!("trueup-cni: {command}{text}");
    let args: String = shown(&variables.args).chars().take(ARGS_CHARS_MAX).collect();
    if !args.is_empty() {
        // Writing to a `String` does not fail.
        let _ = write!(line, " [{args}]");
    }
    line.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gets_one_line_with_the_pods_arguments() {
        let variables = Variables {
            command: Some("ADD".into()),
            args: Some("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0".into()),
            ..Variables::default()
        };
        let error = CniError::new(11, "no address\nis free").about("net/c1/eth0");
        assert_eq!(
            log_line(&variables, &text_of(&error)),
            "trueup-cni: ADD: no address is free (net/c1/eth0; code 11) [K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0]"
        );
        let long = Variables {
            args: Some("ä".repeat(5000).into()),
            ..Variables::default()
        };
        assert_eq!(
            log_line(&long, "x").chars().count(),
            "trueup-cni: x []".len() + ARGS_CHARS_MAX
        );
    }
}
