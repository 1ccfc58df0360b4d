//! One instance: its settings, its migrator and its syncer, which share one state.
//!
//! Each function is an export of the world.

use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::exports::trueup::neg::syncer::{Error, SyncReport};
use crate::bindings::trueup::neg::types::EndpointGroup;
use crate::entry;
use crate::filter::Committed;
use crate::migrator::Migrator;
use crate::settings::Settings;
use crate::snapshot;
use crate::syncer::Syncer;
use crate::world::World;

/// The state of an instance.
#[derive(Clone, Debug, Default)]
pub struct Neg {
    settings: Settings,
    migrator: Migrator,
    syncer: Syncer,
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

    /// `migrator.pause`
    pub fn pause(&mut self, world: &mut impl World) {
        self.migrator.pause(world, &self.settings);
    }

    /// `migrator.continue`
    pub fn resume(&mut self, world: &mut impl World, detach_failure: Option<&str>) {
        self.migrator.resume(world, &self.settings, detach_failure);
    }

    /// `migrator.is-paused`
    pub fn is_paused(&self) -> bool {
        self.migrator.is_paused(&self.settings)
    }

    /// `syncer.sync`
    ///
    /// # Errors
    /// A mistake in the target, or the first error of the API.
    pub fn sync(&mut self, world: &mut impl World, target: Vec<EndpointGroup>) -> Result<SyncReport, Error> {
        self.syncer.sync(world, &self.settings, &mut self.migrator, target)
    }

    /// `syncer.on-operation`
    pub fn on_operation(&mut self, world: &mut impl World, operation: u64, failure: Option<String>) -> bool {
        self.syncer
            .on_operation(world, &self.settings, &mut self.migrator, operation, failure)
    }

    /// `syncer.set-error-state`
    pub fn set_error_state(&mut self, world: &mut impl World, in_error_state: bool) {
        self.syncer.set_error_state(world, in_error_state);
    }

    /// `timer-events.on-timer`
    pub fn on_timer(&mut self, world: &mut impl World, timer: u64) -> bool {
        self.migrator.on_timer(world, timer) || self.syncer.on_timer(timer)
    }

    /// `lifecycle.snapshot`
    pub fn snapshot(&self) -> String {
        snapshot::write(&self.migrator, &self.syncer)
    }

    /// `lifecycle.restore`
    ///
    /// # Errors
    /// Why the text can't be read; then nothing has changed.
    pub fn restore(&mut self, world: &mut impl World, snapshot: &str) -> Result<(), String> {
        let restored = snapshot::read(snapshot)?;
        self.migrator.stop(world);
        self.syncer.stop(world);
        (self.migrator, self.syncer) = restored.start(world);
        Ok(())
    }
}
