//! `trueup:service/nftables`: the kernel's packet filter, by transactions of libnftables' JSON.
//!
//! ```text
//! guest -> tape, quota, grant of every touched table -> Api: simulated | nft (one process per transaction)
//!                        \-> scope: the tables that a transaction touches
//! ```
//!
//! A grant of `nftables` is a list of tables. A transaction needs write access to every table that its commands touch.
//! If the tables of one command are unclear, the host refuses the whole transaction.

pub(crate) mod binding;
pub mod nft;
pub mod scope;

use async_trait::async_trait;

/// A packet filter.
#[async_trait]
pub trait Api: Send + Sync {
    /// Applies one transaction: all of it or nothing.
    ///
    /// # Errors
    /// The backend's error, on one line. Usually nothing was applied then; if that is unknown, the text says so. The
    /// caller continues from the last acknowledged state, and creates its tables again before it relies on that state.
    async fn apply(&self, ruleset: &str) -> Result<(), String>;
}

/// The packet filter of a scenario: accepts every transaction.
#[derive(Debug, Default)]
pub struct Simulated;

#[async_trait]
impl Api for Simulated {
    async fn apply(&self, _ruleset: &str) -> Result<(), String> {
        Ok(())
    }
}
