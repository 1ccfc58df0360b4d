//! `trueup audit`: what the host refused to guests, how it reacted, and whether the log was changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trueup_base::text::counted;
use trueup_capabilities::audit::{self, AuditError, Line, Verdict};

use super::flags::{ConfigArg, Since, state_dir};
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows the audit log, a line an event. Works while a host runs.
    Show(Show),
    /// Checks every byte of the audit log. Exits 0 if the log is intact, and 1 if an entry was edited, removed,
    /// inserted or moved; names the file and the line.
    Verify {
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("config", |arg| arg.value_name("CONFIG|FOLDER").help("A configuration, a state folder, or the folder of an audit log. Default: `TRUEUP_CONFIG`, else the current folder")))]
pub(crate) struct At {
    #[command(flatten)]
    at: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    at: At,
    /// Only entries about this guest, by its name in `[guests.NAME]` or its own.
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,
    #[command(flatten)]
    since: Since,
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    match command {
        Command::Show(args) => show(&args, output),
        Command::Verify { at } => verify(&folder(&at.at.path())?, output),
    }
}

/// The folder of the log that a path refers to.
fn folder(path: &Path) -> Result<PathBuf, Failure> {
    if audit::is_log(path).map_err(misused)? {
        return Ok(path.to_owned());
    }
    let below = path.join("audit");
    if audit::is_log(&below).map_err(misused)? {
        return Ok(below);
    }
    if path.is_file() || path.join("trueup.toml").is_file() {
        return Ok(state_dir(path)?.join("audit"));
    }
    Err(misused(AuditError::None(path.to_owned())))
}

fn show(args: &Show, output: Output) -> Ending {
    let since_ms = args.since.at_ms()?;
    let folder = folder(&args.at.at.path())?;
    let (mut lines, mut guests) = (Vec::new(), BTreeSet::new());
    let walked = audit::walk(&folder, |line| {
        let names = [&line.guest, &line.name];
        guests.extend(names.into_iter().filter(|name| !name.is_empty()).cloned());
        let of_guest = args.guest.as_ref().is_none_or(|guest| names.contains(&guest));
        if of_guest && since_ms.is_none_or(|since_ms| line.at_ms >= since_ms) {
            lines.push(line);
        }
    });
    let verdict = walked.map_err(misused)?;
    if !verdict.is_whole() {
        output::talk("warning: this log is not as it was written: `trueup audit verify` says where");
    }
    if let Some(unknown) = args.guest.as_ref().filter(|guest| !guests.contains(*guest)) {
        let known = match guests.is_empty() {
            true => "any guest".to_owned(),
            false => format!(
                "guest `{unknown}`; there are entries about: {}",
                Vec::from_iter(guests).join(", ")
            ),
        };
        output::talk(&format!("note: no entry is about {known}"));
    }
    output::show(&lines, output, |lines| match lines.is_empty() {
        true => vec!["no entries".to_owned()],
        false => table(lines),
    })
}

fn table(lines: &[Line]) -> Vec<String> {
    let rows = lines.iter().map(|line| {
        let guest = match (line.guest.as_str(), line.version.as_str()) {
            ("", _) => "-".to_owned(),
            (guest, "") => guest.to_owned(),
            (guest, version) => format!("{guest}@{version}"),
        };
        let guest = match line.name.as_str() {
            "" => guest,
            name => format!("{guest} ({name})"),
        };
        let about = if line.decision.is_empty() {
            &line.instance
        } else {
            &line.decision
        };
        [
            output::time(line.at_ms),
            guest,
            if about.is_empty() { "-".to_owned() } else { shown(about) },
            shown(&line.call),
            shown(&line.scope),
            shown(&line.outcome),
        ]
    });
    output::table(["TIME", "GUEST", "DECISION", "CALL", "SCOPE", "OUTCOME"], rows)
}

/// Texts come from guests, so only printable characters may reach the terminal.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// The output of `verify` as JSON.
#[derive(Serialize)]
struct Verified<'a> {
    folder: &'a Path,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

fn verify(folder: &Path, output: Output) -> Ending {
    let verdict = audit::verify(folder).map_err(misused)?;
    let verified = Verified {
        folder,
        verdict: &verdict,
    };
    output::show(&verified, output, |_| verdict_lines(folder, &verdict))?;
    Ok(if verdict.is_whole() { Exit::Done } else { Exit::Failed })
}

fn verdict_lines(folder: &Path, verdict: &Verdict) -> Vec<String> {
    let mut lines: Vec<String> = verdict.problems.iter().map(|it| shown(&it.to_string())).collect();
    if verdict.more_problems > 0 {
        lines.push(format!("and {} more", verdict.more_problems));
    }
    let problems = verdict.problems.len() as u64 + verdict.more_problems;
    let outcome = if verdict.is_whole() && verdict.removed > 0 {
        format!(
            "whole; the {} before them were removed by its limits",
            counted(verdict.removed, "line", "lines")
        )
    } else if verdict.is_whole() {
        "whole".to_owned()
    } else {
        counted(problems, "problem", "problems")
    };
    lines.push(format!(
        "{}: {} in {}: {outcome}",
        folder.display(),
        counted(verdict.lines, "line", "lines"),
        counted(verdict.files, "file", "files")
    ));
    lines
}
