//! Limits how many refusals of a guest are written; the rest are only counted.
//!
//! Only decides; `writer.rs` handles the queue and the disk. Times are arguments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use trueup_base::text::counted;

use super::line::{Kind, Line};

/// The remaining budget of each guest.
#[derive(Debug)]
pub(super) struct Budgets {
    lines: u32,
    window: Duration,
    /// By guest. Entries whose window has ended are removed.
    guests: BTreeMap<String, Budget>,
}

#[derive(Debug)]
struct Budget {
    begun: Instant,
    written: u32,
    /// Refusals that were only counted since the last line that reported a count.
    more: u64,
    /// The last of them.
    last: Option<Line>,
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

    /// Returns what to write for a refusal, in order: the count of earlier refusals, and its own line. The queue has
    /// room for `room` lines. An empty result means that the refusal is only counted.
    pub(super) fn admit(&mut self, line: Line, room: usize, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        let budget = self.guests.entry(line.guest.clone()).or_insert(Budget::begin(now));
        if now.saturating_duration_since(budget.begun) >= self.window {
            lines.extend(budget.counted());
            *budget = Budget::begin(now);
        }
        // The line with the count needs a place, too.
        let wanted = 1 + usize::from(budget.more > 0);
        if budget.written >= self.lines || wanted > room {
            budget.more = budget.more.saturating_add(1);
            budget.last = Some(line);
            return lines;
        }
        lines.extend(budget.counted());
        budget.written += 1;
        lines.push(line);
        lines
    }

    /// Returns the counts of guests whose window has ended.
    pub(super) fn over(&mut self, now: Instant) -> Vec<Line> {
        let window = self.window;
        let is_over = |budget: &Budget| now.saturating_duration_since(budget.begun) >= window;
        let over = self.guests.extract_if(.., |_, budget| is_over(budget));
        over.filter_map(|(_, mut budget)| budget.counted()).collect()
    }

    /// When the next window ends that has a count to report.
    pub(super) fn due(&self) -> Option<Instant> {
        let counting = self.guests.values().filter(|budget| budget.more > 0);
        counting.map(|budget| budget.begun + self.window).min()
    }

    /// Returns the counts that are not reported yet.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        let all = std::mem::take(&mut self.guests);
        all.into_values().filter_map(|mut budget| budget.counted()).collect()
    }
}

impl Budget {
    fn begin(now: Instant) -> Self {
        Self {
            begun: now,
            written: 0,
            more: 0,
            last: None,
        }
    }

    /// Returns the line with the number of refusals that were only counted, and resets it.
    fn counted(&mut self) -> Option<Line> {
        let last = self.last.take()?;
        let more = std::mem::take(&mut self.more);
        Some(Line {
            kind: Kind::Refused,
            instance: String::new(),
            decision: String::new(),
            call: "*".to_owned(),
            scope: "*".to_owned(),
            outcome: format!("and {}", counted(more, "more refusal", "more refusals")),
            ..last
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::line::line_of;
    use crate::identity::Identity;

    const MINUTE: Duration = Duration::from_secs(60);
    const ROOM: usize = 10;

    fn line(guest: &str) -> Line {
        let about = Identity {
            guest: guest.to_owned(),
            instance: "default/web".to_owned(),
            ..Identity::default()
        };
        line_of(Kind::Refused, 7, &about, "api.get", "lb-2", "denied")
    }

    fn outcomes(lines: Vec<Line>) -> Vec<String> {
        lines.into_iter().map(|line| line.outcome).collect()
    }

    #[test]
    fn each_guest_has_a_limit_of_lines_per_window_and_a_count_of_the_rest() {
        let begun = Instant::now();
        let mut budgets = Budgets::new(2, MINUTE);
        for expected in [&["denied"][..], &["denied"], &[], &[], &[]] {
            assert_eq!(outcomes(budgets.admit(line("a"), ROOM, begun)), expected);
        }
        assert_eq!(outcomes(budgets.admit(line("b"), ROOM, begun)), ["denied"]);
        assert_eq!(budgets.due(), Some(begun + MINUTE));
        assert!(budgets.over(begun + MINUTE / 2).is_empty());
        let next = budgets.admit(line("a"), ROOM, begun + MINUTE);
        assert_eq!(
            (
                next[0].guest.as_str(),
                next[0].scope.as_str(),
                next[0].instance.as_str()
            ),
            ("a", "*", "")
        );
        assert_eq!(outcomes(next), ["and 3 more refusals", "denied"]);
        assert_eq!(budgets.due(), None, "all is said");
        budgets.admit(line("a"), ROOM, begun + MINUTE);
        assert!(budgets.admit(line("a"), ROOM, begun + MINUTE).is_empty());
        assert_eq!(outcomes(budgets.over(begun + MINUTE * 2)), ["and 1 more refusal"]);
        assert!(budgets.guests.is_empty(), "nothing is kept of guests that are quiet");
    }

    #[test]
    fn what_does_not_fit_the_queue_is_counted_and_said_when_there_is_room() {
        let now = Instant::now();
        let mut budgets = Budgets::new(5, MINUTE);
        assert!(budgets.admit(line("a"), 0, now).is_empty());
        assert!(budgets.admit(line("a"), 1, now).is_empty(), "two lines have no room");
        assert_eq!(
            outcomes(budgets.admit(line("a"), 2, now)),
            ["and 2 more refusals", "denied"]
        );
        assert!(budgets.admit(line("a"), 0, now).is_empty());
        assert_eq!(outcomes(budgets.rest()), ["and 1 more refusal"]);
    }
}
