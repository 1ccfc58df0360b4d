//! Ends a call while it sleeps if its input is outdated, and gives turns to those that compute for long.
//!
//! Only a sleep is ever cut. A call that is waiting for a backend goes on, so that its effects are known and
//! recorded.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use trueup_base::clock::{Clock, Sleep};
use trueup_capabilities::async_trait;
use trueup_capabilities::pace::{Pace, Turn};

/// The number of calls, over all instances, that now sleep or wait for their turn to compute. They occupy no worker
/// meanwhile.
#[derive(Default)]
pub(crate) struct Sleepers {
    count: AtomicUsize,
    changed: Notify,
}

impl Sleepers {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns when a call fell asleep since the last time.
    pub(crate) async fn more(&self) {
        self.changed.notified().await;
    }
}

/// Counts a sleep until it is dropped, whether it ended or was cut.
pub(crate) struct Asleep(Arc<Sleepers>);

impl Asleep {
    pub(crate) fn new(sleepers: &Arc<Sleepers>) -> Self {
        sleepers.count.fetch_add(1, Ordering::SeqCst);
        sleepers.changed.notify_one();
        Self(Arc::clone(sleepers))
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What an instance's call waits for, if it may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waits {
    /// The end of a sleep.
    ForTime,
    /// Its turn to compute.
    ForTurn,
}

/// The interrupt of one turn. The clock and the pace of its calls listen to it.
#[derive(Default)]
pub(crate) struct Interrupt {
    wanted: watch::Sender<bool>,
    asleep: Notify,
    waits: Mutex<Option<Waits>>,
}

impl Interrupt {
    /// What its call waits for now. `None` if it waits for neither.
    pub(crate) fn waits(&self) -> Option<Waits> {
        *self.waits.lock()
    }

    /// The result of `waiting`. Once an interrupt is wanted it never returns: the caller waits for
    /// [`Interrupt::reached`] and drops the call.
    pub(crate) async fn unless_wanted<R>(&self, waits: Waits, waiting: impl Future<Output = R>) -> R {
        let mut wanted = self.wanted.subscribe();
        *self.waits.lock() = Some(waits);
        let came = tokio::select! {
            // A sleep of zero length counts too: it ends a call that polls in a loop.
            biased;
            // The sender lives as long as `self`, so this can't fail.
            _ = wanted.wait_for(|wanted| *wanted) => None,
            came = waiting => Some(came),
        };
        if let Some(came) = came {
            *self.waits.lock() = None;
            return came;
        }
        self.asleep.notify_one();
        std::future::pending().await
    }

    /// Asks to end the running call at its current sleep or its next one.
    pub(crate) fn want(&self) {
        self.wanted.send_replace(true);
    }

    /// Whether it is wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    /// Returns when an interrupt is wanted and the call sleeps.
    pub(crate) async fn reached(&self) {
        self.asleep.notified().await;
    }
}

/// The clock and the pace of one instance. Its sleeps never end once an interrupt is wanted: the caller waits for
/// [`Interrupt::reached`] and drops the call. While it computes for long it occupies no worker, and an interrupt ends
/// that as it ends a sleep.
pub(super) struct Interruptible {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) turns: Arc<Turns>,
    pub(super) interrupt: Arc<Interrupt>,
    pub(super) sleepers: Arc<Sleepers>,
}

impl Clock for Interruptible {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn steady_ms(&self) -> u64 {
        self.clock.steady_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Sleep<'_> {
        Box::pin(async move {
            let _asleep = Asleep::new(&self.sleepers);
            let sleeping = self.clock.sleep_ms(duration_ms);
            self.interrupt.unless_wanted(Waits::ForTime, sleeping).await;
        })
    }
}

/// The turns of the calls of one loop that compute for long. A few compute at a time; of those that wait, the one that
/// has computed least goes first. A large decision therefore comes before guests that loop. They share what is left
/// until `cpu_ms` ends them.
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

#[async_trait]
impl Pace for Interruptible {
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
    use std::time::{Duration, Instant};

    use trueup_base::clock::SystemClock;

    use super::*;

    /// Long enough to see that nothing happens, short enough to wait for.
    const A_WHILE: Duration = Duration::from_millis(50);

    fn clock(interrupt: &Arc<Interrupt>) -> Interruptible {
        Interruptible {
            clock: Arc::new(SystemClock),
            turns: Turns::of(1),
            interrupt: Arc::clone(interrupt),
            sleepers: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_call_that_does_not_sleep_is_not_interrupted() {
        let interrupt: Arc<Interrupt> = Arc::default();
        interrupt.want();
        assert!(
            tokio::time::timeout(A_WHILE, interrupt.reached()).await.is_err(),
            "no call sleeps"
        );
        let clock = clock(&interrupt);
        let slept = tokio::time::timeout(A_WHILE, clock.sleep_ms(0));
        let (slept, reached) = tokio::join!(slept, tokio::time::timeout(A_WHILE, interrupt.reached()));
        assert!(
            slept.is_err() && reached.is_ok(),
            "the next sleep is where it ends, however short"
        );
    }

    #[tokio::test]
    async fn a_sleep_ends_by_itself_or_never_where_an_interrupt_is_wanted() {
        let interrupt: Arc<Interrupt> = Arc::default();
        let clock = clock(&interrupt);
        clock.sleep_ms(1).await;
        assert!(
            tokio::time::timeout(A_WHILE, interrupt.reached()).await.is_err(),
            "it slept as long as it was to"
        );
        let mut sleep = std::pin::pin!(clock.sleep_ms(3_600_000));
        assert!(tokio::time::timeout(A_SHORT_WHILE, sleep.as_mut()).await.is_err());
        interrupt.want();
        let slept = tokio::time::timeout(A_WHILE, sleep);
        let (slept, reached) = tokio::join!(slept, tokio::time::timeout(A_WHILE, interrupt.reached()));
        assert!(slept.is_err() && reached.is_ok());
    }

    const A_SHORT_WHILE: Duration = Duration::from_millis(20);

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
                tokio::time::timeout(A_SHORT_WHILE, wait(0)).await.is_err(),
                "the turn is taken"
            );
            drop(first);
        };
        tokio::join!(wait(3), wait(2), wait(5), cut);
        assert_eq!(*order.lock(), [2, 3, 5]);
        assert!(begun.elapsed() >= A_SHORT_WHILE);
        assert_eq!(turns.inner.lock().free, 1);
    }
}
