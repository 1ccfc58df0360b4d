//! How the questions of one capability are read in a recording: which grants they need, and what they wrote.
//!
//! Each capability says it once, in `binding.rs` or `reading.rs` of its folder; `questions.rs` lists them. A reader
//! sees recordings only: it asks no backend.

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use trueup_journal::{Ask, Call, Entry, Kind, Question};

use crate::bindings::neg::types::Endpoint;
use crate::grants::{Access, Grant};
use crate::questions;

/// The maximum length of a shown value, in characters: enough for an address, a name or a port, but not for an
/// annotation that holds a manifest.
pub const VALUE_CHARS_MAX: usize = 200;

/// A capability: its questions, and how to read them.
pub struct Capability {
    /// The package in `wit/` that declares its interface.
    pub package: &'static str,
    /// How a configuration grants it. `None` if it needs no grant.
    pub grant: Option<Granted>,
    /// Whether `destroy_max` and `destroy_percent` limit it.
    pub limits_destroying: bool,
    /// Its functions.
    pub functions: &'static [Function],
    /// A reader that has read nothing yet.
    pub reader: fn() -> Box<dyn Reading>,
}

/// How a configuration grants a capability.
pub struct Granted {
    /// Its name in `grants`.
    pub name: &'static str,
    /// What a scope is, besides `*`, in the words of an error.
    pub scope: &'static str,
    /// Whether a text is a scope. `*` is one.
    pub is_scope: fn(&str) -> bool,
    /// Scopes as a configuration may list them.
    pub example: &'static str,
}

/// A function that a guest may call.
pub struct Function {
    /// `interface.function`.
    pub name: &'static str,
    /// How to compare its questions.
    pub question: Question,
}

impl Function {
    /// A function that reads the world.
    pub(crate) const fn read(name: &'static str) -> Self {
        let question = question(Kind::Read, the_world);
        Self { name, question }
    }

    /// A function that changes the object that `object` names from its arguments.
    pub(crate) const fn write(name: &'static str, object: fn(&Value) -> String) -> Self {
        let question = question(Kind::Write, object);
        Self { name, question }
    }

    /// The same, with one answer for each element of the argument `list`; `object` names that of an element.
    pub(crate) const fn each(mut self, list: &'static str, object: fn(&Value) -> String) -> Self {
        self.question.list = Some(list);
        self.question.object = object;
        self
    }
}

/// A question with one answer about one object.
pub(crate) const fn question(kind: Kind, object: fn(&Value) -> String) -> Question {
    Question {
        kind,
        list: None,
        object,
    }
}

/// The object of a question that is about none in particular.
pub(crate) fn the_world(_: &Value) -> String {
    "the world".to_owned()
}

/// Reads the recordings of one guest. Every method but [`Reading::called`] and [`Reading::after`] gets questions of its
/// own capability alone.
pub trait Reading {
    /// Remembers what an answer shows: the readings of other questions may need it.
    fn learn(&mut self, _ask: &Ask) {}

    /// Takes in that a call begins.
    fn called(&mut self, _call: &Call) {}

    /// Takes in an entry of the same instance after the question was answered: some writes end later.
    fn after(&mut self, _entry: &Entry) {}

    /// Which grants a question needs. Empty if none.
    fn needs(&mut self, _ask: &Ask) -> Vec<Need> {
        Vec::new()
    }

    /// Completes the grant when every question was read.
    fn complete(&self, _grant: &mut Grant) {}

    /// What a question at entry `n` wrote, or was to write. Empty if it is a read.
    fn wrote(&self, _n: u64, _ask: &Ask) -> Vec<Write> {
        Vec::new()
    }

    /// The same for a question of a plan, where some objects are not there yet.
    fn planned(&self, ask: &Ask) -> Vec<Write> {
        self.wrote(0, ask)
    }
}

/// One need of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// This access to this scope.
    Access(Access, String),
    /// The question was refused with this text.
    Refused(String),
    /// Access to a scope that no recording shows.
    Unknown,
}

/// One object that a question wrote, or was to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Write {
    /// The entry number of the question. 0 in a plan, which has no recording.
    #[serde(skip_serializing_if = "is_zero")]
    pub n: u64,
    /// The action.
    pub action: Action,
    /// `backend`, `server`, `record`, `neg`, `key` (of etcd), `ruleset` (of nftables).
    pub kind: String,
    /// Its name, or its identifier if the recording does not contain the name. Empty if it has neither.
    pub name: String,
    /// Further details.
    pub details: String,
    /// Why the write failed. `None` if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For endpoints of a NEG: the operation that it started and that ends later. `None` if the write was complete when
    /// it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The action on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Created.
    Create,
    /// Applied again unchanged.
    Reset,
    /// Destroyed.
    Destroy,
    /// Stored.
    Store,
    /// Its endpoints were to be attached.
    Attach,
    /// Its endpoints were to be detached.
    Detach,
}

/// An operation that a write started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// Its number.
    pub number: u64,
    /// What it attaches or detaches.
    pub endpoints: Vec<Endpoint>,
    /// How it ended. `None` if the guest does not know yet, or if the record is no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<OperationEnd>,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperationEnd {
    /// The entry number of the guest's notification.
    pub n: u64,
    /// The time of the notification, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why it failed. `None` if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A text that a question stored, or was to store. That of a plan is whole.
pub(crate) fn stored(n: u64, ask: &Ask, kind: &str, name: String, text: &str) -> Write {
    let error = |answer: Value| answer.get("Err").map(ToString::to_string);
    let error = match &ask.answer {
        None => Some(NO_ANSWER.to_owned()),
        Some(answer) => parsed(answer).and_then(error),
    };
    Write {
        n,
        action: Action::Store,
        kind: kind.to_owned(),
        name,
        details: if n == 0 { text.to_owned() } else { cut(text) },
        error,
        operation: None,
    }
}

/// Why a question without an answer failed.
pub(crate) const NO_ANSWER: &str = "no answer";

/// The needs of a question with one answer: `needed`, unless its error is a refusal. A capability whose errors are
/// texts says so in words.
pub(crate) fn unless_refused(ask: &Ask, needed: impl FnOnce() -> Vec<Need>) -> Vec<Need> {
    let error = answer::<Result<IgnoredAny, Value>>(ask).and_then(Result::err);
    let refused = match &error {
        Some(Value::String(error)) => error.strip_prefix("access denied: "),
        Some(error) => error.get("AccessDenied").and_then(Value::as_str),
        None => None,
    };
    match refused {
        Some(what) => vec![Need::Refused(what.to_owned())],
        None => needed(),
    }
}

/// The access that a question needs: its function reads or writes.
pub(crate) fn access(ask: &Ask) -> Access {
    match questions::kind(&ask.name) {
        Kind::Read => Access::Read,
        Kind::Means | Kind::Write => Access::Write,
    }
}

/// The arguments of a question; `None` if they have another form.
pub(crate) fn args<T: DeserializeOwned>(ask: &Ask) -> Option<T> {
    parsed(&ask.args)
}

/// The answer of a question; `None` if it has none, or one of another form.
pub(crate) fn answer<T: DeserializeOwned>(ask: &Ask) -> Option<T> {
    parsed(ask.answer.as_ref()?)
}

/// A part of a recording; `None` if it has another form.
pub fn parsed<T: DeserializeOwned>(text: &RawValue) -> Option<T> {
    serde_json::from_str(text.get()).ok()
}

/// The text member of an object; empty if it has none.
pub(crate) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// The beginning of a text, at most [`VALUE_CHARS_MAX`] characters.
pub fn cut(text: &str) -> String {
    beginning(text, VALUE_CHARS_MAX)
}

/// The beginning of a text.
pub(crate) fn beginning(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
