//! Which loops are alive. Each loop beats as it runs; a loop that has not beaten for a long time is stuck.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::HostStatus;

/// A loop that has not beaten for this long is stuck. Loops beat every second. Their slowest turn reads a source of
/// 100,000 objects, which takes a second or two on a busy machine.
pub const BEAT_MAX: Duration = Duration::from_secs(30);

/// A loop that has not beaten for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// Its name.
    pub name: &'static str,
    /// The time since its last beat.
    pub silent: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Loops(Mutex<BTreeMap<&'static str, Instant>>);

impl Loops {
    pub(super) fn begin(&self, name: &'static str) {
        self.0.lock().insert(name, Instant::now());
    }

    fn end(&self, name: &'static str) {
        self.0.lock().remove(name);
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.lock().keys().copied().collect()
    }

    pub(super) fn late(&self, now: Instant) -> Vec<Late> {
        let all = self.0.lock();
        let silent = all.iter().map(|(name, beat)| Late {
            name,
            silent: now.saturating_duration_since(*beat),
        });
        silent.filter(|late| late.silent > BEAT_MAX).collect()
    }
}

/// A loop that is watched until this is dropped: a loop that ends normally is not stuck. A loop that panics stays
/// registered, and is late after [`BEAT_MAX`].
pub struct Beating {
    host_status: Arc<HostStatus>,
    name: &'static str,
}

impl Beating {
    pub(super) fn new(host_status: Arc<HostStatus>, name: &'static str) -> Self {
        Self { host_status, name }
    }

    /// Records that the loop is alive.
    pub fn beat(&self) {
        self.host_status.loops.begin(self.name);
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.host_status.loops.end(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_late_once_it_was_silent_for_too_long_and_not_after_its_end() {
        let loops = Loops::default();
        loops.begin("services");
        let now = Instant::now();
        assert_eq!(loops.late(now + BEAT_MAX / 2), []);
        let late = loops.late(now + BEAT_MAX * 2);
        assert_eq!(late.iter().map(|late| late.name).collect::<Vec<_>>(), ["services"]);
        loops.end("services");
        assert_eq!(loops.late(now + BEAT_MAX * 2), []);
    }
}
