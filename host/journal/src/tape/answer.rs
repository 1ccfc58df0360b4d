//! Why a question gets no answer.

use crate::writer::JournalError;

/// The host ends the call at this question instead of answering it; the text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

/// Why a question got no answer. In each case the call must end: nothing may bypass the tape to the guest.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// The host ended the call at this question.
    #[error("{0}")]
    Refused(String),
    /// The recording has no answer here: it ends inside this call, or the call was ended here.
    #[error("the recording ends here")]
    Ended,
    /// The guest deviated from the recording: see [`super::Tape::replay_outcome`].
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

impl TapeError {
    pub(super) fn unwritable(name: &str) -> impl FnOnce(serde_json::Error) -> Self {
        |source| Self::Unwritable {
            name: name.to_owned(),
            source,
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
