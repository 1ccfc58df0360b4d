//! The file of a store of this host's own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use trueup_base::replace::Durable;
use trueup_base::{folder, regular};

/// Opens the file, creating it and its folder if they are missing. Never follows a link to another file. A new file is
/// for this user alone, and its name and those of new folders survive a power failure.
pub(crate) fn own_file(path: &Path, sync_folder: impl FnMut(&Path) -> io::Result<()>) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    let folder = path.parent().unwrap_or(&path);
    let new = folder.ancestors().take_while(|folder| !folder.exists()).count();
    folder::make(folder, Durable::No)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = regular::open_own(&mut options, &path)?;
    folder.ancestors().take(new + 1).try_for_each(sync_folder)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
