//! Guests that this host has seen, stored under the SHA-256 of their bytes.
//!
//! ```text
//! state_dir/registry/sha256/<64 hex digits>         a guest, or an OCI manifest
//! state_dir/registry/signatures/<64 hex digits>     who signed the thing of that digest
//! ```
//!
//! This module does not know references, networks or keys. It does not trust its content: it checks each entry against
//! its name on every read, and the callers check signatures. So deleting the folder only costs another download, and a
//! modified entry is an error.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use trueup_base::component::{Digest, GUEST_BYTES_MAX};
use trueup_base::replace::{Durable, sync_folder};
use trueup_base::{folder, regular};

/// Makes the names of draft files unique in this process.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// A folder of guests by digest. Cheap to clone; several processes may use one at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    folder: PathBuf,
    is_written: bool,
}

/// Why an operation of the store failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The text is no digest.
    #[error("`{0}` is no digest, must be `sha256:` and 64 lower-case hexadecimal digits")]
    NotADigest(String),
    /// The content of an entry does not match its name.
    #[error(
        "the stored guest {} is damaged: its content has the digest {found}; put the bytes of the digest in its name back, or \
         delete it: then `trueup guest lock` fetches what the lock file pins",
        file.display()
    )]
    Damaged {
        /// The entry.
        file: PathBuf,
        /// The digest of its content.
        found: Digest,
    },
    /// The file system returned an error.
    #[error("{0}")]
    Io(String),
}

/// Why a guest is unavailable, for the operator to fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGuest(pub String);

/// Why a guest was not loaded, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// An error for the operator to fix.
    #[error(transparent)]
    NoGuest(#[from] NoGuest),
    /// A temporary error: a registry is unreachable, or a disk is full.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for NotLoaded {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// An error's text in one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Store {
    /// The store of a state folder, which need not exist yet.
    pub fn at(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join("registry"),
            is_written: true,
        }
    }

    /// The same for a caller that must leave nothing behind. Unless this folder is there and the caller's own, it
    /// stores nothing.
    pub fn of_trial(self) -> Self {
        let is_written = regular::is_own(&self.folder);
        Self { is_written, ..self }
    }

    /// The path of an entry, existing or not.
    ///
    /// # Errors
    /// If the text is no digest.
    pub fn path(&self, digest: &str) -> Result<PathBuf, StoreError> {
        Ok(self.folder.join("sha256").join(digits(digest)?))
    }

    /// Stores these bytes and returns their digest. When it returns, they are completely on disk. An existing entry
    /// remains; a damaged one is replaced.
    ///
    /// # Errors
    /// If the folder is not writable.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        let file = self.folder.join("sha256").join(digest.hex());
        let has = regular::read(&file, bytes.len() as u64).is_ok_and(|content| content == bytes);
        if !has && self.is_written {
            write(&file, bytes)?;
        }
        Ok(digest)
    }

    /// The entry for `sha256:` and 64 hexadecimal digits. `None` if it does not exist.
    ///
    /// # Errors
    /// If the text is no digest, the entry cannot be read, or its content does not match its name.
    pub fn get(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let file = self.path(digest)?;
        let Some(bytes) = read(&file)? else { return Ok(None) };
        let found = Digest::of(&bytes);
        match found.to_string() == digest {
            true => Ok(Some(bytes)),
            false => Err(StoreError::Damaged { file, found }),
        }
    }

    /// Stores the signatures for a digest, replacing earlier ones.
    pub(super) fn put_signatures(&self, digest: &str, text: &str) -> Result<(), StoreError> {
        let file = self.folder.join("signatures").join(digits(digest)?);
        if !self.is_written || read(&file)?.is_some_and(|kept| kept == text.as_bytes()) {
            return Ok(());
        }
        write(&file, text.as_bytes())
    }

    /// The stored signatures. `None` if there are none.
    pub(super) fn signatures(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        read(&self.folder.join("signatures").join(digits(digest)?))
    }
}

/// The digits of `sha256:<digits>`: they become a file name, so nothing else is valid.
fn digits(digest: &str) -> Result<&str, StoreError> {
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let digits = digest.strip_prefix("sha256:");
    let digits = digits.filter(|digits| digits.len() == 64 && digits.chars().all(is_digit));
    digits.ok_or_else(|| StoreError::NotADigest(digest.to_owned()))
}

/// Whether a text is a digest in this program's format.
pub(super) fn is_digest(text: &str) -> bool {
    digits(text).is_ok()
}

fn read(file: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match regular::read(file, GUEST_BYTES_MAX as u64) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Io(format!("can't read {}: {error}", file.display()))),
    }
}

/// Creates a missing folder with mode 0700.
fn write(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let written = folder::make(regular::folder_of(file), Durable::No).and_then(|()| write_whole(file, bytes));
    written.map_err(|error| StoreError::Io(format!("can't write {}: {error}", file.display())))
}

/// Writes a file completely or not at all, even if the machine loses power: syncs a draft, renames it, then syncs the
/// folder.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = regular::folder_of(file);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!(".{}-{number}.part", std::process::id()));
    let written = (|| {
        let mut out = fs::File::create(&draft)?;
        out.write_all(bytes)?;
        out.sync_all()?;
        fs::rename(&draft, file)?;
        sync_folder(folder)
    })();
    if written.is_err() {
        // Ignore the error: the first one is already reported, and a leftover draft only takes space.
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_put_comes_back_by_its_digest_and_nothing_else_does() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(&state.path().join("not-yet-there"));
        let missing = Digest::of(b"missing").to_string();
        assert!(store.get(&missing).unwrap().is_none(), "no folder is no error");
        let digest = store.put(b"a guest").unwrap().to_string();
        assert_eq!(store.put(b"a guest").unwrap().to_string(), digest);
        assert_eq!(store.get(&digest).unwrap().unwrap(), b"a guest");
        assert!(store.get(&missing).unwrap().is_none());
        let folder = store.path(&digest).unwrap().parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_no_digest_names_no_file() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let good = Digest::of(b"").to_string();
        for text in [
            "",
            "sha256:",
            "sha256:../../../../etc/passwd",
            &good.to_uppercase(),
            &good.replace("sha256:", "sha512:"),
            &format!("{good}0"),
        ] {
            let error = store.get(text).unwrap_err().to_string();
            assert!(error.contains("is no digest"), "{text}: {error}");
        }
    }

    #[test]
    fn a_damaged_entry_is_an_error_until_it_is_put_again() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::at(state.path());
        let digest = store.put(b"a guest").unwrap().to_string();
        let file = store.path(&digest).unwrap();
        for damage in [&b"A guest"[..], b"", b"a guest and more"] {
            fs::write(&file, damage).unwrap();
            let error = store.get(&digest).unwrap_err().to_string();
            assert!(error.contains(&file.display().to_string()), "{error}");
            assert!(
                error.contains("put the bytes of the digest in its name back"),
                "{error}"
            );
            store.put(b"a guest").unwrap();
            assert_eq!(store.get(&digest).unwrap().unwrap(), b"a guest");
        }
    }
}
