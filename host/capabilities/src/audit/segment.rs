//! The file of an audit log that is open for writing.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use trueup_base::{regular, replace};

use super::error::{AuditError, failed};

#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl Open {
    pub(super) fn create(folder: &Path, first: u64) -> Result<Self, AuditError> {
        let path = folder.join(segment_name(first));
        // Append mode: after the host undoes a line, the next one begins where the file ends.
        let file = regular::open_own(OpenOptions::new().append(true).create(true), &path);
        let file = file.map_err(failed("create", &path))?;
        // An earlier attempt may have created the file. A file with content belongs to another process.
        let is_empty = file.metadata().map(|about| about.len() == 0);
        if !is_empty.map_err(failed("look at", &path))? {
            return Err(failed("create", &path)(io::ErrorKind::AlreadyExists.into()));
        }
        sync_folder(folder)?;
        Ok(Self { file, path, bytes: 0 })
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), AuditError> {
    replace::sync_folder(folder).map_err(failed("sync", folder))
}

/// The name of the file that begins with line `first`.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first}.jsonl")
}
