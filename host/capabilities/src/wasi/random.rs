//! `wasi:random`: the host's randomness, on the tape; `insecure` is the same as `random`.

use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use crate::Host;
use crate::ask::{Nothing, Stop, args};

/// The maximum number of random bytes per call: each takes four bytes of recording. A hash seed takes 24, a key 32; a
/// guest that needs more can stretch its seed.
pub const RANDOM_BYTES_PER_CALL_MAX: u64 = 1 << 20;

impl Host {
    fn random_bytes(&mut self, name: &'static str, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.draw(len)?;
        self.ask_wasi(name, &args!(len: u64), |backends, _| {
            // At most what a call may draw, so it fits.
            let len = usize::try_from(len).unwrap_or_default();
            let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
            while bytes.len() < len {
                bytes.extend_from_slice(&backends.random.next_u64().to_le_bytes());
            }
            bytes.truncate(len);
            bytes
        })
    }

    fn random_u64(&mut self, name: &'static str) -> wasmtime::Result<u64> {
        self.draw(8)?;
        self.ask_wasi(name, &Nothing {}, |backends, _| backends.random.next_u64())
    }

    /// Counted before the request, so that a replay ends at the same point.
    fn draw(&mut self, bytes: u64) -> Result<(), Stop> {
        let wasi = self.wasi();
        wasi.random_bytes = wasi.random_bytes.saturating_add(bytes);
        if wasi.random_bytes > RANDOM_BYTES_PER_CALL_MAX {
            let limit = RANDOM_BYTES_PER_CALL_MAX;
            return Err(Stop::TooMuchRandom { limit });
        }
        Ok(())
    }
}

impl random::Host for Host {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes("random.get-random-bytes", len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.random_u64("random.get-random-u64")
    }
}

impl insecure::Host for Host {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes("insecure.get-insecure-random-bytes", len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.random_u64("insecure.get-insecure-random-u64")
    }
}

impl insecure_seed::Host for Host {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        self.draw(16)?;
        self.ask_wasi("insecure-seed.insecure-seed", &Nothing {}, |backends, _| {
            (backends.random.next_u64(), backends.random.next_u64())
        })
    }
}
