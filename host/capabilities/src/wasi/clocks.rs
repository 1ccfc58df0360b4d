//! `wasi:clocks`: both clocks read the host's clock, which counts milliseconds. Each reading is on the tape.

use serde::{Deserialize, Serialize};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};

use crate::Host;
use crate::ask::{Nothing, args};
use crate::size::AnswerSize;

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

/// `wasi:clocks/wall-clock.datetime` as in a journal.
#[derive(Serialize, Deserialize)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

impl AnswerSize for Datetime {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl wall_clock::Host for Host {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let Datetime { seconds, nanoseconds } = self.ask_wasi("wall-clock.now", &Nothing {}, |backends, _| {
            let now_ms = backends.clock.now_ms();
            Datetime {
                seconds: now_ms / 1_000,
                // Below a thousand, so it fits.
                nanoseconds: u32::try_from(now_ms % 1_000 * RESOLUTION_NS).unwrap_or_default(),
            }
        })?;
        Ok(wall_clock::Datetime { seconds, nanoseconds })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let (seconds, nanoseconds) = (0, 1_000_000);
        Ok(wall_clock::Datetime { seconds, nanoseconds })
    }
}

impl monotonic_clock::Host for Host {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.ask_wasi("monotonic-clock.now", &Nothing {}, |backends, wasi| {
            wasi.monotonic.at_ms(backends.clock.now_ms())
        })
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(RESOLUTION_NS)
    }

    /// Neither waits nor asks: the instant is the guest's own.
    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.wasi().pollable(Some(when))
    }

    /// The tape records the instant at which the pollable is ready.
    fn subscribe_duration(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let (name, args) = ("monotonic-clock.subscribe-duration", args!(when: u64));
        let deadline_ns = self.ask_wasi(name, &args, |backends, wasi| {
            wasi.monotonic.at_ms(backends.clock.now_ms()).saturating_add(when)
        })?;
        self.wasi().pollable(Some(deadline_ns))
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
