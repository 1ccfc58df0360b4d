//! Reads files that others may have created: only regular files, and only up to a size limit.
//!
//! A named pipe without a writer would block the process forever, and a device has no end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The maximum size of a file with a token, a key, a certificate or one small record, in bytes.
pub const SMALL: u64 = 1 << 20;

/// The maximum size of a file with a list of what the host knows, in bytes: a million keys take less.
pub const LIST: u64 = 256 << 20;

/// The maximum size of a file of records, in bytes. A segment ends after a few megabytes, or with its current call,
/// whose questions have 4 GiB at most.
pub const RECORDS: u64 = 16 << 30;

/// Opens a regular file for reading.
///
/// # Errors
/// If it can't be opened or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // A socket can't be opened at all.
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => not_regular("a socket"),
        _ => error,
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(match kind {
        kind if kind.is_dir() => Errno::ISDIR.into(),
        kind if kind.is_fifo() => not_regular("a named pipe"),
        _ => not_regular("a device"),
    })
}

/// Opens a file of the host's own with `options`: only a regular file, and never through a foreign link.
///
/// # Errors
/// If it can't be opened or is not a regular file.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = options.custom_flags(flags).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => not_regular("a symbolic link"),
        Some(Errno::NXIO) => not_regular("a named pipe or a socket"),
        _ => error,
    })?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(not_regular("something else"))
}

fn not_regular(what: &str) -> io::Error {
    let text = format!("it is {what}, must be a regular file");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Whether a folder is there, and belongs to this process's user.
pub fn is_own(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

/// The folder that a path lies in: `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads a regular file of at most `bytes_max`.
///
/// # Errors
/// If it can't be read, is not a regular file, or is longer.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed distinguishes a file that is too long from one that just fits.
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = format!("it is longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// [`read`] for a text file.
///
/// # Errors
/// As [`read`], and if it is not text ([`io::ErrorKind::InvalidData`]).
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_regular_file_is_read_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        assert_eq!(read(&file, 3).unwrap_err().to_string(), "it is longer than 3 bytes");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link, 4).unwrap(), "text");
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let missing = read(&dir.path().join("missing"), 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_of_ones_own_is_never_another_by_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let open = |path: &Path| open_own(OpenOptions::new().append(true).create(true), path);
        let says = "it is a symbolic link, must be a regular file";
        assert_eq!(open(&link).unwrap_err().to_string(), says);
        assert!(!file.exists(), "nothing is made where a link leads");
        open(&file).unwrap();
        assert_eq!(open(&link).unwrap_err().to_string(), says);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        for (path, says) in [
            (pipe.as_path(), "it is a named pipe, must be a regular file"),
            (&socket, "it is a socket, must be a regular file"),
            (Path::new("/dev/zero"), "it is a device, must be a regular file"),
            (dir.path(), "Is a directory (os error 21)"),
        ] {
            assert_eq!(read(path, 1).unwrap_err().to_string(), says);
        }
    }
}
