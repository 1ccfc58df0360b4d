//! Runs many requests at once and keeps the order of their answers. The request semaphore limits how many really run
//! concurrently.

use std::collections::BTreeMap;

use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::remote::joined;

/// Runs all at once and returns the results in the given order. Dropping this stops them all.
pub(super) async fn all<T: Send + 'static>(
    futures: impl IntoIterator<Item: Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = spawn(futures);
    let mut done = BTreeMap::new();
    while let Some((index, output)) = next(&mut running).await {
        done.insert(index, output);
    }
    done.into_values().collect()
}

/// As `all`, but returns the first error in time and stops the rest.
pub(super) async fn all_or_error<T: Send + 'static, E: Send + 'static>(
    futures: impl IntoIterator<Item: Future<Output = Result<T, E>> + Send + 'static>,
) -> Result<Vec<T>, E> {
    let mut running = spawn(futures);
    let mut done = BTreeMap::new();
    while let Some((index, output)) = next(&mut running).await {
        done.insert(index, output?);
    }
    Ok(done.into_values().collect())
}

fn spawn<T: Send + 'static>(
    futures: impl IntoIterator<Item: Future<Output = T> + Send + 'static>,
) -> JoinSet<(usize, T)> {
    let mut running = JoinSet::new();
    for (index, future) in futures.into_iter().enumerate() {
        running.spawn(async move { (index, future.await) }.in_current_span());
    }
    running
}

async fn next<T: Send + 'static>(running: &mut JoinSet<(usize, T)>) -> Option<(usize, T)> {
    Some(joined(running.join_next().await?).await)
}
