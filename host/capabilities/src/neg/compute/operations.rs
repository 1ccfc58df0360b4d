//! Running operations, saved so that the host still watches them after a crash.
//!
//! ```text
//! operations  (instance, number) -> JSON: zone, NEG, request id, when it was started, how it ended
//! ```
//! Each call is one transaction and durable once answered.

use std::fmt::Display;
use std::path::Path;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::own_file::own_file;

const OPERATIONS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("trueup_neg_operations");

/// The layout version: one row, read before any other.
const LAYOUT: TableDefinition<'_, (), u32> = TableDefinition::new("trueup_neg_operations_layout");
const LAYOUT_VERSION: u32 = 1;

/// The size of the database's cache: there are few operations at a time.
const CACHE_BYTES: usize = 1 << 20;

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
#[error("{0}")]
pub struct StoreError(String);

impl StoreError {
    /// `of` names the file, if there is one.
    fn new(of: &str, reason: impl Display) -> Self {
        Self(format!("{of}: {reason}"))
    }
}

/// Running operations, in a file of their own or in memory. Calls block; their changes are durable once answered.
#[derive(Debug)]
pub struct Operations {
    /// Names it in errors.
    of: String,
    database: redb::Database,
}

impl Operations {
    /// Opens the file, creating it and its folder if they are missing.
    ///
    /// # Errors
    /// If it can't be created, if another process has it open, or if a host of this version did not write it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let of = format!("operations file `{}`", path.display());
        let file = own_file(path).map_err(|error| StoreError::new(&of, error))?;
        Self::create(of, FileBackend::new(file))
    }

    /// Operations that are lost with the process, for a host that saves nothing.
    ///
    /// # Errors
    /// If the database can't be created.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::create("operations in memory".to_owned(), Ok(InMemoryBackend::new()))
    }

    fn create(of: String, backend: Result<impl redb::StorageBackend, redb::DatabaseError>) -> Result<Self, StoreError> {
        let mut builder = redb::Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let created = backend.and_then(|backend| builder.create_with_backend(backend));
        let database = created.map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => StoreError::new(&of, error),
            _ => StoreError::new(
                &of,
                format!("{error}; if it is damaged, remove it: the host compares every NEG anew"),
            ),
        })?;
        let version = begin_layout(&database).map_err(|error| StoreError::new(&of, error))?;
        if version != LAYOUT_VERSION {
            let reason = format!("was written in layout {version}, may be layout {LAYOUT_VERSION}");
            return Err(StoreError::new(&of, reason));
        }
        Ok(Self { of, database })
    }

    /// Saves an operation, replacing its previous version.
    ///
    /// # Errors
    /// The database's error.
    pub fn put(&self, operation: &Started) -> Result<(), StoreError> {
        let row = serde_json::to_vec(operation).map_err(|error| StoreError::new(&self.of, error))?;
        let key = (operation.instance.as_str(), operation.number);
        self.change(|table| table.insert(key, row.as_slice()).map(drop))
    }

    /// Removes an operation, which need not exist.
    ///
    /// # Errors
    /// The database's error.
    pub fn remove(&self, instance: &str, number: u64) -> Result<(), StoreError> {
        self.change(|table| table.remove((instance, number)).map(drop))
    }

    /// All saved operations, by instance and number.
    ///
    /// # Errors
    /// The database's error.
    pub fn all(&self) -> Result<Vec<Started>, StoreError> {
        let all = || -> Result<Vec<Started>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = transaction.open_table(OPERATIONS)?;
            let rows = table.iter()?.map(|row| {
                let (key, value) = row?;
                serde_json::from_slice(value.value()).map_err(|error| {
                    let (instance, number) = key.value();
                    redb::Error::Corrupted(format!("operation {number} of `{instance}`: {error}"))
                })
            });
            rows.collect()
        };
        all().map_err(|error| StoreError::new(&self.of, error))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, (&str, u64), &[u8]>) -> Result<(), redb::StorageError>,
    ) -> Result<(), StoreError> {
        let changed = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            change(&mut transaction.open_table(OPERATIONS)?)?;
            Ok(transaction.commit()?)
        };
        changed().map_err(|error| StoreError::new(&self.of, error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("operations.redb");
        std::fs::write(&file, "garbage").unwrap();
        let error = Operations::open(&file).unwrap_err().to_string();
        assert!(error.contains("operations.redb`: "), "{error}");
        assert!(
            error.ends_with("; if it is damaged, remove it: the host compares every NEG anew"),
            "{error}"
        );
    }

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
        let store = Operations::open(&path).unwrap();
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
        let store = Operations::open(&path).unwrap();
        assert_eq!(store.all().unwrap(), [started("a", 2), ended]);
    }

    #[test]
    fn the_file_and_its_folder_are_for_the_host_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("neg/operations.redb");
        drop(Operations::open(&path).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        Operations::open(&path).expect("it opens again");
        let link = dir.path().join("link.redb");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = Operations::open(&link).unwrap_err().to_string();
        assert!(error.contains("a symbolic link, must be a regular file"), "{error}");
    }
}
