//! Whether there is room for one more job, and which call makes room if there is none. Keys that hang take turns with
//! the others.

use std::time::Duration;

use super::{Running, Services};
use crate::event::Event;

/// The maximum number of calls in work, including those that sleep. The engine's pool has room for these and for idle
/// instances.
const JOBS_MAX: usize = 256;

/// If a key waits and [`JOBS_MAX`] calls are in work, the call that has slept for the longest gives way, at the
/// earliest after this long. A key waits no longer than that for its first call.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(2);

/// A key whose call gave way runs again after this many milliseconds. Keys that sleep for ever then take turns so
/// seldom that restarting them costs little.
pub(super) const GAVE_WAY_PAUSE_MS: u64 = 30_000;

impl<T: FnMut(Event)> Services<'_, T> {
    pub(super) fn has_room(&self) -> bool {
        if !self.acts.may() {
            return false;
        }
        let awake = self.jobs.len().saturating_sub(self.shared.sleepers.count());
        awake < self.workers && self.jobs.len() < JOBS_MAX
    }

    /// If a key is due and no job slot is free, ends another call: one that sleeps before one that computes for long,
    /// and of each kind the one that began first.
    pub(super) fn make_room(&mut self) {
        let now_ms = self.now_ms();
        let is_due = self.controller.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let gives_way = |running: &Running| running.gives_way.is_some();
        if !is_due || self.jobs.len() < JOBS_MAX || !self.acts.may() || self.running.values().any(gives_way) {
            return;
        }
        let candidates = self.running.values_mut().filter_map(|running| {
            let waits = running.interrupt.waits()?;
            (running.began.elapsed() >= GIVES_WAY_AFTER).then_some((waits, running.began, running))
        });
        if let Some((waits, _, running)) = candidates.min_by_key(|(waits, began, _)| (*waits, *began)) {
            running.gives_way = Some(waits);
            running.interrupt.want();
        }
    }
}
