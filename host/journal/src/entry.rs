//! The entry in one line of a journal, and its strict parser.
//!
//! Values (arguments, answers, results) keep their original text: they are not reformatted, and not parsed before they
//! are needed. `line.rs` writes lines.
//!
//! *Order*: the one grammar that writer, reader and tape share.
//!
//! ```text
//! segment = header ask* call* rolled-back?      call = "call" ask* ending
//! ```
//! A segment may end anywhere, and be rolled back wherever it ends; another segment follows then. After a question
//! without an answer only the failed ending of its call may follow: the guest, left without an answer, did nothing
//! more.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::line;

/// The version of the line formats that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// The first line of a segment: the guest that it records, and its initial state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the line formats: [`FORMAT`].
    pub format: u32,
    /// Name of the guest.
    pub guest: String,
    /// Version of the guest.
    pub version: String,
    /// Digest of the guest's component, as `sha256:...`.
    pub digest: String,
    /// The world that the guest implements.
    pub world: String,
    /// Version of the host that recorded.
    pub host: String,
    /// The settings given to the guest's `init`.
    pub settings: Box<RawValue>,
    /// The limits under which the guest ran.
    pub limits: Box<RawValue>,
    /// The guest's state before the first entry, to be restored after `init`; `None` if there is nothing to restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// One line of a journal.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Number of the entry: counts up by one across all segments of an instance.
    pub n: u64,
    /// The event.
    pub event: Event,
}

/// The event of an entry.
#[derive(Debug, Clone)]
pub enum Event {
    /// A segment begins.
    Header(Box<Header>),
    /// The host called an export of the guest.
    Call(Call),
    /// The guest asked the host.
    Ask(Ask),
    /// The call ended.
    Ending(Ending),
    /// The instance's stored data was lost before it was durable: the entries up to this number are valid, later ones
    /// are not.
    RolledBack(u64),
}

/// A call of one of the guest's exports.
#[derive(Debug, Clone)]
pub struct Call {
    /// The host's clock when the call began, in milliseconds.
    pub at_ms: u64,
    /// `interface.function`.
    pub name: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
    /// The other guest's question that this call answers; `None` for the host's own calls.
    pub by: Option<By>,
    /// What the call is about, where its arguments do not name it: the pod of a request for an address,
    /// `namespace/name`. The guest does not get it.
    pub about: Option<String>,
}

/// The cause of a call: an entry in the recording of another instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct By {
    /// Name of the guest.
    pub guest: String,
    /// The key of its instance.
    pub instance: String,
    /// The number of the entry; `None` if that instance records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

/// The other guest's question that a call answers, and what the call is about where its arguments do not name it.
pub type Origin<'a> = (Option<&'a By>, Option<&'a str>);

/// A question of the guest, and its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// `interface.function`.
    #[serde(rename = "ask")]
    pub name: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
    /// The answer; `None` if the call ended before an answer reached the guest.
    #[serde(deserialize_with = "present")]
    pub answer: Option<Box<RawValue>>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// The guest returned this; null for a function without a result.
    Result(Box<RawValue>),
    /// The guest trapped, or was stopped because of a forbidden question.
    Trap(String),
    /// The guest exceeded the computing time of a call.
    Deadline(String),
    /// The guest exceeded the memory of an instance.
    Memory(String),
    /// The host cancelled the call: a stop, a swap, or a newer input.
    Cancelled(String),
}

impl Ending {
    /// The ending of a call that returned `value`.
    pub fn result<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self::Result)
    }

    /// Whether the instance is gone with this call: true for everything but a result.
    pub fn failed(&self) -> bool {
        !matches!(self, Self::Result(_))
    }

    /// The key of the ending in its line, and the value as JSON text or as plain text.
    pub fn parts(&self) -> (&'static str, Result<&RawValue, &str>) {
        match self {
            Self::Result(value) => ("result", Ok(value)),
            Self::Trap(text) => ("trap", Err(text)),
            Self::Deadline(text) => ("deadline", Err(text)),
            Self::Memory(text) => ("memory", Err(text)),
            Self::Cancelled(text) => ("cancelled", Err(text)),
        }
    }
}

/// The calls among the entries of a segment, each with its questions, and with its ending if it has one.
pub fn calls(entries: &[Entry]) -> impl DoubleEndedIterator<Item = &[Entry]> {
    let is_within = |_: &Entry, next: &Entry| !matches!(next.event, Event::Call(_) | Event::RolledBack(_));
    let parts = entries.chunk_by(is_within);
    parts.filter(|part| part.first().is_some_and(|entry| entry.call().is_some()))
}

/// The questions at the beginning of these entries: of all of a segment, those of `init` and `restore`.
pub fn first_asks(entries: &[Entry]) -> &[Entry] {
    let is_ask = |entry: &&Entry| matches!(entry.event, Event::Ask(_));
    let count = entries.iter().take_while(is_ask).count();
    entries.get(..count).unwrap_or_default()
}

impl Entry {
    /// The call that it begins. `None` if it is another event.
    pub fn call(&self) -> Option<&Call> {
        let Event::Call(call) = &self.event else { return None };
        Some(call)
    }

    /// Parses one line, without its newline. Unknown, missing and repeated keys are errors.
    ///
    /// # Errors
    /// Why the line is not a valid entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        // serde would also accept an array of the fields in order.
        if !text.starts_with('{') {
            return Err("not a JSON object".to_owned());
        }
        let mut line: Line<'_> = serde_json::from_str(text).map_err(|error| reason(&error))?;
        let endings = [
            line.result.map(Ending::Result),
            line.trap.map(Ending::Trap),
            line.deadline.map(Ending::Deadline),
            line.memory.map(Ending::Memory),
            line.cancelled.map(Ending::Cancelled),
        ];
        let mut endings = endings.into_iter().flatten();
        let ending = endings.next();
        if endings.next().is_some() {
            return Err("more than one ending".to_owned());
        }
        let call = (line.at_ms, line.call);
        let ask = (line.ask, line.answer);
        let event = match (line.header, call, line.args, ask, ending, line.rolled_back) {
            (Some(header), (None, None), None, (None, None), None, None) => Event::Header(parse_header(header)?),
            (None, (Some(at_ms), Some(name)), Some(args), (None, None), None, None) => Event::Call(Call {
                at_ms,
                name,
                args,
                by: line.by.take(),
                about: line.about.take(),
            }),
            (None, (None, None), Some(args), (Some(name), answer), None, None) => {
                Event::Ask(Ask { name, args, answer })
            }
            (None, (None, None), None, (None, None), Some(ending), None) => Event::Ending(ending),
            (None, (None, None), None, (None, None), None, Some(last_valid)) => Event::RolledBack(last_valid),
            _ => return Err(NO_ENTRY.to_owned()),
        };
        if line.by.is_some() || line.about.is_some() {
            return Err("`by` and `about` go with `call` alone".to_owned());
        }
        Ok(Self { n: line.n, event })
    }

    /// The line that [`Entry::parse`] reads, without a newline.
    pub fn to_line(&self) -> String {
        let mut line = Vec::new();
        match &self.event {
            Event::Header(header) => line::header(&mut line, self.n, header),
            Event::Call(call) => {
                let of = (call.by.as_ref(), call.about.as_deref());
                line::call(&mut line, self.n, (call.at_ms, &call.name, &call.args), of);
            }
            Event::Ask(ask) => {
                line::ask(&mut line, self.n, &ask.name);
                line.extend_from_slice(ask.args.get().as_bytes());
                if let Some(answer) = &ask.answer {
                    line.extend_from_slice(line::ANSWER);
                    line.extend_from_slice(answer.get().as_bytes());
                }
            }
            Event::Ending(ending) => line::ending(&mut line, self.n, ending),
            Event::RolledBack(last_valid) => line::rolled_back(&mut line, self.n, *last_valid),
        }
        line::finish(&mut line);
        line.pop();
        String::from_utf8_lossy(&line).into_owned()
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.event {
            Event::Header(_) => Kind::Header,
            Event::Call(_) => Kind::Call,
            Event::Ask(ask) => Kind::Ask {
                answered: ask.answer.is_some(),
            },
            Event::Ending(ending) => Kind::Ending {
                failed: ending.failed(),
            },
            Event::RolledBack(_) => Kind::RolledBack,
        }
    }
}

const NO_ENTRY: &str = "its keys make up no entry: expected `header`, or `at_ms`, `call` and `args`, or `ask`, `args` \
                        and perhaps `answer`, or one of `result`, `trap`, `deadline`, `memory` and `cancelled`, or \
                        `rolled-back`";

/// All keys of any entry; their valid combinations are checked later.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    n: u64,
    #[serde(borrow, default, deserialize_with = "present")]
    header: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    at_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    call: Option<String>,
    #[serde(default, deserialize_with = "present")]
    args: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    ask: Option<String>,
    #[serde(default, deserialize_with = "present")]
    answer: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    trap: Option<String>,
    #[serde(default, deserialize_with = "present")]
    deadline: Option<String>,
    #[serde(default, deserialize_with = "present")]
    memory: Option<String>,
    #[serde(default, deserialize_with = "present")]
    cancelled: Option<String>,
    #[serde(default, deserialize_with = "present")]
    by: Option<By>,
    #[serde(default, deserialize_with = "present")]
    about: Option<String>,
    #[serde(rename = "rolled-back", default, deserialize_with = "present")]
    rolled_back: Option<u64>,
}

/// A key that is present, even with null: the answer of a function without a result is null, which differs from no
/// answer.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

fn parse_header(raw: &RawValue) -> Result<Box<Header>, String> {
    /// The common part of all formats, so that a newer one is named and not reported as damage.
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    if !raw.get().starts_with('{') {
        return Err("`header` is not a JSON object".to_owned());
    }
    let invalid = |error: serde_json::Error| format!("`header`: {}", reason(&error));
    let Format { format } = serde_json::from_str(raw.get()).map_err(invalid)?;
    if format != FORMAT {
        let reads = format!("this trueup reads format {FORMAT}");
        return Err(format!("written in format {format}, and {reads}"));
    }
    serde_json::from_str(raw.get()).map_err(invalid)
}

/// serde_json's message with only the column: its line is always 1 and would be mistaken for the file's.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(message) => format!("{message} at column {}", error.column()),
        None => text,
    }
}

/// The kind of an entry, as far as order goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Header,
    Call,
    Ask { answered: bool },
    Ending { failed: bool },
    RolledBack,
}

/// The position within a segment, after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before the header.
    Start,
    /// After the header: questions now belong to `init` and `restore`.
    Starting,
    /// A question of `init` or `restore` got no answer.
    StartRefused,
    /// Between two calls; `failed`: the last one ended the instance.
    Between { failed: bool },
    /// Inside a call.
    InCall,
    /// Inside a call, after a question without an answer.
    CallRefused,
    /// After a rollback: the instance is gone, and some of the entries are invalid.
    RolledBack,
}

impl Position {
    /// The position after an entry of this kind, or why none is allowed here.
    pub(crate) fn then(self, kind: Kind) -> Result<Self, &'static str> {
        match (self, kind) {
            (Self::Start, Kind::Header) => Ok(Self::Starting),
            (Self::Start, _) => Err("the first entry of a segment must be its header"),
            (_, Kind::Header) => Err("a header inside a segment"),
            (Self::RolledBack, _) => Err("an entry after a rollback"),
            (_, Kind::RolledBack) => Ok(Self::RolledBack),
            (Self::Starting | Self::InCall, Kind::Ask { answered: true }) => Ok(self),
            (Self::Starting, Kind::Ask { answered: false }) => Ok(Self::StartRefused),
            (Self::StartRefused, _) => Err("an entry after a question that got no answer"),
            (Self::Starting | Self::Between { .. }, Kind::Call) => Ok(Self::InCall),
            (Self::Starting | Self::Between { .. }, Kind::Ending { .. }) => Err("an ending outside any call"),
            (Self::Between { .. }, Kind::Ask { .. }) => Err("a question outside any call"),
            (Self::InCall | Self::CallRefused, Kind::Call) => Err("a call inside a call"),
            (Self::InCall, Kind::Ask { answered: false }) => Ok(Self::CallRefused),
            (Self::CallRefused, Kind::Ask { .. }) => Err("a question after one that got no answer"),
            (Self::CallRefused, Kind::Ending { failed: false }) => Err("a result after a question that got no answer"),
            (Self::InCall | Self::CallRefused, Kind::Ending { failed }) => Ok(Self::Between { failed }),
        }
    }

    /// Whether a call has begun and not ended.
    pub(crate) fn inside_call(self) -> bool {
        matches!(self, Self::InCall | Self::CallRefused)
    }

    /// Whether the instance of the entries so far can continue: no call failed or is open.
    pub(crate) fn can_go_on(self) -> bool {
        matches!(self, Self::Starting | Self::Between { failed: false })
    }
}
