//! The store in the host's embedded database (redb): one file for several instances.
//!
//! ```text
//! data      (instance, epoch)          -> CRC-32C, text
//! entries   (instance, epoch, number)  -> CRC-32C, text
//! ```
//! A checkpoint begins an epoch of its instance and deletes those that are too many; the highest is what is stored, the
//! ones before it are the generations. Each call is one transaction and durable when it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redb::backends::InMemoryBackend;
use redb::{ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition};

use super::generations::Keep;
use super::lock::{Lock, OpenError};
use super::tools::Generation;
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, Store, blocking, place, within};
use crate::Answer;

const DATA: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("trueup_checkpoint_data");
const ENTRIES: TableDefinition<'_, (&str, u64, u64), &[u8]> = TableDefinition::new("trueup_checkpoint_entries");

/// How the rows are laid out: one row, read before any other.
const LAYOUT: TableDefinition<'_, (), u32> = TableDefinition::new("trueup_checkpoint_layout");
const LAYOUT_VERSION: u32 = 1;

/// The first bytes of a redb file.
pub(super) const MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// So many bytes the database keeps of its file in memory: what is stored is read once, at the start.
const CACHE_BYTES: usize = 4 << 20;

/// The rows of one instance.
#[derive(Debug)]
pub struct Database {
    base: Arc<Base>,
    instance: String,
    keep_generations: u32,
}

/// A database file that this process has open.
#[derive(Debug)]
struct Base {
    path: PathBuf,
    /// None until it is first needed, and after it failed.
    open: Mutex<Option<Open>>,
    /// Whose rows have a store.
    instances: Mutex<BTreeSet<String>>,
    _lock: Lock,
}

#[derive(Debug)]
struct Open {
    database: redb::Database,
    identity: (u64, u64),
}

/// The files that this process has open: the lock is the process's, the stores are the instances'.
static BASES: Mutex<BTreeMap<PathBuf, Weak<Base>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they guard is changed in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    /// Takes the lock of the file, or shares it with the other instances of this process. The database itself is looked at
    /// when it is first asked: where it is damaged, each call says so, until an operator has moved it away.
    ///
    /// # Errors
    /// Where another host has it, or a store of this one has the same instance's rows, or its folder or lock file can't be
    /// made.
    pub fn open(path: &Path, instance: &str, keep_generations: u32) -> Result<Self, OpenError> {
        let base = Base::share(path)?;
        if !lock(&base.instances).insert(instance.to_owned()) {
            return Err(OpenError::Locked {
                path: path.to_owned(),
                holder: Some(std::process::id()),
            });
        }
        Ok(Self {
            base,
            instance: instance.to_owned(),
            keep_generations,
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        lock(&self.base.instances).remove(&self.instance);
    }
}

impl Base {
    fn share(path: &Path) -> Result<Arc<Self>, OpenError> {
        let mut bases = lock(&BASES);
        bases.retain(|_, base| base.strong_count() > 0);
        let folder = place::folder(path);
        let name = path.file_name().map(Path::new).unwrap_or(path);
        let key = std::fs::canonicalize(folder).map_or_else(|_| path.to_owned(), |folder| folder.join(name));
        if let Some(base) = bases.get(&key).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let base = Arc::new(Self {
            path: path.to_owned(),
            open: Mutex::new(None),
            instances: Mutex::default(),
            _lock: Lock::take(path)?,
        });
        // The folder is there now, whatever it was before.
        let key = std::fs::canonicalize(folder).map_or(key, |folder| folder.join(name));
        bases.insert(key, Arc::downgrade(&base));
        Ok(base)
    }

    /// Does something with the database; none where there is no file. After a failure it is opened anew the next time.
    fn with<T>(&self, work: impl FnOnce(&redb::Database) -> Result<T, redb::Error>) -> Result<Option<T>, Error> {
        let mut open = lock(&self.open);
        let there = place::look(&self.path)?.map(|meta| place::identity(&meta));
        if open.as_ref().map(|open| open.identity) != there {
            close(open.take());
        }
        let Some(identity) = there else {
            return Ok(None);
        };
        if open.is_none() {
            *open = Some(Open {
                database: open_existing(&self.path)?,
                identity,
            });
        }
        let Some(present) = open.as_ref() else {
            return Ok(None);
        };
        let done = guarded(&self.path, || work(&present.database));
        if done.is_err() {
            close(open.take());
        }
        done.map(Some)
    }

    /// As `with`, in a database that is made where there is none.
    fn with_new<T>(&self, work: impl Fn(&redb::Database) -> Result<T, redb::Error>) -> Result<T, Error> {
        if let Some(done) = self.with(&work)? {
            return Ok(done);
        }
        create(&self.path)?;
        let path = self.path.display();
        let gone = || Error::Unavailable(format!("{path}: it was there, and is gone"));
        self.with(&work)?.ok_or_else(gone)
    }
}

/// Closing writes, and can fail; what was answered is durable without it.
fn close(open: Option<Open>) {
    let closed = catch_unwind(AssertUnwindSafe(|| open.map(|open| open.database.close())));
    if let Ok(Some(Err(error))) = closed {
        tracing::warn!("checkpoint: closing the database: {error}");
    }
}

/// Makes an empty database in one step: an interruption leaves none.
fn create(path: &Path) -> Result<(), Error> {
    let new = place::beside(path, ".tmp");
    let failed = |error| place::failed(path, "making the database", &error);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Made by us, so that its mode is ours.
    place::create_new(&new).map_err(failed)?;
    guarded(path, || {
        let database = builder().create(&new)?;
        let transaction = database.begin_write()?;
        transaction.open_table(LAYOUT)?.insert((), LAYOUT_VERSION)?;
        transaction.open_table(DATA)?;
        transaction.open_table(ENTRIES)?;
        transaction.commit()?;
        database.close()?;
        Ok(())
    })?;
    let renamed = std::fs::rename(&new, path);
    let folder = place::folder(path);
    renamed
        .and_then(|()| std::fs::File::open(folder)?.sync_all())
        .map_err(failed)
}

fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens a database after its bytes were found whole, so that a damaged one is not touched.
fn open_existing(path: &Path) -> Result<redb::Database, Error> {
    place::open_ours(path, true)?;
    snapshot(path)?;
    guarded(path, || Ok(builder().open(path)?))
}

/// What a database file holds, in memory: nothing is locked or written, and another process may have it open. After a crash
/// the database repairs itself when it is opened; here only the copy is repaired.
pub(super) fn snapshot(path: &Path) -> Result<redb::Database, Error> {
    let bytes = stable_bytes(path)?;
    if !bytes.starts_with(MAGIC) {
        return Err(corrupt(path, "it does not begin as a database does"));
    }
    let memory = InMemoryBackend::new();
    let copied = memory
        .set_len(bytes.len() as u64)
        .and_then(|()| memory.write(0, &bytes));
    copied.map_err(|error| place::failed(path, "reading", &error))?;
    guarded(path, || {
        let mut database = builder().create_with_backend(memory)?;
        if !database.check_integrity()? {
            return Err(redb::Error::Corrupted(
                "its pages do not agree with each other".to_owned(),
            ));
        }
        let transaction = database.begin_read()?;
        let layout = transaction.open_table(LAYOUT)?.get(())?.map(|row| row.value());
        if layout != Some(LAYOUT_VERSION) {
            let found = layout.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(redb::Error::Corrupted(format!(
                "format version {found} is not known; this host reads {LAYOUT_VERSION}"
            )));
        }
        drop(transaction);
        Ok(database)
    })
}

/// A file's bytes, read until two readings agree: a host may be writing meanwhile.
fn stable_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read as _;
    /// A host that writes all the time leaves moments; where none is found, the last reading is checked as it is.
    const READINGS_MAX: u32 = 20;
    let read = || -> Result<Vec<u8>, Error> {
        let path_gone = || Error::Unavailable(format!("{}: it is gone", path.display()));
        let mut file = place::open_any(path)?.ok_or_else(path_gone)?;
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| place::failed(path, "reading", &error))?;
        Ok(bytes)
    };
    let mut bytes = read()?;
    for _ in 1..READINGS_MAX {
        let again = read()?;
        if again == bytes {
            break;
        }
        bytes = again;
    }
    Ok(bytes)
}

/// What the database refuses, told as a store does. On a file that was changed behind its back it may also panic.
fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| told(path, &error)),
        Err(_) => Err(corrupt(path, "the database could not make sense of it")),
    }
}

fn told(path: &Path, error: &redb::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    match error {
        redb::Error::Corrupted(damage) => corrupt(path, damage),
        redb::Error::UpgradeRequired(version) => {
            corrupt(path, &format!("format version {version} of the database is not known"))
        }
        redb::Error::Io(error) if matches!(error.kind(), InvalidData | UnexpectedEof) => {
            corrupt(path, &error.to_string())
        }
        redb::Error::Io(error) => place::failed(path, "the database", error),
        redb::Error::TableDoesNotExist(table) => corrupt(path, &format!("it has no table `{table}`")),
        other => Error::Unavailable(format!("{}: {other}", path.display())),
    }
}

fn corrupt(path: &Path, damage: &str) -> Error {
    let path = path.display();
    Error::Corrupt(format!("{path}: {damage}; the database is left as it is: move it away"))
}

fn row(text: &str) -> Vec<u8> {
    let mut bytes = crc32c::crc32c(text.as_bytes()).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn text(what: impl Fn() -> String, bytes: &[u8]) -> Result<String, redb::Error> {
    let damaged = |how: &str| redb::Error::Corrupted(format!("{} is damaged: {how}", what()));
    let (crc, text) = bytes
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged("it is cut short"))?;
    if crc32c::crc32c(text) != u32::from_le_bytes(*crc) {
        return Err(damaged("wrong CRC"));
    }
    String::from_utf8(text.to_vec()).map_err(|_| damaged("it is not UTF-8"))
}

/// The epochs of an instance, ascending; the last is the present one.
fn epochs(
    data: &impl redb::ReadableTable<(&'static str, u64), &'static [u8]>,
    instance: &str,
) -> Result<Vec<u64>, redb::Error> {
    let rows = data.range((instance, 0)..=(instance, u64::MAX))?;
    rows.map(|row| Ok(row?.0.value().1)).collect()
}

/// The newest epoch and the number that its next entry gets.
fn position(transaction: &redb::WriteTransaction, instance: &str) -> Result<Option<(u64, u64)>, redb::Error> {
    let data = transaction.open_table(DATA)?;
    let newest = data.range((instance, 0)..=(instance, u64::MAX))?.next_back();
    let Some(epoch) = newest.transpose()?.map(|row| row.0.value().1) else {
        return Ok(None);
    };
    let entries = transaction.open_table(ENTRIES)?;
    let last = entries
        .range((instance, epoch, 0)..=(instance, epoch, u64::MAX))?
        .next_back();
    let last = last.transpose()?.map_or(0, |row| row.0.value().2);
    Ok(Some((epoch, last + 1)))
}

/// A new epoch of an instance; of those before it `keep` stay.
pub(super) fn put(database: &redb::Database, instance: &str, keep: Keep, saved: &Saved) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut data = transaction.open_table(DATA)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        let old = epochs(&data, instance)?;
        let epoch = old.last().map_or(1, |last| last + 1);
        data.insert((instance, epoch), row(&saved.data).as_slice())?;
        for (number, entry) in (1..).zip(&saved.entries) {
            entries.insert((instance, epoch, number), row(entry).as_slice())?;
        }
        let spare = match keep {
            Keep::All => 0,
            Keep::Newest(count) => old.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)),
        };
        for epoch in old.into_iter().take(spare) {
            data.remove((instance, epoch))?;
            entries.retain_in((instance, epoch, 0)..=(instance, epoch, u64::MAX), |_, _| false)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// What an instance has stored, `generation` checkpoints ago.
pub(super) fn get(database: &redb::Database, instance: &str, generation: u32) -> Result<Option<Saved>, redb::Error> {
    let transaction = database.begin_read()?;
    let data = transaction.open_table(DATA)?;
    let back = usize::try_from(generation).unwrap_or(usize::MAX);
    let Some(epoch) = epochs(&data, instance)?.into_iter().rev().nth(back) else {
        return Ok(None);
    };
    let Some(bytes) = data.get((instance, epoch))? else {
        return Ok(None);
    };
    let mut saved = Saved {
        data: text(|| format!("the data of `{instance}`"), bytes.value())?,
        entries: Vec::new(),
    };
    let entries = transaction.open_table(ENTRIES)?;
    let rows = entries.range((instance, epoch, 0)..=(instance, epoch, u64::MAX))?;
    for (number, row) in (1..).zip(rows) {
        let (key, bytes) = row?;
        let name = || format!("entry {number} of `{instance}`");
        if key.value().2 != number {
            return Err(redb::Error::Corrupted(format!("{} is missing", name())));
        }
        saved.entries.push(text(name, bytes.value())?);
    }
    Ok(Some(saved))
}

/// Whose rows there are, ascending.
pub(super) fn instances(path: &Path, database: &redb::Database) -> Result<Vec<String>, Error> {
    guarded(path, || {
        let data = database.begin_read()?.open_table(DATA)?;
        let mut names: Vec<String> = Vec::new();
        for row in data.iter()? {
            let (key, _) = row?;
            let name = key.value().0;
            if names.last().is_none_or(|last| last != name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    })
}

/// What an instance has stored, or had `generation` checkpoints ago.
pub(super) fn stored(
    path: &Path,
    database: &redb::Database,
    instance: &str,
    generation: u32,
) -> Result<Option<Saved>, Error> {
    guarded(path, || get(database, instance, generation))
}

/// The generations of an instance, the newest first.
pub(super) fn generations(path: &Path, database: &redb::Database, instance: &str) -> Result<Vec<Generation>, Error> {
    let mut all = Vec::new();
    for generation in 1.. {
        let Some(saved) = stored(path, database, instance, generation)? else {
            break;
        };
        let bytes = saved.data.len() as u64;
        all.push(Generation { generation, bytes });
    }
    Ok(all)
}

/// Reads every row.
pub(super) fn check(path: &Path, database: &redb::Database) -> Result<(), Error> {
    for instance in instances(path, database)? {
        stored(path, database, &instance, 0)?;
        generations(path, database, &instance)?;
    }
    Ok(())
}

/// For an operator's own doing, who holds the lock: makes a new epoch, and the database where there is none.
pub(super) fn store(path: &Path, instance: &str, saved: &Saved) -> Result<(), Error> {
    if place::look(path)?.is_none() {
        create(path)?;
    }
    let database = open_existing(path)?;
    let stored = guarded(path, || put(&database, instance, Keep::All, saved));
    stored.and_then(|()| guarded(path, || Ok(database.close()?)))
}

impl Store for Database {
    fn checkpoint<'a>(&'a self, data: &'a str) -> Answer<'a, Result<(), Error>> {
        let (base, instance) = (Arc::clone(&self.base), self.instance.clone());
        let keep = Keep::Newest(self.keep_generations);
        let saved = Saved {
            data: data.to_owned(),
            entries: Vec::new(),
        };
        Box::pin(blocking(move || {
            within(&base.path, "the data", &saved.data, DATA_BYTES_MAX)?;
            base.with_new(|database| put(database, &instance, keep, &saved))
        }))
    }

    fn append<'a>(&'a self, entry: &'a str) -> Answer<'a, Result<(), Error>> {
        let (base, instance, entry) = (Arc::clone(&self.base), self.instance.clone(), entry.to_owned());
        Box::pin(blocking(move || {
            within(&base.path, "the entry", &entry, ENTRY_BYTES_MAX)?;
            let added = base.with(|database| {
                let transaction = database.begin_write()?;
                let Some((epoch, number)) = position(&transaction, &instance)? else {
                    return Ok(false);
                };
                let mut entries = transaction.open_table(ENTRIES)?;
                entries.insert((instance.as_str(), epoch, number), row(&entry).as_slice())?;
                drop(entries);
                transaction.commit()?;
                Ok(true)
            })?;
            match added {
                Some(true) => Ok(()),
                Some(false) | None => Err(Error::Unavailable("nothing to append to".to_owned())),
            }
        }))
    }

    fn restore(&self) -> Answer<'_, Result<Option<Saved>, Error>> {
        let (base, instance) = (Arc::clone(&self.base), self.instance.clone());
        Box::pin(blocking(move || {
            Ok(base.with(|database| get(database, &instance, 0))?.flatten())
        }))
    }
}
