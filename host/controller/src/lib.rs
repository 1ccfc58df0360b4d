//! Decides which key runs next: queue, dedupe, backoff, resync and one run per key at a time.
//!
//! Sans-IO: it does nothing itself and cannot wait. Time comes in as `now_ms` with every call, randomness as a seed,
//! and keys go out of [`Controller::take_ready`]. The same calls in the same order give the same keys in the same
//! order. It does not know guests or how many runs the driver can afford: a driver without a free slot does not take.
//!
//! ```text
//! changed -> queued -> take_ready -> running -> done -> at rest, or queued again
//! ```
//!
//! Promises to an operator:
//! - A change is tried at once, even if the key was waiting for a retry. Changes before the key is taken count as one;
//!   a change while the key runs makes it run once more.
//! - A failure is tried again after a pause that grows until the key succeeds. Only a success resets the failures. A
//!   change does not; otherwise an input that changes often would hide that it never works.
//! - A resync queues a key that is at rest. It shortens no pause, since the retry will check everything anyway.
//!
//! Every operation on one key costs O(log n) in the number of keys.

#![forbid(unsafe_code)]

mod backoff;
mod controller;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use controller::{Controller, KeyStatus, Outcome, Settings, TooManyKeys};

/// The maximum number of keys that one controller knows. Keys are deduped, so this also limits its queue. Kubernetes is
/// tested up to 10,000 Services and 150,000 Pods per cluster; a million keys take a few hundred MB at worst.
pub const KEYS_MAX: usize = 1_000_000;

/// The shortest pause of [`Outcome::RetryAfter`], in ms: an answer of "after 0 ms" would otherwise spin.
pub const RETRY_AFTER_MS_MIN: u64 = 100;
