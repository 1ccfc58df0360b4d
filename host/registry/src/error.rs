//! Why a guest is not there.

use super::store::StoreError;

/// Why a guest is unavailable, for the operator to fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGuest(pub String);

/// Why a guest was not loaded, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// An error for the operator to fix.
    #[error(transparent)]
    NoGuest(#[from] NoGuest),
    /// A temporary error: a registry is unreachable, or a disk is full.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for NotLoaded {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// An error's text in one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
