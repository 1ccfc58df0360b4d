//! How a loop ends: after the request to end, work in progress may go on for a limited time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use trueup_work::status::Beating;

use super::SYNC;

/// How long work in progress may go on after the request to end: a call of a guest, and full resyncs of renderers.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(20);

/// Whether the loop should end, for code that does many things in one turn.
#[derive(Debug, Clone, Default)]
pub(super) struct IsAsked(Arc<AtomicBool>);

impl IsAsked {
    pub(super) fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends a loop after a grace period.
pub(super) struct Ending<'s, S> {
    stop: Pin<&'s mut S>,
    is_asked: IsAsked,
    /// The deadline. `None` before the request to end.
    until: Option<Instant>,
}

impl<'s, S: Future<Output = ()>> Ending<'s, S> {
    pub(super) fn new(stop: Pin<&'s mut S>) -> Self {
        Self {
            stop,
            is_asked: IsAsked::default(),
            until: None,
        }
    }

    pub(super) fn is_asked(&self) -> IsAsked {
        self.is_asked.clone()
    }

    /// Until when work in progress may go on. `None` before the request to end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns when the loop is to end. Safe to drop.
    pub(super) async fn asked(&mut self) {
        if self.until.is_none() {
            self.stop.as_mut().await;
            self.is_asked.0.store(true, Ordering::Relaxed);
            self.until = Some(Instant::now() + STOP_GRACE);
        }
    }

    /// One turn of a loop, which beats all the time: everything it waits for has its own limit, such as the guest's
    /// time and the timeouts of etcd and nft. `true` if the loop is to end now; the turn may then have been aborted.
    pub(super) async fn turn(&mut self, turn: impl Future<Output = ()>, beating: &Beating, about: &str) -> bool {
        beating.beat();
        tokio::select! {
            biased;
            () = turn => {}
            () = beat_on(beating) => {}
            () = self.too_long() => {
                tracing::warn!(
                    "a call about {about} did not end within {} s: its recording ends inside it",
                    STOP_GRACE.as_secs()
                );
            }
        }
        self.until.is_some()
    }

    async fn too_long(&mut self) {
        self.asked().await;
        if let Some(until) = self.until {
            tokio::time::sleep_until(until).await;
        }
    }
}

async fn beat_on(beating: &Beating) {
    loop {
        tokio::time::sleep(SYNC).await;
        beating.beat();
    }
}
