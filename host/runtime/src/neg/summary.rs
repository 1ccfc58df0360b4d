//! What a run of NEGs came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Entry, Negs};

/// What a run of NEGs came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Keys whose NEGs are as they should be.
    pub succeeded: usize,
    /// Keys that failed, and why.
    pub failed: BTreeMap<String, String>,
    /// Endpoints in attachments that ended well.
    pub attached: u64,
    /// Endpoints in detachments that ended well.
    pub detached: u64,
    /// Objects that could not be read, or were not used.
    pub problems: Vec<String>,
    /// Keys whose NEGs are kept though nothing names them, since what can't be read may.
    pub held: Vec<String>,
    /// Why it ended before its end; none: it did not.
    pub cut_short: Option<String>,
}

impl Summary {
    /// True where everything is as it should be and everything could be read.
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
    /// Once, what was listed is of a term that has ended.
    TermEnded,
    /// The state folder is another cluster's; one line.
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
