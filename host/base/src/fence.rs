//! Until when this host may act. Several hosts that share one Lease use it to ensure that only one of them acts.
//!
//! Knows nothing of Leases or requests. The holder of the Lease moves the fence; each actor checks it right before
//! acting.
//!
//! ```text
//! election -- extend_to, close --> Fence <-- left, over -- each actor, and the socket again
//! ```
//!
//! A host that was stopped (SIGSTOP, a suspended machine) and resumes does not know about it. Therefore the end is a
//! point in time, not a switch that must be set in time, and its clock keeps counting during the stop.
//!
//! That moment is the last one at which the host may hand anything to the network. It must precede the end of the
//! Lease by the time that a request takes to arrive: a renewal *sent* at `t` lets the host act until `t + lease
//! duration` less a margin (the election's). [`fits`] checks that a request that begins when the host stops renewing
//! ends before.
//!
//! If a host decides now and acts later, no other host may have acted in between. Checking the fence at both moments
//! does not ensure this: the host may have been stopped and have got the Lease again. Therefore each new period of
//! acting is another epoch, and [`Fence::of_this_epoch`] returns a handle that lets nothing through in later ones:
//!
//! ```text
//! fence   ----|=====epoch 1=====|---- others may act ----|=====epoch 2=====
//! handle        taken                                     over
//! ```

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::time::timeout;

/// The remaining time of a fence that is always open: a century, so that it can be added to any clock.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How often a waiting task checks the clock: timers stop while a machine is suspended.
const LOOK: Duration = Duration::from_millis(100);

/// The end of a closed fence.
const CLOSED: u64 = 0;
/// The end of a fence that is always open; no moment reaches it.
const OPEN: u64 = u64::MAX;

/// Whether a Lease's times keep two hosts from acting at once: a request that begins at the last moment at which the
/// holder still tries to renew ends, with its answer, before another host may take over the Lease.
pub fn fits(renew_deadline: Duration, request_timeout: Duration, lease_duration: Duration) -> bool {
    let end = renew_deadline.checked_add(request_timeout);
    end.is_some_and(|end| end < lease_duration)
}

/// A moment of the machine's own time: nanoseconds since boot, including suspended time. It has no meaning on another
/// machine or after a restart. Arithmetic saturates at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The moment this long after boot, for tests with their own clock.
    pub fn after_start(duration: Duration) -> Self {
        // Half a millennium fits. Above that, use the last moment that is not the always-open value.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(nanos.clamp(CLOSED + 1, OPEN - 1))
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::after_start(Duration::from_nanos(self.0).saturating_add(duration))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self::after_start(Duration::from_nanos(self.0).saturating_sub(duration))
    }
}

/// The machine's current time, by the clock that keeps counting while the machine is suspended and the process is
/// stopped.
pub fn machine_now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // The kernel counts this clock up from zero.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Moment::after_start(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
}

/// A clock for a fence; tests supply their own.
pub type Now = dyn Fn() -> Moment + Send + Sync;

/// Says whether this host may act, and for how long. All clones share one fence; each is pinned to an epoch or not.
#[derive(Clone)]
pub struct Fence {
    shared: Arc<Shared>,
    /// The epoch after which this handle lets nothing through; `None` if it is valid in every epoch.
    only: Option<u64>,
}

struct Shared {
    opening: watch::Sender<Opening>,
    now: Box<Now>,
}

#[derive(Clone, Copy)]
struct Opening {
    /// The moment before which the host may act, as in [`Moment`]; or [`CLOSED`] or [`OPEN`].
    end: u64,
    /// How often the fence opened again after it was closed or had expired.
    epoch: u64,
}

impl Fence {
    /// For a host that runs alone: open until it is closed.
    pub fn open() -> Self {
        Self::new(OPEN, Box::new(machine_now))
    }

    /// Closed until it is extended.
    pub fn closed() -> Self {
        Self::closed_by(machine_now)
    }

    /// As `closed`, with another clock than the machine's; for tests. The clock must not go backwards.
    pub fn closed_by(now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self::new(CLOSED, Box::new(now))
    }

    fn new(end: u64, now: Box<Now>) -> Self {
        let opening = watch::Sender::new(Opening { end, epoch: 0 });
        let shared = Arc::new(Shared { opening, now });
        Self { shared, only: None }
    }

    /// The current time by this fence's clock.
    pub fn now(&self) -> Moment {
        (self.shared.now)()
    }

    /// Opens the fence until `end`. If several ends come without a close in between, the latest counts: a late answer
    /// to an earlier renewal shortens nothing. An `end` in the past opens nothing. If the fence was not open before,
    /// another epoch begins.
    pub fn extend_to(&self, end: Moment) {
        self.shared.opening.send_if_modified(|opening| {
            let now = self.now();
            let is_later = end.0 > opening.end && end > now;
            if is_later {
                opening.epoch += u64::from(opening.end <= now.0);
                opening.end = end.0;
            }
            is_later
        });
    }

    /// Closes the fence until it is extended again. An action that has already passed the check may still happen.
    pub fn close(&self) {
        self.shared.opening.send_modify(|opening| opening.end = CLOSED);
    }

    fn opening(&self) -> Opening {
        *self.shared.opening.borrow()
    }

    /// A handle pinned to the current epoch, for decisions from here on. It lets nothing through once others may have
    /// acted, even if this host acts again. A pinned handle keeps its epoch.
    pub fn of_this_epoch(&self) -> Self {
        let only = Some(self.epoch());
        Self { only, ..self.clone() }
    }

    /// The epoch this handle is pinned to, or the current one. Counts up from zero. A host that runs alone has only
    /// one.
    pub fn epoch(&self) -> u64 {
        self.only.unwrap_or_else(|| self.opening().epoch)
    }

    /// How long this host may still act: `None` if it may not, [`FOREVER`] if there is no end.
    pub fn left(&self) -> Option<Duration> {
        let Opening { end, epoch } = self.opening();
        if self.only.is_some_and(|only| only != epoch) {
            return None;
        }
        match end {
            CLOSED => None,
            OPEN => Some(FOREVER),
            end => Some(Moment(end).since(self.now())).filter(|left| !left.is_zero()),
        }
    }

    /// Whether this host may act.
    pub fn may_act(&self) -> bool {
        self.left().is_some()
    }

    /// Returns once this host may not act any more: immediately if it may not now, and never while the end keeps
    /// moving.
    pub async fn over(&self) {
        // From here on, no move is missed.
        let mut moved = self.shared.opening.subscribe();
        while let Some(left) = self.left() {
            // The sender lives as long as this fence. An elapsed time only means to look again.
            let _ = match left {
                FOREVER => Ok(moved.changed().await),
                left => timeout(left.min(LOOK), moved.changed()).await,
            };
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("epoch", &self.epoch())
            .field("left", &self.left())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A fence and the hand of its clock, in seconds.
    fn fence() -> (Fence, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(1_000));
        let clock = Arc::clone(&hand);
        let now = move || Moment::after_start(Duration::from_secs(clock.load(Ordering::SeqCst)));
        (Fence::closed_by(now), hand)
    }

    #[test]
    fn an_open_fence_lets_through_until_it_is_closed() {
        let fence = Fence::open();
        assert_eq!((fence.left(), fence.may_act()), (Some(FOREVER), true));
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(fence.left(), Some(FOREVER), "an end shortens nothing");
        fence.close();
        assert_eq!((fence.left(), fence.may_act()), (None, false));
    }

    #[test]
    fn a_closed_fence_lets_through_as_long_as_it_is_extended() {
        let (fence, hand) = fence();
        assert_eq!(fence.left(), None);
        fence.extend_to(fence.now() + 5 * SECOND);
        let other = fence.clone();
        assert_eq!(other.left(), Some(5 * SECOND));
        hand.store(1_004, Ordering::SeqCst);
        assert_eq!(other.left(), Some(SECOND));
        hand.store(1_005, Ordering::SeqCst);
        assert_eq!(other.left(), None, "the end itself is too late");
        fence.extend_to(fence.now());
        assert_eq!(other.left(), None, "so is one that has passed");
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(other.left(), Some(SECOND));
    }

    #[test]
    fn only_closing_shortens() {
        let (fence, _) = fence();
        fence.extend_to(fence.now() + 5 * SECOND);
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(fence.left(), Some(5 * SECOND));
        fence.close();
        assert_eq!(fence.left(), None);
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(fence.left(), Some(SECOND));
    }

    #[test]
    fn an_epoch_begins_where_nothing_was_let_through_before() {
        let (fence, hand) = fence();
        fence.extend_to(fence.now());
        assert_eq!(fence.epoch(), 0, "an end that has passed opens nothing");
        fence.extend_to(fence.now() + 5 * SECOND);
        assert_eq!(fence.epoch(), 1);
        hand.store(1_004, Ordering::SeqCst);
        fence.extend_to(fence.now() + 5 * SECOND);
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(fence.epoch(), 1, "the end was put off in time");
        hand.store(1_009, Ordering::SeqCst);
        assert_eq!(fence.epoch(), 1, "it has run out, and nothing began");
        fence.extend_to(fence.now() + 5 * SECOND);
        assert_eq!(fence.epoch(), 2);
        fence.close();
        assert_eq!(fence.epoch(), 2);
        fence.extend_to(fence.now() + SECOND);
        assert_eq!(fence.epoch(), 3);

        let alone = Fence::open();
        alone.extend_to(alone.now() + SECOND);
        assert_eq!((alone.epoch(), alone.of_this_epoch().may_act()), (0, true));
    }

    #[test]
    fn a_handle_of_an_epoch_lets_nothing_through_in_the_next() {
        let (fence, hand) = fence();
        let before = fence.of_this_epoch();
        fence.extend_to(fence.now() + 5 * SECOND);
        assert_eq!(before.left(), None, "it was taken before anything was let through");
        let first = fence.of_this_epoch();
        fence.extend_to(fence.now() + 6 * SECOND);
        assert_eq!(first.left(), Some(6 * SECOND), "its end is put off like the fence's");
        // Stopped past the end, then opened again at once.
        hand.store(1_100, Ordering::SeqCst);
        fence.extend_to(fence.now() + 5 * SECOND);
        assert_eq!((fence.left(), first.left()), (Some(5 * SECOND), None));
        assert_eq!(first.of_this_epoch().left(), None, "it stays of its epoch");
        let second = first.clone();
        assert_eq!((second.epoch(), fence.of_this_epoch().epoch()), (1, 2));
        let second = fence.of_this_epoch();
        fence.close();
        fence.extend_to(fence.now() + 5 * SECOND);
        assert_eq!((second.may_act(), fence.may_act()), (false, true));
    }

    #[tokio::test]
    async fn a_handle_of_an_epoch_is_over_when_the_next_begins() {
        let (fence, hand) = fence();
        fence.extend_to(fence.now() + 60 * SECOND);
        let first = fence.of_this_epoch();
        let waiting = tokio::spawn(async move { first.over().await });
        hand.store(2_000, Ordering::SeqCst);
        fence.extend_to(fence.now() + 60 * SECOND);
        waiting.await.unwrap();
        assert!(fence.may_act());
    }

    #[test]
    fn moments_stop_at_both_ends() {
        let now = machine_now();
        assert!(now < now + SECOND && now - SECOND < now);
        assert_eq!((now + SECOND).since(now), SECOND);
        assert_eq!(now.since(now + SECOND), Duration::ZERO);
        let (fence, hand) = fence();
        fence.extend_to(now - Duration::MAX);
        assert_eq!(fence.left(), None, "the first moment has passed");
        fence.extend_to(now + Duration::MAX);
        assert!(fence.left().is_some_and(|left| left > FOREVER));
        hand.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(fence.left(), None, "the last moment comes");
    }

    #[test]
    fn the_machines_clock_counts_up() {
        let (fence, before) = (Fence::closed(), machine_now());
        while fence.now() == before {
            std::hint::spin_loop();
        }
        assert!(fence.now() > before);
    }

    #[tokio::test]
    async fn a_fence_is_over_when_it_is_closed_or_its_end_has_come() {
        let closed = Fence::open();
        let waiting = tokio::spawn({
            let fence = closed.clone();
            async move { fence.over().await }
        });
        closed.close();
        waiting.await.unwrap();

        let (ended, hand) = fence();
        ended.extend_to(ended.now() + 60 * SECOND);
        let waiting = tokio::spawn({
            let fence = ended.clone();
            async move { fence.over().await }
        });
        hand.store(2_000, Ordering::SeqCst);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_fence_whose_end_is_put_off_is_not_over() {
        let fence = Fence::closed();
        fence.extend_to(fence.now() + Duration::from_millis(20));
        let until = fence.now() + SECOND;
        fence.extend_to(until);
        fence.over().await;
        assert!(fence.now() >= until);
        fence.over().await;
    }

    #[test]
    fn the_times_of_a_lease_fit_where_the_last_request_ends_before_it() {
        let seconds = Duration::from_secs;
        assert!(fits(seconds(10), seconds(4), seconds(15)));
        assert!(!fits(seconds(10), seconds(5), seconds(15)));
        assert!(!fits(Duration::MAX, seconds(5), seconds(15)));
    }
}
