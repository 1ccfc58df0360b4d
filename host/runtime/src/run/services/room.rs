//! Whether there is room for one more job, and who makes room where there is none: keys that hang take turns with the others.

use std::time::Duration;

use super::super::Event;
use super::{Running, Services};

/// So many calls may be in work at once, those that sleep included: the engine's pool has room for more, with what rests.
const JOBS_MAX: usize = 256;

/// Where a key waits and so many calls are in work, the call that has slept for the longest gives way, after this long at
/// the earliest: a key waits no longer for its first call.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(2);

/// A key whose call gave way runs again after so many milliseconds: keys that sleep for ever take turns so seldom that what
/// it costs to begin them again is small.
pub(super) const GAVE_WAY_PAUSE_MS: u64 = 30_000;

impl<T: FnMut(Event)> Services<'_, T> {
    pub(super) fn has_room(&self) -> bool {
        if !self.acts.may() {
            return false;
        }
        let awake = self.jobs.len().saturating_sub(self.shared.sleepers.count());
        awake < self.workers && self.jobs.len() < JOBS_MAX
    }

    /// Where a key is due and all calls that may be in work are, others end for it: one that sleeps before one that computes
    /// for long, and of each kind the one that began first.
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
