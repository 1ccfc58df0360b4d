//! `trueup journal`: reads recordings.

mod serve;
mod to_scenario;

use serde_json::value::RawValue;
use trueup_journal::{By, Ending, Entry, Event, Header, Segment};

use super::flags::{Recordings, Since};
use crate::exit::{Ending as CommandEnding, Exit, misused};
use crate::output::{self, Output, printable};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows a recording, one line for each entry.
    Show(Show),
    ToScenario(to_scenario::Args),
    /// Shows recordings on a page in the browser, on this machine only, until it is stopped.
    Serve(serve::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    recordings: Recordings,
    /// Only calls and questions whose name holds this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    call: Vec<String>,
    #[command(flatten)]
    since: Since,
    /// Shows arguments and answers in full instead of cutting them to the line.
    #[arg(long)]
    full: bool,
}

/// How many characters of arguments, answers and results one line shows.
const SHOWN_MAX: usize = 100;

pub(crate) fn exec(command: Command, output: Output) -> CommandEnding {
    let show = match command {
        Command::Show(show) => show,
        Command::Serve(args) => return serve::exec(args, output),
        Command::ToScenario(args) => return to_scenario::exec(args, output),
    };
    let since_ms = show.since.at_ms()?;
    let mut shown = Vec::new();
    for file in &show.recordings.files()? {
        let segment = Segment::read(file).map_err(misused)?;
        if let Some(torn) = &segment.torn {
            output::talk(&format!("warning: {torn}"));
        }
        let recent = since(&segment.entries, since_ms);
        if since_ms.is_some() && recent.is_empty() {
            continue;
        }
        let entries = select(recent, &show.call);
        match output {
            Output::Json | Output::Yaml => {
                let header = Entry {
                    n: segment.first,
                    event: Event::Header(Box::new(segment.header.clone())),
                };
                let lines = std::iter::once(header.to_line()).chain(entries.iter().map(|entry| entry.to_line()));
                for line in lines {
                    shown.push(RawValue::from_string(line).map_err(anyhow::Error::from)?);
                }
            }
            Output::Text | Output::Wide => {
                output::line(&headline(file, &segment.header))?;
                for entry in entries {
                    output::line(&line(
                        entry,
                        if show.full || output == Output::Wide {
                            usize::MAX
                        } else {
                            SHOWN_MAX
                        },
                    ))?;
                }
            }
        }
    }
    if !output.is_text() {
        output::document(&shown, output)?;
    }
    Ok(Exit::Done)
}

/// The entries from the first call on that began at this time or later.
fn since(entries: &[Entry], since_ms: Option<u64>) -> &[Entry] {
    let Some(since_ms) = since_ms else {
        return entries;
    };
    let is_recent = |entry: &Entry| matches!(&entry.event, Event::Call(call) if call.at_ms >= since_ms);
    let from = entries.iter().position(is_recent).unwrap_or(entries.len());
    entries.get(from..).unwrap_or_default()
}

/// The entries whose name contains one of the texts. The result of a call goes with the call.
fn select<'e>(entries: &'e [Entry], wanted: &[String]) -> Vec<&'e Entry> {
    let fits = |name: &str| wanted.is_empty() || wanted.iter().any(|text| name.contains(text.as_str()));
    let mut in_wanted_call = false;
    let keep = |entry: &&Entry| match &entry.event {
        Event::Header(_) | Event::RolledBack(_) => true,
        Event::Call(call) => {
            in_wanted_call = fits(&call.name);
            in_wanted_call
        }
        Event::Ask(ask) => fits(&ask.name),
        Event::Ending(_) => in_wanted_call,
    };
    entries.iter().filter(keep).collect()
}

fn headline(file: &std::path::Path, header: &Header) -> String {
    let state = if header.snapshot.is_some() {
        "from a snapshot"
    } else {
        "from nothing"
    };
    format!(
        "{}\n  guest {}@{}  {}  {state}\n  settings {}",
        file.display(),
        header.guest,
        header.version,
        header.digest,
        header.settings
    )
}

fn line(entry: &Entry, max: usize) -> String {
    let n = entry.n;
    match &entry.event {
        Event::Header(header) => format!("{n:>6}  segment of {}@{}", header.guest, header.version),
        Event::Call(call) => format!(
            "{n:>6}  {}  call {}{}{} {}",
            output::time(call.at_ms),
            call.name,
            call.by.as_ref().map(cause).unwrap_or_default(),
            call.about
                .as_ref()
                .map(|about| format!(" about {}", printable(about)))
                .unwrap_or_default(),
            cut(call.args.get(), max)
        ),
        Event::Ask(ask) => {
            let answer = ask
                .answer
                .as_ref()
                .map_or_else(|| "no answer".to_owned(), |answer| cut(answer.get(), max));
            format!("{n:>6}      {} {} -> {answer}", ask.name, cut(ask.args.get(), max))
        }
        Event::RolledBack(last_kept) => format!("{n:>6}  rolled back: the entries after {last_kept} do not stand"),
        Event::Ending(ending) => match ending {
            Ending::Result(result) => format!("{n:>6}    result {}", cut(result.get(), max)),
            Ending::Trap(text) => format!("{n:>6}    trap: {text}"),
            Ending::Deadline(text) => format!("{n:>6}    deadline: {text}"),
            Ending::Memory(text) => format!("{n:>6}    memory: {text}"),
            Ending::Cancelled(text) => format!("{n:>6}    cancelled: {text}"),
        },
    }
}

/// ` by service/node-a 12`: the entry of another recording that caused a call.
fn cause(by: &By) -> String {
    let By { guest, instance, n } = by;
    let n = n.map(|n| format!(" {n}")).unwrap_or_default();
    format!(" by {guest}/{instance}{n}")
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
