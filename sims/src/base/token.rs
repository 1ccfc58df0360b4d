//! The token that a server demands.

use std::fmt;

use serde::Deserialize;

/// A token that does not show up where a configuration is printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Whether a client sent this token.
    pub(crate) fn is(&self, sent: &[u8]) -> bool {
        self.0.as_bytes() == sent
    }
}

impl<T: Into<String>> From<T> for Token {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
