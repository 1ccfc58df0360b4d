//! Turns of the calls that compute for long. A few compute at a time; of those that wait, the one that has computed
//! least goes first.
//!
//! A large decision therefore comes before guests that loop. They share what is left until `cpu_ms` ends them.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use trueup_capabilities::async_trait;
use trueup_capabilities::pace::{Pace, Turn};

use super::interrupt::{Asleep, Interrupt, Sleepers, Waits};

/// The turns of one loop.
pub(crate) struct Turns {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    free: usize,
    arrivals: u64,
    /// Ordered by how long each call has computed, then by arrival.
    waiting: BTreeMap<(Duration, u64), oneshot::Sender<Permit>>,
}

/// The right to compute until it is dropped. `None` if it was already passed on.
struct Permit(Option<Arc<Turns>>);

impl Turns {
    /// Long computations may take half of the calls that may be awake, and half of the machine's cores.
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::of(workers.min(cores).div_euclid(2).max(1))
    }

    fn of(free: usize) -> Arc<Self> {
        let inner = Mutex::new(Inner {
            free,
            ..Inner::default()
        });
        Arc::new(Self { inner })
    }

    async fn take(self: &Arc<Self>, computed: Duration) -> Permit {
        let next = {
            let mut inner = self.inner.lock();
            if inner.free > 0 {
                inner.free -= 1;
                return Permit(Some(Arc::clone(self)));
            }
            let (give, next) = oneshot::channel();
            inner.arrivals += 1;
            let arrival = inner.arrivals;
            inner.waiting.insert((computed, arrival), give);
            next
        };
        // Only dropping the turns drops the sender, and this borrows them.
        next.await.unwrap_or(Permit(None))
    }

    /// Ends a turn; the next one begins.
    fn give(self: Arc<Self>) {
        loop {
            let next = {
                let mut inner = self.inner.lock();
                let next = inner.waiting.pop_first();
                inner.free += usize::from(next.is_none());
                next
            };
            let Some((_, next)) = next else { return };
            match next.send(Permit(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                // The host cut the call while it waited.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.give();
        }
    }
}

/// The pace of one instance. While it computes for long it occupies no worker. If an interrupt is wanted, it never
/// goes on, as in a sleep.
pub(crate) struct Paced {
    pub(crate) turns: Arc<Turns>,
    pub(crate) interrupt: Arc<Interrupt>,
    pub(crate) sleepers: Arc<Sleepers>,
}

#[async_trait]
impl Pace for Paced {
    async fn turn(&self, computed: Duration) -> Turn {
        let asleep = Asleep::new(&self.sleepers);
        // Yields even if a turn is free at once.
        tokio::task::yield_now().await;
        let taking = self.turns.take(computed);
        Box::new((self.interrupt.unless_wanted(Waits::ForTurn, taking).await, asleep))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const A_WHILE: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn who_computed_least_goes_first_and_a_call_that_was_cut_holds_nothing() {
        let turns = Turns::of(1);
        let first = turns.take(Duration::from_secs(1)).await;
        let begun = Instant::now();
        let order = Mutex::new(Vec::new());
        let wait = async |seconds: u64| {
            let permit = turns.take(Duration::from_secs(seconds)).await;
            order.lock().push(seconds);
            drop(permit);
        };
        let cut = async {
            assert!(
                tokio::time::timeout(A_WHILE, wait(0)).await.is_err(),
                "the turn is taken"
            );
            drop(first);
        };
        tokio::join!(wait(3), wait(2), wait(5), cut);
        assert_eq!(*order.lock(), [2, 3, 5]);
        assert!(begun.elapsed() >= A_WHILE);
        assert_eq!(turns.inner.lock().free, 1);
    }
}
