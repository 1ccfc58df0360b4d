//! When to look again at a file or folder: after an event of the operating system, and in rescans for lost events.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::sleep;

/// The maximum interval between rescans while the operating system reports changes: its queues may overflow, and
/// network file systems report nothing.
const RESCAN: Duration = Duration::from_secs(30);

/// The interval between rescans if the operating system cannot report changes, for example because its watches are used
/// up.
pub(crate) const RESCAN_UNWATCHED: Duration = Duration::from_secs(2);

/// The delay between an event and the look: events come in bursts, and each look queries every file.
const BURST: Duration = Duration::from_millis(50);

/// The rescans of one file or folder.
#[derive(Default)]
pub(crate) struct Rescans {
    changed: Arc<Notify>,
    /// `None`: nothing is watched. The operating system treats a recreated folder as a new one.
    pub(crate) watcher: Option<RecommendedWatcher>,
    /// The device and the inode of the watched folder: another folder may take its path.
    watched: Option<(u64, u64)>,
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    let metadata = folder.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Rescans {
    /// Lets the operating system report changes in the folder from here on. Call it before a look: a change during that
    /// then causes another one.
    ///
    /// # Errors
    /// The system's error: it reports nothing.
    pub(crate) fn watch(&mut self, folder: &Path, mode: RecursiveMode) -> notify::Result<()> {
        self.watcher = None;
        self.watched = identity(folder);
        let changed = Arc::clone(&self.changed);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Rescans open folders and files.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                changed.notify_one();
            }
        })?;
        watcher.watch(folder, mode)?;
        self.watcher = Some(watcher);
        Ok(())
    }

    /// Whether the operating system reports changes in the folder that has this path now.
    pub(crate) fn watches(&self, folder: &Path) -> bool {
        self.watcher.is_some() && self.watched == identity(folder)
    }

    /// Waits for the next look, which comes `within` this time at the latest, or without it in the next rescan.
    pub(crate) async fn next(&self, within: Option<Duration>) {
        let rescan = self.watcher.as_ref().map_or(RESCAN_UNWATCHED, |_| RESCAN);
        tokio::select! {
            () = self.changed.notified() => sleep(BURST).await,
            () = sleep(within.unwrap_or(rescan)) => {}
        }
    }
}
