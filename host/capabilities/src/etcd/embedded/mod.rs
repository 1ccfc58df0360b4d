//! The host's own store: etcd's semantics in one file (redb), for use without an etcd; in memory for plans, scenarios
//! and tests.
//!
//! Each change is one transaction of the file and is on the disk before the answer. Answered changes survive a crash of
//! the process and of the machine; others are applied completely or not at all. Only one process can have the file
//! open.
//!
//! ```text
//! write -> tables: keys -> what is stored · state -> revision
//!      \-> history (in memory): what each revision changed -> watches
//! ```

mod tables;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::{FileBackend, InMemoryBackend};
use tokio::sync::watch;
use trueup_base::regular;

use super::{
    Api, Applied, Changes, Compare, Error, Event, KeyValue, Listing, Operation, Stored, Watch, WatchEnd, rules,
};
use crate::own_file::own_file;
use async_trait::async_trait;

/// The cache size: room for some thousand services, which only a resync reads.
const CACHE_BYTES: usize = 16 << 20;

/// Names a store in memory in errors.
const IN_MEMORY: &str = "etcd store in memory";

/// A store in a file or in memory. Clones share the store.
#[derive(Debug, Clone)]
pub struct Embedded {
    base: Arc<Base>,
}

#[derive(Debug)]
struct Base {
    /// Names the store in errors.
    name: String,
    /// Whether its operations wait for a disk.
    is_file: bool,
    database: redb::Database,
    /// Held from a change until the history has it.
    writing: Mutex<()>,
    history: watch::Sender<History>,
}

impl Embedded {
    /// Opens the store, creating it and its folder if they are missing. After a crash it first repairs the file; all
    /// answered changes are present.
    ///
    /// # Errors
    /// If another process has it open, or it can't be created or read.
    pub fn open(path: &Path) -> Result<Self, String> {
        let name = name_of(path);
        let opened = (|| Self::create(&name, true, FileBackend::new(own_file(path)?)?))();
        opened.map_err(|error| failed(&name, &error))
    }

    /// A store in memory with what the file has, which stays as it is. Empty if there is no file. Another process may
    /// have it open.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn copied(path: &Path) -> Result<Self, String> {
        let copied = (|| {
            let backend = InMemoryBackend::new();
            let bytes = match regular::read(path, regular::RECORDS) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                read => read?,
            };
            StorageBackend::set_len(&backend, bytes.len() as u64)?;
            StorageBackend::write(&backend, 0, &bytes)?;
            Self::create(IN_MEMORY, false, backend)
        })();
        copied.map_err(|error| failed(&name_of(path), &error))
    }

    /// A new store in memory. It ends with its last clone.
    ///
    /// # Errors
    /// If the database can't be created.
    pub fn in_memory() -> Result<Self, Error> {
        let store = Self::create(IN_MEMORY, false, InMemoryBackend::new());
        store.map_err(|error| Error::Unavailable(failed(IN_MEMORY, &error)))
    }

    /// A new store in memory with these entries, each stored at a revision of its own, by key.
    ///
    /// # Errors
    /// If the database can't be created.
    pub fn in_memory_with(entries: &BTreeMap<String, String>) -> Result<Self, Error> {
        let store = Self::in_memory()?;
        for (key, value) in entries {
            let put = (key.clone().into_bytes(), Some(value.clone().into_bytes()));
            store.base.run(|base| base.apply(&[], &[put]))?;
        }
        Ok(store)
    }

    /// Everything stored, as text. Invalid text has replacement characters. Blocks while a file is read.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn entries(&self) -> Result<BTreeMap<String, String>, Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let listing = self.base.run(|base| tables::listing(&base.database, b""))?;
        let entries = listing.entries.iter();
        Ok(entries.map(|stored| (text(&stored.key), text(&stored.value))).collect())
    }

    fn create(name: &str, is_file: bool, backend: impl StorageBackend) -> Result<Self, redb::Error> {
        let database = guarded(|| {
            let mut builder = redb::Builder::new();
            // Detect damage when the store is opened, not in the middle of a write.
            builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
            let database = builder.create_with_backend(backend)?;
            tables::prepare(&database)?;
            Ok(database)
        })?;
        let history = watch::Sender::new(History::after(tables::revision(&database)?));
        let base = Base {
            name: name.to_owned(),
            is_file,
            database,
            writing: Mutex::default(),
            history,
        };
        Ok(Self { base: Arc::new(base) })
    }

    /// Stores a value as another program may, text or not. Returns the revision.
    ///
    /// # Errors
    /// If the file can't be written.
    pub async fn put_bytes(&self, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        let put = (key.to_vec(), Some(value.to_vec()));
        Ok(self.apply(Vec::new(), vec![put]).await?.revision)
    }

    /// Removes the history up to `revision`, as an operator of etcd does with `compact`.
    pub fn compact(&self, revision: u64) {
        self.base.history.send_modify(|history| history.compact(revision));
    }

    async fn apply(&self, compares: Vec<Compare>, changes: Vec<tables::Change>) -> Result<Applied, Error> {
        self.blocking(move |base| base.apply(&compares, &changes)).await
    }

    /// Takes over entries with the revisions that another store gave them. No watch reports them.
    pub(super) async fn take_over(&self, other: Listing) -> Result<(), Error> {
        let take_over = move |base: &Base| {
            let _writing = base.writing.lock();
            if tables::take_over(&base.database, &other)? {
                base.history.send_replace(History::after(other.revision));
            }
            Ok(())
        };
        self.blocking(take_over).await
    }

    /// Runs the work on a thread for blocking disk work. It completes even if the caller no longer waits. In memory
    /// there is no disk, so it runs at once.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Base) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, Error> {
        if !self.base.is_file {
            return self.base.run(work);
        }
        let base = Arc::clone(&self.base);
        let done = tokio::task::spawn_blocking(move || base.run(work)).await;
        done.unwrap_or_else(|error| {
            Err(Error::Unavailable(format!(
                "{}: it was stopped: {error}",
                self.base.name
            )))
        })
    }
}

impl Base {
    fn run<T>(&self, work: impl FnOnce(&Self) -> Result<T, redb::Error>) -> Result<T, Error> {
        guarded(|| work(self)).map_err(|error| Error::Unavailable(failed(&self.name, &error)))
    }

    fn apply(&self, compares: &[Compare], changes: &[tables::Change]) -> Result<Applied, redb::Error> {
        let _writing = self.writing.lock();
        let (applied, events) = tables::apply(&self.database, compares, changes)?;
        if applied.changed {
            let revision = applied.revision;
            self.history
                .send_modify(|history| history.push(Changes { revision, events }));
        }
        Ok(applied)
    }
}

/// The database may panic on a file that changed underneath it.
fn guarded<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    let damaged = || redb::Error::Corrupted("the database could not make sense of it".to_owned());
    caught(work).ok_or_else(damaged).flatten()
}

/// `None` after a panic. The panic's text comes from foreign code and goes to the log at level debug.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    thread_local! {
        static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    }
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_CAUGHT.get() {
                tracing::debug!("the database panicked: {info}");
            } else {
                before(info);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    IS_CAUGHT.set(outer);
    done
}

fn name_of(path: &Path) -> String {
    format!("etcd store `{}`", path.display())
}

/// Why a store can't be used. One line.
fn failed(name: &str, error: &redb::Error) -> String {
    match error {
        redb::Error::DatabaseAlreadyOpen => {
            format!("{name}: in use by another process; stop that one first, or choose another path")
        }
        redb::Error::Corrupted(damage) => format!("{name}: {damage}; it is left as it is: move it away"),
        other => format!("{name}: {other}"),
    }
}

#[async_trait]
impl Api for Embedded {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        rules::check_key(key)?;
        let key = key.to_owned();
        let stored = self.blocking(move |base| tables::get(&base.database, key.as_bytes()));
        stored.await?.map(Stored::into_text).transpose()
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        let prefix = prefix.as_bytes().to_vec();
        let listing = move |base: &Base| {
            // A revision that is stored and not in the history yet would end the watch after it as compacted.
            let _writing = base.writing.lock();
            tables::listing(&base.database, &prefix)
        };
        self.blocking(listing).await
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        rules::check(compares, operations)?;
        let changes = operations.iter().map(|operation| match operation {
            Operation::Put((key, value)) => (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec())),
            Operation::Delete(key) => (key.as_bytes().to_vec(), None),
        });
        self.apply(compares.to_vec(), changes.collect()).await
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        Box::new(Cursor {
            prefix: prefix.as_bytes().to_vec(),
            after,
            history: self.base.history.subscribe(),
        })
    }
}

/// How many revisions back a watch can begin; one that falls further behind lists again. etcd keeps all until an
/// operator compacts it. The watchers of this store fall behind only for moments.
const HISTORY_REVISIONS_MAX: usize = 10_000;

/// The size of the history to keep: some 10 transactions of the largest size.
const HISTORY_BYTES_MAX: usize = 16 << 20;

/// The changes of the newest revisions. They are in memory only: the watchers run in the same process and list when it
/// starts.
#[derive(Debug)]
struct History {
    /// The store's revision.
    revision: u64,
    /// Those of all revisions up to this one, without a gap: each revision changes something.
    changes: VecDeque<Changes>,
    bytes: usize,
}

impl History {
    /// Begins after this revision.
    fn after(revision: u64) -> Self {
        Self {
            revision,
            changes: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Adds the next revision, and removes the oldest ones above the limits.
    fn push(&mut self, changes: Changes) {
        self.revision = changes.revision;
        self.bytes += bytes(&changes);
        self.changes.push_back(changes);
        // Always keep the newest one, so that a watch that is up to date misses nothing.
        while self.changes.len() > HISTORY_REVISIONS_MAX || (self.bytes > HISTORY_BYTES_MAX && self.changes.len() > 1) {
            self.forget();
        }
    }

    /// Removes the revisions up to this one.
    fn compact(&mut self, revision: u64) {
        while self.changes.front().is_some_and(|oldest| oldest.revision <= revision) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.bytes -= self.changes.pop_front().as_ref().map_or(0, bytes);
    }

    /// The changes after a revision; `None` if the history does not reach back that far, or if that revision never
    /// existed.
    fn newer(&self, revision: u64) -> Option<impl Iterator<Item = &Changes>> {
        let newer = usize::try_from(self.revision.checked_sub(revision)?).ok()?;
        let older = self.changes.len().checked_sub(newer)?;
        Some(self.changes.iter().skip(older))
    }
}

fn bytes(changes: &Changes) -> usize {
    let bytes = |event: &Event| match event {
        Event::Put(stored) => stored.key.len() + stored.value.len(),
        Event::Deleted(key) => key.len(),
    };
    changes.events.iter().map(bytes).sum()
}

/// A watch of the store's history.
struct Cursor {
    prefix: Vec<u8>,
    /// Everything up to this revision was reported.
    after: u64,
    history: watch::Receiver<History>,
}

impl Cursor {
    /// The next revision that changed something under the prefix; `None` if there is none yet. Changes elsewhere do not
    /// leave the watch behind.
    fn look(&mut self) -> Result<Option<Changes>, WatchEnd> {
        let history = self.history.borrow_and_update();
        let after = self.after;
        for Changes { revision, events } in history.newer(after).ok_or(WatchEnd::Compacted { after })? {
            self.after = *revision;
            let events = events.iter().filter(|event| event.key().starts_with(&self.prefix));
            let revision = *revision;
            let events = events.cloned().collect::<Vec<_>>();
            if !events.is_empty() {
                return Ok(Some(Changes { revision, events }));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Changes, WatchEnd> {
        loop {
            if let Some(changes) = self.look()? {
                return Ok(changes);
            }
            if self.history.changed().await.is_err() {
                let text = "the store is closed".to_owned();
                return Err(WatchEnd::Failed(Error::Unavailable(text)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
