//! Waits for changes of a folder and sends them.
//!
//! `Folder` decides what counts as a change. This module decides when to look: after an event of the operating system,
//! while a file has not settled, and in rescans for lost events.

use std::path::Path;
use std::time::Duration;

use notify::RecursiveMode;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Folder, FolderError, Snapshot};
use crate::object::{Batch, Problem};
use crate::rescans::{RESCAN_UNWATCHED, Rescans};

/// The maximum number of queued batches. If the queue is full, looking waits, and the next batch contains more.
const BATCHES_MAX: usize = 16;

/// The maximum time that the first batch waits for files to settle, in ms.
const FIRST_BATCH_MS_MAX: u64 = 5_000;

/// Watches a folder. The first batch comes when its files have settled, even if there are none. Requires a tokio
/// runtime with time.
pub fn watch(folder: &Path) -> Result<mpsc::Receiver<Batch>, FolderError> {
    let folder = Folder::open(folder)?;
    let (sender, batches) = mpsc::channel(BATCHES_MAX);
    tokio::spawn(follow(folder, sender));
    Ok(batches)
}

/// The batch that the receiver lacks. `known`: what it knows and whether that was complete, before and after; `None`
/// before the first batch. No batch if the folder holds nothing new.
fn news(known: &mut Option<(Snapshot, bool)>, folder: &Folder, is_settled: bool) -> Option<Batch> {
    let nothing = <(Snapshot, bool)>::default();
    let (before, was_complete) = known.as_ref().unwrap_or(&nothing);
    let changes = before.objects.changes_to(&folder.now.objects);
    let complete = folder.is_complete();
    let has_changed = !changes.is_empty() || before.problems != folder.now.problems;
    // The first batch contains everything. It waits for files to settle, but not for a file that never does. An
    // unsettled file alone is no news.
    let is_news = match known {
        None => is_settled,
        Some(_) => has_changed || (complete && !was_complete),
    };
    if !is_news {
        return None;
    }
    let problems = folder.now.problems.clone();
    let is_new = |problem: &&Problem| !before.problems.contains(problem);
    let new_problems = problems.iter().filter(is_new).cloned().collect();
    *known = Some((folder.now.clone(), complete));
    Some(Batch {
        changes,
        problems,
        new_problems,
        complete,
        ..Batch::default()
    })
}

async fn follow(mut folder: Folder, batches: mpsc::Sender<Batch>) {
    let started = Instant::now();
    let mut rescans = Rescans::default();
    let mut known = None;
    loop {
        if !rescans.watches(&folder.root)
            && folder.listed
            && let Err(error) = rescans.watch(&folder.root, RecursiveMode::Recursive)
        {
            let (folder, seconds) = (folder.root.display(), RESCAN_UNWATCHED.as_secs());
            tracing::warn!(%folder, %error, "cannot watch the manifests: looking every {seconds} s instead");
        }
        let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looking = tokio::task::spawn_blocking(move || {
            let again_in_ms = folder.look(now_ms);
            (folder, again_in_ms)
        });
        // This fails only when the runtime shuts down.
        let Ok((back, again_in_ms)) = looking.await else { return };
        folder = back;
        if !folder.listed {
            rescans.watcher = None;
        }
        let is_settled = again_in_ms.is_none() || now_ms >= FIRST_BATCH_MS_MAX;
        if let Some(batch) = news(&mut known, &folder, is_settled)
            && batches.send(batch).await.is_err()
        {
            return;
        }
        tokio::select! {
            () = batches.closed() => return,
            () = rescans.next(again_in_ms.map(Duration::from_millis)) => {}
        }
    }
}
