//! The outcome of a replay, and its text.
//!
//! `tape/progress.rs` compares; this file only stores and renders the result.

use std::fmt::Display;

use serde::Serialize;
use trueup_base::text::counted;

use crate::difference::{Difference, render_differences, shorten, shorten_pair};

/// The outcome of a replay. Its text is one line, followed by details indented by two; no trailing line break.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest asked the same questions and gave the same results.
    #[error("identical: {}{}", .0, after("; ", .0.reads.as_ref()))]
    Identical(Tally),
    /// As `Identical`, but the recording ends early.
    #[error("identical as far as recorded: {tally}; {why}{}", after("; ", tally.reads.as_ref()))]
    IdenticalAsFarAsRecorded {
        /// What was compared.
        #[serde(flatten)]
        tally: Tally,
        /// Why there is no more: where the recording ends, or what ended a call.
        why: String,
    },
    /// The guest behaved differently than in the recording.
    #[error("diverged at entry {n}{}\n{divergence}", after(": ", divergence.subject()))]
    Diverged {
        /// The entry where it did.
        n: u64,
        /// What differs.
        divergence: Divergence,
    },
    /// The guest asked a question without a recorded answer. When comparing decisions, this is a read, so the recording
    /// can't show how the guest decides; otherwise the recorded call had ended.
    #[error("asked something never recorded at entry {n}\n  asked: {asked}{}", after("\n  ", elsewhere.map(answers)))]
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
    #[error("{} unused from entry {n} on{}", counted(*count, "entry", "entries"), after("\n", ending.as_ref()))]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}, {}{}", counted(*calls, "call", "calls"), counted(*entries, "entry", "entries"),
    after(", ", accepted_differences(*accepted)))]
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

/// The difference at one entry. Its text has lines indented by two, and no trailing line break.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Divergence {
    /// The recorded question, with other arguments.
    #[error("{}", render_differences(differences, "recorded", "replayed", "  ").trim_end_matches('\n'))]
    Args {
        /// The question.
        ask: String,
        /// Where the arguments differ.
        differences: Vec<Difference>,
    },
    /// Another question.
    #[error("  recorded: {recorded}\n  asked:    {asked}")]
    Question {
        /// The recorded question.
        recorded: Asked,
        /// The guest's question.
        asked: Asked,
    },
    /// A write that the recorded call does not have.
    #[error("  a write that was not recorded: {asked}")]
    Unrecorded {
        /// The guest's write.
        asked: Asked,
    },
    /// A recorded write that the guest did not make.
    #[error("  a recorded write was not made: {recorded}{}", after(", and ", more(*count)))]
    Unwritten {
        /// The recorded write.
        recorded: Asked,
        /// The number of such writes, including this one.
        count: u64,
    },
    /// The recorded answer is invalid for this question.
    #[error("  the recorded answer can't be given: {reason}")]
    Answer {
        /// The question.
        ask: String,
        /// Why it can't be read.
        reason: String,
    },
    /// Another result.
    #[error("{}", render_differences(differences, "recorded", "replayed", "  ").trim_end_matches('\n'))]
    Result {
        /// The call.
        call: String,
        /// Where the results differ.
        differences: Vec<Difference>,
    },
    /// Another ending, or a trap for another reason.
    #[error("  recorded: {}\n  replayed: {}", shorten_pair(recorded, replayed).0, shorten_pair(recorded, replayed).1)]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}, the first: {first}", counted(*count, "read differs", "reads differ"))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{name} {}", shorten(args))]
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
        matches!(self.divergence(), Some(Divergence::Ending { replayed, .. }) if replayed.starts_with("deadline "))
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

/// The value after this text. Empty without one.
fn after<T: Display>(text: &str, value: Option<T>) -> String {
    value.map_or_else(String::new, |value| format!("{text}{value}"))
}

fn answers(n: u64) -> String {
    format!("entry {n} answers it, but not after these writes")
}

fn more(count: u64) -> Option<String> {
    (count != 1).then(|| format!("{} more", count - 1))
}

fn accepted_differences(count: u64) -> Option<String> {
    (count > 0).then(|| counted(count, "accepted difference", "accepted differences"))
}

impl Divergence {
    /// The call or question that it is about, if there is only one.
    fn subject(&self) -> Option<String> {
        match self {
            Self::Args { ask: of, .. } | Self::Answer { ask: of, .. } => Some(format!("`{of}`")),
            Self::Result { call: of, .. } | Self::Ending { call: of, .. } => Some(format!("`{of}`")),
            Self::Question { .. } | Self::Unrecorded { .. } | Self::Unwritten { .. } => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
