//! Everything that a call may ask, as one argument: the packet filter, the log and metrics.
//!
//! `lib.rs` implements it with the component's imports, the tests with a simulation of nft's tables.

use crate::bindings::trueup::host::log::Level;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World {
    /// `nftables.apply`
    ///
    /// # Errors
    /// The packet filter's error; nothing of the transaction is applied.
    fn apply(&mut self, ruleset: &str) -> Result<(), String>;

    /// `metrics.counter-add`, without labels
    fn counter_add(&mut self, name: &str, delta: u64);
    /// `log.emit`
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]);
}
