//! Everything that a call may ask, as one argument: the packet filter, the log and metrics.
//!
//! `lib.rs` implements it by the component's imports, the tests by a simulation of nft's tables.

use crate::bindings::trueup::host::log::Level;

/// The guest's imports; each does what the function of that name in `wit/` does.
pub trait World {
    /// `nftables.apply`
    ///
    /// # Errors
    /// As the packet filter answers: nothing of the transaction holds.
    fn apply(&mut self, ruleset: &str) -> Result<(), String>;

    /// `metrics.counter-add`, without labels
    fn counter_add(&mut self, name: &str, delta: u64);
    /// `log.emit`
    fn log(&mut self, level: Level, message: &str, fields: &[(&str, &str)]);
}
