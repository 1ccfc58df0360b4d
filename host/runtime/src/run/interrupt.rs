//! Ends a call while it sleeps, where its input is no longer what is wanted.
//!
//! Only a sleep is ever cut: a call that is asking a backend goes on, so that what it does is known and recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};
use trueup_capabilities::Answer;
use trueup_capabilities::clock::Clock;

/// How many calls sleep now, of all instances: they hold no worker meanwhile.
#[derive(Default)]
pub(super) struct Sleepers {
    count: AtomicUsize,
    changed: Notify,
}

impl Sleepers {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Answers when a call fell asleep since the last time.
    pub(super) async fn more(&self) {
        self.changed.notified().await;
    }
}

/// Counts a sleep until it is dropped, whether it ended or was cut.
struct Asleep<'a>(&'a Sleepers);

impl<'a> Asleep<'a> {
    fn new(sleepers: &'a Sleepers) -> Self {
        sleepers.count.fetch_add(1, Ordering::SeqCst);
        sleepers.changed.notify_one();
        Self(sleepers)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One instance's interrupt: its clock listens to it.
pub(super) struct Interrupt {
    wanted: watch::Sender<bool>,
    asleep: Notify,
}

impl Interrupt {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            wanted: watch::Sender::new(false),
            asleep: Notify::new(),
        })
    }

    /// Asks that the running call be ended at its next sleep, or at the one it is in.
    pub(super) fn want(&self) {
        self.wanted.send_replace(true);
    }

    /// A new call begins: nobody wants it ended yet.
    pub(super) fn clear(&self) {
        self.wanted.send_replace(false);
    }

    /// Answers when an interrupt is wanted and the call sleeps.
    pub(super) async fn reached(&self) {
        self.asleep.notified().await;
    }
}

/// A clock whose sleeps end never once an interrupt is wanted: whoever waits for [`Interrupt::reached`] drops the call.
pub(super) struct InterruptibleClock {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) interrupt: Arc<Interrupt>,
    pub(super) sleepers: Arc<Sleepers>,
}

impl Clock for InterruptibleClock {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn sleep_ms(&self, duration_ms: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            let _asleep = Asleep::new(&self.sleepers);
            let mut wanted = self.interrupt.wanted.subscribe();
            let is_wanted = tokio::select! {
                // A sleep of no length at all is one too: a call that looks again and again ends there.
                biased;
                // The sender lives as long as this clock, so there is no error to handle.
                _ = wanted.wait_for(|wanted| *wanted) => true,
                () = self.clock.sleep_ms(duration_ms) => false,
            };
            if is_wanted {
                self.interrupt.asleep.notify_one();
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trueup_capabilities::clock::SystemClock;

    use super::*;

    /// Long enough to see that nothing comes, short enough to wait for.
    const A_WHILE: Duration = Duration::from_millis(50);

    fn clock(interrupt: &Arc<Interrupt>) -> InterruptibleClock {
        InterruptibleClock {
            clock: Arc::new(SystemClock),
            interrupt: Arc::clone(interrupt),
            sleepers: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_call_that_does_not_sleep_is_not_interrupted() {
        let interrupt = Interrupt::new();
        interrupt.want();
        assert!(
            tokio::time::timeout(A_WHILE, interrupt.reached()).await.is_err(),
            "nobody sleeps"
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
        let interrupt = Interrupt::new();
        let clock = clock(&interrupt);
        clock.sleep_ms(1).await;
        assert!(
            tokio::time::timeout(A_WHILE, interrupt.reached()).await.is_err(),
            "it slept as long as it was to"
        );
        let wanted = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            interrupt.want();
        };
        let sleep = tokio::time::timeout(A_WHILE, clock.sleep_ms(3_600_000));
        let (slept, reached, ()) = tokio::join!(sleep, tokio::time::timeout(A_WHILE, interrupt.reached()), wanted);
        assert!(slept.is_err() && reached.is_ok());
        interrupt.clear();
        clock.sleep_ms(1).await;
    }
}
