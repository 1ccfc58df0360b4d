//! `trueup:host/random`: numbers from a seed, so that a run can be repeated.

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A source of numbers that are uniform over all of u64.
pub trait Random: Send + Sync {
    /// The next number.
    fn next_u64(&self) -> u64;
}

/// Numbers from a seed (ChaCha8): the same seed gives the same numbers on every machine and in every version.
#[derive(Debug)]
pub struct Seeded(Mutex<ChaCha8Rng>);

impl Seeded {
    /// The sequence of `seed` and `stream`; each instance has a stream of its own.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(Mutex::new(rng))
    }
}

impl Random for Seeded {
    fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}
