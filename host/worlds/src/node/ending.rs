//! How a loop ends: after the request to end, work in progress may go on for a limited time.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::time::Instant;
use trueup_work::status::Beating;

use super::SYNC;

/// How long work in progress may go on after the request to end: a call of a guest, and full resyncs of renderers.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(20);

/// Returns once `stop` does, with the time until which work in progress may go on. All clones return the same.
pub(super) fn ending(stop: impl Future<Output = ()>) -> Shared<impl Future<Output = Instant>> {
    stop.map(|()| Instant::now() + STOP_GRACE).shared()
}

/// Runs the turns of a loop, which beats all the time: everything it waits for has its own limit, such as the guest's
/// time and the timeouts of etcd and nft. The turns return by themselves once the loop is to end. `None` if the last
/// turn went on for too long, and was aborted.
pub(super) async fn run_turns<T>(
    turns: impl Future<Output = T>,
    ending: Shared<impl Future<Output = Instant>>,
    beating: Beating,
    about: &str,
) -> Option<T> {
    let beat_on = async {
        loop {
            beating.beat();
            tokio::time::sleep(SYNC).await;
        }
    };
    tokio::select! {
        biased;
        ended = turns => return Some(ended),
        () = beat_on => {}
        () = ending.then(tokio::time::sleep_until) => tracing::warn!(
            "a call about {about} did not end within {} s: its recording ends inside it",
            STOP_GRACE.as_secs()
        ),
    }
    None
}
