//! `trueup:service/nftables`: the kernel's packet filter, by transactions of libnftables' JSON.
//!
//! ```text
//! guest -> binding (tape, quota, grant of every touched table) -> Api: simulated | nft (one process per transaction)
//!              \-> scope: the tables that a transaction touches
//! ```

mod binding;
pub mod nft;
pub(crate) mod reading;
pub mod scope;
pub mod simulated;

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
