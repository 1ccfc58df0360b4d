//! `trueup:service/nftables`: the kernel's packet filter, by transactions of libnftables' JSON.
//!
//! ```text
//! guest -> binding (tape, quota, grant of every table that is touched) -> Api: simulated | nft (one process a transaction)
//!              \-> scope: the tables that a transaction touches
//! ```

mod binding;
pub mod nft;
pub mod scope;
pub mod simulated;

use crate::Answer;

/// A packet filter.
pub trait Api: Send + Sync {
    /// Applies one transaction: all of it or nothing.
    ///
    /// # Errors
    /// In the words of whoever applies it, one line. Mostly nothing was applied then; where that is not known the text says
    /// so. Whoever asked goes on from what was acknowledged last, and makes its tables anew before it relies on that.
    fn apply<'a>(&'a self, ruleset: &'a str) -> Answer<'a, Result<(), String>>;
}
