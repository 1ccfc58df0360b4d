//! The file of a store of this host's own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use trueup_base::replace::{Durable, sync_folder};
use trueup_base::{folder, regular};

/// Opens the file, creating it and its folder if they are missing. Never follows a link to another file. A new file is
/// for this user alone, and its name and those of new folders survive a power failure.
pub(crate) fn own_file(path: &Path) -> io::Result<File> {
    let folder = regular::folder_of(path);
    folder::make(folder, Durable::Yes)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = regular::open_own(&mut options, path)?;
    sync_folder(folder)?;
    Ok(file)
}
