//! Limits how many refusals of a guest are written: a guest must not fill the disk. Metrics count all of them.
//!
//! Only decides. Times are arguments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The budget of each guest.
#[derive(Debug)]
pub(super) struct Budgets {
    lines: u32,
    window: Duration,
    /// By guest: when its window began, and its refusals since then.
    guests: BTreeMap<String, (Instant, u32)>,
}

/// What to write for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// Its own line.
    Line,
    /// One line that says that no more are written.
    Notice,
    /// Nothing.
    Nothing,
}

impl Budgets {
    /// Allows `lines` lines per guest and window. A window begins with the guest's first refusal.
    pub(super) fn new(lines: u32, window: Duration) -> Self {
        Self {
            lines,
            window,
            guests: BTreeMap::new(),
        }
    }

    /// Counts a refusal of this guest.
    pub(super) fn admit(&mut self, guest: &str, now: Instant) -> Admitted {
        let (begun, refused) = self.guests.entry(guest.to_owned()).or_insert((now, 0));
        if now.saturating_duration_since(*begun) >= self.window {
            (*begun, *refused) = (now, 0);
        }
        *refused = refused.saturating_add(1);
        match (*refused).cmp(&self.lines.saturating_add(1)) {
            std::cmp::Ordering::Less => Admitted::Line,
            std::cmp::Ordering::Equal => Admitted::Notice,
            std::cmp::Ordering::Greater => Admitted::Nothing,
        }
    }

    /// The outcome in a line that says that no more are written.
    pub(super) fn notice(&self) -> String {
        let (lines, seconds) = (self.lines, self.window.as_secs());
        format!("access denied: {lines} refusals within {seconds} s; further ones of this guest are only counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_a_limit_of_lines_per_window() {
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        let mut budgets = Budgets::new(2, minute);
        let all = [
            Admitted::Line,
            Admitted::Line,
            Admitted::Notice,
            Admitted::Nothing,
            Admitted::Nothing,
        ];
        for now in [begun, begun + minute] {
            assert_eq!(all.map(|_| budgets.admit("a", now)), all);
            assert_eq!(budgets.admit("b", now), Admitted::Line);
        }
        let outcome = budgets.notice();
        assert!(
            outcome.starts_with("access denied: 2 refusals within 60 s; "),
            "{outcome}"
        );
    }
}
