//! A scenario as its file holds it: `file.rs` checks what was read, and `recorded.rs` writes one.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One scenario of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Written {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    pub(crate) guest: String,
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_init_error: Option<String>,
    /// Those that are not the default ones.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) limits: Map<String, Value>,
    #[serde(default)]
    pub(crate) given: Map<String, Value>,
    /// `None` only beside `expect_init_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<WrittenStep>>,
}

/// One step: the key of what it does, and the keys that may be beside it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct WrittenStep {
    #[serde(
        default,
        deserialize_with = "function_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advance_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<WrittenFault>,
    /// Only `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clear_faults: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation_done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restart: Option<Restart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_state: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_ending: Option<Ending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_timers: Option<Vec<(u64, Value)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_calls: Option<Vec<Asked>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) save: BTreeMap<String, String>,
}

/// A question that an instance asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Asked {
    /// `interface.function` in WIT spelling.
    #[serde(deserialize_with = "function")]
    pub call: String,
    /// By parameter name.
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// How a call ends without an answer, in the words of a recording, and what its text must contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The guest trapped.
    Trap(String),
    /// It met a limit of time.
    Deadline(String),
    /// It met the limit of its memory.
    Memory(String),
}

impl Ending {
    /// Its name in a recording, and the text.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Trap(text) => ("trap", text),
            Self::Deadline(text) => ("deadline", text),
            Self::Memory(text) => ("memory", text),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct WrittenFault {
    #[serde(deserialize_with = "function")]
    pub(crate) call: String,
    /// An answer is either an error or another value.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Value>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    /// `None`, which is null in a file: for ever.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub(crate) times: Option<u64>,
    #[serde(
        rename = "match",
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) matching: Option<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Restart {
    #[serde(default)]
    pub(crate) carry_state: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "as serde calls it")]
fn once() -> Option<u64> {
    Some(1)
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn is_once(times: &Option<u64>) -> bool {
    *times == once()
}

/// A value that is there, even if it is null.
fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(given).map(Some)
}

/// `interface.function` in WIT spelling.
fn function<'de, D: Deserializer<'de>>(given: D) -> Result<String, D::Error> {
    let text = String::deserialize(given)?;
    match text.split_once('.') {
        Some((interface, function)) if !interface.is_empty() && !function.is_empty() => Ok(text),
        _ => Err(D::Error::custom(format_args!(
            "was {text:?}, must be `interface.function`"
        ))),
    }
}

fn function_if_any<'de, D: Deserializer<'de>>(given: D) -> Result<Option<String>, D::Error> {
    function(given).map(Some)
}
