//! The limits of one guest call, and the usage counters.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::pace::Holding;

/// The limits of one instance and each of its calls. The header of its journal names all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Linear memory of the instance, in bytes. A service of 100 ports x 100 servers needs 20 MiB.
    pub memory_bytes: u64,
    /// CPU time of one call, in milliseconds, excluding waits for the host. Generous, because it is measured as
    /// wall-clock time on a shared machine.
    pub cpu_ms: u64,
    /// Wall-clock time of one call, in milliseconds, including sleeps and waits. An hour, because a creation of 10,000
    /// servers makes 31,000 requests, which take 52 minutes at the Engine's limit of 10 a second.
    pub call_ms: u64,
    /// Requests per call. A rate-limited creation of 10,000 servers makes 31,000.
    pub imports_per_call: u32,
    /// Total size of the arguments of a call's requests, as JSON, in bytes: each is a line of the recording. The
    /// creation of 10,000 servers needs 9 MiB. Recordings from before this limit have none.
    #[serde(default = "unlimited")]
    pub question_bytes: u64,
    /// Size of one answer in bytes, from the host to the guest and from the guest to the host: a listing of 100,000
    /// resources is 30 MiB.
    pub answer_bytes: u64,
    /// Log lines per call; further ones are dropped and counted.
    pub log_lines_per_call: u32,
    /// Metric lines per call; further ones are dropped and counted.
    pub metric_lines_per_call: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            cpu_ms: 10_000,
            call_ms: 3_600_000,
            imports_per_call: 100_000,
            question_bytes: 64 << 20,
            answer_bytes: 64 << 20,
            log_lines_per_call: 1_000,
            metric_lines_per_call: 10_000,
        }
    }
}

fn unlimited() -> u64 {
    u64::MAX
}

/// The usage of the running call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Requests made.
    pub imports: u32,
    /// Bytes of their arguments.
    pub question_bytes: u64,
    /// Time spent in imports, which does not count against the CPU limit.
    pub waited: Duration,
    /// Log lines written or dropped.
    pub log_lines: u32,
    /// Log lines dropped.
    pub log_lines_dropped: u32,
    /// Metric lines written or dropped.
    pub metric_lines: u32,
    /// Metric lines dropped.
    pub metric_lines_dropped: u32,
}

/// The effects of an instance over all its calls, whatever their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// Objects created.
    pub created: u64,
    /// Objects destroyed.
    pub destroyed: u64,
}

impl AddAssign for Effects {
    fn add_assign(&mut self, more: Self) {
        self.created += more.created;
        self.destroyed += more.destroyed;
    }
}

/// The current total of the instances that share it: those of one guest.
#[derive(Debug, Default)]
pub struct Usage {
    instances: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Usage {
    /// The number of instances.
    pub fn instances(&self) -> u64 {
        self.instances.load(Ordering::Relaxed)
    }

    /// Their linear memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Adds an instance.
    pub fn begin(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds memory of an instance.
    pub fn grow(&self, bytes: u64) {
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes an instance with all its memory.
    pub fn end(&self, bytes: u64) {
        self.instances.fetch_sub(1, Ordering::Relaxed);
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One object that a call created or destroyed, according to the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Created {
        /// `backend`, `frontend`, `bind` or `server`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its identifier, which is unique to each creation.
        identifier: String,
    },
    /// It was destroyed, or was already gone.
    Destroyed {
        /// As in [`Change::Created`].
        kind: &'static str,
        /// Its identifier.
        identifier: String,
    },
}

/// Objects that the backend failed to apply: kind and identifier.
pub type Unapplied = std::collections::BTreeSet<(&'static str, String)>;

/// The number of changes kept until the caller takes them; further ones are dropped: a call that creates 10,000 servers
/// is no cycle.
pub const CHANGES_MAX: usize = 20_000;

/// Tracks one instance's usage against its limits.
#[derive(Default)]
pub struct Meter {
    /// The limits.
    pub limits: Limits,
    /// The usage of the running call, or of the last one.
    pub used: Used,
    /// The effects.
    pub effects: Effects,
    /// When the running call must have ended; `None` in a replay, which has no deadline.
    must_end: Option<Instant>,
    /// The call's turn to compute, if it computes for long.
    pub holding: Holding,
}

impl Meter {
    /// A meter for `limits` with all counters at zero.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Resets the counters. `timed`: the call has `call_ms` from now on.
    pub fn begin_call(&mut self, timed: bool) {
        self.used = Used::default();
        let limit = Duration::from_millis(self.limits.call_ms);
        self.must_end = if timed { Instant::now().checked_add(limit) } else { None };
    }

    /// The remaining time of the running call; `None` means no limit.
    pub fn time_left(&self) -> Option<Duration> {
        let must_end = self.must_end?;
        Some(must_end.saturating_duration_since(Instant::now()))
    }

    /// Whether the running call has used up its `call_ms` at `now`.
    pub fn is_over(&self, now: Instant) -> bool {
        self.must_end.is_some_and(|must_end| must_end <= now)
    }

    /// Counts a log line; returns false if it must be dropped.
    pub(crate) fn log_line(&mut self) -> bool {
        let used = &mut self.used;
        let limit = self.limits.log_lines_per_call;
        count(&mut used.log_lines, &mut used.log_lines_dropped, limit)
    }

    /// Counts a metric line; returns false if it must be dropped.
    pub(crate) fn metric_line(&mut self) -> bool {
        let used = &mut self.used;
        let limit = self.limits.metric_lines_per_call;
        count(&mut used.metric_lines, &mut used.metric_lines_dropped, limit)
    }
}

fn count(lines: &mut u32, dropped: &mut u32, limit: u32) -> bool {
    *lines = lines.saturating_add(1);
    let fits = *lines <= limit;
    *dropped = dropped.saturating_add(u32::from(!fits));
    fits
}
