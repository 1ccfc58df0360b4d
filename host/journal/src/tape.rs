//! The tape: the one place through which every question of a guest goes, with its answer.
//!
//! It records to a journal, keeps entries in memory, replays a segment, or does nothing. Which of these it does is
//! invisible to whoever answers: the binding of an import hands over the question and a closure that would answer it.
//!
//! What recording does is `tape/recording.rs`, what a replay compares `tape/replay.rs` and `tape/compare.rs`, and what a
//! comparison of decisions compares `tape/decisions.rs`.

mod again;
mod compare;
mod decisions;
mod questions;
mod recording;
mod replay;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::accepted::Accepted;
use crate::divergence::Outcome;
use crate::entry::{By, Ending, Entry, Header};
use crate::interrupted::{Answered, GivenAgain};
use crate::reader::Segment;
use crate::writer::{Journal, JournalError};
use again::Again;
pub use again::AskedAnew;
use decisions::Decisions;
pub use questions::{Kind, Question, Questions};
use recording::{Recording, Sink};
use replay::Replay;

/// The tape of one instance.
#[derive(Debug)]
pub struct Tape {
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Off,
    Record(Recording),
    Replay(Box<Replay>),
    Decisions(Box<Decisions>),
}

/// The host ends the call at this question instead of answering it; the text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

/// A call that the recording has and the host is to make.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// Number of its entry.
    pub n: u64,
    /// The recording host's clock when the call began, in milliseconds.
    pub at_ms: u64,
    /// `interface.function`.
    pub name: String,
    /// The arguments, an object by parameter name.
    pub args: Box<RawValue>,
}

/// Why a question got no answer. Whichever it is, the call must end: nothing may reach the guest past the tape.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// The host ended the call at this question.
    #[error("{0}")]
    Refused(String),
    /// The recording has no answer here: it ends inside this call, or the call was ended here.
    #[error("the recording ends here")]
    Ended,
    /// The guest did something else than the recording has: see [`Tape::replay_outcome`].
    #[error("the replay has left its recording")]
    Diverged,
    /// The journal can't be written.
    #[error(transparent)]
    Journal(JournalError),
    /// The question or its answer has no JSON form.
    #[error("`{name}` can't be recorded")]
    Unwritable {
        /// The question.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The host used the tape out of order.
    #[error("{0}")]
    Misplaced(&'static str),
}

impl Tape {
    /// Passes every question on and keeps nothing.
    pub fn off() -> Self {
        Self { mode: Mode::Off }
    }

    /// Records to a journal that has a segment begun or continued.
    pub fn record(journal: Journal) -> Self {
        Self {
            mode: Mode::Record(Recording::new(Sink::Journal(Box::new(journal)))),
        }
    }

    /// Keeps the entries until [`Tape::take_entries`]. Numbers begin at 1, as after a header, and questions are taken
    /// outside calls too: there is no file whose order they would break.
    pub fn memory() -> Self {
        Self {
            mode: Mode::Record(Recording::new(Sink::memory())),
        }
    }

    /// Answers from a recording. `digest` is that of the guest that replays: where it is the recorded one, a trap must
    /// have the same text, else only be a trap again.
    pub fn replay(segment: Segment, digest: &str) -> Self {
        Self::replay_accepting(segment, digest, Arc::default())
    }

    /// [`Tape::replay`], where a question or a result that differs only in fields that rules accept counts as the
    /// recorded one. How many did is part of the outcome.
    pub fn replay_accepting(segment: Segment, digest: &str, accepted: Arc<Accepted>) -> Self {
        Self {
            mode: Mode::Replay(Box::new(Replay::new(segment, digest, accepted))),
        }
    }

    /// Answers from a recording, and compares what the guest writes and returns, not what it reads: for a guest of another
    /// make. A question about time, chance and the like that was not recorded is answered by the host.
    pub fn compare_decisions(segment: Segment, digest: &str, accepted: Arc<Accepted>, questions: Questions) -> Self {
        Self {
            mode: Mode::Decisions(Box::new(Decisions::new(segment, digest, accepted, questions))),
        }
    }

    /// Goes on in a replay with what was recorded since: whole calls, whatever their numbers. Only where all was the same so
    /// far and all of it is used up. [`Tape::replay_outcome`] is that of these entries from here on.
    pub fn feed(&mut self, entries: Vec<Entry>) -> Result<(), TapeError> {
        match &mut self.mode {
            Mode::Replay(replay) => replay.feed(entries),
            Mode::Decisions(decisions) => decisions.feed(entries),
            Mode::Off | Mode::Record(_) => Err(TapeError::Misplaced("only a replay takes recorded entries")),
        }
    }

    /// Whether answers come from a recording.
    pub fn is_replay(&self) -> bool {
        matches!(self.mode, Mode::Replay(_) | Mode::Decisions(_))
    }

    /// Takes the question `name` of the guest and gives its answer: the recorded one, or the one that `ask` brings,
    /// recorded before it is given. Where this future is dropped before `ask` is done, the question is recorded without
    /// an answer when its call ends.
    pub async fn call<A, R, F, Fut>(&mut self, name: &str, args: &A, ask: F) -> Result<R, TapeError>
    where
        A: Serialize + ?Sized,
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<R, Refusal>>,
    {
        match &mut self.mode {
            Mode::Off => ask().await.map_err(TapeError::from),
            Mode::Record(recording) => {
                recording.asked(name, args)?;
                if let Some(answer) = recording.again(name) {
                    return recording.answered(name, Ok(answer));
                }
                let answer = ask().await;
                recording.answered(name, answer)
            }
            Mode::Replay(replay) => replay.answer(name, args),
            Mode::Decisions(decisions) => match decisions.given(name, args)? {
                Some(answer) => Ok(answer),
                None => ask().await.map_err(TapeError::from),
            },
        }
    }

    /// [`Tape::call`] for an answer that needs no waiting.
    pub fn ask_now<A, R, F>(&mut self, name: &str, args: &A, ask: F) -> Result<R, TapeError>
    where
        A: Serialize + ?Sized,
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Result<R, Refusal>,
    {
        match &mut self.mode {
            Mode::Off => ask().map_err(TapeError::from),
            Mode::Record(recording) => {
                recording.asked(name, args)?;
                if let Some(answer) = recording.again(name) {
                    return recording.answered(name, Ok(answer));
                }
                recording.answered(name, ask())
            }
            Mode::Replay(replay) => replay.answer(name, args),
            Mode::Decisions(decisions) => match decisions.given(name, args)? {
                Some(answer) => Ok(answer),
                None => ask().map_err(TapeError::from),
            },
        }
    }

    /// Records that the host calls an export. Not for a replay: there the recording says which call comes next.
    pub fn begin_call(&mut self, at_ms: u64, name: &str, args: &RawValue) -> Result<(), TapeError> {
        self.begin_call_by(at_ms, name, args, None)
    }

    /// [`Tape::begin_call`] for a call that answers a question of another guest.
    pub fn begin_call_by(&mut self, at_ms: u64, name: &str, args: &RawValue, by: Option<&By>) -> Result<(), TapeError> {
        match &mut self.mode {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.begin_call(at_ms, name, args, by),
            Mode::Replay(_) | Mode::Decisions(_) => {
                Err(TapeError::Misplaced("a replay takes its calls from the recording"))
            }
        }
    }

    /// Records how the call ended, or compares that with the recording; then [`TapeError::Diverged`] says that it is not
    /// what was recorded.
    pub fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        match &mut self.mode {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.end_call(ending),
            Mode::Replay(replay) => replay.end_call(ending),
            Mode::Decisions(decisions) => decisions.end_call(ending),
        }
    }

    /// While it records: the next call is given these answers again, in order, for as long as it asks for just them, and
    /// is recorded with them. What is asked `anew` is answered live, and counts for nothing. See [`Tape::given_again`].
    ///
    /// # Errors
    /// Where nothing is recorded.
    pub fn give_again(&mut self, answers: Vec<Answered>, anew: AskedAnew) -> Result<(), TapeError> {
        match &mut self.mode {
            Mode::Record(recording) => {
                recording.give_again(Again::new(answers, anew));
                Ok(())
            }
            Mode::Off | Mode::Replay(_) | Mode::Decisions(_) => {
                Err(TapeError::Misplaced("only what is recorded is given answers again"))
            }
        }
    }

    /// How far the answers of [`Tape::give_again`] went; what is asked from here on is answered live. To be called when that
    /// call has ended. None: there were none.
    pub fn given_again(&mut self) -> Option<GivenAgain> {
        match &mut self.mode {
            Mode::Record(recording) => recording.given_again().map(Again::came),
            Mode::Off | Mode::Replay(_) | Mode::Decisions(_) => None,
        }
    }

    /// The next call that the host is to make in a replay; `None` where the recording ends, the guest has diverged, the
    /// last call was not ended, or this is no replay.
    pub fn next_call(&mut self) -> Option<RecordedCall> {
        match &mut self.mode {
            Mode::Replay(replay) => replay.next_call(),
            Mode::Decisions(decisions) => decisions.next_call(),
            Mode::Off | Mode::Record(_) => None,
        }
    }

    /// In a replay, stops the call in hand where the recording has nothing left to compare it with: it ends inside the
    /// call, or has the call ended by deadline, memory or cancellation. True where it did. Whatever the guest would do
    /// from here on, the outcome is the same, so that nobody has to wait for what may never end.
    pub fn stop_at_end(&mut self) -> bool {
        match &mut self.mode {
            Mode::Replay(replay) => replay.stop_at_end(),
            Mode::Decisions(decisions) => decisions.stop_at_end(),
            Mode::Off | Mode::Record(_) => false,
        }
    }

    /// What the replay came to so far; `None` where this is none.
    pub fn replay_outcome(&self) -> Option<Outcome> {
        match &self.mode {
            Mode::Replay(replay) => Some(replay.outcome()),
            Mode::Decisions(decisions) => Some(decisions.outcome()),
            Mode::Off | Mode::Record(_) => None,
        }
    }

    /// Begins a segment with the state in which the instance is now. Only between calls, or before the first.
    pub fn rotate(&mut self, header: &Header) -> Result<(), TapeError> {
        match &mut self.mode {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.rotate(header),
            Mode::Replay(_) | Mode::Decisions(_) => Err(TapeError::Misplaced("a replay writes no segment")),
        }
    }

    /// Whether [`Tape::rotate`] is due: see [`Journal::wants_rotation`].
    pub fn wants_rotation(&self) -> bool {
        self.journal().is_some_and(Journal::wants_rotation)
    }

    /// Whether a tape that records to a journal keeps its entries in memory too, from now on, for [`Tape::take_entries`]:
    /// for whoever looks on while it is recorded. A segment that begins meanwhile is kept as its header. Where more than
    /// 16 MiB were recorded since the last time, all of it is given up and nothing is there to take. Without this nothing
    /// is done for it.
    pub fn keep_entries(&mut self, keep: bool) {
        if let Mode::Record(recording) = &mut self.mode {
            recording.keep_entries(keep);
        }
    }

    /// The entries kept in memory since the last time, of a memory tape or after [`Tape::keep_entries`]; empty for any
    /// other tape.
    pub fn take_entries(&mut self) -> Vec<Entry> {
        match &mut self.mode {
            Mode::Record(recording) => recording.take_entries(),
            Mode::Off | Mode::Replay(_) | Mode::Decisions(_) => Vec::new(),
        }
    }

    /// The journal that is written.
    pub fn journal(&self) -> Option<&Journal> {
        match &self.mode {
            Mode::Record(recording) => recording.journal(),
            Mode::Off | Mode::Replay(_) | Mode::Decisions(_) => None,
        }
    }

    /// The journal that is written, for its [`Journal::tick`] and [`Journal::sync_now`].
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        match &mut self.mode {
            Mode::Record(recording) => recording.journal_mut(),
            Mode::Off | Mode::Replay(_) | Mode::Decisions(_) => None,
        }
    }
}

impl From<Refusal> for TapeError {
    fn from(Refusal(reason): Refusal) -> Self {
        Self::Refused(reason)
    }
}

impl From<JournalError> for TapeError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Misplaced(what) => Self::Misplaced(what),
            error => Self::Journal(error),
        }
    }
}
