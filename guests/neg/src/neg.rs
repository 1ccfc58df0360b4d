//! One instance: its settings, and the state that its migrator and its syncer share.
//!
//! Each public function is an export of the world; `syncer` has those of that interface.

use std::collections::BTreeSet;

use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::trueup::neg::types::{EndpointGroup, Location};
use crate::entry;
use crate::filter::Committed;
use crate::migrator::Migrator;
use crate::operations::Operations;
use crate::retry::Retry;
use crate::settings::Settings;
use crate::world::World;

/// The state of an instance.
#[derive(Clone, Debug, Default)]
pub struct Neg {
    pub(crate) settings: Settings,
    pub(crate) migrator: Migrator,
    /// Locations whose NEG was ensured since the latest error.
    pub(crate) ensured: BTreeSet<Location>,
    /// Locations whose NEG was ensured at some time, and not found missing since.
    pub(crate) known: BTreeSet<Location>,
    /// In flight.
    pub(crate) operations: Operations,
    /// The error state that the caller set.
    pub(crate) in_error_state: bool,
    /// Retries of syncs that ended with an API error.
    pub(crate) sync_retry: Retry,
    /// Retries of failed operations.
    pub(crate) operation_retry: Retry,
}

impl Neg {
    /// A new instance without state.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// `migrator.filter`
    pub fn filter(
        &mut self,
        world: &mut impl World,
        add: Vec<EndpointGroup>,
        remove: Vec<EndpointGroup>,
        committed: Vec<EndpointGroup>,
        in_error_state: bool,
    ) -> Filtered {
        let sets = (entry::united(add), entry::united(remove));
        let committed = || Committed::of(committed);
        let decision = self
            .migrator
            .filter(world, &self.settings, sets, committed, in_error_state);
        decision.answer()
    }

    /// `timer-events.on-timer`: true if it was the wait timer of the migrator or one of the two retry timers.
    pub fn on_timer(&mut self, world: &mut impl World, timer: u64) -> bool {
        self.migrator.on_timer(world, timer) || self.sync_retry.on_timer(timer) || self.operation_retry.on_timer(timer)
    }
}
