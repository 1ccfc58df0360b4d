//! `trueup explain`: explains what the host did for a key, from the changed input to the calls that it made.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use serde_json::Value;
use trueup_base::text::{counted, passed};
use trueup_capabilities::holdings::WAITS;
use trueup_work::decisions::{
    self, Action, CallReport, Cause, ChangeKind, Decision, Explained, Explanation, Field, Fields, Input, JobResult,
    Now, Operation, Origin, Record, ReportedCall, Selection, TimedCause, Write,
};
use trueup_work::plan::sign;
use trueup_work::status::{HostShown, KeyShown, KeyState, Role, Status};
use trueup_worlds::neg::guest as neg;

use super::flags::Since;
use super::guest::host::{self, Host};
use super::status::escaped;
use super::watch::{Picture, Watch};
use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output, and_more, printable};

/// Explains what the host did for a key: what changed, what the host asked the guest, what the guest wrote, and what
/// came of it.
///
/// Reads the state folder: of a running host, of one that ended, or a copy of it. A running host adds what it does now.
#[derive(Debug, clap::Args)]
#[command(mut_arg("state_dir", |arg| arg.value_name("FOLDER").help("The state folder itself, wherever it is; no configuration is read")))]
pub(crate) struct Args {
    /// A Service, `NAMESPACE/NAME`, or a port of one that has NEGs, `NAMESPACE/NAME/PORT`. For pod addresses and a
    /// node's guests: the instance, which is the node's name, a container's id, an address, a pod, `NAMESPACE/NAME`, or
    /// a Service.
    key: String,
    #[command(flatten)]
    host: Host,
    /// The guest whose decisions to explain, as in `[guests.NAME]`. Default: the guest that has decided about the key,
    /// or all guests of a node that were called about it.
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,
    /// Only the job of this decision: the number in its id.
    #[arg(long, value_name = "N", conflicts_with = "last")]
    decision: Option<u64>,
    /// How many of the last jobs to show. Default: 1; with `--since`, all since then.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    last: Option<u16>,
    #[command(flatten)]
    since: Since,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) fn exec(args: Args, output: Output) -> Ending {
    let since_ms = args.since.at_ms()?;
    let all = if since_ms.is_some() { usize::MAX } else { 1 };
    let wanted = Selection {
        last: args.last.map_or(all, usize::from),
        decision: args.decision,
        since_ms,
    };
    let state_dir = args.host.state_dir()?;
    args.watch.show(output, || {
        let status: Option<Status> = host::answer(&state_dir, "status");
        let host = status.as_ref().map(|status| &status.host);
        let now = |guest, key: &str| now(guest, key, &state_dir, status.as_ref()?);
        let explained = decisions::explain(&state_dir, args.guest.as_deref(), &args.key, wanted);
        let explained = match (explained, now(args.guest.as_deref(), &args.key)) {
            (Ok(mut explained), of_key) => {
                let of_key = of_key.filter(|(shown, _)| shown.guest == explained.guest);
                let now = of_key.or_else(|| now(None, explained.instance()?));
                explained.now = now.map(|(_, now)| now);
                explained
            }
            (Err(_), Some((shown, now))) => Explanation {
                guest: shown.guest,
                key: shown.key,
                now: Some(now),
                ..Explanation::default()
            },
            (Err(error), None) => {
                let leads = host.and_then(leader).map(|leads| format!("; {}", printable(&leads)));
                return Err(misused(anyhow!("{error}{}", leads.unwrap_or_default())));
            }
        };
        let text = if output.is_text() {
            let mut lines = text(&explained, since_ms, host.map(|host| host.started_ms));
            let moved = host.and_then(|host| host.state_dir_moved.clone());
            let says = moved.into_iter().chain(host.and_then(leader));
            lines.extend(says.map(|line| format!("! {line}")));
            let lines: Vec<String> = lines.iter().map(|line| printable(line)).collect();
            output::changes(&lines)
        } else {
            output::rendered(&explained, output)?
        };
        let lasting = text.clone();
        let exit = Exit::Done;
        Ok(Picture { text, lasting, exit })
    })
}

/// `` this host is a standby: `host-a` leads; ask it ``. `None` if it leads.
fn leader(host: &HostShown) -> Option<String> {
    let leader = host.leader.as_ref().filter(|_| host.role == Role::Standby)?;
    Some(format!("this host is a standby: `{leader}` leads; ask it"))
}

/// What the running host does about a key. `None` if it does nothing.
fn now(guest: Option<&str>, key: &str, state_dir: &Path, status: &Status) -> Option<(KeyShown, Now)> {
    let guest = guest.map_or_else(String::new, |guest| format!("?guest={}", escaped(guest)));
    let path = format!("keys/{}{guest}", escaped(key));
    let shown: KeyShown = host::answer(state_dir, &path)?;
    let problems = status.source.as_ref().map(|source| source.problems.as_slice());
    Now::of(&shown, problems.unwrap_or_default()).map(|now| (shown, now))
}

/// Its lines may hold any characters that a guest or a source said. `host_started_ms`: when the running host began.
/// `None` if none runs.
fn text(of: &Explanation, since_ms: Option<u64>, host_started_ms: Option<u64>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (true, Some(since_ms)) = (of.jobs.is_empty(), since_ms) {
        let since = output::time(since_ms);
        lines.push(format!("{}  nothing was decided since {since}", of.key));
    }
    for (at, job) in of.jobs.iter().enumerate() {
        if at > 0 {
            lines.push(String::new());
        }
        lines.extend(job_text(job, &of.guest, open_text(of, job, host_started_ms)));
    }
    let why = |error: &String| {
        let is_shown = of.jobs.last().and_then(|of| error_of(&of.job.came)) == Some(error);
        if is_shown { AS_ABOVE.to_owned() } else { error.clone() }
    };
    if let Some(held) = &of.set_aside {
        let since = output::time(held.at_ms);
        let why = why(&held.error);
        let until = "until it or the guest changes";
        lines.push(format!("! set aside since {since}, {until}: {why}"));
    }
    if let Some(now) = &of.now {
        let error = now.error.as_ref().map(why).unwrap_or_default();
        let is_shown = of.jobs.iter().any(|job| still_runs(of, job, host_started_ms));
        lines.extend(now_text(now, &error, is_shown));
    }
    if of.unread > 0 {
        let lines_are = counted(of.unread, "kept line", "kept lines");
        lines.push(format!("! {lines_are} can't be read: passed over"));
    }
    lines
}

/// Whether nothing but a resync caused a job, no earlier job left anything to do, and yet it had something to do.
fn was_corrected(of: &Explained) -> bool {
    let job = &of.job;
    let (created, destroyed) = (job.effects.created, job.effects.destroyed);
    let is_resync = |timed: &TimedCause| matches!(timed.cause, Cause::Resync { .. });
    created + destroyed > 0 && job.failures_before == 0 && of.origin.is_none() && job.causes.iter().all(is_resync)
}

/// One job: its time and its guest, the cause, the desired state, the calls, and the outcome.
fn job_text(of: &Explained, guest: &str, open: Option<String>) -> Vec<String> {
    let job = &of.job;
    let mut lines = vec![head(job), "  because".to_owned()];
    lines.extend(causes(&job.causes, job.more_causes, "    "));
    if let Some(changed) = &of.settings_changed {
        let reloaded = reason(&Cause::Reloaded);
        let below = lines.iter().position(|line| line.ends_with(&reloaded));
        let below = below.map_or(lines.len(), |at| at + 1);
        lines.splice(below..below, fields(changed, "        "));
    }
    if was_corrected(of) {
        let look = "look for another host with the same `cluster`, or for changes by hand";
        lines.push(format!("    * others had changed its objects: {look}"));
    }
    let before = of.guest_before.iter();
    lines.extend(before.map(|before| format!("    * another guest decides: before, {before}")));
    lines.extend(of.origin.iter().flat_map(|origin| origin_text(origin, job)));
    let mut before = None;
    for (made, call) in job.decisions.iter().zip(&of.calls) {
        let desired = call.report.as_ref().and_then(|report| report.desired.as_ref());
        let desired = desired.map(|desired| &desired.fields);
        let is_new = desired != before;
        before = desired;
        lines.extend(call_text(made, call, is_new));
    }
    lines.push(format!("  {}", open.unwrap_or_else(|| came(of, guest))));
    if let Some(error) = error_of(&job.came) {
        once(&mut lines, error);
    }
    let reports = of.calls.iter().filter_map(|call| call.report.as_ref());
    let recordings: BTreeSet<&Path> = reports.map(|report| report.file.as_path()).collect();
    let look = |file| format!("  look deeper: trueup journal show {file}; trueup replay {file}");
    lines.extend(recordings.into_iter().map(Path::display).map(look));
    lines
}

/// `default/web  2026-11-24T01:03:43.910Z  by lbaas@1 sha256:2d48b506a6a5  took 433 ms`.
fn head(job: &Record) -> String {
    let mut head = format!("{}  {}", job.key, output::time(job.began_ms));
    if let Some(made) = job.decisions.last() {
        let guest = format!("{}@{}", made.guest, made.version);
        head += &format!("  by {guest} {}", output::short(&made.digest));
    }
    if job.came != JobResult::Open {
        head += &took(job.took_ms, "  took ");
    }
    head
}

/// A duration; nothing if it is not known, as of a call that only the recording has.
fn took(took_ms: u64, before: &str) -> String {
    match took_ms {
        0 => String::new(),
        ms => format!("{before}{ms} ms"),
    }
}

/// Stands for an error that a line above has.
const AS_ABOVE: &str = "as above";

/// Leaves an error only in the first line that has it.
fn once(lines: &mut [String], error: &str) {
    let whole = format!(": {error}");
    let at = |line: &String| {
        let at = line.find(&whole)? + ": ".len();
        let rest = line.get(at + error.len()..)?;
        (rest.is_empty() || rest.starts_with("; ")).then_some(at)
    };
    let with = lines.iter_mut().filter_map(|line| at(line).map(|at| (line, at)));
    for (line, at) in with.skip(1) {
        line.replace_range(at..at + error.len(), AS_ABOVE);
    }
}

/// The error with which a job ended.
fn error_of(came: &JobResult) -> Option<&String> {
    match came {
        JobResult::Failed { error } | JobResult::Fault { error } | JobResult::Refused { error } => Some(error),
        _ => None,
    }
    .filter(|error| !error.is_empty())
}

fn origin_text(origin: &Origin, job: &Record) -> Vec<String> {
    let decided = origin.decisions.first().map(|first| format!(" ({first})"));
    let decided = decided.unwrap_or_default();
    let began = output::time(origin.began_ms);
    let mut lines = vec![match job.goes_on() {
        true => format!("  which began at {began}{decided} because"),
        false => format!("  and an earlier job{decided}, unfinished since {began}, still had to do:"),
    }];
    lines.extend(causes(&origin.causes, origin.more_causes, "    "));
    lines
}

fn causes(causes: &[TimedCause], more: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for timed in causes {
        let taken_in = output::time(timed.at_ms);
        match &timed.cause {
            Cause::Input(input) => {
                lines.push(format!("{indent}{}, taken in at {taken_in}", changed(input)));
                lines.extend(fields(&input.fields, &format!("{indent}    ")));
            }
            other => lines.push(format!("{indent}* {}", reason(other))),
        }
    }
    lines.extend(and_more(more, "").map(|more| format!("{indent}{more}")));
    lines
}

/// `~ Service default/web changed (resourceVersion 42)`.
fn changed(input: &Input) -> String {
    let (sign, word) = match input.change {
        ChangeKind::Found => ("*", "was there at the start"),
        ChangeKind::Added => ("+", "is new"),
        ChangeKind::Changed => ("~", "changed"),
        ChangeKind::Gone => ("-", "is gone"),
    };
    let version = input.resource_version.iter().map(|it| format!("resourceVersion {it}"));
    let uid = input.uid.iter().map(|uid| format!("uid {uid}"));
    let mut text = format!("{sign} {} {word}", input.object());
    let marks: Vec<String> = version.chain(uid).collect();
    if !marks.is_empty() {
        text += &format!(" ({})", marks.join(", "));
    }
    text
}

fn reason(cause: &Cause) -> String {
    match cause {
        Cause::Start => "the host started".to_owned(),
        Cause::Reloaded => "the configuration was reloaded".to_owned(),
        Cause::Acts => "this host acts from here on; another may have acted before".to_owned(),
        Cause::Whole => "the source could be read whole again: what is missing in it is gone".to_owned(),
        Cause::Retry { failures, error } => format!("tried again after failure {failures}: {error}"),
        Cause::Resync { by_operator: false } => "nothing changed: looked at again all the same (resync)".to_owned(),
        Cause::Resync { by_operator: true } => "an operator asked (trueup reconcile or approve)".to_owned(),
        Cause::Interrupted => "the job before was ended while it slept".to_owned(),
        Cause::Request { request } => request.clone(),
        Cause::Operation { operation, failure } => format!("operation {operation} {}", ending(failure.as_deref())),
        Cause::Timer => "a timer was due that the guest had set".to_owned(),
        Cause::ErrorState { on: true } => "an operator said that it is in its error state".to_owned(),
        Cause::ErrorState { on: false } => "an operator said that it is in its error state no more".to_owned(),
        Cause::Version { guest, digest, before } => {
            let digest = output::short(digest);
            format!("{guest} became active ({digest}), before: {before}")
        }
        Cause::Released { since_ms, error } => {
            let since = output::time(*since_ms);
            format!("set aside since {since}, and released: {error}")
        }
        Cause::Input(input) => changed(input),
    }
}

fn fields(of: &Fields, indent: &str) -> Vec<String> {
    let all = of.fields.iter().map(field).chain(and_more(of.more, ""));
    all.map(|line| format!("{indent}{line}")).collect()
}

/// `~ spec.ports[http].nodePort: 30080 -> 30081`.
fn field(of: &Field) -> String {
    let path = if of.path.is_empty() { "all of it" } else { &of.path };
    let value = |value: &Value| match value {
        Value::Object(_) => in_words(value),
        value => value.to_string(),
    };
    match (&of.old, &of.new) {
        (Some(old), Some(new)) => format!("~ {path}: {} -> {}", value(old), value(new)),
        (None, Some(new)) => format!("+ {path}: {}", value(new)),
        (Some(old), None) => format!("- {path}: {}", value(old)),
        (None, None) => path.to_owned(),
    }
}

/// `Unavailable: timeout` for `{"Unavailable":"timeout"}`. What is no JSON stays as it is.
fn json_in_words(text: &str) -> String {
    serde_json::from_str(text).map_or_else(|_| text.to_owned(), |value| in_words(&value))
}

/// The error of a call or of a write. The job's own error says in full what waits for an approval, and what to type.
fn in_short(error: &str) -> &str {
    let waits = error.contains(WAITS);
    if waits { "waits for an approval" } else { error }
}

fn in_words(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(in_words).collect())),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::Object(_) => format!("{name} ({})", in_words(value)),
                value => format!("{name}: {}", in_words(value)),
            };
            joined(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn call_text(made: &Decision, call: &ReportedCall, desired_is_new: bool) -> Vec<String> {
    let removes = if made.removes { ", to remove all of it" } else { "" };
    let id = &made.id;
    let name = &made.call;
    let took = took(made.took_ms, ", ");
    let mut lines = vec![format!("  {id}  {name}{removes}{took}")];
    lines.extend(call.report.iter().flat_map(|of| report_text(of, desired_is_new)));
    if let Some(why) = &call.missing {
        lines.push(format!("    what it asked is not known: {why}"));
    }
    if let Some(error) = &made.error {
        lines.push(format!("    failed: {}", json_in_words(in_short(error))));
    }
    lines.extend(made.trace.iter().map(|trace| format!("    trace {trace}")));
    lines
}

fn report_text(report: &CallReport, desired_is_new: bool) -> Vec<String> {
    let mut lines = Vec::new();
    // The calls of one job mostly have the same desired state, so print it once.
    match report.desired.as_ref().filter(|_| desired_is_new) {
        Some(desired) if !desired.fields.is_empty() => {
            lines.push(format!("    what should be, against #{}:", desired.against));
            lines.extend(fields(&desired.fields, "      "));
        }
        Some(desired) => lines.push(format!("    what should be is as in #{}", desired.against)),
        None => {}
    }
    lines.extend(report.writes.iter().map(|write| format!("    {}", write_text(write))));
    lines.extend(and_more(report.more_writes, " writes").map(|more| format!("    {more}")));
    if !report.asked.is_empty() {
        let asked = report.asked.iter().map(|(name, count)| match count {
            1 => name.clone(),
            count => format!("{name} x{count}"),
        });
        let asked: Vec<String> = asked.collect();
        lines.push(format!("    asked: {}", asked.join(", ")));
    }
    lines
}

/// `+ server   node-1.http.web.default.c1  192.0.2.11:30081 in http.web.default.c1`.
fn write_text(write: &Write) -> String {
    let (sign, kind) = match write.action {
        Action::Attach => ('+', "attach"),
        Action::Detach => ('-', "detach"),
        Action::Store => ('>', write.kind.as_str()),
        action => (sign(action), write.kind.as_str()),
    };
    let line = format!("{sign} {kind:<8} {}  {}", write.name, write.details);
    let ended = write.operation.iter().map(operation);
    let error = write.error.iter().map(|error| json_in_words(in_short(error)));
    let after: String = ended.chain(error.map(|error| format!("  not done: {error}"))).collect();
    format!("{}{after}", line.trim_end())
}

/// `; operation 7 ended well, told in #9 at 12:00:00`.
fn operation(of: &Operation) -> String {
    let number = of.number;
    match &of.ended {
        None => format!("; operation {number}: its end was not told yet"),
        Some(end) => {
            let how = ending(end.failure.as_deref());
            let at = output::time(end.at_ms);
            format!("; operation {number} {how}, told in #{} at {at}", end.n)
        }
    }
}

/// How an operation ended.
fn ending(failure: Option<&str>) -> String {
    failure.map_or_else(|| "ended well".to_owned(), |why| format!("failed: {why}"))
}

fn came(of: &Explained, guest: &str) -> String {
    let effects = &of.job.effects;
    let did = match (effects.created, effects.destroyed, guest == neg::NAME) {
        (0, 0, true) => "no attach or detach was started".to_owned(),
        // What starts here ends later.
        (attached, detached, true) => {
            let endpoints = counted(attached, "endpoint", "endpoints");
            format!("{endpoints} to be attached, {detached} to be detached")
        }
        (0, 0, false) => "nothing was created or destroyed".to_owned(),
        (created, destroyed, false) => format!("{created} created, {destroyed} destroyed"),
    };
    let is_request = |timed: &TimedCause| matches!(timed.cause, Cause::Request { .. });
    match &of.job.came {
        // Pod addresses create nothing; the text above lists what was written.
        JobResult::True if of.job.causes.iter().any(is_request) => {
            let report = of.calls.last().and_then(|call| call.report.as_ref());
            let answer = report.map_or_else(|| "nothing".to_owned(), |report| json_in_words(&report.ending));
            format!("answered {answer}")
        }
        JobResult::True => format!("true: {did}"),
        JobResult::Gone => format!("gone: {did}"),
        JobResult::Interrupted => format!("ended while it slept, for something newer or for a stop: {did}"),
        JobResult::Failed { error } => format!("failed: {error}; {did}"),
        JobResult::Fault { error } => format!("the guest failed: {error}; {did}"),
        JobResult::Open => "it has no ending".to_owned(),
        JobResult::Refused { error } => format!("refused, no guest was called: {error}"),
    }
}

/// Its failures, that a job runs, and which manifests can't be read and may hold the Service. `why`: its error, or that
/// a line above has it. `is_shown`: the lines above show the job that runs.
fn now_text(now: &Now, why: &str, is_shown: bool) -> Vec<String> {
    let since = output::time(now.since_ms);
    let mut lines = Vec::new();
    let next = match now.next_try_in_ms {
        _ if now.state == KeyState::Running => "it runs again".to_owned(),
        Some(0) => "next try when it is its turn".to_owned(),
        Some(ms) => format!("next try in {}", passed(ms)),
        None => "next try when it changes".to_owned(),
    };
    let times = match now.failures {
        0 => String::new(),
        failures => format!(" {}", counted(failures, "time", "times")),
    };
    // A line of its own says that it is set aside.
    if now.error.is_some() && now.state != KeyState::SetAside {
        lines.push(format!("! failed{times} since {since}, {next}: {why}"));
    }
    if now.state == KeyState::Running && !is_shown {
        lines.push("! a job runs now: it is shown here when it has ended".to_owned());
    }
    if now.state == KeyState::Held {
        let kept = "its objects are kept until everything in the source can be read";
        lines.push(format!("! held since {since}: {kept}"));
    } else if !now.unreadable.is_empty() {
        lines.push("! a manifest that can't be read may hold this Service; its last read state counts".to_owned());
    }
    lines.extend(now.unreadable.iter().map(|it| format!("    {it}")));
    lines
}

/// Of a job without an ending: whether the running host, which began at `host_started_ms`, is still inside it.
fn still_runs(of: &Explanation, job: &Explained, host_started_ms: Option<u64>) -> bool {
    let instance = |of: &Explained| Some(of.job.decisions.last()?.id.rsplit_once('#')?.0.to_owned());
    let newest = of.jobs.iter().rfind(|other| instance(other) == instance(job));
    // A renderer is queued while the processor has it resync.
    let state = of.now.as_ref().map(|now| now.state);
    job.job.came == JobResult::Open
        && is_of_host(job, host_started_ms)
        && newest.is_some_and(|newest| newest.job.began_ms == job.job.began_ms)
        && matches!(state, None | Some(KeyState::Running | KeyState::Queued))
}

fn is_of_host(job: &Explained, host_started_ms: Option<u64>) -> bool {
    host_started_ms.is_some_and(|started_ms| job.job.began_ms >= started_ms)
}

/// Why a job has no ending. `None` if it has one.
fn open_text(of: &Explanation, job: &Explained, host_started_ms: Option<u64>) -> Option<String> {
    let began = output::time(job.job.began_ms);
    (job.job.came == JobResult::Open).then(|| match is_of_host(job, host_started_ms) {
        true if still_runs(of, job, host_started_ms) => format!("still runs since {began}"),
        true => "its end is not recorded: the host's log says why".to_owned(),
        false => "its host ended inside it: the next start runs it again".to_owned(),
    })
}

#[cfg(test)]
mod tests;
