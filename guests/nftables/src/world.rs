//! Everything that a call may ask, as one argument: the packet filter, the log and metrics.

use trueup_guest::Telemetry;

use crate::bindings::trueup::service::nftables;

trueup_guest::world! {
    /// The guest's imports.
    pub(crate) trait World: Telemetry {
        fn apply(ruleset: &str) -> Result<(), String> = nftables::apply;
    }
}
