//! Which loops are alive. Each loop beats as it runs; a loop that has not beaten for a long time is stuck.

use std::sync::Arc;
use std::time::Duration;

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

impl HostStatus {
    /// Starts watching a loop. It must beat at least every few seconds until the returned value is dropped.
    pub fn begin_loop(self: &Arc<Self>, name: &'static str) -> Beating {
        let host_status = Arc::clone(self);
        let beating = Beating { host_status, name };
        beating.beat();
        beating
    }

    /// The loops that have not beaten for too long, by name.
    pub fn late(&self) -> Vec<Late> {
        self.late_at(Instant::now())
    }

    fn late_at(&self, now: Instant) -> Vec<Late> {
        let loops = self.loops.lock();
        let silent = loops.iter().map(|(name, beat)| Late {
            name,
            silent: now.saturating_duration_since(*beat),
        });
        silent.filter(|late| late.silent > BEAT_MAX).collect()
    }

    /// The loops that are being watched, by name.
    pub fn beating(&self) -> Vec<&'static str> {
        self.loops.lock().keys().copied().collect()
    }
}

/// A loop that is watched until this is dropped: a loop that ends normally is not stuck. A loop that panics stays
/// registered, and is late after [`BEAT_MAX`].
pub struct Beating {
    host_status: Arc<HostStatus>,
    name: &'static str,
}

impl Beating {
    /// Records that the loop is alive.
    pub fn beat(&self) {
        self.host_status.loops.lock().insert(self.name, Instant::now());
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.host_status.loops.lock().remove(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Facts;
    use super::*;

    #[test]
    fn a_loop_is_late_once_it_was_silent_for_too_long_and_not_after_its_end() {
        let host_status = HostStatus::new(Facts::default());
        let beating = host_status.begin_loop("services");
        let now = Instant::now();
        assert_eq!(host_status.late_at(now + BEAT_MAX / 2), []);
        let late = host_status.late_at(now + BEAT_MAX * 2);
        assert_eq!(late.iter().map(|late| late.name).collect::<Vec<_>>(), ["services"]);
        drop(beating);
        assert_eq!(host_status.late_at(now + BEAT_MAX * 2), []);
    }
}
