//! Lists folders, whose files and folders may come and go meanwhile.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

/// What is in a folder. Nothing if the folder does not exist.
pub(crate) fn listed(folder: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed?.collect(),
    }
}

/// The folders in a folder, by name. A link is none.
pub(crate) fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in listed(folder)? {
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
