//! `wasi:clocks`: both clocks read the host's clock, which counts milliseconds. Each reading is on the tape.

use serde::{Deserialize, Serialize};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};

use super::state::RESOLUTION_NS;
use crate::Host;
use crate::ask::{Nothing, args};
use crate::size::AnswerSize;

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
        let seconds = 0;
        let nanoseconds = 1_000_000;
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
        let name = "monotonic-clock.subscribe-duration";
        let args = args!(when: u64);
        let deadline_ns = self.ask_wasi(name, &args, |backends, wasi| {
            wasi.monotonic.at_ms(backends.clock.now_ms()).saturating_add(when)
        })?;
        self.wasi().pollable(Some(deadline_ns))
    }
}
