//! A limit of how often something happens. It slides: at no moment does the whole limit become available again.
//!
//! Only decides. Times are arguments, in any unit.

use std::collections::VecDeque;

/// The times of the latest events, oldest first.
#[derive(Debug, Default)]
pub struct Window(VecDeque<u64>);

impl Window {
    /// Admits an event at `now`, unless there were `max` within the time `length` before it.
    ///
    /// # Errors
    /// How long it takes until one is admitted.
    pub fn admit(&mut self, max: usize, length: u64, now: u64) -> Result<(), u64> {
        // Another thread may have been first: the times stay in order.
        let now = self.0.back().map_or(now, |last| now.max(*last));
        while self.0.front().is_some_and(|at| at.saturating_add(length) <= now) {
            self.0.pop_front();
        }
        if self.0.len() < max {
            self.0.push_back(now);
            return Ok(());
        }
        let makes_room = self.0.get(self.0.len() - max);
        Err(makes_room.map_or(length, |at| at.saturating_add(length) - now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_admitted_when_an_earlier_one_is_old_enough() {
        let mut window = Window::default();
        for at in [0, 3, 4] {
            assert_eq!(window.admit(3, 10, at), Ok(()));
        }
        assert_eq!(window.admit(3, 10, 4), Err(6));
        assert_eq!(window.admit(3, 10, 9), Err(1));
        assert_eq!(window.admit(3, 10, 10), Ok(()));
        assert_eq!(window.admit(3, 10, 10), Err(3), "the second is there still");
        assert_eq!(
            window.admit(3, 10, 9),
            Err(3),
            "a time before the last one counts as that"
        );
        assert_eq!(window.admit(1, 10, 10), Err(10), "the limit may change");
        assert_eq!(window.admit(0, 10, 100), Err(10));
    }
}
