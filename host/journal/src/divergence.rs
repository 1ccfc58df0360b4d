//! The outcome of a replay, and its text.
//!
//! `tape/progress.rs` compares; this file only stores and renders the result.

use std::fmt;

use serde::Serialize;
use trueup_base::text::counted;

use crate::difference::{Difference, render_differences, shorten, shorten_pair};

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest asked the same questions and gave the same results.
    Identical(Tally),
    /// As `Identical`, but the recording ends early.
    IdenticalAsFarAsRecorded {
        /// What was compared.
        #[serde(flatten)]
        tally: Tally,
        /// Why there is no more: where the recording ends, or what ended a call.
        why: String,
    },
    /// The guest behaved differently than in the recording.
    Diverged {
        /// The entry where it did.
        n: u64,
        /// What differs.
        divergence: Divergence,
    },
    /// The guest asked a question without a recorded answer. When comparing decisions, this is a read, so the recording
    /// can't show how the guest decides; otherwise the recorded call had ended.
    AskedUnrecorded {
        /// The entry where it did: the recorded ending, or the next call.
        n: u64,
        /// Its question.
        asked: Asked,
        /// When comparing decisions: an entry with the same question, but after other writes.
        #[serde(skip_serializing_if = "Option::is_none")]
        elsewhere: Option<u64>,
    },
    /// The guest ended without asking all recorded questions.
    Unused {
        /// The first unused entry.
        n: u64,
        /// The number of unused entries.
        count: u64,
        /// How the call ended instead, if its recorded ending differs.
        ending: Option<Box<Divergence>>,
    },
}

/// How much was compared and is the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Calls replayed, including an unfinished one.
    pub calls: u64,
    /// Entries of the recording, including its header.
    pub entries: u64,
    /// Questions and results with differences that rules accept.
    #[serde(skip_serializing_if = "is_zero")]
    pub accepted: u64,
    /// Reads that only one side asked. `None` if there are none, or if all questions were compared in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
}

/// The difference at one entry.
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
        /// The recorded question.
        recorded: Asked,
        /// The guest's question.
        asked: Asked,
    },
    /// A write that the recorded call does not have.
    Unrecorded {
        /// The guest's write.
        asked: Asked,
    },
    /// A recorded write that the guest did not make.
    Unwritten {
        /// The recorded write.
        recorded: Asked,
        /// The number of such writes, including this one.
        count: u64,
    },
    /// The recorded answer is invalid for this question.
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
    /// Another ending, or a trap for another reason.
    Ending {
        /// The call.
        call: String,
        /// The recorded ending.
        recorded: String,
        /// The ending in the replay.
        replayed: String,
    },
}

/// Differing reads when comparing decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reads {
    /// Reads that one side asked more often than the other.
    pub count: u64,
    /// The first one, in words.
    pub first: String,
}

impl Reads {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        if self.first.is_empty() {
            self.first = other.first;
        }
    }
}

/// A question with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// `interface.function`.
    pub name: String,
    /// The arguments as JSON text.
    pub args: String,
}

impl Asked {
    pub(crate) fn new(name: &str, args: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            args: args.into(),
        }
    }
}

impl Outcome {
    /// Whether nothing differs: identical, or identical as far as recorded.
    pub fn is_identical(&self) -> bool {
        self.tally().is_some()
    }

    /// What was compared, if nothing differs.
    pub fn tally(&self) -> Option<&Tally> {
        match self {
            Self::Identical(tally) | Self::IdenticalAsFarAsRecorded { tally, .. } => Some(tally),
            _ => None,
        }
    }

    /// The entry at which the guest diverged.
    pub fn diverged_at(&self) -> Option<u64> {
        match self {
            Self::Diverged { n, .. } | Self::AskedUnrecorded { n, .. } | Self::Unused { n, .. } => Some(*n),
            Self::Identical { .. } | Self::IdenticalAsFarAsRecorded { .. } => None,
        }
    }

    fn divergence(&self) -> Option<&Divergence> {
        match self {
            Self::Diverged { divergence, .. } => Some(divergence),
            Self::Unused { ending, .. } => ending.as_deref(),
            _ => None,
        }
    }

    /// Whether a call used up its time in the replay but not in the recording.
    pub fn ran_out_of_time(&self) -> bool {
        let divergence = self.divergence();
        matches!(divergence, Some(Divergence::Ending { replayed, .. }) if replayed.starts_with("deadline "))
    }

    /// A one-line summary with the first of several differing fields.
    pub fn one_line(&self) -> String {
        let text = self.to_string();
        let (first, detail) = text.split_once('\n').unwrap_or((&text, ""));
        let several = match self.divergence() {
            Some(Divergence::Args { differences, .. } | Divergence::Result { differences, .. }) => differences.len(),
            _ => 0,
        };
        if several > 1 {
            let field = detail.lines().next().unwrap_or_default().trim();
            return format!("{first}: {field}, and {} more", several - 1);
        }
        let mut line = first.to_owned();
        for (at, detail) in detail.lines().enumerate() {
            line += if at == 0 { ": " } else { "; " };
            // The two-line form is aligned, the one-line form is not.
            match detail.trim().split_once("asked: ") {
                Some(("", asked)) => line += &format!("asked: {}", asked.trim_start()),
                _ => line += detail.trim(),
            }
        }
        line
    }
}

impl fmt::Display for Outcome {
    /// One line, followed by details indented by two; no trailing line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = self.tally().and_then(|tally| tally.reads.as_ref());
        let reads = reads.map_or_else(String::new, |reads| format!("; {reads}"));
        match self {
            Self::Identical(tally) => write!(f, "identical: {tally}{reads}"),
            Self::IdenticalAsFarAsRecorded { tally, why } => {
                write!(f, "identical as far as recorded: {tally}; {why}{reads}")
            }
            Self::Diverged { n, divergence } => {
                write!(f, "diverged at entry {n}")?;
                if let Some(of) = divergence.subject() {
                    write!(f, ": `{of}`")?;
                }
                write!(f, "\n{divergence}")
            }
            Self::AskedUnrecorded { n, asked, elsewhere } => {
                write!(f, "asked something never recorded at entry {n}\n  asked: {asked}")?;
                let answers = |n| write!(f, "\n  entry {n} answers it, but not after these writes");
                elsewhere.map_or(Ok(()), answers)
            }
            Self::Unused { n, count, ending } => {
                write!(f, "{} unused from entry {n} on", counted(*count, "entry", "entries"))?;
                ending.as_ref().map_or(Ok(()), |divergence| write!(f, "\n{divergence}"))
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = counted(self.calls, "call", "calls");
        write!(f, "{calls}, {}", counted(self.entries, "entry", "entries"))?;
        if self.accepted > 0 {
            let accepted = counted(self.accepted, "accepted difference", "accepted differences");
            write!(f, ", {accepted}")?;
        }
        Ok(())
    }
}

impl Divergence {
    /// The call or question that it is about, if there is only one.
    fn subject(&self) -> Option<&str> {
        match self {
            Self::Args { ask, .. } | Self::Answer { ask, .. } => Some(ask),
            Self::Result { call, .. } | Self::Ending { call, .. } => Some(call),
            Self::Question { .. } | Self::Unrecorded { .. } | Self::Unwritten { .. } => None,
        }
    }
}

impl fmt::Display for Divergence {
    /// Lines indented by two; no trailing line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Args { differences, .. } | Self::Result { differences, .. } => {
                f.write_str(render_differences(differences, "recorded", "replayed", "  ").trim_end_matches('\n'))
            }
            Self::Question { recorded, asked } => write!(f, "  recorded: {recorded}\n  asked:    {asked}"),
            Self::Unrecorded { asked } => write!(f, "  a write that was not recorded: {asked}"),
            Self::Unwritten { recorded, count } => {
                write!(f, "  a recorded write was not made: {recorded}")?;
                match count {
                    1 => Ok(()),
                    count => write!(f, ", and {} more", count - 1),
                }
            }
            Self::Answer { reason, .. } => write!(f, "  the recorded answer can't be given: {reason}"),
            Self::Ending { recorded, replayed, .. } => {
                let (recorded, replayed) = shorten_pair(recorded, replayed);
                write!(f, "  recorded: {recorded}\n  replayed: {replayed}")
            }
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = if self.count == 1 { "differs" } else { "differ" };
        let reads = counted(self.count, "read", "reads");
        write!(f, "{reads} {differ}, the first: {}", self.first)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, shorten(&self.args))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
