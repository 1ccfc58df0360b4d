//! A small file of the host's own: read whole, replaced whole.
//!
//! Knows bytes; what they say is `released.rs` and `remembered.rs`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Names of the node's interfaces are for the host's user.
const FILE_MODE: u32 = 0o600;

/// And so are the folders that are made for them.
const DIR_MODE: u32 = 0o700;

/// Four times the longest list of interfaces: what left it and is still used fits too. Above this it is another file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What the file holds; none where it is not there.
///
/// # Errors
/// Where it can't be read, is no file (what a link or a pipe leads to is not the host's), or is too long.
pub(super) fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(file);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = opened.metadata()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is no file of at most {FILE_BYTES_MAX} bytes"),
        ));
    }
    let mut text = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Puts this there in place of what was there, as a line. Whenever the host is killed, one of the two is there.
///
/// # Errors
/// Where the old text still stands.
pub(super) fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let replaced = try_replace(file, text);
    replaced.map_err(|error| io::Error::new(error.kind(), format!("writing `{}`: {error}", file.display())))
}

fn try_replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let folder = folder_of(file);
    if !folder.exists() {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(folder)?;
        File::open(folder_of(folder))?.sync_all()?;
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    // Left behind by a host that was killed, perhaps with another mode.
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&part)?;
    out.write_all(text)?;
    out.write_all(b"\n")?;
    out.sync_all()?;
    std::fs::rename(&part, file)?;
    // The new text is what everybody reads from here on, so this is no failure to replace it: only a machine that loses
    // its power could bring the old one back.
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::warn!(
            "`{}` is written, but its folder can't be synced: {error}; it may be the old one after a power failure",
            file.display()
        );
    }
    Ok(())
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one/two.json");
        assert_eq!(read(&file).unwrap(), None);
        for text in [b"first".as_slice(), b"2"] {
            replace(&file, text).unwrap();
            assert_eq!(read(&file).unwrap(), Some([text, b"\n"].concat()));
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(folder_of(&file))), (0o600, 0o700));
    }

    #[test]
    fn what_is_no_file_of_ours_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::fs::write(dir.path().join("there"), "text").unwrap();
        std::os::unix::fs::symlink("there", &link).unwrap();
        assert!(read(&link).is_err());
        assert!(read(dir.path()).is_err());
        let long = dir.path().join("long");
        File::create(&long).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = read(&long).unwrap_err().to_string();
        assert_eq!(error, "it is no file of at most 67108864 bytes");
    }
}
