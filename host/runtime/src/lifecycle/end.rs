//! How a job of a key ended.

use trueup_controller::Outcome;

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The key is in its desired state. With `gone`, the key does not exist any more.
    True { gone: bool },
    /// It was cut while it slept, for a newer input or a stop; or the Service changed or was deleted while it ran.
    Interrupted,
    /// One line, and when to try again if the Engine said so.
    Failed { error: String, retry_after_ms: Option<u64> },
    /// The guest failed, not the backend: it trapped, exceeded a limit, or gave no valid answer. One line.
    Fault { error: String },
}

impl End {
    /// Whether the guest failed.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Self::Fault { .. })
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::True { .. } => Outcome::Success,
            Self::Interrupted => Outcome::Interrupted,
            Self::Failed {
                retry_after_ms: Some(ms),
                ..
            } => Outcome::RetryAfter(*ms),
            Self::Failed {
                retry_after_ms: None, ..
            }
            | Self::Fault { .. } => Outcome::Failure,
        }
    }
}
