//! Which files and folders a store accepts as its own, how it locks and writes them, and how it reports errors of the
//! system.
//!
//! The store creates folders with mode 0700 and files with 0600, and narrows a wider mode of its own files. It does not
//! touch anything but plain files of its own user (such as a symlink or another owner's file): something else put it
//! there.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::Error;
use rustix::fs::OFlags;
use rustix::io::Errno;
use trueup_base::file_lock::{FileLock, NotLocked, written_pid};
use trueup_base::folder;
pub(super) use trueup_base::regular::folder_of;
use trueup_base::replace::{self, Durable};

const FILE_MODE: u32 = 0o600;

/// The permission bits of a mode (stat(2)).
const MODE_BITS: u32 = 0o7777;

/// `PATH` with an ending appended to its whole name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a store's file for reading, whatever its owner: an operator may read a host's files as another user.
pub(super) fn open_any(path: &Path) -> Result<Option<File>, Error> {
    Ok(open_plain(path, false)?.map(|(file, _)| file))
}

/// All bytes of a store's file.
pub(super) fn read_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = open_there(path)?.read_to_end(&mut bytes);
    read.map_err(|error| failed(path, "reading", &error))?;
    Ok(bytes)
}

/// As [`open_any`], for a file that was there.
pub(super) fn open_there(path: &Path) -> Result<File, Error> {
    let gone = || Error::Unavailable(format!("{}: it is gone", path.display()));
    open_any(path)?.ok_or_else(gone)
}

fn open_plain(path: &Path, write: bool) -> Result<Option<(File, Metadata)>, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(write).custom_flags(careful());
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Err(symlink(path)),
        opened => opened.map_err(|error| failed(path, "opening", &error))?,
    };
    let meta = file.metadata().map_err(|error| failed(path, "looking at", &error))?;
    check_plain(path, &meta)?;
    Ok(Some((file, meta)))
}

/// Opens a store's own file if it exists, for reading and, with `write`, for writing. Narrows its mode if it is wider
/// than ours.
pub(super) fn open_ours(path: &Path, write: bool) -> Result<Option<File>, Error> {
    let Some((file, meta)) = open_plain(path, write)? else {
        return Ok(None);
    };
    check(path, &meta)?;
    narrow(path, &file).map_err(|error| failed(path, "narrowing the mode", &error))?;
    Ok(Some(file))
}

/// The metadata of the path, without opening it; `None` if it does not exist.
pub(super) fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::symlink_metadata(path) {
        Ok(meta) => check(path, &meta).map(|()| Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, "looking at", &error)),
    }
}

/// Identifies a file independent of its name.
pub(super) fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// The identity of the file at the path; `None` if there is none.
pub(super) fn identity_at(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(identity(&meta))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file that must not exist yet.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(FILE_MODE);
    options.custom_flags(careful()).open(path)
}

/// Opens a lock file, creating it if it is missing.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(FILE_MODE).custom_flags(careful()).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
        let text = "not a plain file of this user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    narrow(path, &file)?;
    Ok(file)
}

/// Never follows a symlink, and never waits for the other end of a pipe.
fn careful() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn symlink(path: &Path) -> Error {
    let path = path.display();
    Error::AccessDenied(format!("{path}: is a symlink; a checkpoint must be a plain file"))
}

fn check_plain(path: &Path, meta: &Metadata) -> Result<(), Error> {
    match meta.file_type() {
        kind if kind.is_symlink() => Err(symlink(path)),
        kind if kind.is_file() => Ok(()),
        _ => Err(Error::AccessDenied(format!("{}: is no plain file", path.display()))),
    }
}

fn check(path: &Path, meta: &Metadata) -> Result<(), Error> {
    check_plain(path, meta)?;
    let (owner, own) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner == own {
        return Ok(());
    }
    let path = path.display();
    let text = format!("{path}: belongs to the user {owner}, this process runs as {own}");
    Err(Error::AccessDenied(text))
}

fn narrow(path: &Path, file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode() & MODE_BITS;
    if mode & !FILE_MODE == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    tracing::warn!(path = %path.display(), "checkpoint: the file's mode was {mode:04o}, narrowed to {FILE_MODE:04o}");
    Ok(())
}

/// Converts an error of the operating system, in its own words.
pub(super) fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    let text = format!("{}: {what}: {error}", path.display());
    match error.kind() {
        // Covers both EACCES and EPERM.
        io::ErrorKind::PermissionDenied => Error::AccessDenied(text),
        _ => Error::Unavailable(text),
    }
}

/// Why a store could not be opened. One line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(String);

/// One host at a time: creates the folder if it is missing, and takes the lock of the store at `path`, an exclusive
/// `flock` on `PATH.lock`, held as long as the store is open.
///
/// The lock file is never deleted. Otherwise a process that waits for the deleted file would hold a lock that no other
/// process sees.
pub(super) fn lock(path: &Path) -> Result<FileLock, OpenError> {
    // The store, not its lock file.
    let store = path.display();
    try_lock(path).map_err(|reason| OpenError(format!("checkpoint `{store}`: {reason}")))
}

fn try_lock(path: &Path) -> Result<FileLock, String> {
    let failed = |what: &str, place: &Path, error: &io::Error| format!("{what} `{}`: {error}", place.display());
    let folder = folder_of(path);
    folder::make(folder, Durable::Yes).map_err(|error| failed("creating the folder", folder, &error))?;
    let lock = beside(path, ".lock");
    let file = open_lock(&lock).map_err(|error| failed("opening the lock file", &lock, &error))?;
    FileLock::take(file).map_err(|error| match error {
        NotLocked::Taken(holder) => {
            let holder = holder.map(|pid| format!("the process with pid {pid}"));
            let holder = holder.unwrap_or_else(|| "another process".to_owned());
            format!("in use by {holder}; stop that one first, or choose another path")
        }
        NotLocked::Failed(error) => failed("locking", &lock, &error),
    })
}

/// The id of the process that currently holds the lock of the store at `path`, as it wrote it, for read-only callers.
/// This does not take the lock even briefly, since that would turn away a host that starts at that moment. It reads
/// `/proc/locks` (proc(5)), the only source; without it, no holder is found.
pub(super) fn lock_holder(path: &Path) -> Option<Option<u32>> {
    let lock = beside(path, ".lock");
    let mut file = File::open(&lock).ok()?;
    let meta = file.metadata().ok()?;
    let major = rustix::fs::major(meta.dev());
    let minor = rustix::fs::minor(meta.dev());
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let is_held = locks.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.any(|word| word == "FLOCK") && words.any(|word| word == wanted)
    });
    is_held.then(|| written_pid(&mut file))
}

/// The operations through which a store's bytes reach the disk: one place where tests can make them fail. Each is the
/// system call of the same name.
pub(super) trait Disk: Send + Sync + std::fmt::Debug {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Syncs the file's bytes and its length.
    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_all(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn cut(&self, file: &File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Syncs the names in a folder.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        replace::sync_folder(folder)
    }
}

/// The disk of the machine.
#[derive(Debug)]
pub(super) struct Real;

impl Disk for Real {}
