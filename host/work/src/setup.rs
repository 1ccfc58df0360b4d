//! Why a run, a plan or a server could not begin, and what they read before they do.

use trueup_base::regular;
use trueup_config::TokenAt;

/// Why nothing could begin, or why a host gives no answer: one line.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The operator gave something that can't be used or does not exist, and must correct it.
    #[error("{0}")]
    Misused(String),
    /// The settings are usable, but it failed now.
    #[error("{0}")]
    Failed(String),
}

impl SetupError {
    /// Something given can't be used; includes the causes.
    pub fn misused(error: impl Into<anyhow::Error>) -> Self {
        Self::Misused(format!("{:#}", error.into()))
    }

    /// It failed now; includes the causes.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }
}

/// Reads a token, unchanged.
///
/// # Errors
/// If it can't be read. The error says whose token it is.
pub fn read_token(at: &TokenAt, whose: &str) -> Result<String, SetupError> {
    let token = match at {
        TokenAt::File(file) => regular::read_text(file, regular::SMALL).map_err(|error| error.to_string()),
        TokenAt::Variable(name) => std::env::var(name).map_err(|error| error.to_string()),
    };
    token.map_err(|error| SetupError::Misused(format!("{whose}: can't read {at}: {error}")))
}
