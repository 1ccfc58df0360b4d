//! The store in the host's embedded database (redb): one file for several instances.
//!
//! ```text
//! data      (instance, epoch)          -> CRC-32C, text
//! entries   (instance, epoch, number)  -> CRC-32C, text
//! ```
//! A checkpoint begins an epoch of its instance and deletes surplus old ones. The highest epoch is the stored state;
//! the earlier ones are the generations. Each call is one transaction and durable once answered. Each instance has an
//! anchor beside the file, `PATH.INSTANCE.anchor`: the host does not serve a database that has less than the anchor
//! says.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use redb::backends::InMemoryBackend;
use redb::{ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition};

use super::anchor::{self, Anchor, Mark};
use super::disk::Real;
use super::generations::Keep;
use super::lock::{Lock, OpenError};
use super::tools::Generation;
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, Store, blocking, place, within};
use crate::Answer;

const DATA: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("trueup_checkpoint_data");
const ENTRIES: TableDefinition<'_, (&str, u64, u64), &[u8]> = TableDefinition::new("trueup_checkpoint_entries");

/// The layout version: one row, read before any other.
const LAYOUT: TableDefinition<'_, (), u32> = TableDefinition::new("trueup_checkpoint_layout");
const LAYOUT_VERSION: u32 = 1;

/// The first bytes of a redb file.
pub(super) const MAGIC: &[u8; 9] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// The size of the database's cache. Stored data is read once, at the start.
const CACHE_BYTES: usize = 4 << 20;

/// The rows of one instance.
#[derive(Debug)]
pub struct Database {
    base: Arc<Base>,
    instance: String,
    keep_generations: u32,
    anchor: Arc<Mutex<Anchor>>,
}

/// A database file that this process has open.
#[derive(Debug)]
struct Base {
    path: PathBuf,
    /// `None` until first use, and after a failure.
    open: Mutex<Option<Open>>,
    /// The instances whose rows have an open store.
    instances: Mutex<BTreeSet<String>>,
    _lock: Lock,
}

#[derive(Debug)]
struct Open {
    database: redb::Database,
    identity: (u64, u64),
}

/// The files that this process has open. The process holds the lock; each instance has its own store.
static BASES: Mutex<BTreeMap<PathBuf, Weak<Base>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data changes in one step, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    /// Takes the lock of the file, or shares it with the other instances of this process. Opens the database itself at
    /// the first request. If it is damaged, each call reports that until an operator has moved it away.
    ///
    /// # Errors
    /// If another host has the file open, if a store of this host has the rows of the same instance, or if its folder
    /// or lock file can't be created.
    pub fn open(path: &Path, instance: &str, keep_generations: u32) -> Result<Self, OpenError> {
        let base = Base::share(path)?;
        if !lock(&base.instances).insert(instance.to_owned()) {
            return Err(OpenError::Locked {
                path: path.to_owned(),
                holder: Some(std::process::id()),
            });
        }
        Ok(Self {
            anchor: Arc::new(Mutex::new(Anchor::of(&anchored(path, instance)))),
            base,
            instance: instance.to_owned(),
            keep_generations,
        })
    }
}

impl Database {
    fn parts(&self) -> (Arc<Base>, String, Arc<Mutex<Anchor>>) {
        (Arc::clone(&self.base), self.instance.clone(), Arc::clone(&self.anchor))
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
        // The folder exists now, whatever it was before.
        let key = std::fs::canonicalize(folder).map_or(key, |folder| folder.join(name));
        bases.insert(key, Arc::downgrade(&base));
        Ok(base)
    }

    /// Runs `work` on the database; `None` if there is no file. After a failure, the next call opens it again.
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

    /// As `with`, but creates the database if it is missing.
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

/// Closing writes, and can fail; answered changes are already durable.
fn close(open: Option<Open>) {
    let closed = caught(|| open.map(|open| open.database.close()));
    if let Some(Some(Err(error))) = closed {
        tracing::warn!("checkpoint: closing the database: {error}");
    }
}

/// Creates an empty database in one step; an interruption leaves none.
fn create(path: &Path) -> Result<(), Error> {
    let new = place::beside(path, ".tmp");
    let failed = |error| place::failed(path, "making the database", &error);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // We create the file ourselves, so that we set its mode.
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

/// Opens a database after checking that its bytes are whole, so that a damaged one is not modified.
fn open_existing(path: &Path) -> Result<redb::Database, Error> {
    place::open_ours(path, true)?;
    snapshot(path)?;
    guarded(path, || Ok(builder().open(path)?))
}

/// Loads a database file into memory. It locks and writes nothing, and another process may have the file open. After a
/// crash the database repairs itself on opening; this repairs only the copy.
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

/// Reads the file until two readings agree, because a host may be writing meanwhile.
fn stable_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read as _;
    /// Even a busy host leaves gaps between writes. If no two readings agree, the last one is checked as it is.
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

/// Converts errors of the database to those of a store. On a file that changed underneath it, the database may also
/// panic.
fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, Error> {
    match caught(work) {
        Some(done) => done.map_err(|error| told(path, &error)),
        None => Err(corrupt(path, "the database could not make sense of it")),
    }
}

/// `None` after a panic. The panic's text comes from foreign code and goes to the log at level debug.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
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
    Error::Corrupt(format!(
        "{path}: {damage}; the database is left as it is: with the host stopped, put a copy of it in its place, or move it \
         away and run `trueup checkpoint accept {path}` to begin with nothing"
    ))
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

/// The epochs of an instance, ascending; the last is the current one.
fn epochs(
    data: &impl redb::ReadableTable<(&'static str, u64), &'static [u8]>,
    instance: &str,
) -> Result<Vec<u64>, redb::Error> {
    let rows = data.range((instance, 0)..=(instance, u64::MAX))?;
    rows.map(|row| Ok(row?.0.value().1)).collect()
}

/// The path that an instance's anchor is named after. An instance's name is a configuration key and has no `/`.
pub(super) fn anchored(path: &Path, instance: &str) -> PathBuf {
    place::beside(path, &format!(".{}", instance.replace('/', "_")))
}

/// The position of an instance; `None` if it has nothing stored.
fn mark(database: &redb::Database, instance: &str) -> Result<Option<Mark>, redb::Error> {
    let transaction = database.begin_read()?;
    position(
        &transaction.open_table(DATA)?,
        &transaction.open_table(ENTRIES)?,
        instance,
    )
}

/// The position of an instance in a database that an operator inspects.
pub(super) fn mark_of(path: &Path, database: &redb::Database, instance: &str) -> Result<Option<Mark>, Error> {
    guarded(path, || mark(database, instance))
}

/// The newest epoch and the number of its last entry.
fn position(
    data: &impl redb::ReadableTable<(&'static str, u64), &'static [u8]>,
    entries: &impl redb::ReadableTable<(&'static str, u64, u64), &'static [u8]>,
    instance: &str,
) -> Result<Option<Mark>, redb::Error> {
    let newest = data.range((instance, 0)..=(instance, u64::MAX))?.next_back();
    let Some(epoch) = newest.transpose()?.map(|row| row.0.value().1) else {
        return Ok(None);
    };
    let last = entries
        .range((instance, epoch, 0)..=(instance, epoch, u64::MAX))?
        .next_back();
    let records = last.transpose()?.map_or(0, |row| row.0.value().2);
    Ok(Some(Mark { epoch, records }))
}

/// Begins a new epoch of an instance, higher than any `known` one, and keeps `keep` of the earlier ones.
pub(super) fn put(
    database: &redb::Database,
    instance: &str,
    keep: Keep,
    saved: &Saved,
    known: Option<Mark>,
) -> Result<Mark, redb::Error> {
    let transaction = database.begin_write()?;
    let epoch;
    {
        let mut data = transaction.open_table(DATA)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        let old = epochs(&data, instance)?;
        let last = old.last().copied().max(known.map(|mark| mark.epoch));
        epoch = last.map_or(1, |last| last + 1);
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
    let records = saved.entries.len() as u64;
    Ok(Mark { epoch, records })
}

/// What an instance had stored `generation` checkpoints ago.
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

/// The instances that have rows, ascending.
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

/// The generations of an instance, newest first.
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

/// For an operator's command that holds the lock: begins a new epoch and creates the database if it is missing.
pub(super) fn store(path: &Path, instance: &str, saved: &Saved) -> Result<(), Error> {
    if place::look(path)?.is_none() {
        create(path)?;
    }
    let database = open_existing(path)?;
    let anchored = anchored(path, instance);
    // A damaged anchor is replaced, too.
    let known = anchor::look(&anchored).unwrap_or_default();
    let mark = guarded(path, || put(&database, instance, Keep::All, saved, known))?;
    guarded(path, || Ok(database.close()?))?;
    anchor::set(&Real, &anchored, Some(mark))
}

impl Store for Database {
    fn checkpoint<'a>(&'a self, data: &'a str) -> Answer<'a, Result<(), Error>> {
        let (base, instance, anchor) = self.parts();
        let keep = Keep::Newest(self.keep_generations);
        let saved = Saved {
            data: data.to_owned(),
            entries: Vec::new(),
        };
        Box::pin(blocking(move || {
            within(&base.path, "the data", &saved.data, DATA_BYTES_MAX)?;
            let mut anchor = lock(&anchor);
            let known = match anchor.mark() {
                None => anchor.read()?,
                known => known,
            };
            let mark = base.with_new(|database| put(database, &instance, keep, &saved, known))?;
            anchor.raise(&Real, mark);
            Ok(())
        }))
    }

    fn append<'a>(&'a self, entry: &'a str) -> Answer<'a, Result<(), Error>> {
        let ((base, instance, anchor), entry) = (self.parts(), entry.to_owned());
        Box::pin(blocking(move || {
            within(&base.path, "the entry", &entry, ENTRY_BYTES_MAX)?;
            let mut anchor = lock(&anchor);
            let added = base.with(|database| {
                let transaction = database.begin_write()?;
                let mut entries = transaction.open_table(ENTRIES)?;
                let Some(mut mark) = position(&transaction.open_table(DATA)?, &entries, &instance)? else {
                    return Ok(None);
                };
                mark.records += 1;
                let key = (instance.as_str(), mark.epoch, mark.records);
                entries.insert(key, row(&entry).as_slice())?;
                drop(entries);
                transaction.commit()?;
                Ok(Some(mark))
            })?;
            let nothing = || Error::Unavailable("nothing to append to".to_owned());
            anchor.raise(&Real, added.flatten().ok_or_else(nothing)?);
            Ok(())
        }))
    }

    fn restore(&self) -> Answer<'_, Result<Option<Saved>, Error>> {
        let (base, instance, anchor) = self.parts();
        Box::pin(blocking(move || {
            let mut anchor = lock(&anchor);
            let known = anchor.read()?;
            let read = base.with(|database| Ok((get(database, &instance, 0)?, mark(database, &instance)?)))?;
            let (saved, found) = read.unwrap_or_default();
            if let Some(lost) = anchor::lost(known, found) {
                let path = base.path.display();
                let way_out = anchor::way_out(&base.path);
                return Err(Error::Corrupt(format!("{path}: `{instance}`: {lost}; {way_out}")));
            }
            if let Some(found) = found {
                anchor.raise(&Real, found);
            }
            Ok(saved)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_database_is_caught_and_not_shown() {
        const IN_CHILD: &str = "TEST_PANICS";
        if std::env::var_os(IN_CHILD).is_some() {
            assert!(caught::<()>(|| panic!("foreign words")).is_none());
            return;
        }
        let name = "checkpoint::database::tests::a_panic_of_the_database_is_caught_and_not_shown";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = child.args(["--exact", name, "--nocapture"]).env(IN_CHILD, "1").output();
        let ran = ran.unwrap();
        let shown = [ran.stdout, ran.stderr].concat();
        let shown = String::from_utf8_lossy(&shown);
        assert!(ran.status.success() && shown.contains("1 passed"), "{shown}");
        assert!(!shown.contains("foreign words"), "{shown}");
    }
}
