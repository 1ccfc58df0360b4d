//! What simulated servers have in common: everything about a request but what the API decides.
//!
//! [`pipeline::Service`] lists what a server decides itself; [`pipeline`] does the rest. Knows no API.
//!
//! ```text
//! server.rs -> pipeline.rs -> faults.rs, state_file.rs -> engine.rs (lbaas), calls.rs (compute)
//!              admin.rs -^
//! ```

pub(crate) mod admin;
pub(crate) mod faults;
pub(crate) mod pipeline;
pub(crate) mod refusal;
pub(crate) mod server;
pub(crate) mod state_file;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;

use serde::Deserialize;

/// The target of the servers' log lines.
pub(crate) const LOG_TARGET: &str = "trueup::sim";

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
