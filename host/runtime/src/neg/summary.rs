//! The result of a run of NEGs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Entry, Negs};

/// The result of a run of NEGs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Keys whose NEGs are in their desired state.
    pub succeeded: usize,
    /// Keys that failed, and why.
    pub failed: BTreeMap<String, String>,
    /// Endpoints in attachments that succeeded.
    pub attached: u64,
    /// Endpoints in detachments that succeeded.
    pub detached: u64,
    /// Objects that could not be read or were not used.
    pub problems: Vec<String>,
    /// Keys that nothing names but whose NEGs are kept: something that can't be read may name them.
    pub held: Vec<String>,
    /// Why it ended early. `None` if it did not.
    pub cut_short: Option<String>,
}

impl Summary {
    /// Whether every key is in its desired state and everything could be read.
    pub fn is_true(&self) -> bool {
        self.failed.is_empty() && self.problems.is_empty() && self.cut_short.is_none()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.succeeded + self.failed.len();
        let word = if keys == 1 { "neg" } else { "negs" };
        write!(
            f,
            "{keys} {word}: {} true, {} failed; {} attached, {} detached",
            self.succeeded,
            self.failed.len(),
            self.attached,
            self.detached
        )
    }
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LoopEnd {
    NothingLeft,
    Stopped,
    SourceEnded,
    /// With `--once`: the term in which the source was listed has ended.
    TermEnded,
    /// The state folder belongs to another cluster; one line.
    NotOurs(String),
}

impl<T> Negs<'_, T> {
    pub(super) fn summary(&self, end: LoopEnd) -> Summary {
        let standing = |entry: &Entry| entry.standing.clone();
        let failed = self
            .entries
            .iter()
            .filter_map(|(key, entry)| Some((key.to_string(), standing(entry)?.err()?)));
        let succeeded = self
            .entries
            .values()
            .filter(|entry| matches!(entry.standing, Some(Ok(()))));
        Summary {
            succeeded: succeeded.count(),
            failed: failed.collect(),
            attached: self.attached,
            detached: self.detached,
            problems: self.problems.clone(),
            held: self.held.iter().map(ToString::to_string).collect(),
            cut_short: match end {
                LoopEnd::Stopped if self.once => Some("stopped before its end".to_owned()),
                LoopEnd::SourceEnded => Some("the source can't be watched any more".to_owned()),
                LoopEnd::TermEnded => Some("the lease could not be renewed: another host may act now".to_owned()),
                LoopEnd::NotOurs(why) => Some(why),
                LoopEnd::NothingLeft | LoopEnd::Stopped => None,
            },
        }
    }
}
