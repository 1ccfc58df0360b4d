//! Everything that a call may ask, as one argument: the packet filter, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation of nft's tables.

use trueup_guest::Telemetry;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World: Telemetry {
    /// `nftables.apply`
    ///
    /// # Errors
    /// The packet filter's error; nothing of the transaction is applied.
    fn apply(&mut self, ruleset: &str) -> Result<(), String>;
}
