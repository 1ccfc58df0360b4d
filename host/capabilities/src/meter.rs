//! Limits of one guest call, and the count of what it used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::pace::Holding;

/// What one instance, and each of its calls, may use. All are named in the header of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Linear memory of the instance, in bytes. A service of 100 ports x 100 servers needs 20 MiB.
    pub memory_bytes: u64,
    /// CPU time of one call, in milliseconds, without what it waits for the host. Generous, since it is measured as
    /// wall-clock time on a machine that does other things too.
    pub cpu_ms: u64,
    /// Wall-clock time of one call, in milliseconds, with all that it sleeps and waits for. An hour, since a creation of
    /// 10,000 servers asks 31,000 questions, which take 52 minutes where the Engine lets 10 a second pass.
    pub call_ms: u64,
    /// Questions that one call may ask. A rate-limited creation of 10,000 servers asks 31,000.
    pub imports_per_call: u32,
    /// Size of the arguments of all questions of one call together, as JSON, in bytes: each of them is a line of the
    /// recording. The creation of 10,000 servers asks with 9 MiB. A recording from before this limit has none.
    #[serde(default = "unlimited")]
    pub question_bytes: u64,
    /// Size of one answer, in bytes, the host's to the guest and the guest's to the host: a listing of 100,000
    /// resources is 30 MiB.
    pub answer_bytes: u64,
    /// Lines of log that one call may write; further ones are dropped and counted.
    pub log_lines_per_call: u32,
    /// Lines of metrics that one call may write; further ones are dropped and counted.
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

/// What the running call has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Questions asked.
    pub imports: u32,
    /// Bytes of their arguments.
    pub question_bytes: u64,
    /// Time spent in imports: it does not count against the CPU limit.
    pub waited: Duration,
    /// Lines of log written or dropped.
    pub log_lines: u32,
    /// Lines of log dropped.
    pub log_lines_dropped: u32,
    /// Lines of metrics written or dropped.
    pub metric_lines: u32,
    /// Lines of metrics dropped.
    pub metric_lines_dropped: u32,
}

/// What an instance has brought about, over all its calls, whatever became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// Objects created.
    pub created: u64,
    /// Objects destroyed.
    pub destroyed: u64,
}

/// What the instances that were given it hold together, now: those of one guest.
#[derive(Debug, Default)]
pub struct Usage {
    instances: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Usage {
    /// So many instances there are.
    pub fn instances(&self) -> u64 {
        self.instances.load(Ordering::Relaxed)
    }

    /// So much linear memory they hold, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// There is an instance more.
    pub fn begin(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    /// It holds more.
    pub fn grow(&self, bytes: u64) {
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It is gone, with all that it held.
    pub fn end(&self, bytes: u64) {
        self.instances.fetch_sub(1, Ordering::Relaxed);
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One object that a call brought about or removed, as the backend said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Created {
        /// `backend`, `frontend`, `bind` or `server`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its identifier: another one each time.
        identifier: String,
    },
    /// It was destroyed, or was gone already.
    Destroyed {
        /// As in [`Change::Created`].
        kind: &'static str,
        /// Its identifier.
        identifier: String,
    },
}

/// So many changes are kept until whoever made the call takes them; further ones are not kept: a call that creates 10,000
/// servers is no cycle.
pub const CHANGES_MAX: usize = 20_000;

/// Counts one instance's use against its limits.
#[derive(Debug, Default)]
pub struct Meter {
    /// What may be used.
    pub limits: Limits,
    /// What the running call, or the last one, used.
    pub used: Used,
    /// What came of it.
    pub effects: Effects,
    /// When the running call must have ended; none: a replay, whose calls take what time they take.
    must_end: Option<Instant>,
    /// Its turn to compute, where it computes for long.
    pub holding: Holding,
}

impl Meter {
    /// A meter for `limits` that has counted nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Starts to count anew. `timed`: the call has `call_ms` from now on.
    pub fn begin_call(&mut self, timed: bool) {
        self.used = Used::default();
        let limit = Duration::from_millis(self.limits.call_ms);
        self.must_end = if timed { Instant::now().checked_add(limit) } else { None };
    }

    /// How long the running call may still take; none: for ever.
    pub fn time_left(&self) -> Option<Duration> {
        let must_end = self.must_end?;
        Some(must_end.saturating_duration_since(Instant::now()))
    }

    /// The running call has taken its `call_ms`.
    pub fn is_over(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Counts a question; false where the call has asked as many as it may.
    pub(crate) fn question(&mut self) -> bool {
        self.used.imports = self.used.imports.saturating_add(1);
        self.used.imports <= self.limits.imports_per_call
    }

    /// How many bytes of arguments the call may still ask with.
    pub(crate) fn question_bytes_left(&self) -> u64 {
        self.limits.question_bytes.saturating_sub(self.used.question_bytes)
    }

    /// Counts a line of log; false where it is to be dropped.
    pub(crate) fn log_line(&mut self) -> bool {
        count(
            &mut self.used.log_lines,
            &mut self.used.log_lines_dropped,
            self.limits.log_lines_per_call,
        )
    }

    /// Counts a line of metrics; false where it is to be dropped.
    pub(crate) fn metric_line(&mut self) -> bool {
        count(
            &mut self.used.metric_lines,
            &mut self.used.metric_lines_dropped,
            self.limits.metric_lines_per_call,
        )
    }
}

fn count(lines: &mut u32, dropped: &mut u32, limit: u32) -> bool {
    *lines = lines.saturating_add(1);
    let fits = *lines <= limit;
    *dropped = dropped.saturating_add(u32::from(!fits));
    fits
}
