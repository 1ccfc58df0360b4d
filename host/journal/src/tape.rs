//! The tape: every question of a guest passes through it, with its answer.
//!
//! It records to a journal, keeps entries in memory, replays a segment, or does nothing. The answering code can't tell
//! which: the binding of an import passes the question and a closure that would answer it.
//!
//! `tape/recording.rs` records, `tape/progress.rs` compares entry by entry in a replay, and `tape/decisions.rs`
//! compares decisions with it.

mod decisions;
mod progress;
mod questions;
mod recording;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::accepted::Accepted;
use crate::divergence::Outcome;
use crate::entry::{Ask, Call, Ending, Entry, Header, Origin};
use crate::interrupted::{AskedAnew, GivenAgain};
use crate::reader::Segment;
use crate::writer::{Journal, JournalError};
use decisions::Decisions;
use progress::Progress;
pub use questions::{Kind, Question, Questions};
use recording::{Again, Recording, Sink};

/// Why a question got no answer. In each case the call must end: nothing may bypass the tape to the guest.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// The host ended the call at this question instead of answering it; the text says why.
    #[error("{0}")]
    Refused(String),
    /// The recording has no answer here: it ends inside this call, or the call was ended here.
    #[error("the recording ends here")]
    Ended,
    /// The guest deviated from the recording: see [`Tape::replay_outcome`].
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
        /// The error.
        source: serde_json::Error,
    },
    /// The host used the tape out of order.
    #[error("{0}")]
    Misplaced(&'static str),
}

fn unwritable(name: &str) -> impl FnOnce(serde_json::Error) -> TapeError {
    |source| TapeError::Unwritable {
        name: name.to_owned(),
        source,
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

/// The answer of a recording. `None`: the backend is to be asked.
type Known<R> = Result<Option<R>, TapeError>;

/// The tape of one instance.
#[derive(Debug)]
pub struct Tape(Mode);

#[derive(Debug)]
enum Mode {
    Off,
    Record(Recording),
    Replay(Box<Progress>),
    Decisions(Box<Decisions>),
}

impl Tape {
    /// Passes every question on and keeps nothing.
    pub fn off() -> Self {
        Self(Mode::Off)
    }

    /// Records to a journal with a started or continued segment.
    pub fn record(journal: Journal) -> Self {
        Self(Mode::Record(Recording::new(Sink::Journal(Box::new(journal)))))
    }

    /// Keeps the entries until [`Tape::take_entries`]. Numbers begin at 1, as after a header. Questions outside calls
    /// are accepted, too: there is no file whose order they would break.
    pub fn memory() -> Self {
        Self(Mode::Record(Recording::new(Sink::memory())))
    }

    /// Answers from a recording. `digest` is that of the replaying guest: if it is the recorded one, a trap must have
    /// the same text; otherwise any trap will do.
    pub fn replay(segment: Segment, digest: &str) -> Self {
        Self::replay_accepting(segment, digest, Arc::default())
    }

    /// As [`Tape::replay`], but accepts questions and results that differ only in fields covered by rules. The outcome
    /// includes their number.
    pub fn replay_accepting(segment: Segment, digest: &str, accepted: Arc<Accepted>) -> Self {
        Self(Mode::Replay(Box::new(Progress::new(segment, digest, accepted))))
    }

    /// Answers from a recording, and compares the guest's writes and results, but not its reads: for a different guest.
    /// The host answers unrecorded questions about time, randomness and the like.
    pub fn compare_decisions(segment: Segment, digest: &str, accepted: Arc<Accepted>, questions: Questions) -> Self {
        let decisions = Decisions::new(segment, digest, accepted, questions);
        Self(Mode::Decisions(Box::new(decisions)))
    }

    /// Continues a replay with later entries: whole calls, whatever their numbers. Only if there was no divergence so
    /// far and everything is used up. From here on [`Tape::replay_outcome`] is that of these entries.
    pub fn feed(&mut self, entries: Vec<Entry>) -> Result<(), TapeError> {
        match &mut self.0 {
            Mode::Replay(replay) => replay.feed(entries),
            Mode::Decisions(decisions) => decisions.progress.feed(entries),
            Mode::Off | Mode::Record(_) => Err(TapeError::Misplaced("only a replay takes recorded entries")),
        }
    }

    /// Whether answers come from a recording.
    pub fn is_replay(&self) -> bool {
        matches!(self.0, Mode::Replay(_) | Mode::Decisions(_))
    }

    /// Takes the guest's question `name` and returns its answer: the recorded one, or the one from `ask`, which is
    /// recorded before it is returned. If this future is dropped before `ask` is done, the question is recorded without
    /// an answer when its call ends.
    pub async fn call<A, R, F, Fut>(&mut self, name: &str, args: &A, ask: F) -> Result<R, TapeError>
    where
        A: Serialize + ?Sized,
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<R, TapeError>>,
    {
        if let Some(answer) = self.known(name, &args)? {
            return Ok(answer);
        }
        self.answered(name, ask().await)
    }

    /// [`Tape::call`] for an answer that needs no waiting.
    // Without this, a question that the host answers at once takes 7 % longer: `benches/benches/ratios.rs`.
    #[inline]
    pub fn ask_now<A, R, F>(&mut self, name: &str, args: &A, ask: F) -> Result<R, TapeError>
    where
        A: Serialize + ?Sized,
        R: Serialize + DeserializeOwned,
        F: FnOnce() -> Result<R, TapeError>,
    {
        if let Some(answer) = self.known(name, &args)? {
            return Ok(answer);
        }
        self.answered(name, ask())
    }

    /// The answer of a recording, which is also recorded where this tape records. `None` if the backend is to be asked.
    fn known<R: Serialize + DeserializeOwned>(&mut self, name: &str, args: &impl Serialize) -> Known<R> {
        match &mut self.0 {
            Mode::Off => Ok(None),
            Mode::Record(recording) => {
                recording.asked(name, args)?;
                let again = recording.again(name);
                again.map(|answer| recording.answered(name, Ok(answer))).transpose()
            }
            Mode::Replay(replay) => replay.answer(name, args).map(Some),
            Mode::Decisions(decisions) => decisions.given(name, args),
        }
    }

    /// Takes the answer of a backend.
    fn answered<R: Serialize>(&mut self, name: &str, answer: Result<R, TapeError>) -> Result<R, TapeError> {
        match self.recording_mut() {
            Some(recording) => recording.answered(name, answer),
            None => answer,
        }
    }

    /// Records that the host calls an export. Not for a replay, where the recording determines the next call.
    pub fn begin_call_by(&mut self, at_ms: u64, name: &str, args: &RawValue, of: Origin<'_>) -> Result<(), TapeError> {
        match &mut self.0 {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.begin_call((at_ms, name, args), of),
            _ => Err(TapeError::Misplaced("a replay takes its calls from the recording")),
        }
    }

    /// Records how the call ended, or compares that with the recording. In that case, [`TapeError::Diverged`] means
    /// that it differs.
    pub fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        match &mut self.0 {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.end_call(ending),
            Mode::Replay(replay) => replay.end_call(ending),
            Mode::Decisions(decisions) => decisions.end_call(ending),
        }
    }

    /// While recording: the next call gets these answers again, in order, as long as it asks exactly the same
    /// questions, and is recorded with them. Questions asked `anew` are answered live and do not count. See
    /// [`Tape::given_again`].
    ///
    /// # Errors
    /// If nothing is being recorded.
    pub fn give_again(&mut self, answers: Vec<Ask>, anew: AskedAnew) -> Result<(), TapeError> {
        let misplaced = TapeError::Misplaced("only what is recorded is given answers again");
        self.recording_mut().ok_or(misplaced)?.again = Some(Box::new(Again::new(answers, anew)));
        Ok(())
    }

    /// How many answers of [`Tape::give_again`] were used; later questions are answered live. Call this when that call
    /// has ended. `None` if there were none.
    pub fn given_again(&mut self) -> Option<GivenAgain> {
        self.recording_mut()?.again.take().map(|again| again.came())
    }

    /// The next recorded call that the host must make in a replay, and the number of its entry; `None` if the recording
    /// ends, the guest has diverged, the last call was not ended, or this is not a replay.
    pub fn next_call(&mut self) -> Option<(u64, Call)> {
        match &mut self.0 {
            Mode::Replay(replay) => replay.next_call(),
            Mode::Decisions(decisions) => decisions.next_call(),
            Mode::Off | Mode::Record(_) => None,
        }
    }

    /// In a replay, stops the current call if the recording has nothing left to compare: it ends inside the call, or
    /// the call ended by deadline, memory or cancellation. Returns true if so. The guest's further actions do not
    /// affect the outcome, so the caller need not wait for them.
    pub fn stop_at_end(&mut self) -> bool {
        match &mut self.0 {
            Mode::Replay(replay) => replay.stop_at_end(),
            Mode::Decisions(decisions) => decisions.stop_at_end(),
            Mode::Off | Mode::Record(_) => false,
        }
    }

    /// The outcome of the replay so far; `None` if this is not a replay.
    pub fn replay_outcome(&self) -> Option<Outcome> {
        match &self.0 {
            Mode::Replay(replay) => Some(replay.outcome(true)),
            Mode::Decisions(decisions) => Some(decisions.progress.outcome(false)),
            Mode::Off | Mode::Record(_) => None,
        }
    }

    /// Begins a segment with the instance's current state. Only between calls, or before the first.
    pub fn rotate(&mut self, header: &Header) -> Result<(), TapeError> {
        match &mut self.0 {
            Mode::Off => Ok(()),
            Mode::Record(recording) => recording.rotate(header),
            Mode::Replay(_) | Mode::Decisions(_) => Err(TapeError::Misplaced("a replay writes no segment")),
        }
    }

    /// Whether [`Tape::rotate`] is due: see [`Journal::wants_rotation`].
    pub fn wants_rotation(&self) -> bool {
        self.journal().is_some_and(Journal::wants_rotation)
    }

    /// The entries of a memory tape since the last call; empty for any other tape.
    pub fn take_entries(&mut self) -> Vec<Entry> {
        match self.recording_mut().map(|recording| &mut recording.sink) {
            Some(Sink::Memory { entries, .. }) => std::mem::take(entries),
            _ => Vec::new(),
        }
    }

    /// The journal being written.
    pub fn journal(&self) -> Option<&Journal> {
        let Mode::Record(recording) = &self.0 else { return None };
        let Sink::Journal(journal) = &recording.sink else {
            return None;
        };
        Some(journal)
    }

    /// The journal being written, for its [`Journal::tick`] and [`Journal::sync_now`].
    pub fn journal_mut(&mut self) -> Option<&mut Journal> {
        let Sink::Journal(journal) = &mut self.recording_mut()?.sink else {
            return None;
        };
        Some(journal)
    }

    fn recording_mut(&mut self) -> Option<&mut Recording> {
        let Mode::Record(recording) = &mut self.0 else {
            return None;
        };
        Some(recording)
    }
}
