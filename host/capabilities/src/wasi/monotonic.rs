//! The monotonic clock of `wasi:clocks`.

/// The host's clock counts milliseconds.
pub(super) const RESOLUTION_NS: u64 = 1_000_000;

/// A monotonic clock based on one that may go back: if the machine's clock is set back, this one pauses once and
/// continues from there.
#[derive(Debug, Default)]
pub(super) struct Monotonic {
    wall_ms: Option<u64>,
    ns: u64,
}

impl Monotonic {
    /// The time in nanoseconds when the host's clock shows `wall_ms`. It starts at that value, so that a restarted
    /// guest never sees an earlier time.
    pub(super) fn at_ms(&mut self, wall_ms: u64) -> u64 {
        let passed_ms = match self.wall_ms {
            Some(before_ms) => wall_ms.saturating_sub(before_ms),
            None => wall_ms,
        };
        self.wall_ms = Some(wall_ms);
        self.ns = self.ns.saturating_add(passed_ms.saturating_mul(RESOLUTION_NS));
        self.ns
    }

    /// Advances to `deadline_ns` at the end of a wait, whatever the host's clock shows.
    pub(super) fn reach(&mut self, deadline_ns: u64) -> u64 {
        self.ns = self.ns.max(deadline_ns);
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_follows_the_hosts_and_never_goes_back() {
        let mut clock = Monotonic::default();
        assert_eq!(clock.at_ms(1_000), 1_000_000_000);
        assert_eq!(clock.at_ms(1_001), 1_001_000_000);
        assert_eq!(clock.at_ms(5), 1_001_000_000, "set back: it stands");
        assert_eq!(clock.at_ms(7), 1_003_000_000, "and goes on");
        assert_eq!(clock.reach(1_002_000_000), 1_003_000_000, "that was over before");
        assert_eq!(clock.reach(1_010_000_000), 1_010_000_000);
        assert_eq!(clock.at_ms(8), 1_011_000_000);
        assert_eq!(clock.at_ms(u64::MAX), u64::MAX, "the end of time");
    }
}
