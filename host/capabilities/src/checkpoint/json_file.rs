//! A file of plain JSON text: for moving in from the AWS VPC CNI's node agent and out to it.
//!
//! Keeps no entries. The guest, not the store, judges the content.
//!
//! ```text
//! checkpoint: data and a newline -> PATH.tmp, synced -> over PATH
//! ```
//! The anchor beside it records that the file existed, so a deleted file differs from one that never existed.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use trueup_base::file_lock::FileLock;

use super::anchor::{self, Anchor, Mark};
use super::generations::{self, Keep};
use super::place::{self, Disk, OpenError, Real};
use super::{DATA_BYTES_MAX, Error, Saved, Store, blocking, within};
use async_trait::async_trait;

/// Where the original keeps its file (its environment variable: `AWS_VPC_K8S_CNI_BACKING_STORE`).
pub const PATH_OF_THE_ORIGINAL: &str = "/var/run/aws-node/ipam.json";

/// The file has no numbers that other programs would keep, so the anchor says only that it existed.
pub(super) const MARK: Mark = Mark { epoch: 0, records: 0 };

/// A store of one text file.
#[derive(Debug)]
pub struct JsonFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// The number of replaced files that remain, as `PATH.1` (the newest) to `PATH.N`.
    keep_generations: u32,
    disk: Arc<dyn Disk>,
    /// Only one replacement runs at a time.
    turn: Mutex<Anchor>,
    _lock: FileLock,
}

impl JsonFile {
    /// Takes the lock. Reads the file only on request. `keep_generations`: how many replaced files remain.
    ///
    /// # Errors
    /// If another host has the store open, or if its folder or lock file can't be created.
    pub fn open(path: PathBuf, keep_generations: u32) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Real), path, keep_generations)
    }

    pub(super) fn open_on(disk: Arc<dyn Disk>, path: PathBuf, keep_generations: u32) -> Result<Self, OpenError> {
        let lock = place::lock(&path)?;
        let anchor = Anchor::of(&path);
        let shared = Arc::new(Shared {
            path,
            keep_generations,
            disk,
            turn: Mutex::new(anchor),
            _lock: lock,
        });
        Ok(Self(shared))
    }
}

impl Shared {
    fn checkpoint(&self, data: &str) -> Result<(), Error> {
        let mut anchor = self.turn.lock();
        let path = &self.path;
        within(path, "the data", data, DATA_BYTES_MAX)?;
        let keep = Keep::Newest(self.keep_generations);
        generations::put(self.disk.as_ref(), path, keep, &[data.as_bytes(), b"\n"])?;
        anchor.raise(self.disk.as_ref(), MARK);
        Ok(())
    }

    fn restore(&self) -> Result<Option<Saved>, Error> {
        let mut anchor = self.turn.lock();
        let path = &self.path;
        let known = anchor.read()?;
        let Some(mut file) = place::open_ours(path, false)? else {
            return anchor::lost(known, None).map_or(Ok(None), |lost| Err(anchor::corrupt(path, &lost)));
        };
        let data = read(path, &mut file)?;
        anchor.raise(self.disk.as_ref(), MARK);
        Ok(Some(Saved::of(data)))
    }
}

/// The whole text of a file.
pub(super) fn read(path: &Path, file: &mut std::fs::File) -> Result<String, Error> {
    // The newline that `checkpoint` adds. One byte more shows that the file is too long.
    let most = DATA_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| place::failed(path, "reading", &error))?;
    let shown = path.display();
    if bytes.len() as u64 > most {
        let found = file.metadata().map_or(bytes.len() as u64, |meta| meta.len());
        let text = format!("{shown}: the data is too large: {found} bytes");
        return Err(Error::Unavailable(text));
    }
    String::from_utf8(bytes).map_err(|error| Error::Corrupt(format!("{shown}: not text: {error}")))
}

#[async_trait]
impl Store for JsonFile {
    async fn checkpoint(&self, data: &str) -> Result<(), Error> {
        let (shared, data) = (Arc::clone(&self.0), data.to_owned());
        blocking(move || shared.checkpoint(&data)).await
    }

    async fn append(&self, _: &str) -> Result<(), Error> {
        let refusal = "this store keeps no entries: set compact_after to 0".to_owned();
        Err(Error::Unavailable(refusal))
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        let shared = Arc::clone(&self.0);
        blocking(move || shared.restore()).await
    }
}
