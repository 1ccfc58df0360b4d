//! The call inside which a recording ends: the host was killed in it, so it is to be run again before anything else.
//!
//! It is run again in a segment of its own, in which a second kill may leave less of it than the first did, and for which
//! the first may be removed. So it is kept beside the segments until it has ended. That its answers are given again is
//! `tape/again.rs`. Knows no question by name: which of them are asked anew says whoever runs the call.
//!
//! ```text
//! segment ends inside a call -> kept in interrupted.json -> another segment begins -> it is run again -> forgotten
//! ```

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::divergence::Asked;
use crate::entry::{Ask, Call, Event};
use crate::folder::failed;
use crate::reader::{ReadError, Segment};
use crate::regular;
use crate::replace::{Durable, replace_file};
use crate::tape::AskedAnew;
use crate::writer::JournalError;

/// Its name in a journal's folder: no segment's.
const FILE: &str = "interrupted.json";

/// A call that began and did not end, with what it had been answered by then.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupted {
    /// The host's clock when the call began, in milliseconds: what makes it this call and no other of its instance.
    pub at_ms: u64,
    /// `interface.function`.
    pub call: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
    /// Its questions that were answered, in order.
    pub answers: Vec<Answered>,
}

/// A question, and the answer that it got.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// `interface.function`.
    pub ask: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
    /// The answer.
    pub answer: Box<RawValue>,
}

/// How far a call that was run again got with its recorded answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenAgain {
    /// So many were given.
    pub given: usize,
    /// So many were not: the call ended before, or asked something else.
    pub left: usize,
    /// Where it asked something else: what was recorded there, and what it asked.
    pub differs: Option<(Asked, Asked)>,
}

impl PartialEq for Answered {
    fn eq(&self, other: &Self) -> bool {
        let texts = |it: &Self| (it.args.get().to_owned(), it.answer.get().to_owned());
        self.ask == other.ask && texts(self) == texts(other)
    }
}

impl Interrupted {
    /// Whether `other` is an account of the same call.
    pub fn is(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms && self.call == other.call && self.args.get() == other.args.get()
    }

    fn without(mut self, anew: AskedAnew) -> Self {
        self.answers.retain(|answered| !anew(&answered.ask));
        self
    }

    /// The better of two accounts of one call: in the newest segment, and where it was run first. It may have been killed
    /// again before it got as far as it had been.
    fn or_longer(self, kept: Self) -> Self {
        if kept.answers.starts_with(&self.answers) {
            kept
        } else {
            self
        }
    }

    /// The call that is to be run again before anything else, by what the journal's folder holds: its `newest` segment, and
    /// what was kept. None: none is. Answers to what is asked `anew` are left out: they are other ones in each run.
    ///
    /// What was kept of a call that has ended since is forgotten.
    ///
    /// # Errors
    /// Where what was kept can't be read, or can't be removed.
    pub fn find(dir: &Path, newest: Option<&Segment>, anew: AskedAnew) -> Result<Option<Self>, JournalError> {
        let kept = Self::kept(dir)?;
        let found = newest.and_then(Segment::interrupted).map(|found| found.without(anew));
        let has_ended = |kept: &Self| match &found {
            Some(found) => !found.is(kept),
            None => newest.and_then(Segment::last_call_at_ms) >= Some(kept.at_ms),
        };
        let kept = match kept {
            // Nobody came to forget it; in a segment that begins after this one, nothing would say that it has ended.
            Some(kept) if has_ended(&kept) => {
                Self::forget(dir)?;
                None
            }
            kept => kept,
        };
        Ok(match (found, kept) {
            (Some(found), Some(kept)) => Some(found.or_longer(kept)),
            (found, kept) => found.or(kept),
        })
    }

    fn kept(dir: &Path) -> Result<Option<Self>, JournalError> {
        let path = dir.join(FILE);
        let text = match regular::read(&path, regular::RECORDS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read", &path))?,
        };
        let damaged = |error: serde_json::Error| ReadError::Damaged {
            file: path.display().to_string(),
            line: error.line() as u64,
            reason: error.to_string(),
        };
        Ok(serde_json::from_slice(&text).map(Some).map_err(damaged)?)
    }

    /// Keeps it in the journal's folder, on the disk, until [`Interrupted::forget`]: before another segment begins.
    ///
    /// # Errors
    /// Where it can't be written; what was kept before is there still.
    pub fn keep(&self, dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let kept = text.and_then(|text| replace_file(&path, &text, Durable::Yes));
        kept.map_err(failed("write", &path))
    }

    /// It has ended, however: nothing of it is to be run again. To be called before another segment begins.
    ///
    /// # Errors
    /// Where the file can't be removed: then the journal must not go on, or the call is run again one day.
    pub fn forget(dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

impl Segment {
    /// The call inside which this segment ends; none: it ends between calls.
    pub fn interrupted(&self) -> Option<Interrupted> {
        if !self.ends_inside_call() {
            return None;
        }
        let begun = self
            .entries
            .iter()
            .rposition(|entry| matches!(entry.event, Event::Call(_)))?;
        let mut entries = self.entries.get(begun..)?.iter();
        let Some(Event::Call(Call { at_ms, name, args, .. })) = entries.next().map(|entry| entry.event.clone()) else {
            return None;
        };
        let answers = entries.filter_map(|entry| match &entry.event {
            Event::Ask(Ask {
                name,
                args,
                answer: Some(answer),
            }) => Some(Answered {
                ask: name.clone(),
                args: args.clone(),
                answer: answer.clone(),
            }),
            _ => None,
        });
        Some(Interrupted {
            at_ms,
            call: name,
            args,
            answers: answers.collect(),
        })
    }

    /// When the last call of this segment began, in milliseconds; none: it has none.
    pub fn last_call_at_ms(&self) -> Option<u64> {
        self.entries.iter().rev().find_map(|entry| match &entry.event {
            Event::Call(call) => Some(call.at_ms),
            _ => None,
        })
    }
}
