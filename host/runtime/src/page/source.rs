//! The content of the page: where recordings are, and the indexes of the open ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::against::Against;
use super::catalog::{self, Recording};
use super::growth::Growth;
use super::index::{DECISIONS_MAX, Index};
use super::newest::{self, Cache, Newest};
use crate::http::{Refused, off_thread};

/// Memory limits for open recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// The maximum number of recordings with an index. Opening another one evicts the least recently used index.
    indexed_max: usize,
    /// Further decisions of a recording are not listed.
    decisions_max: usize,
}

/// For a process that does nothing else: several recordings side by side, 200 MB for the largest.
const ALONE: Bounds = Bounds {
    indexed_max: 8,
    decisions_max: DECISIONS_MAX,
};

/// Inside an active host, which a page reader must not drive out of memory: at most 40 MB. There are two indexes, so
/// that switching between two recordings does not read both again. `trueup journal serve` lists more.
const IN_A_HOST: Bounds = Bounds {
    indexed_max: 2,
    decisions_max: 200_000,
};

/// How long a look at the files remains valid: new entries appear quickly, and many requests at once cost one look.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The content of the page.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    paths: Vec<PathBuf>,
    bounds: Bounds,
    against: Option<Against>,
    /// The recordings found in the last look.
    found: Mutex<BTreeMap<String, Recording>>,
    /// The open ones, most recently used last.
    opened: Mutex<Vec<(String, Arc<Opened>)>>,
    newest: Cache,
}

/// An open recording.
pub(super) struct Opened {
    path: PathBuf,
    index: RwLock<Index>,
    growth: Mutex<Growth>,
    looked: Mutex<Option<Instant>>,
}

impl Source {
    /// Recordings in files, folders of segments, and state folders. The page searches these paths repeatedly, so a
    /// folder may be empty at first. `against`: another guest to compare every recording with.
    pub fn new(paths: Vec<PathBuf>, against: Option<Against>) -> Self {
        Self::with(paths, ALONE, against)
    }

    /// The recordings in a host's state folder, for the host itself: fewer are open at once, and only the first
    /// decisions of a long one are listed.
    pub fn of_state_dir(state_dir: &Path) -> Self {
        Self::with(vec![state_dir.to_owned()], IN_A_HOST, None)
    }

    fn with(paths: Vec<PathBuf>, bounds: Bounds, against: Option<Against>) -> Self {
        Self(Arc::new(Inner {
            paths,
            bounds,
            against,
            found: Mutex::default(),
            opened: Mutex::default(),
            newest: Cache::default(),
        }))
    }

    pub(super) fn other_guest(&self) -> Option<&Against> {
        self.0.against.as_ref()
    }

    /// All current recordings. Reads folders.
    pub(super) fn recordings(&self) -> BTreeMap<String, Recording> {
        let found = catalog::recordings(&self.0.paths);
        self.0.found.lock().clone_from(&found);
        found
    }

    /// Whether a host serves its own recordings: then its `/v1/status` is at the same address.
    pub(super) fn is_in_a_host(&self) -> bool {
        self.0.bounds == IN_A_HOST
    }

    /// The newest problem and the newest decision, of all recordings or of one.
    pub(super) async fn newest(&self, id: Option<&str>) -> Result<Newest, Refused> {
        let source = self.clone();
        let recordings = off_thread(move || source.recordings()).await?;
        let wanted = recordings.values().filter(|one| id.is_none_or(|id| one.id == id));
        let mut files: Vec<_> = wanted.flat_map(Recording::written).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.changed_ms));
        newest::newest(self, &self.0.newest, files).await
    }

    /// Opens a recording. `None` if there is none with this id.
    pub(super) fn open(&self, id: &str) -> Option<Arc<Opened>> {
        let known = self.0.found.lock().get(id).cloned();
        let recording = known.or_else(|| self.recordings().remove(id))?;
        let bounds = self.0.bounds;
        let mut opened = self.0.opened.lock();
        let known = opened.extract_if(.., |(known, _)| known == id).next();
        let known = known.filter(|(_, known)| known.path == recording.path);
        let fresh = || Opened {
            path: recording.path,
            index: RwLock::new(Index::of_at_most(bounds.decisions_max)),
            growth: Mutex::default(),
            looked: Mutex::default(),
        };
        let answer = known.map_or_else(|| Arc::new(fresh()), |(_, known)| known);
        opened.push((id.to_owned(), Arc::clone(&answer)));
        if opened.len() > bounds.indexed_max {
            opened.remove(0);
        }
        Some(answer)
    }
}

impl Opened {
    /// The current index.
    pub(super) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    /// Another guest was compared with this file: where it differs first, if it does.
    pub(super) fn compared(&self, file: &Path, differs_at: Option<u64>) {
        let mut index = self.index.write();
        // By its path: its position may have changed meanwhile.
        if let Some(segment) = index.segments.iter_mut().find(|segment| segment.path == file) {
            segment.differs_at = differs_at;
        }
    }

    /// Reads new entries in the background. Returns at once; only one look runs at a time.
    pub(super) fn look(self: &Arc<Self>) {
        let mut looked = self.looked.lock();
        if looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN_AFTER) {
            return;
        }
        *looked = Some(Instant::now());
        drop(looked);
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            if let Some(mut growth) = this.growth.try_lock() {
                growth.advance(&catalog::files(&this.path), &this.index);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_a_host_fewer_recordings_are_indexed_at_once() {
        let state = tempfile::tempdir().unwrap();
        for key in ["a", "b", "c"] {
            let folder = state.path().join("journals/g").join(key);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("0.jsonl"), "").unwrap();
        }
        let indexed = |source: Source| {
            for id in ["g/a", "g/b", "g/a", "g/c"] {
                assert!(source.open(id).is_some(), "{id}");
            }
            let opened = source.0.opened.lock();
            opened.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(indexed(Source::of_state_dir(state.path())), ["g/a", "g/c"]);
        assert_eq!(indexed(Source::new(vec![state.path().to_owned()], None)).len(), 3);
    }
}
