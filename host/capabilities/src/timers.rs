//! `trueup:host/timers`: the wake-ups that an instance requested.
//!
//! Keeps the order in which timers fire (by time, then id); does not fire them itself. All times are those of
//! `Clock::steady_ms`: a timer measures a duration, whatever happens to the wall clock.

use std::collections::{BTreeMap, BTreeSet};

/// The timers of one instance. Ids count up from 1.
#[derive(Debug, Default)]
pub struct Timers {
    last: u64,
    /// Ids to reuse, each with its due time.
    again: BTreeSet<(u64, u64)>,
    due: BTreeSet<(u64, u64)>,
    by_id: BTreeMap<u64, u64>,
}

impl Timers {
    /// Timers of an instance that starts beside another one. The other's waiting timers (due time and id) are about to
    /// be scheduled again, and each gets the id with the nearest due time.
    pub fn again(waiting: &[(u64, u64)]) -> Self {
        Self {
            last: waiting.iter().map(|(_, timer)| *timer).max().unwrap_or_default(),
            again: waiting.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Timers whose ids begin after `last`, so that they differ from those of a recording.
    pub fn after(last: u64) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// The waiting timers: due time and id.
    #[cfg(test)]
    fn waiting(&self) -> Vec<(u64, u64)> {
        self.due.iter().copied().collect()
    }

    /// Schedules a timer for `now_ms + delay_ms` and returns its id.
    pub fn schedule(&mut self, now_ms: u64, delay_ms: u64) -> u64 {
        let due_ms = now_ms.saturating_add(delay_ms);
        let nearest = self.again.iter().min_by_key(|(due, _)| due.abs_diff(due_ms)).copied();
        let timer = if let Some(again) = nearest {
            self.again.remove(&again);
            again.1
        } else {
            self.last += 1;
            self.last
        };
        self.due.insert((due_ms, timer));
        self.by_id.insert(timer, due_ms);
        timer
    }

    /// Returns false if the timer has fired already or never existed.
    pub fn cancel(&mut self, timer: u64) -> bool {
        match self.by_id.remove(&timer) {
            Some(due_ms) => self.due.remove(&(due_ms, timer)),
            None => false,
        }
    }

    /// Takes the first timer that is due at `now_ms`: its time and its id.
    pub fn take_due(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        let &(due_ms, timer) = self.due.first().filter(|&&(due_ms, _)| due_ms <= now_ms)?;
        self.cancel(timer);
        Some((due_ms, timer))
    }

    /// When the next timer is due; `None` if there is none.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|&(due_ms, _)| due_ms)
    }

    /// The number of waiting timers.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns true if no timer waits.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_scheduled_again_beside_another_instance_get_its_ids() {
        let mut there = Timers::default();
        let ids = [90, 50, 70].map(|delay_ms| there.schedule(1_000, delay_ms));
        assert!(there.cancel(ids[1]));
        assert_eq!(there.waiting(), [(1_070, 3), (1_090, 1)]);
        let mut here = Timers::again(&there.waiting());
        assert!(here.is_empty());
        // One is a millisecond off, as two readings of a clock are; the other is overdue.
        assert_eq!([here.schedule(1_080, 11), here.schedule(1_080, 0)], [1, 3]);
        assert_eq!(here.schedule(1_080, 5), 4, "a new one");
    }

    #[test]
    fn timers_fire_in_order_of_time_then_id_and_once() {
        let mut timers = Timers::default();
        let late = timers.schedule(0, 20);
        let first = timers.schedule(5, 5);
        let second = timers.schedule(0, 10);
        assert_eq!((late, first, second), (1, 2, 3));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(10), Some((10, first)));
        assert!(!timers.cancel(first), "it has fired");
        assert!(timers.cancel(second));
        assert_eq!(timers.take_due(15), None);
        assert_eq!(timers.next_due_ms(), Some(20));
        assert_eq!(timers.take_due(20), Some((20, late)));
        assert!(timers.is_empty());
        assert_eq!(timers.schedule(u64::MAX, 1), 4, "the end of time is late enough");
    }
}
