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
    Verify(At),
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
        Command::Verify(At { at }) => verify(&folder(&at.path())?, output),
    }
}

/// The folder of the log that a path refers to.
fn folder(path: &Path) -> Result<PathBuf, Failure> {
    for folder in [path.to_owned(), path.join("audit")] {
        if audit::is_log(&folder).map_err(misused)? {
            return Ok(folder);
        }
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
        let all = Vec::from_iter(guests).join(", ");
        let known = match all.as_str() {
            "" => "any guest".to_owned(),
            all => format!("guest `{unknown}`; there are entries about: {all}"),
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
        let mut guest = match (line.guest.as_str(), line.version.as_str()) {
            ("", _) => "-".to_owned(),
            (guest, "") => guest.to_owned(),
            (guest, version) => format!("{guest}@{version}"),
        };
        if !line.name.is_empty() {
            guest += &format!(" ({})", line.name);
        }
        let abouts = [&line.decision, &line.instance];
        let about = abouts.into_iter().find(|about| !about.is_empty());
        let about = output::or_dash(about.map(|about| shown(about)));
        let [call, scope, outcome] = [&line.call, &line.scope, &line.outcome].map(|text| shown(text));
        [output::time(line.at_ms), guest, about, call, scope, outcome]
    });
    output::table(["TIME", "GUEST", "DECISION", "CALL", "SCOPE", "OUTCOME"], rows)
}

/// Texts come from guests, so only printable characters may reach the terminal.
fn shown(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// The output of `verify` as JSON.
#[derive(Serialize)]
struct Verified<'a> {
    folder: &'a Path,
    #[serde(flatten)]
    verdict: Verdict,
}

fn verify(folder: &Path, output: Output) -> Ending {
    let verdict = audit::verify(folder).map_err(misused)?;
    let is_whole = verdict.is_whole();
    output::show(&Verified { folder, verdict }, output, verdict_lines)?;
    Ok(if is_whole { Exit::Done } else { Exit::Failed })
}

fn verdict_lines(Verified { folder, verdict }: &Verified<'_>) -> Vec<String> {
    let mut lines: Vec<String> = verdict.problems.iter().map(|it| shown(&it.to_string())).collect();
    let more = verdict.more_problems;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    let outcome = match (verdict.is_whole(), verdict.removed) {
        (true, 0) => "whole".to_owned(),
        (true, removed) => {
            let removed = counted(removed, "line", "lines");
            format!("whole; the {removed} before them were removed by its limits")
        }
        (false, _) => counted(verdict.problems.len() as u64 + more, "problem", "problems"),
    };
    let all = counted(verdict.lines, "line", "lines");
    let files = counted(verdict.files, "file", "files");
    lines.push(format!("{}: {all} in {files}: {outcome}", folder.display()));
    lines
}
