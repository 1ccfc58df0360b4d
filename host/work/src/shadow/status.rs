//! The results of a candidate: the counts, and the first and last differences.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How many of the last differences a status lists. All are counted, and the newest are kept as files.
pub const LAST_MAX: usize = 10;

/// How one call of the candidate compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// The same requests and the same result; as far as recorded, if the active guest's call was cut short.
    Same,
    /// Another request in place of a recorded one, other arguments, or another ending.
    Different,
    /// A request beyond those of the active guest: what it would have decided is unknown.
    Unrecorded,
    /// Not compared: the queue was full, or the recording does not show the call.
    Skipped,
}

/// The results so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The candidate's name.
    pub candidate: String,
    /// Its version.
    pub version: String,
    /// Its digest.
    pub digest: String,
    /// When it began, in milliseconds since 1970.
    pub since_ms: u64,
    /// Calls compared: the sum of the following three.
    pub compared: u64,
    /// Calls that were the same.
    pub same: u64,
    /// Calls that were decided differently, including a trap or no answer.
    pub different: u64,
    /// Calls in which it made a request that the active guest did not.
    pub unrecorded: u64,
    /// Calls that were not compared.
    pub skipped: u64,
    /// Calls that are still to be compared.
    pub waiting: u64,
    /// Calls that were the same since the last that was not. Skipped calls do not count.
    pub same_in_a_row: u64,
    /// The first call that was not the same.
    pub first: Option<Difference>,
    /// The last of these, oldest first.
    pub last: Vec<Difference>,
    /// How many calls in a row must be the same before it is promoted. Absent if only a command promotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_after: Option<u64>,
    /// Why it was not promoted when that was last tried. `None` in the answer of an earlier host, too.
    pub promotion_refused: Option<PromotionRefused>,
}

/// A promotion that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromotionRefused {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why, and what to type, in one line.
    pub why: String,
}

/// One call that was not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// Different or unrecorded.
    pub verdict: Verdict,
    /// The entry, in the journal's numbers. `None` if the candidate gave no answer at all.
    pub n: Option<u64>,
    /// The difference, on one line, in the words of `trueup replay`.
    pub what: String,
    /// The recording that shows it. `None` if it could not be written, or the rate limit was reached.
    pub file: Option<PathBuf>,
}

impl Status {
    pub(super) fn same(&mut self) {
        self.compared += 1;
        self.same += 1;
        self.same_in_a_row += 1;
    }

    pub(super) fn not_same(&mut self, difference: Difference) {
        self.compared += 1;
        match difference.verdict {
            Verdict::Unrecorded => self.unrecorded += 1,
            _ => self.different += 1,
        }
        self.same_in_a_row = 0;
        self.first.get_or_insert_with(|| difference.clone());
        if self.last.len() == LAST_MAX {
            self.last.remove(0);
        }
        self.last.push(difference);
    }
}
