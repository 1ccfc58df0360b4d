//! `trueup journal` and `trueup grants`: read recordings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use trueup_base::local_only;
use trueup_capabilities::log::NoLog;
use trueup_instance::replay::{Options, ReplayError, replay};
use trueup_journal::{By, Entry, Event, Header, Segment};
use trueup_registry::Reference;
use trueup_runtime::infer;
use trueup_runtime::page::{self, Against, Source};
use trueup_scenario::{of_recording, run_text};

use super::flags::{Recordings, Since};
use super::replay::Programs;
use super::{block_on, loader};
use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output, printable};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows a recording, one line for each entry.
    Show(Show),
    ToScenario(ToScenario),
    /// Shows recordings on a page in the browser, on this machine only, until it is stopped.
    Serve(Serve),
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
        Command::Serve(args) => return serve(args, output),
        Command::ToScenario(args) => return to_scenario(&args, output),
    };
    let since_ms = show.since.at_ms()?;
    let is_whole = show.full || output == Output::Wide;
    let max = if is_whole { usize::MAX } else { SHOWN_MAX };
    let mut shown = Vec::new();
    for file in &show.recordings.files()? {
        let segment = Segment::read(file).map_err(misused)?;
        segment.torn.iter().for_each(output::warn);
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
            let n = segment.first;
            let event = Event::Header(Box::new(segment.header));
            for entry in [&Entry { n, event }].into_iter().chain(entries) {
                shown.push(RawValue::from_string(entry.to_line())?);
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

fn headline(file: &Path, header: &Header) -> String {
    let state = header.snapshot.as_ref().map_or("from nothing", |_| "from a snapshot");
    let guest = format!("{}@{}  {}", header.guest, header.version, header.digest);
    let file = file.display();
    let settings = &header.settings;
    format!("{file}\n  guest {guest}  {state}\n  settings {settings}")
}

fn line(entry: &Entry, max: usize) -> String {
    let n = entry.n;
    match &entry.event {
        Event::Header(header) => format!("{n:>6}  segment of {}@{}", header.guest, header.version),
        Event::Call(call) => {
            let at = output::time(call.at_ms);
            let args = cut(call.args.get(), max);
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
    torn.iter().for_each(output::warn);
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

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    recordings: Recordings,
    /// The address to listen on, on loopback; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Another guest that gets the recorded answers too: a file, or the name of a built-in one. The page shows where it
    /// asks or decides differently.
    #[arg(long, value_name = "GUEST")]
    against: Option<String>,
}

fn serve(args: Serve, output: Output) -> Ending {
    local_only::must_be_loopback(args.listen).map_err(|why| misused(anyhow!(why)))?;
    let files = args.recordings.paths()?;
    for file in &files {
        let found = std::fs::metadata(file).with_context(|| format!("can't read `{}`", file.display()));
        found.map_err(misused)?;
    }
    let against = args.against.as_deref().map(compared_with).transpose()?;
    let source = Source::new(files, against);
    let listen = args.listen;
    block_on(async move {
        let listener = TcpListener::bind(listen).await;
        let listener = listener.with_context(|| format!("can't listen on `{listen}`"))?;
        let url = format!("http://{}/", listener.local_addr().context("asking for the address")?);
        // Listen first: a reader of the address may stop the server at once.
        let stop = super::listen_for_stop();
        match output.is_text() {
            true => output::line(&url)?,
            false => output::value_if_read(&serde_json::json!({ "url": url }), output),
        }
        tokio::select! {
            // A viewer holds a connection for as long as it looks; a stop does not wait for that.
            () = stop => {}
            served = page::serve(listener, source) => served.context("serving the page")?,
        }
        Ok(Exit::Done)
    })?
}

fn compared_with(guest: &str) -> Result<Against, Failure> {
    let loader = loader()?;
    let reference = Reference::parse(guest, Path::new("")).map_err(misused)?;
    let program = loader.program(&reference).map_err(misused)?;
    Ok(Against::new(loader.engine, program))
}

/// Writes recordings as scenarios for `trueup test`, one for each, to stdout.
///
/// The guest gets the recorded answers, as faults, and must give the recorded results, or end as recorded, and ask the
/// same. The command runs each scenario before it writes it. Of several recordings, those that hold no call that ended
/// are left out.
#[derive(Debug, clap::Args)]
pub(crate) struct ToScenario {
    #[command(flatten)]
    recordings: Recordings,
    /// The file of the recorded guest. Default: the guest is found by its digest, as `trueup replay` finds it.
    #[arg(long, value_name = "FILE")]
    guest: Option<String>,
}

fn to_scenario(args: &ToScenario, output: Output) -> Ending {
    let files = args.recordings.files()?;
    let loader = loader()?;
    let mut programs = Programs::new(&loader, args.guest.as_deref())?;
    let mut guests = loader.for_scenarios(BTreeMap::default()).logging(Arc::new(NoLog));
    let mut scenarios = Vec::new();
    for file in &files {
        let segment = Segment::read(file).map_err(misused)?;
        let name = file.display().to_string();
        segment.torn.iter().for_each(output::warn);
        let recorded = format!("{}@{}", segment.header.guest, segment.header.version);
        let program = programs.of(file, &segment).map_err(misused)?;
        let replayed = block_on(replay(&loader.engine, &program, segment.clone(), Options::default()))?;
        guests = guests.with(&recorded, program);
        let scenario = match replayed {
            Err(ReplayError::Damaged(damage)) => Err(damage.to_string()),
            _ => of_recording(&name, &segment),
        };
        match scenario {
            Ok(scenario) => scenarios.push(scenario),
            Err(why) if files.len() == 1 => return Err(misused(anyhow!("{name} can't become a scenario: {why}"))),
            Err(why) => output::talk(&format!("note: {name} is left out: {why}")),
        }
    }
    let text = match output {
        Output::Json => output::rendered(&scenarios, output)?,
        // Not by way of JSON: the keys keep the order in which people read them.
        Output::Text | Output::Wide | Output::Yaml => serde_saphyr::to_string(&scenarios).context("writing YAML")?,
    };
    let summary = block_on(run_text(Arc::new(guests), "the scenario", &text))?.context("reading what was written")?;
    if let Some(why) = summary.first_failure().or_else(|| summary.errors.first().cloned()) {
        return Err(anyhow!("no scenario is written, since it would not pass: {why}").into());
    }
    output::bytes(text.as_bytes())?;
    Ok(Exit::Done)
}
