//! Running operations, saved so that the host still watches them after a crash.
//!
//! ```text
//! operations  (instance, number) -> JSON: zone, NEG, request id, when it was started, how it ended
//! ```
//! Each call is one transaction and durable once answered.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::backends::FileBackend;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};
use trueup_base::regular;

const OPERATIONS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("trueup_neg_operations");

/// The layout version: one row, read before any other.
const LAYOUT: TableDefinition<'_, (), u32> = TableDefinition::new("trueup_neg_operations_layout");
const LAYOUT_VERSION: u32 = 1;

/// The size of the database's cache: there are few operations at a time.
const CACHE_BYTES: usize = 1 << 20;

/// Opens the file. A new file is for this user alone, and its name and those of new folders survive a power failure.
fn own_file(path: &Path, sync_folder: impl FnMut(&Path) -> io::Result<()>) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    let folder = path.parent().unwrap_or(&path);
    let new = folder.ancestors().take_while(|folder| !folder.exists()).count();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = regular::open_own(&mut options, &path)?;
    folder.ancestors().take(new + 1).try_for_each(sync_folder)?;
    Ok(file)
}

/// An operation that an instance has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The instance.
    pub instance: String,
    /// Its number.
    pub number: u64,
    /// The zone.
    pub zone: String,
    /// The NEG's name.
    pub neg: String,
    /// The id of the request that started it.
    pub request: String,
    /// The start in milliseconds since 1970.
    pub started_ms: u64,
    /// How it ended; `None` while it is running.
    pub end: Option<End>,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why it failed; `None` on success.
    pub failure: Option<String>,
}

/// Why operations could not be saved or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its content is invalid.
    #[error("operations file `{}`: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The database's error.
        reason: String,
    },
}

/// Stores operations. Calls block; their changes are durable once answered.
pub trait OperationStore: Send + Sync {
    /// Saves an operation, replacing its previous version.
    fn put(&self, operation: &Started) -> Result<(), StoreError>;
    /// Removes an operation, which need not exist.
    fn remove(&self, instance: &str, number: u64) -> Result<(), StoreError>;
    /// All saved operations, by instance and number.
    fn all(&self) -> Result<Vec<Started>, StoreError>;
}

/// Operations in a file of their own.
#[derive(Debug)]
pub struct OperationsFile {
    path: PathBuf,
    database: redb::Database,
}

impl OperationsFile {
    /// Opens the file, creating it and its folder if they are missing.
    ///
    /// # Errors
    /// If it can't be created, if another process has it open, or if a host of this version did not write it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |reason: String| StoreError::File {
            path: path.to_owned(),
            reason,
        };
        let mut builder = redb::Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let file = own_file(path, |folder| File::open(folder)?.sync_all());
        let file = file.map_err(|error| failed(error.to_string()))?;
        let created = FileBackend::new(file).and_then(|backend| builder.create_with_backend(backend));
        let database = created.map_err(|error| failed(error.to_string()))?;
        let version = begin_layout(&database).map_err(|error| failed(error.to_string()))?;
        if version != LAYOUT_VERSION {
            return Err(failed(format!(
                "was written in layout {version}, may be layout {LAYOUT_VERSION}"
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            database,
        })
    }

    fn file<T>(&self, done: Result<T, redb::Error>) -> Result<T, StoreError> {
        done.map_err(|error| StoreError::File {
            path: self.path.clone(),
            reason: error.to_string(),
        })
    }

    fn change(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, (&str, u64), &[u8]>) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(OPERATIONS)?;
            change(&mut table)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn read(&self) -> Result<Vec<Started>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(OPERATIONS)?;
        let mut all = Vec::new();
        for row in table.iter()? {
            let (key, value) = row?;
            let started = serde_json::from_slice(value.value()).map_err(|error| {
                let (instance, number) = key.value();
                redb::Error::Corrupted(format!("operation {number} of `{instance}`: {error}"))
            })?;
            all.push(started);
        }
        Ok(all)
    }
}

/// The layout's version; it is written if there is none.
fn begin_layout(database: &redb::Database) -> Result<u32, redb::Error> {
    let transaction = database.begin_write()?;
    let version = {
        let mut layout = transaction.open_table(LAYOUT)?;
        // Makes the table readable from the first moment on.
        transaction.open_table(OPERATIONS)?;
        let version = layout.get(())?.map(|version| version.value());
        if version.is_none() {
            layout.insert((), LAYOUT_VERSION)?;
        }
        version.unwrap_or(LAYOUT_VERSION)
    };
    transaction.commit()?;
    Ok(version)
}

impl OperationStore for OperationsFile {
    fn put(&self, operation: &Started) -> Result<(), StoreError> {
        let row = serde_json::to_vec(operation).map_err(|error| StoreError::File {
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        let key = (operation.instance.as_str(), operation.number);
        self.file(self.change(|table| {
            table.insert(key, row.as_slice())?;
            Ok(())
        }))
    }

    fn remove(&self, instance: &str, number: u64) -> Result<(), StoreError> {
        self.file(self.change(|table| {
            table.remove((instance, number))?;
            Ok(())
        }))
    }

    fn all(&self) -> Result<Vec<Started>, StoreError> {
        self.file(self.read())
    }
}

/// Operations that are lost with the process, for a host that saves nothing.
#[derive(Debug, Default)]
pub struct OperationsInMemory(Mutex<BTreeMap<(String, u64), Started>>);

impl OperationsInMemory {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<(String, u64), Started>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OperationStore for OperationsInMemory {
    fn put(&self, operation: &Started) -> Result<(), StoreError> {
        let key = (operation.instance.clone(), operation.number);
        self.with(|all| all.insert(key, operation.clone()));
        Ok(())
    }

    fn remove(&self, instance: &str, number: u64) -> Result<(), StoreError> {
        self.with(|all| all.remove(&(instance.to_owned(), number)));
        Ok(())
    }

    fn all(&self) -> Result<Vec<Started>, StoreError> {
        Ok(self.with(|all| all.values().cloned().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(instance: &str, number: u64) -> Started {
        Started {
            instance: instance.to_owned(),
            number,
            zone: "z".to_owned(),
            neg: "n".to_owned(),
            request: "r".to_owned(),
            started_ms: 1,
            end: None,
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("neg/operations.redb");
        let store = OperationsFile::open(&path).unwrap();
        assert_eq!(store.all().unwrap(), []);
        for (instance, number) in [("b", 1), ("a", 2), ("a", 10)] {
            store.put(&started(instance, number)).unwrap();
        }
        let failure = Some("C: m".to_owned());
        let ended = Started {
            end: Some(End { failure }),
            ..started("a", 10)
        };
        store.put(&ended).unwrap();
        store.remove("b", 1).unwrap();
        store.remove("b", 7).unwrap();
        drop(store);
        let store = OperationsFile::open(&path).unwrap();
        assert_eq!(store.all().unwrap(), [started("a", 2), ended]);
    }

    #[test]
    fn the_file_and_its_folder_are_for_the_host_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("neg/operations.redb");
        drop(OperationsFile::open(&path).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        OperationsFile::open(&path).expect("it opens again");
        let link = dir.path().join("link.redb");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = OperationsFile::open(&link).unwrap_err().to_string();
        assert!(error.contains("a symbolic link, must be a regular file"), "{error}");
    }

    #[test]
    fn the_names_of_the_file_and_of_new_folders_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/neg/operations.redb");
        let synced = || {
            let mut synced = Vec::new();
            let sync = |folder: &Path| {
                assert!(path.exists(), "a sync before the file exists does not keep its name");
                synced.push(folder.strip_prefix(dir.path()).unwrap().display().to_string());
                Ok(())
            };
            own_file(&path, sync).unwrap();
            synced
        };
        assert_eq!(synced(), ["state/neg", "state", ""]);
        assert_eq!(synced(), ["state/neg"]);
    }

    #[test]
    fn a_file_that_is_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operations.redb");
        std::fs::write(&path, "text").unwrap();
        let error = OperationsFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("operations.redb`: "), "{error}");
    }
}
