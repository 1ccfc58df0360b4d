//! When to look again at a file or folder: after an event of the operating system, and in rescans for lost events.

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
    watcher: Option<RecommendedWatcher>,
}

impl Rescans {
    /// Lets the operating system report changes in the folder from here on. Call it before a look: a change during that
    /// then causes another one.
    ///
    /// # Errors
    /// The system's error: it reports nothing.
    pub(crate) fn watch(&mut self, folder: &Path, mode: RecursiveMode) -> notify::Result<()> {
        self.watcher = None;
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

    /// Watches no longer: the operating system treats a recreated folder as a new one.
    pub(crate) fn end_watch(&mut self) {
        self.watcher = None;
    }

    /// Whether the operating system reports changes.
    pub(crate) fn is_watching(&self) -> bool {
        self.watcher.is_some()
    }

    /// Waits for the next look, which comes `within` this time at the latest, or without it in the next rescan.
    pub(crate) async fn next(&self, within: Option<Duration>) {
        let rescan = if self.is_watching() { RESCAN } else { RESCAN_UNWATCHED };
        tokio::select! {
            () = self.changed.notified() => sleep(BURST).await,
            () = sleep(within.unwrap_or(rescan)) => {}
        }
    }
}
