//! `trueup:service/nftables`: the kernel's packet filter, by transactions of libnftables' JSON.
//!
//! ```text
//! guest -> binding (tape, quota, grant of every table that is touched) -> Api: simulated | nft (one process a transaction)
//! ```

mod binding;
pub mod simulated;

use crate::Answer;

/// A packet filter.
pub trait Api: Send + Sync {
    /// Applies one transaction: all of it or nothing.
    ///
    /// # Errors
    /// In the words of whoever applies it, one line.
    fn apply<'a>(&'a self, ruleset: &'a str) -> Answer<'a, Result<(), String>>;
}
