//! What a replay came to, and the words for it.
//!
//! Comparing is done in `tape/replay.rs`; this file only holds and tells what was found.

use std::fmt;

use serde::Serialize;

use crate::difference::{Difference, render_differences, shorten, shorten_pair};

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest asked the same questions and gave the same results.
    Identical {
        /// Calls replayed.
        calls: u64,
        /// Entries of the recording, its header included.
        entries: u64,
    },
    /// The same, as far as there is anything to compare with.
    IdenticalAsFarAsRecorded {
        /// Calls replayed, the unfinished one included.
        calls: u64,
        /// Entries of the recording, its header included.
        entries: u64,
        /// Why there is no more: where the recording ends, or what ended a call.
        why: String,
    },
    /// The guest did something else than it did in the recording.
    Diverged {
        /// The entry at which it did.
        n: u64,
        /// What differs.
        divergence: Divergence,
    },
    /// The recorded call ended, and the guest asked on.
    AskedUnrecorded {
        /// The entry at which it did: the recorded ending, or the call that came next.
        n: u64,
        /// What it asked.
        asked: Asked,
    },
    /// The guest ended without having asked all that was recorded.
    Unused {
        /// The first entry not used.
        n: u64,
        /// How many were not.
        count: u64,
        /// How the call ended instead, where the recording knows another ending.
        ending: Option<Box<Divergence>>,
    },
}

/// What differs at one entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Divergence {
    /// The recorded question, with other arguments.
    Args {
        /// The question.
        ask: String,
        /// Where the arguments differ.
        differences: Vec<Difference>,
    },
    /// Another question.
    Question {
        /// What the recording has.
        recorded: Asked,
        /// What the guest asked.
        asked: Asked,
    },
    /// The recorded answer is none that this question can have.
    Answer {
        /// The question.
        ask: String,
        /// Why it can't be read.
        reason: String,
    },
    /// Another result.
    Result {
        /// The call.
        call: String,
        /// Where the results differ.
        differences: Vec<Difference>,
    },
    /// Another way to end, or a trap for another reason.
    Ending {
        /// The call.
        call: String,
        /// How it ended when it was recorded.
        recorded: String,
        /// How it ended in the replay.
        replayed: String,
    },
}

/// A question with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// `interface.function`.
    pub name: String,
    /// The arguments as JSON text.
    pub args: String,
}

impl Outcome {
    /// Whether nothing differs: identical, or identical as far as recorded.
    pub fn is_identical(&self) -> bool {
        matches!(self, Self::Identical { .. } | Self::IdenticalAsFarAsRecorded { .. })
    }
}

impl fmt::Display for Outcome {
    /// One line, and lines of detail indented by two; no line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical { calls, entries } => {
                write!(
                    f,
                    "identical: {}, {}",
                    count(*calls, "call", "calls"),
                    count(*entries, "entry", "entries")
                )
            }
            Self::IdenticalAsFarAsRecorded { calls, entries, why } => write!(
                f,
                "identical as far as recorded: {}, {}; {why}",
                count(*calls, "call", "calls"),
                count(*entries, "entry", "entries")
            ),
            Self::Diverged { n, divergence } => {
                write!(f, "diverged at entry {n}")?;
                if let Some(of) = divergence.subject() {
                    write!(f, ": `{of}`")?;
                }
                write!(f, "\n{divergence}")
            }
            Self::AskedUnrecorded { n, asked } => {
                write!(f, "asked something never recorded at entry {n}\n  asked: {asked}")
            }
            Self::Unused {
                n,
                count: unused,
                ending,
            } => {
                write!(f, "{} unused from entry {n} on", count(*unused, "entry", "entries"))?;
                match ending {
                    Some(divergence) => write!(f, "\n{divergence}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Divergence {
    /// The one call or question that it is about.
    fn subject(&self) -> Option<&str> {
        match self {
            Self::Args { ask, .. } | Self::Answer { ask, .. } => Some(ask),
            Self::Result { call, .. } | Self::Ending { call, .. } => Some(call),
            Self::Question { .. } => None,
        }
    }
}

impl fmt::Display for Divergence {
    /// Lines indented by two; no line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Args { differences, .. } | Self::Result { differences, .. } => {
                f.write_str(render_differences(differences, "recorded", "replayed", "  ").trim_end_matches('\n'))
            }
            Self::Question { recorded, asked } => write!(f, "  recorded: {recorded}\n  asked:    {asked}"),
            Self::Answer { reason, .. } => write!(f, "  the recorded answer can't be given: {reason}"),
            Self::Ending { recorded, replayed, .. } => {
                let (recorded, replayed) = shorten_pair(recorded, replayed);
                write!(f, "  recorded: {recorded}\n  replayed: {replayed}")
            }
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, shorten(&self.args))
    }
}

fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
