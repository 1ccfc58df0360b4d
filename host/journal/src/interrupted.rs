//! The call inside which a recording ends: the host was killed in it, so it must run again before anything else.
//!
//! It runs again in its own segment. A second kill may leave less of it there than the first did, and the first segment
//! may be removed. So the call is saved beside the segments until it has ended. `tape/recording.rs` gives its answers
//! again. Knows no question by name: the caller decides which of them are asked anew.
//!
//! ```text
//! segment ends inside a call -> saved in interrupted.json -> another segment begins -> it runs again -> forgotten
//! ```

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::divergence::Asked;
use crate::entry::{Ask, Entry, Event, calls};
use crate::folder::failed;
use crate::reader::{ReadError, Segment};
use crate::writer::JournalError;
use trueup_base::regular;
use trueup_base::replace::{self, Durable, replace_file};

/// Its name in a journal's folder, which is not that of a segment.
const FILE: &str = "interrupted.json";

/// A call that began and did not end, with its answers so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupted {
    /// The host's clock when the call began, in milliseconds, which identifies the call within its instance.
    pub at_ms: u64,
    /// `interface.function`.
    pub call: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
    /// Its answered questions, in order.
    pub answers: Vec<Ask>,
}

/// Returns by a question's name whether it is answered live in any case.
pub type AskedAnew = fn(&str) -> bool;

/// How far a repeated call got with its recorded answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenAgain {
    /// The number of given answers.
    pub given: usize,
    /// The number of remaining answers: the call ended before, or asked something else.
    pub left: usize,
    /// Where it asked something else: the recorded question, and its own.
    pub differs: Option<(Asked, Asked)>,
}

impl Interrupted {
    /// Whether `other` records the same call.
    pub fn is(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms && self.call == other.call && self.args.get() == other.args.get()
    }

    /// The call that must run again before anything else, according to the journal's folder: its `newest` segment, and
    /// the saved call. `None` if there is none. Omits the answers to questions asked `anew`: they differ in each run.
    ///
    /// Forgets a saved call that has ended since.
    ///
    /// # Errors
    /// If the saved call can't be read or removed.
    pub fn find(dir: &Path, newest: Option<&Segment>, anew: AskedAnew) -> Result<Option<Self>, JournalError> {
        let path = dir.join(FILE);
        let damaged = |error: serde_json::Error| ReadError::Damaged {
            file: path.display().to_string(),
            line: error.line() as u64,
            reason: error.to_string(),
        };
        let kept: Option<Self> = match regular::read(&path, regular::RECORDS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read", &path)(error)),
            Ok(text) => Some(serde_json::from_slice(&text).map_err(damaged)?),
        };
        let mut found = newest.and_then(Segment::interrupted);
        if let Some(found) = &mut found {
            found.answers.retain(|answered| !anew(&answered.name));
        }
        let has_ended = |found: &Option<Self>, kept: &Self| match found {
            Some(found) => !found.is(kept),
            None => newest.and_then(Segment::last_call_at_ms) >= Some(kept.at_ms),
        };
        let texts = |of: &Self| Vec::from_iter(of.answers.iter().map(|ask| serde_json::to_string(ask).ok()));
        Ok(match (found, kept) {
            // The host stopped before it could forget it. In a segment after this one, nothing would show that it has
            // ended.
            (found, Some(kept)) if has_ended(&found, &kept) => {
                Self::forget(dir)?;
                found
            }
            // Two records of one call: in the newest segment, and where it ran first. The longer one counts: it may
            // have been killed again earlier than the first time.
            (Some(found), Some(kept)) if !texts(&kept).starts_with(&texts(&found)) => Some(found),
            (found, kept) => kept.or(found),
        })
    }

    /// Saves it in the journal's folder, on the disk, until [`Interrupted::forget`]: before another segment begins.
    ///
    /// # Errors
    /// If it can't be written; the previously saved call is then still there.
    pub fn keep(&self, dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let kept = text.and_then(|text| replace_file(&path, &text, Durable::Yes));
        kept.map_err(failed("write", &path))
    }

    /// Forgets the call, which has ended in any way and must not run again. Call this before another segment begins.
    ///
    /// # Errors
    /// If the file can't be removed. Then the journal must not continue, or the call will run again one day.
    pub fn forget(dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(FILE);
        replace::remove(&path).map_err(failed("remove", &path))
    }
}

impl Segment {
    /// The call inside which this segment ends; `None` if it ends between calls.
    pub fn interrupted(&self) -> Option<Interrupted> {
        if !self.ends_inside_call() {
            return None;
        }
        let entries = calls(&self.entries).next_back()?;
        let call = entries.first()?.call()?;
        let answers = entries.iter().filter_map(|entry| match &entry.event {
            Event::Ask(ask) if ask.answer.is_some() => Some(ask.clone()),
            _ => None,
        });
        Some(Interrupted {
            at_ms: call.at_ms,
            call: call.name.clone(),
            args: call.args.clone(),
            answers: answers.collect(),
        })
    }

    /// When the last call of this segment began, in milliseconds; `None` if it has no call.
    pub fn last_call_at_ms(&self) -> Option<u64> {
        self.entries.iter().rev().find_map(Entry::call).map(|call| call.at_ms)
    }
}
