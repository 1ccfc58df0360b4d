//! Limits how many journal files are open at once: thousands of instances, each with a journal, share one pool.
//!
//! The pool opens a file for appending when a line is to be written, and closes the least recently used one. It holds
//! the lock only for the look-up, never while writing.
//!
//! Code that removes recordings asks here which are in use, and how much was written since the last call.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use trueup_base::regular;

/// The default number of open journal files: a quarter of 1,024, the usual limit of a process.
pub const OPEN_FILES_MAX: usize = 256;

/// A pool of open files, shared by all journals of a host; clones share the pool.
#[derive(Debug, Clone)]
pub struct Files {
    pool: Arc<Mutex<Pool>>,
    in_use: Arc<Mutex<BTreeMap<PathBuf, usize>>>,
    written: Arc<AtomicU64>,
}

/// Marks a journal's folder as in use until it is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    dir: PathBuf,
    folders: Arc<Mutex<BTreeMap<PathBuf, usize>>>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = folders.get_mut(&self.dir) {
            *count -= 1;
            if *count == 0 {
                folders.remove(&self.dir);
            }
        }
    }
}

#[derive(Debug)]
struct Pool {
    next_owner: u64,
    open: LruCache<Owner, Arc<File>>,
    #[cfg(test)]
    synced: Vec<PathBuf>,
}

/// A journal's identity in the pool. One journal has at most one open file: its newest segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

impl Default for Files {
    fn default() -> Self {
        Self::new(OPEN_FILES_MAX)
    }
}

impl Files {
    /// A pool that keeps at most `open_max` files open, and at least one. If a file is evicted while it is being
    /// written, it closes after that write.
    pub fn new(open_max: usize) -> Self {
        let pool = Pool {
            next_owner: 0,
            open: LruCache::new(NonZeroUsize::new(open_max).unwrap_or(NonZeroUsize::MIN)),
            #[cfg(test)]
            synced: Vec::new(),
        };
        Self {
            pool: Arc::new(Mutex::new(pool)),
            in_use: Arc::default(),
            written: Arc::default(),
        }
    }

    /// How many bytes all journals have written since the last call.
    pub fn take_written(&self) -> u64 {
        self.written.swap(0, Ordering::Relaxed)
    }

    /// Calls `remove` for a recording's folder, unless a journal is open there; none can be opened meanwhile. Returns
    /// whether it was called.
    ///
    /// # Errors
    /// Those of `remove`.
    pub fn remove_unused(&self, dir: &Path, remove: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.contains_key(dir) {
            return Ok(false);
        }
        remove().map(|()| true)
    }

    /// Announces that a journal is about to be opened in this folder.
    pub(crate) fn enter(&self, dir: &Path) -> InUse {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        *in_use.entry(dir.to_owned()).or_default() += 1;
        InUse {
            dir: dir.to_owned(),
            folders: Arc::clone(&self.in_use),
        }
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The number of currently open files.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.lock().open.len()
    }

    pub(crate) fn register(&self) -> Owner {
        let mut pool = self.lock();
        let owner = Owner(pool.next_owner);
        pool.next_owner += 1;
        owner
    }

    /// The owner's open file, or the one at `path`, opened for appending. It must exist: a journal creates its files
    /// itself.
    pub(crate) fn open(&self, owner: Owner, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = self.lock().open.get(&owner) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(regular::open_own(OpenOptions::new().append(true), path)?);
        self.insert(owner, Arc::clone(&file));
        Ok(file)
    }

    /// Takes a file that the owner just created, replacing an earlier one.
    pub(crate) fn insert(&self, owner: Owner, file: Arc<File>) {
        self.lock().open.put(owner, file);
    }

    /// Syncs the owner's file, the one at `path`, to the disk.
    pub(crate) fn sync(&self, owner: Owner, path: &Path) -> io::Result<()> {
        self.open(owner, path)?.sync_data()?;
        #[cfg(test)]
        self.lock().synced.push(path.to_owned());
        Ok(())
    }

    /// The files that were synced, in order.
    #[cfg(test)]
    pub(crate) fn synced(&self) -> Vec<PathBuf> {
        self.lock().synced.clone()
    }

    /// Closes the owner's file.
    pub(crate) fn close(&self, owner: Owner) {
        self.lock().open.pop(&owner);
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // Nothing in here panics halfway through a change, so a poisoned lock still guards a consistent pool.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
