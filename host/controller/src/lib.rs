//! Decides which key runs next: queue, dedupe, backoff, resync and one run per key at a time.
//!
//! Sans-IO: it does nothing itself and cannot wait. Time comes in as `now_ms` with every call, chance as a seed, keys
//! go out of [`Controller::take_ready`], and the same calls in the same order give the same keys in the same order.
//! It knows nothing of guests or of how many runs the driver can afford: a driver with no free slot does not take.
//!
//! ```text
//! changed -> queued -> take_ready -> running -> done -> at rest, or queued again
//! ```
//!
//! What an operator may rely on:
//! - A change is tried at once, also where the key was waiting for a retry. Changes that arrive before the key is
//!   taken are one; a change that arrives while the key runs makes it run once more.
//! - A failure is tried again after a pause that grows until the key succeeds. Only a success sets the failures back to
//!   none: a change does not, or an input that changes often would hide that it never works.
//! - A resync queues a key that is at rest. It shortens no pause, since the retry will look at everything anyway.
//!
//! Every operation on one key costs O(log n) in the number of keys.

#![forbid(unsafe_code)]

mod backoff;
mod controller;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use controller::{Controller, KeyStatus, Outcome, Settings, TooManyKeys};

/// How many keys one controller knows at most. Keys are deduped, so this is also the limit of its queue. Kubernetes is
/// tested up to 10,000 Services and 150,000 Pods a cluster; a million keys are a few hundred MB at the very worst.
pub const KEYS_MAX: usize = 1_000_000;

/// The shortest pause that [`Outcome::RetryAfter`] gives, in ms: an answer of "after 0 ms" would otherwise spin.
pub const RETRY_AFTER_MS_MIN: u64 = 100;
