//! Why a call of a guest, or the turn of a key that made it, has no result.

use trueup_controller::Outcome;
use trueup_instance::dispatch::InvokeError;
use trueup_instance::with_causes;

/// How the turn of a key ended: the key is in its desired state. With `true`, nothing of it is left.
pub type End = Result<bool, Failure>;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One line.
    pub error: String,
    /// What caused it.
    pub blame: Blame,
    /// When to try again, in milliseconds from now. `None` if the backend did not say.
    pub retry_after_ms: Option<u64>,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The guest: it trapped, exceeded a limit, or gave an invalid answer. This counts towards quarantine.
    Guest,
    /// Something else, such as a backend, a full disk or a missing instance.
    Host,
    /// Nothing: the host cut it, for a newer input or version, for a stop, or for another key.
    Cut,
}

impl Failure {
    /// The guest caused it. `error`: one line.
    pub fn of_guest(error: impl Into<String>) -> Self {
        Self::new(Blame::Guest, error.into())
    }

    /// The host cut a call while it slept.
    pub fn cut() -> Self {
        Self::new(Blame::Cut, "ended while it slept".to_owned())
    }

    /// The turn of another key comes first.
    pub fn gave_way(pause_ms: u64) -> Self {
        Self {
            retry_after_ms: Some(pause_ms),
            ..Self::new(Blame::Cut, "gave way to another key".to_owned())
        }
    }

    fn new(blame: Blame, error: String) -> Self {
        Self {
            error,
            blame,
            retry_after_ms: None,
        }
    }
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::new(Blame::Host, error)
    }
}

impl From<InvokeError> for Failure {
    fn from(error: InvokeError) -> Self {
        let blame = if error.is_fault() { Blame::Guest } else { Blame::Host };
        Self::new(blame, with_causes(error))
    }
}

/// When the queue is to try the key again.
pub fn outcome(end: &End) -> Outcome {
    match end {
        Ok(_) => Outcome::Success,
        Err(failure) => match (failure.blame, failure.retry_after_ms) {
            (Blame::Cut, pause_ms) => Outcome::Interrupted(pause_ms.unwrap_or_default()),
            (_, Some(ms)) => Outcome::RetryAfter(ms),
            (_, None) => Outcome::Failure,
        },
    }
}
