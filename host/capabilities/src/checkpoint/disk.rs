//! The operations through which a store's bytes reach the disk: one place where tests can make them fail.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use trueup_base::replace;

/// The operations of a disk, each of which may fail. Each is the system call of the same name.
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
