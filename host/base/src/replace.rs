//! Replaces a file atomically: whenever the host is killed, the old file or the new one exists.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::folder;
use crate::regular::folder_of;

/// State is for the host's user alone.
const FILE_MODE: u32 = 0o600;

/// Whether a crash of the machine may bring the old file back, or leave none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// The new file is on the disk before the call returns.
    Yes,
    /// It may: the file can be created again.
    No,
}

/// Replaces `file` with `bytes`, with mode 0600. Makes missing folders as [`folder::make`] does. Only one process may
/// replace a file at a time: the new bytes are first written to `FILE.part`.
///
/// # Errors
/// If the old file is still there. If only the folder can't be synced, readers see the new file already, and the log
/// gets a line.
pub fn replace_file(file: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let folder = folder_of(file);
    folder::make(folder, durable)?;
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    // Left behind by a killed host, perhaps with another mode; or a link to somewhere else.
    remove(Path::new(&part))?;
    let mut options = OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(FILE_MODE).open(&part)?;
    out.write_all(bytes)?;
    if durable == Durable::Yes {
        out.sync_all()?;
    }
    fs::rename(&part, file)?;
    if durable == Durable::Yes
        && let Err(error) = sync_folder(folder)
    {
        tracing::warn!(
            "`{}` is written, but its folder can't be synced: {error}; after a power failure it may be the old one",
            file.display()
        );
    }
    Ok(())
}

/// Removes a file; a missing file counts as removed.
///
/// # Errors
/// If the file is still there.
pub fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
///
/// # Errors
/// If it can't be opened or synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one/two.json");
        for durable in [Durable::Yes, Durable::No] {
            replace_file(&file, b"1\n", durable).unwrap();
            replace_file(&file, b"2\n", durable).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"2\n");
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn neither_the_file_nor_its_part_is_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("a.json"), dir.path().join("other"));
        fs::write(&other, b"other").unwrap();
        symlink(&other, &file).unwrap();
        symlink(&other, dir.path().join("a.json.part")).unwrap();
        replace_file(&file, b"new", Durable::Yes).unwrap();
        assert_eq!(
            (fs::read(&other).unwrap(), fs::read(&file).unwrap()),
            (b"other".to_vec(), b"new".to_vec())
        );
    }

    #[test]
    fn where_it_can_not_be_written_the_old_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        replace_file(&file, b"old", Durable::Yes).unwrap();
        fs::create_dir(dir.path().join("a.json.part")).unwrap();
        replace_file(&file, b"new", Durable::Yes).unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), b"old");
    }
}
