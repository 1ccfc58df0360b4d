//! One job of a key as one line: its causes, decisions and result; the span of a decision; and the files of the lines.
//!
//! The host appends one line after each job. They are read from a folder that a host may be writing to:
//!
//! ```text
//! state_dir/decisions/<guest>/<key>.jsonl      the newest lines
//! state_dir/decisions/<guest>/<key>.old.jsonl  those before; replaced as a whole
//! ```
//! The host never syncs these files. If the host is killed, no line is lost; if the machine fails, the last ones may
//! be. A reader skips torn lines, and a newline separates them from the next line.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::Span;
use tracing::field::Empty;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::replace::Durable;
use trueup_base::{folder, regular};
use trueup_capabilities::meter::Effects;
use trueup_capabilities::{Host, Identity};
use trueup_journal::Journal;

use super::cause::{Cause, Causes, TimedCause, words};
use super::fields::is_default;
use crate::files::{self, failed};
use crate::lifecycle::failure::{Blame, End, Failure};

/// The format version of the lines.
pub const FORMAT: u32 = 1;

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The format version: [`FORMAT`].
    pub format: u32,
    /// `namespace/name`.
    pub key: String,
    /// Its causes, in the order of their arrival. Never empty.
    pub causes: Vec<TimedCause>,
    /// The number of further causes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more_causes: usize,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Consecutive failed jobs of this key before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures_before: u32,
    /// Its decisions, in order. Empty if the desired state is invalid, or if nothing was left of the key.
    pub decisions: Vec<Decision>,
    /// Its result.
    pub came: JobResult,
    /// Its effects. The journal names the objects.
    pub effects: Effects,
}

/// One decision: a call of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `GUEST/KEY#N`.
    pub id: String,
    /// The number of the call's entry in the instance's journal.
    pub n: Option<u64>,
    /// `interface.function`.
    pub call: String,
    /// Whether everything is to be removed: the key, or an earlier UID of it, is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes: bool,
    /// Name of the guest.
    pub guest: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and its digest.
    pub digest: String,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The number of its questions.
    pub asked: u32,
    /// Its error or interruption. `None` if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The file with its recording, as far as the host knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
    /// Its trace id, if it was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// The result of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum JobResult {
    /// The observed state is the desired state.
    True,
    /// The key and all its objects are gone.
    Gone,
    /// It was interrupted while it slept: for a newer input or version, or for a stop.
    Interrupted,
    /// It failed, and the host retries.
    Failed {
        /// One line.
        error: String,
    },
    /// The guest failed, not a backend.
    Fault {
        /// One line.
        error: String,
    },
    /// The input is invalid: no guest was called, and nothing happens until the input changes.
    Refused {
        /// One line.
        error: String,
    },
    /// Its last call has no ending: a host still runs it, or ended inside it. No line of a key has this.
    #[default]
    Open,
}

impl Record {
    /// Whether the job only continues what an earlier one began.
    pub fn goes_on(&self) -> bool {
        self.causes.iter().all(|timed| timed.cause.goes_on())
    }
}

impl Decision {
    /// The call of entry `n` begins. Nothing came of it yet.
    pub(super) fn new(of: Identity, n: Option<u64>, call: &str, began_ms: u64) -> Self {
        Self {
            id: of.decision(n),
            n,
            call: call.to_owned(),
            guest: of.guest,
            version: of.version,
            digest: of.digest,
            began_ms,
            ..Self::default()
        }
    }
}

impl From<&End> for JobResult {
    fn from(end: &End) -> Self {
        match end.clone() {
            Ok(false) => Self::True,
            Ok(true) => Self::Gone,
            Err(Failure { error, blame, .. }) => match blame {
                Blame::Cut => Self::Interrupted,
                Blame::Host => Self::Failed { error },
                Blame::Guest => Self::Fault { error },
            },
        }
    }
}

/// A job in progress.
#[derive(Debug)]
pub(crate) struct JobRecorder {
    /// `None` in a plan: nothing is written.
    file: Option<PathBuf>,
    /// The line, without what only the end of the job shows.
    record: Record,
    began: Instant,
    /// The current call.
    open: Option<OpenCall>,
}

/// A call in progress.
#[derive(Debug)]
struct OpenCall {
    decision: Decision,
    began: Instant,
    span: Span,
}

impl JobRecorder {
    /// Begins a job of `key`. `file`: the file of the key; in a plan `None`, and nothing is written.
    pub(crate) fn new(file: Option<PathBuf>, key: String, why: Causes, failures_before: u32) -> Self {
        let record = Record {
            format: FORMAT,
            key,
            causes: why.causes,
            more_causes: why.more,
            began_ms: SystemClock.now_ms(),
            failures_before,
            ..Record::default()
        };
        Self {
            file,
            record,
            began: Instant::now(),
            open: None,
        }
    }

    /// Nothing changed: the job only looks whether all is still as it should be.
    pub(crate) fn is_resync(&self) -> bool {
        matches!(self.record.causes.as_slice(), [timed] if matches!(timed.cause, Cause::Resync { .. }))
    }

    /// A call of the guest is about to begin, answered by `host`. Returns the span of the call.
    pub(crate) fn begin(&mut self, host: &Host, call: &str, removes: bool) -> Span {
        let journal = host.tape.journal();
        let n = journal.map(Journal::next_n);
        let record = &self.record;
        let span = span(host, call, &record.key, || words(&record.causes, record.more_causes));
        let decision = Decision {
            removes,
            recording: journal.and_then(Journal::segment_path).map(Path::to_owned),
            trace: trace_of(&span),
            ..Decision::new(host.identity.clone(), n, call, SystemClock.now_ms())
        };
        self.open = Some(OpenCall {
            decision,
            began: Instant::now(),
            span: span.clone(),
        });
        span
    }

    /// The call returned, with any result.
    pub(crate) fn asked(&mut self, questions: u32) {
        if let Some(open) = &mut self.open {
            open.decision.asked = questions;
        }
    }

    /// The result of the call is known. Does nothing without a call.
    pub(crate) fn end_call<A>(&mut self, answer: &Result<A, Failure>) {
        if let Some(OpenCall { decision, began, span }) = self.open.take() {
            let error = answer.as_ref().err().map(|failure| failure.error.as_str());
            came(&span, error);
            self.record.decisions.push(Decision {
                took_ms: elapsed_ms(began),
                error: error.map(str::to_owned),
                ..decision
            });
        }
    }

    /// The job ended. If the line cannot be written, only explanations lack it, so the host just logs the error.
    pub(crate) fn end(self, came: JobResult, effects: Effects) {
        let Some(file) = self.file else { return };
        let record = Record {
            took_ms: elapsed_ms(self.began),
            came,
            effects,
            ..self.record
        };
        if let Err(error) = append(&file, &record) {
            tracing::warn!(key = record.key, "why it was done is not kept: {error}");
        }
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The target of the spans of decisions. The spans of the questions in them have
/// [`trueup_capabilities::trace::TARGET`].
pub const SPAN_TARGET: &str = "trueup::decision";

/// How to find the trace id of a span, which is `None` if the span is not recorded.
static TRACE_OF: OnceLock<fn(&Span) -> Option<String>> = OnceLock::new();

/// Sets how to find the trace id of a span, for the whole process. Only the first call has an effect.
pub fn name_traces(with: fn(&Span) -> Option<String>) {
    // Ignore the error: a process has only one trace collector.
    let _ = TRACE_OF.set(with);
}

/// The trace id of the span, in hexadecimal digits.
fn trace_of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let trace = TRACE_OF.get().and_then(|trace_of| trace_of(span))?;
    span.record("trace", trace.as_str());
    Some(trace)
}

/// The span of a call that is about to begin, in a new trace: the context of its log lines. The program decides whether
/// anything subscribes to spans. With tracing disabled, the callsite is off and costs nothing. `docs/tracing.md` lists
/// the fields of a span.
pub(crate) fn span(host: &Host, call: &str, key: &str, cause: impl FnOnce() -> String) -> Span {
    let span = tracing::info_span!(
        target: SPAN_TARGET,
        parent: None,
        "decision",
        otel.name = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
        guest = Empty,
        version = Empty,
        digest = Empty,
        key = Empty,
        decision = Empty,
        call = Empty,
        cause = Empty,
        outcome = Empty,
        trace = Empty,
    );
    if !span.is_disabled() {
        let of = &host.identity;
        span.record("otel.name", format!("{} {key}", function_of(call)))
            .record("guest", of.guest.as_str())
            .record("version", of.version.as_str())
            .record("digest", of.digest.as_str())
            .record("key", key)
            .record("decision", of.decision(host.tape.journal().map(Journal::next_n)))
            .record("call", call)
            .record("cause", cause());
    }
    span
}

/// The function of a call, without its interface.
pub(super) fn function_of(call: &str) -> &str {
    call.split_once('.').map_or(call, |(_, function)| function)
}

/// Records the result. `None` if it succeeded.
pub(crate) fn came(span: &Span, error: Option<&str>) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", error.unwrap_or("ok"));
    if let Some(error) = error {
        span.record("otel.status_code", "error");
        span.record("otel.status_description", error);
    }
}

/// At this size a file becomes the old one. At 1 KiB a job this holds some two hundred jobs, and the old file as many.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// The file of a key.
pub(crate) fn path(state_dir: &Path, guest: &str, key: &str) -> PathBuf {
    let name = format!("{}.jsonl", trueup_journal::path_component(key));
    trueup_journal::guest_dir(&state_dir.join("decisions"), guest).join(name)
}

fn old(file: &Path) -> PathBuf {
    file.with_extension("old.jsonl")
}

/// Appends one line. The duration does not depend on the number of lines.
///
/// # Errors
/// If it cannot be written, with the name of the file.
pub(super) fn append(file: &Path, record: &Record) -> io::Result<()> {
    let named = failed("writing", file);
    let mut line = b"\n".to_vec();
    serde_json::to_writer(&mut line, record)?;
    line.push(b'\n');
    let mut out = open(file).map_err(&named)?;
    let mut bytes = out.metadata().map_err(&named)?.len();
    if bytes > 0 && bytes + line.len() as u64 > FILE_BYTES_MAX {
        fs::rename(file, old(file)).map_err(&named)?;
        out = open(file).map_err(&named)?;
        bytes = 0;
    }
    // A process that was killed in the middle of a line left no newline.
    let is_whole = bytes == 0 || ends_a_line(&mut out).map_err(&named)?;
    let line = line.get(usize::from(is_whole)..).unwrap_or_default();
    out.write_all(line).map_err(named)
}

fn open(file: &Path) -> io::Result<File> {
    folder::make(regular::folder_of(file), Durable::No)?;
    regular::open_own(OpenOptions::new().read(true).append(true).create(true), file)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The lines of a key, oldest first; empty if there is no file. Unreadable lines (torn, or from a newer host) are
/// counted.
///
/// # Errors
/// If the file exists and cannot be read, with its name.
pub(super) fn read(file: &Path) -> io::Result<(Vec<Record>, usize)> {
    let mut records = Vec::new();
    let mut unread = 0;
    // Read the newer one first: if the files rotate in between, lines come twice instead of never.
    let newer = lines(file)?;
    let all = [lines(&old(file))?, newer];
    let all = all.iter().flat_map(|lines| lines.split(|byte| *byte == b'\n'));
    for line in all.filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Record>(line) {
            Ok(record) if record.format == FORMAT => records.push(record),
            _ => unread += 1,
        }
    }
    records.dedup();
    Ok((records, unread))
}

fn lines(file: &Path) -> io::Result<Vec<u8>> {
    match regular::read(file, regular::LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(failed("reading", file)),
    }
}

/// Every key of a guest that has a file. Keys with shortened names are left out: operators do not type them.
///
/// # Errors
/// If the folder exists and cannot be listed.
pub(super) fn keys(state_dir: &Path, guest: &str) -> io::Result<BTreeSet<String>> {
    let folder = trueup_journal::guest_dir(&state_dir.join("decisions"), guest);
    let keys = names(&folder, |name| {
        let stem = name.strip_suffix(".jsonl")?;
        trueup_journal::key_of(stem.strip_suffix(".old").unwrap_or(stem))
    })?;
    Ok(keys.into_iter().collect())
}

/// The names in a folder, mapped by `named`. Empty if the folder does not exist.
pub(super) fn names(folder: &Path, named: impl Fn(&str) -> Option<String>) -> io::Result<Vec<String>> {
    let of = |path: PathBuf| path.file_name()?.to_str().and_then(&named);
    files::listed(folder, of).map_err(failed("listing", folder))
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::meter::Effects;

    use super::super::{Cause, JobResult, TimedCause};
    use super::*;

    fn record(at_ms: u64, error: &str) -> Record {
        Record {
            format: FORMAT,
            key: "default/web".to_owned(),
            causes: vec![TimedCause {
                at_ms,
                cause: Cause::Resync { by_operator: false },
            }],
            more_causes: 0,
            began_ms: at_ms,
            took_ms: 1,
            failures_before: 0,
            decisions: Vec::new(),
            came: JobResult::Failed {
                error: error.to_owned(),
            },
            effects: Effects::default(),
        }
    }

    fn numbers(file: &Path) -> (Vec<u64>, usize) {
        let (records, unread) = read(file).unwrap();
        (records.iter().map(|record| record.began_ms).collect(), unread)
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_a_torn_one_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "lbaas", "default/web");
        assert_eq!(file, dir.path().join("decisions/lbaas/default%2Fweb.jsonl"));
        assert_eq!(numbers(&file), (vec![], 0));
        append(&file, &record(1, "a")).unwrap();
        let whole = fs::metadata(&file).unwrap().len();
        append(&file, &record(2, "b")).unwrap();
        for cut in [whole + 1, whole + 20, whole * 2 - 1] {
            let out = OpenOptions::new().write(true).open(&file).unwrap();
            out.set_len(cut).unwrap();
            append(&file, &record(3, "c")).unwrap();
            let (numbers, unread) = numbers(&file);
            // A line without its newline is complete.
            if cut == whole * 2 - 1 {
                assert_eq!((numbers, unread), (vec![1, 2, 3], 0));
            } else {
                assert_eq!((numbers, unread), (vec![1, 3], 1), "{cut}");
            }
            fs::write(&file, b"").unwrap();
            append(&file, &record(1, "a")).unwrap();
            append(&file, &record(2, "b")).unwrap();
        }
        assert_eq!(keys(dir.path(), "lbaas").unwrap(), ["default/web".to_owned()].into());
        assert_eq!(keys(dir.path(), "ipam").unwrap(), BTreeSet::new());
    }

    #[test]
    fn a_long_file_becomes_the_old_one_and_neither_grows_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "lbaas", "default/web");
        let long = "x".repeat(10_000);
        for at in 0..100 {
            append(&file, &record(at, &long)).unwrap();
        }
        for file in [&file, &old(&file)] {
            let bytes = fs::metadata(file).unwrap().len();
            assert!(bytes > 0 && bytes <= FILE_BYTES_MAX, "{bytes}");
        }
        let (numbers, unread) = numbers(&file);
        assert_eq!(unread, 0);
        assert_eq!(numbers.last(), Some(&99));
        assert!(numbers.len() > 25 && numbers.is_sorted(), "{numbers:?}");
        assert_eq!(keys(dir.path(), "lbaas").unwrap(), ["default/web".to_owned()].into());
    }
}
