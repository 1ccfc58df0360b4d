//! What a run reports to its caller.

use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::text::counted;

use crate::lifecycle::quarantine::SetAside;
use crate::swap;

/// What a run reports to its caller.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A manifest can't be read or is not used, or the list of network interfaces can't be read any more.
    Problem(String),
    /// No manifest names the key, but its objects are kept: one that can't be read may name it.
    Held {
        /// `namespace/name`.
        key: String,
        /// What can't be read, such as `a manifest can't be read, or the folder has none`.
        why: &'static str,
    },
    /// A key failed.
    Failed {
        /// `namespace/name`.
        key: String,
        /// One line.
        error: String,
        /// When the host tries it again. `None` if it has given up.
        again_in_ms: Option<u64>,
    },
    /// An input is set aside. What is applied stays until the input or the guest changes.
    Quarantined {
        /// `namespace/name`.
        key: String,
        /// One line.
        error: String,
        /// How often the guest failed with it.
        failures: u32,
        /// The folder of its recording.
        journal: PathBuf,
    },
    /// Another configuration is to replace the one before.
    Reloaded {
        /// The file from which it was read.
        file: PathBuf,
    },
    /// Another version of a guest became active, or should have.
    Guest(swap::Event),
    /// An event of one kind of work, such as what came of a key.
    #[serde(untagged)]
    Own(WorldEvent),
}

impl Event {
    /// The line about it. `None` if there is none: the status shows it.
    pub fn said(&self) -> Option<Message> {
        Some(match self {
            Self::Problem(problem) => Message::Warning(problem.clone()),
            Self::Held { key, why } => Message::outcome(key, "held", &format!("its objects are kept while {why}")),
            Self::Failed {
                key,
                error,
                again_in_ms,
            } => Message::failed(key, error, *again_in_ms),
            Self::Quarantined {
                key,
                error,
                failures,
                journal,
            } => {
                let until = format!("until it or the guest changes, its recording is {}", journal.display());
                Message::set_aside(key, error, *failures, &until)
            }
            Self::Reloaded { file } => Message::Line(format!("{} is read again and taken", file.display())),
            Self::Guest(swap::Event::Activated(activated)) => {
                Message::outcome(&activated.guest, "active", &activated.to_string())
            }
            Self::Guest(swap::Event::Refused(why)) => Message::Warning(why.clone()),
            Self::Own(own) => return own.said.clone(),
        })
    }
}

/// One line about an event, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The outcome of something.
    Line(String),
    /// Something is not as it should be, and the host goes on. Without the word `warning`.
    Warning(String),
}

impl Message {
    /// The outcome of `key`, in columns.
    pub fn outcome(key: &str, state: &str, more: &str) -> Self {
        Self::Line(format!("{key:<24} {state:<8} {more}"))
    }

    /// `key` failed. `again_in_ms`: when the host tries again; `None` if it has given up.
    pub fn failed(key: &str, error: &str, again_in_ms: Option<u64>) -> Self {
        match again_in_ms {
            Some(ms) => Self::Warning(format!("{key}: {error}; trying again in {}", seconds(ms))),
            None => Self::outcome(key, "failed", error),
        }
    }

    /// `key` is set aside after so many failures. `until`: when the host goes on with it.
    pub fn set_aside(key: &str, error: &str, failures: u32, until: &str) -> Self {
        let times = counted(failures, "time", "times");
        Self::outcome(key, "failed", &format!("{error}; set aside after {times} {until}"))
    }
}

/// Milliseconds as text, such as `1.5 s`.
pub fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

/// An event of one kind of work, which words it for people and for programs.
#[derive(Debug, Clone)]
pub struct WorldEvent {
    /// The name of the event in JSON.
    name: &'static str,
    /// Its content there.
    json: Box<RawValue>,
    said: Option<Message>,
}

impl WorldEvent {
    /// `name`: the name in JSON, where `event` is the content. `said`: the line about it; `None` if there is none.
    pub fn new(name: &'static str, event: &impl Serialize, said: Option<Message>) -> Self {
        // An event has only keys that are texts, so it has a form in JSON.
        let json = to_raw_value(event).unwrap_or_default();
        Self { name, json, said }
    }
}

impl Serialize for WorldEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.name, &self.json)])
    }
}

impl From<&SetAside> for Event {
    fn from(entry: &SetAside) -> Self {
        Self::Quarantined {
            key: entry.instance.clone(),
            error: entry.error.clone(),
            failures: entry.failures,
            journal: entry.journal.clone(),
        }
    }
}
