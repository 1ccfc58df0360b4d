//! A small file of the host's own: read whole, replaced whole.
//!
//! Knows only bytes; `released.rs` and `remembered.rs` know the format.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use trueup_base::replace::{Durable, replace_file};

/// Four times the longest list of interfaces, so that what left it and is still used fits too. A longer file is not
/// the host's.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The contents of the file. `None` if it does not exist.
///
/// # Errors
/// If it can't be read, is too long, or is not a regular file (the target of a link or a pipe is not the host's).
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

/// Replaces the file's contents with this line. Whenever the host is killed, the file has the old or the new
/// contents.
///
/// # Errors
/// If the file still has the old text.
pub(super) fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let replaced = replace_file(file, &[text, b"\n"].concat(), Durable::Yes);
    replaced.map_err(|error| io::Error::new(error.kind(), format!("writing `{}`: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_was_put_there_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("one/two.json");
        assert_eq!(read(&file).unwrap(), None);
        for text in [b"first".as_slice(), b"2"] {
            replace(&file, text).unwrap();
            assert_eq!(read(&file).unwrap(), Some([text, b"\n"].concat()));
        }
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
