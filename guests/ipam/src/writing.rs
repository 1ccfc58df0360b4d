//! Writes a change to the store: as one entry, or as a whole checkpoint if the store is out of step or has its maximum
//! of entries.
//!
//! Tracks what the guest knows about the store. The caller decides what a failed write means for the change.

use serde::{Deserialize, Serialize};

use crate::world::{World, words};
use crate::{bindings::trueup::checkpoint::store::Error as StoreError, datastore::Datastore, metrics, stored};

/// What the guest knows about the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreState {
    /// True if the stored text gives exactly the allocations in memory.
    pub(crate) in_step: bool,
    /// How many entries follow the checkpoint.
    pub(crate) entries: u64,
    /// Why the store could not be read. The guest writes nothing until a reading succeeds.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) blocked: Option<String>,
}

impl Datastore {
    /// Writes a change that memory already has and that happened now. `entry` is `None` if only a whole checkpoint can
    /// express it.
    ///
    /// # Errors
    /// Why the write failed, as `KIND: TEXT` or in the words of the failed reading. The store may have the text all the
    /// same: the next change writes a whole checkpoint.
    pub(crate) fn write(&mut self, world: &mut impl World, now_ms: u64, entry: Option<&str>) -> Result<(), String> {
        let store = &mut self.store_state;
        if let Some(why) = store.blocked.clone() {
            store.in_step = false;
            return Err(why);
        }
        match entry {
            Some(entry) if store.in_step && store.entries < self.settings.compact_after => self.append(world, entry),
            _ => self.write_whole(world, now_ms),
        }
    }

    /// Writes a whole checkpoint, whatever is stored, and then the rests.
    ///
    /// # Errors
    /// As [`Datastore::write`]. A failure to store the rests is logged and is no error.
    pub(crate) fn write_whole(&mut self, world: &mut impl World, now_ms: u64) -> Result<(), String> {
        let answer = world.checkpoint(&self.memory.checkpoint());
        self.note(world, answer)?;
        self.store_state.in_step = true;
        self.store_state.entries = 0;
        let resting = self.memory.all_resting(self.settings.cooling, now_ms);
        if self.settings.compact_after == 0 || resting.is_empty() {
            return Ok(());
        }
        if let Err(why) = self.append(world, &stored::rest(&resting)) {
            let message = "the rests were not stored, a restart would end them";
            world.warn(message, &[("error", &why)]);
        }
        Ok(())
    }

    fn append(&mut self, world: &mut impl World, entry: &str) -> Result<(), String> {
        let answer = world.append(entry);
        self.note(world, answer)?;
        self.store_state.entries = self.store_state.entries.saturating_add(1);
        Ok(())
    }

    fn note(&mut self, world: &mut impl World, answer: Result<(), StoreError>) -> Result<(), String> {
        answer.map_err(|error| {
            self.store_state.in_step = false;
            world.counter_add(metrics::STORE_FAILURES, &[], 1);
            words(&error)
        })
    }
}
