//! A small file of the host's own: read whole, replaced whole.
//!
//! Knows bytes; what they say is `released.rs` and `remembered.rs`.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use trueup_journal::{Durable, replace_file};

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
