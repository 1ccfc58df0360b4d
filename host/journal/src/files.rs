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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
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

#[derive(Debug)]
struct Pool {
    last_owner: u64,
    open: LruCache<u64, Arc<File>>,
    #[cfg(test)]
    synced: Vec<PathBuf>,
}

/// A journal's place in the pool: its folder is in use until this is dropped. One journal has at most one open file:
/// its newest segment.
#[derive(Debug)]
pub(crate) struct Owner {
    number: u64,
    dir: PathBuf,
    files: Files,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.files.pool.lock().open.pop(&self.number);
        let mut in_use = self.files.in_use.lock();
        match in_use.get_mut(&self.dir) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                in_use.remove(&self.dir);
            }
        }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self::new(OPEN_FILES_MAX)
    }
}

impl Files {
    /// A pool that keeps at most `open_max` files open, and at least one. If a file is evicted while it is being
    /// written, it closes after that write.
    pub fn new(open_max: usize) -> Self {
        Self {
            pool: Arc::new(Mutex::new(Pool {
                last_owner: 0,
                open: LruCache::new(NonZeroUsize::new(open_max).unwrap_or(NonZeroUsize::MIN)),
                #[cfg(test)]
                synced: Vec::new(),
            })),
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
        let in_use = self.in_use.lock();
        if in_use.contains_key(dir) {
            return Ok(false);
        }
        remove().map(|()| true)
    }

    /// Announces that a journal is about to be opened in this folder.
    pub(crate) fn enter(&self, dir: &Path) -> Owner {
        *self.in_use.lock().entry(dir.to_owned()).or_default() += 1;
        let mut pool = self.pool.lock();
        pool.last_owner += 1;
        Owner {
            number: pool.last_owner,
            dir: dir.to_owned(),
            files: self.clone(),
        }
    }

    /// The number of currently open files.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.pool.lock().open.len()
    }

    /// The files that were synced, in order.
    #[cfg(test)]
    pub(crate) fn synced(&self) -> Vec<PathBuf> {
        self.pool.lock().synced.clone()
    }
}

impl Owner {
    pub(crate) fn wrote(&self, bytes: usize) {
        self.files.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Its open file, or the one at `path`, opened for appending. It must exist: a journal creates its files itself.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Arc<File>> {
        if let Some(file) = self.files.pool.lock().open.get(&self.number) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(regular::open_own(OpenOptions::new().append(true), path)?);
        self.insert(Arc::clone(&file));
        Ok(file)
    }

    /// Takes a file that it just created, replacing an earlier one.
    pub(crate) fn insert(&self, file: Arc<File>) {
        self.files.pool.lock().open.put(self.number, file);
    }

    /// Syncs its file, the one at `path`, to the disk.
    pub(crate) fn sync(&self, path: &Path) -> io::Result<()> {
        self.open(path)?.sync_data()?;
        #[cfg(test)]
        self.files.pool.lock().synced.push(path.to_owned());
        Ok(())
    }
}
