//! How a loop ends: what was begun when it was asked to may go on for a while, and not for ever.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::SYNC;
use crate::board::Beating;

/// How long, once it is to end, what was begun may go on: a call of a guest, and renderers that are told everything.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(20);

/// Whether the loop was asked to end, for those who do many things in one turn.
#[derive(Debug, Clone, Default)]
pub(super) struct IsAsked(Arc<AtomicBool>);

impl IsAsked {
    pub(super) fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module.
pub(super) struct Ending<'s, S> {
    stop: Pin<&'s mut S>,
    is_asked: IsAsked,
    /// Until when; none: it was not asked to end.
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

    /// Until when what was begun may go on; none: it was not asked to end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Answers when it is to end. May be dropped.
    pub(super) async fn asked(&mut self) {
        if self.until.is_none() {
            self.stop.as_mut().await;
            self.is_asked.0.store(true, Ordering::Relaxed);
            self.until = Some(Instant::now() + STOP_GRACE);
        }
    }

    /// One turn of a loop, in which it beats all the time: whatever it waits for has a limit of its own, a guest its time,
    /// etcd and nft theirs. True where the loop is to end now; then the turn may have been broken off.
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
