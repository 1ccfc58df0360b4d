//! `trueup journal` and `trueup grants`: read recordings.

mod serve;
mod to_scenario;

use serde_json::value::RawValue;
use trueup_journal::{By, Entry, Event, Header, Segment};
use trueup_runtime::infer;

use super::flags::{Recordings, Since};
use crate::exit::{Ending, Exit, misused};
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

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    let show = match command {
        Command::Show(show) => show,
        Command::Serve(args) => return serve::exec(args, output),
        Command::ToScenario(args) => return to_scenario::exec(args, output),
    };
    let since_ms = show.since.at_ms()?;
    let is_whole = show.full || output == Output::Wide;
    let max = if is_whole { usize::MAX } else { SHOWN_MAX };
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
        if output.is_text() {
            output::line(&headline(file, &segment.header))?;
            for entry in entries {
                output::line(&line(entry, max))?;
            }
        } else {
            let (n, event) = (segment.first, Event::Header(Box::new(segment.header)));
            for entry in [&Entry { n, event }].into_iter().chain(entries) {
                shown.push(RawValue::from_string(entry.to_line()).map_err(anyhow::Error::from)?);
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
    let state = header.snapshot.as_ref().map_or("from nothing", |_| "from a snapshot");
    let guest = format!("{}@{}  {}", header.guest, header.version, header.digest);
    format!(
        "{}\n  guest {guest}  {state}\n  settings {}",
        file.display(),
        header.settings
    )
}

fn line(entry: &Entry, max: usize) -> String {
    let n = entry.n;
    match &entry.event {
        Event::Header(header) => format!("{n:>6}  segment of {}@{}", header.guest, header.version),
        Event::Call(call) => {
            let (at, args) = (output::time(call.at_ms), cut(call.args.get(), max));
            let by = call.by.as_ref().map(cause).unwrap_or_default();
            let about = call.about.iter().map(|about| format!(" about {}", printable(about)));
            let about: String = about.collect();
            format!("{n:>6}  {at}  call {}{by}{about} {args}", call.name)
        }
        Event::Ask(ask) => {
            let answer = cut(ask.answer.as_ref().map_or("no answer", |answer| answer.get()), max);
            format!("{n:>6}      {} {} -> {answer}", ask.name, cut(ask.args.get(), max))
        }
        Event::RolledBack(last_kept) => format!("{n:>6}  rolled back: the entries after {last_kept} do not stand"),
        Event::Ending(ending) => match ending.parts() {
            (kind, Ok(result)) => format!("{n:>6}    {kind} {}", cut(result.get(), max)),
            (kind, Err(text)) => format!("{n:>6}    {kind}: {text}"),
        },
    }
}

/// ` by service/node-a 12`: the entry of another recording that caused a call.
fn cause(by: &By) -> String {
    let By { guest, instance, n } = by;
    let n = n.map(|n| format!(" {n}")).unwrap_or_default();
    format!(" by {guest}/{instance}{n}")
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Grants {
    /// Proposes the smallest grant that would have allowed what recordings ask, as TOML to paste under `[guests.NAME]`.
    ///
    /// Lists refused calls separately, and does not grant them.
    Infer(Recordings),
}

pub(crate) fn grants(Grants::Infer(recordings): &Grants, output: Output) -> Ending {
    let (inferred, torn) = infer::infer(&recordings.files()?).map_err(misused)?;
    for torn in torn {
        output::talk(&format!("warning: {torn}"));
    }
    output::show(&inferred, output, |inferred| {
        let texts: Vec<String> = inferred.iter().map(infer::Inferred::to_toml).collect();
        vec![texts.join("\n").trim_end().to_owned()]
    })
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
