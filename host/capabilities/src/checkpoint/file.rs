//! The host's default store: one file with the data first, followed by the entries (`format.rs`).
//!
//! ```text
//! append      one write at the known end -> fdatasync        (shared_sync: the sync comes later, see below)
//! checkpoint  a new file beside it, synced -> renamed over it -> folder synced
//! open        read whole -> a torn tail is kept beside the file and cut off; damage is left as it is -> synced
//! ```
//! After each operation the store raises the anchor beside the file (`anchor.rs`). The host does not serve a file that
//! has less than its anchor says.
//!
//! With `shared_sync`, an append returns once it is written, and `durable` waits for the disk. Only one sync runs at a
//! time; all callers that wait meanwhile share the next one. If a sync fails, the store gives up all changes that are
//! not durable and cuts the file back. Callers that wait for such a change get an error, now and later. So do callers
//! that ask about the current state, until `restore` (the instance is being rebuilt from the durable state) or a
//! checkpoint.

mod load;

use std::fs::File as OsFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard};
use trueup_base::file_lock::FileLock;

use super::anchor::{Anchor, Mark};
use super::format::{self, Version};
use super::generations::{self, Keep};
use super::place::{self, Disk, OpenError, Real};
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, Store, blocking, within};
use crate::metrics::Registry;
use async_trait::async_trait;

/// The largest file: data of the largest size with its framing. More entries could be written, but one answer could not
/// return them.
const FILE_BYTES_MAX: u64 = (format::HEADER_BYTES + format::RECORD_HEAD_BYTES + DATA_BYTES_MAX) as u64;

/// Counts the torn tails that were cut off.
pub const TORN_TAILS_TOTAL: &str = "trueup_checkpoint_torn_tails_total";

/// The file, and how its durability is ensured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// The number of replaced files that remain, as `PATH.1` (the newest) to `PATH.N`.
    pub keep_generations: u32,
    /// Whether appends return before they are durable and share syncs. If so, the caller must await `durable` before an
    /// answer of the instance leaves the host.
    pub shared_sync: bool,
}

/// A store in a file of its own.
#[derive(Debug)]
pub struct File {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    settings: Settings,
    disk: Arc<dyn Disk>,
    metrics: Arc<Registry>,
    /// The holder reads or writes. Callers that wait for a sync do not need it.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Not held while waiting for the disk, except to write one entry into the system's cache.
    state: Mutex<State>,
    /// A sync ended, or the state changed in another way that affects waiting callers.
    settled: Arc<Notify>,
    _lock: FileLock,
}

#[derive(Debug)]
struct State {
    content: Content,
    /// Why appends fail until a checkpoint has replaced the file.
    refusal: Option<String>,
    syncs: Syncs,
    anchor: Anchor,
}

impl State {
    /// From here on, a loss of durable changes is detected.
    fn anchor(&mut self, disk: &dyn Disk) {
        if let Content::Log(Log { epoch, durable, .. }) = self.content {
            let records = durable.next - 1;
            self.anchor.raise(disk, Mark { epoch, records });
        }
    }
}

#[derive(Debug)]
enum Content {
    /// The file must not be touched. Checked again at every call, since an operator may have moved it away. A file that
    /// was found damaged while it was open is identified: it is not judged again while it is the same one, since an
    /// answered record at its end would look like an interrupted write.
    Unusable(Error, Option<(u64, u64)>),
    /// There is no file.
    Missing,
    Log(Log),
}

/// A file and its valid part.
#[derive(Debug, Clone)]
struct Log {
    file: Arc<OsFile>,
    version: Version,
    /// As in the file's header.
    epoch: u64,
    /// Identifies the file, so that a replacement is detected.
    identity: (u64, u64),
    end: End,
    /// The part that a sync has covered. Always equals `end` if syncs are not shared.
    durable: End,
}

#[derive(Debug, Clone, Copy)]
struct End {
    offset: u64,
    /// The number of the next record.
    next: u64,
}

impl File {
    /// Takes the lock and reads the file. The store also opens if the file is damaged or of another format. Each call
    /// then reports what is wrong, until an operator has moved the file away.
    ///
    /// # Errors
    /// If another host has the store open, or if its folder or lock file can't be created.
    pub fn open(settings: Settings, metrics: Arc<Registry>) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Real), settings, metrics)
    }

    pub(super) fn open_on(disk: Arc<dyn Disk>, settings: Settings, metrics: Arc<Registry>) -> Result<Self, OpenError> {
        let lock = place::lock(&settings.path)?;
        let anchor = Anchor::of(&settings.path);
        metrics.count(TORN_TAILS_TOTAL, &[], 0);
        let shared = Arc::new(Shared {
            settings,
            disk,
            metrics,
            turn: Arc::default(),
            state: Mutex::new(State {
                content: Content::Missing,
                refusal: None,
                syncs: Syncs::default(),
                anchor,
            }),
            settled: Arc::default(),
            _lock: lock,
        });
        // Ignore the error: the next read or write returns it.
        let _ = shared.load();
        Ok(Self { shared })
    }

    async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.shared.turn).lock_owned().await
    }

    /// Runs `work` in its turn. The turn lasts until the work is done, even if the caller no longer waits.
    async fn in_turn<T: Send + 'static>(
        &self,
        turn: OwnedMutexGuard<()>,
        work: impl FnOnce(&Shared) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            let _turn = turn;
            work(&shared)
        })
        .await
    }
}

#[async_trait]
impl Store for File {
    async fn checkpoint(&self, data: &str) -> Result<(), Error> {
        let (turn, data) = (self.turn().await, data.to_owned());
        self.in_turn(turn, move |shared| shared.checkpoint(&data)).await
    }

    async fn append(&self, entry: &str) -> Result<(), Error> {
        let turn = self.turn().await;
        if self.shared.settings.shared_sync && !self.shared.is_unusable() {
            // A write into the system's cache is too cheap to move to another thread.
            return self.shared.append(entry);
        }
        let entry = entry.to_owned();
        self.in_turn(turn, move |shared| shared.append(&entry)).await
    }

    async fn restore(&self) -> Result<Option<Saved>, Error> {
        let turn = self.turn().await;
        self.in_turn(turn, Shared::restore).await
    }

    /// Only shared syncs count changes. Without them, neither this nor `durable` waits for the state, which a write on
    /// another thread may hold.
    fn written(&self) -> u64 {
        match self.shared.settings.shared_sync {
            true => self.shared.state.lock().syncs.written,
            false => 0,
        }
    }

    async fn durable(&self, written: u64) -> Result<(), Error> {
        if !self.shared.settings.shared_sync {
            return Ok(());
        }
        loop {
            // From here on, no notification is missed.
            let settled = self.shared.settled.notified();
            let starts = {
                let mut state = self.shared.state.lock();
                let wanted = written.min(state.syncs.written);
                if let Some(answer) = state.syncs.answer(wanted) {
                    return answer;
                }
                state.syncs.wanted = state.syncs.wanted.max(wanted);
                !std::mem::replace(&mut state.syncs.is_running, true)
            };
            if starts {
                let shared = Arc::clone(&self.shared);
                tokio::task::spawn_blocking(move || {
                    let settled = Arc::clone(&shared.settled);
                    shared.sync();
                    // Once notified that all is durable, the caller may close the store and open it again.
                    drop(shared);
                    settled.notify_waiters();
                });
            }
            settled.await;
        }
    }
}

impl Shared {
    fn path(&self) -> &Path {
        &self.settings.path
    }

    fn is_unusable(&self) -> bool {
        matches!(self.state.lock().content, Content::Unusable(..))
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        place::failed(self.path(), what, error)
    }

    /// Whether the open file is still the one at the path.
    fn is_at_path(&self, log: &Log) -> bool {
        self.identity_at_path() == Some(log.identity)
    }

    fn identity_at_path(&self) -> Option<(u64, u64)> {
        place::identity_at(self.path()).ok().flatten()
    }

    fn append(&self, entry: &str) -> Result<(), Error> {
        within(self.path(), "the entry", entry, ENTRY_BYTES_MAX)?;
        if self.is_unusable() {
            self.load()?;
        }
        let file = self.write(entry)?;
        if self.settings.shared_sync {
            return Ok(());
        }
        let synced = self.disk.sync_data(&file);
        let synced = synced.map_err(|error| self.failed("syncing an entry", &error));
        let mut state = self.state.lock();
        let Content::Log(log) = &mut state.content else {
            return synced;
        };
        if let Err(error) = &synced {
            log.end = log.durable;
            let end = log.end.offset;
            state.refusal = Some(error.text().to_owned());
            drop(state);
            self.cut_back(&file, end, true);
        } else {
            log.durable = log.end;
            state.anchor(self.disk.as_ref());
        }
        synced
    }

    /// Writes an entry at the known end.
    fn write(&self, entry: &str) -> Result<Arc<OsFile>, Error> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let log = match &mut state.content {
            Content::Log(log) => log,
            Content::Missing => return Err(Error::Unavailable("nothing to append to".to_owned())),
            Content::Unusable(error, _) => return Err(error.clone()),
        };
        let path = self.path().display();
        if let Some(refusal) = &state.refusal {
            let text = format!("{path}: no appends until a checkpoint has replaced the file, after: {refusal}");
            return Err(Error::Unavailable(text));
        }
        if !self.is_at_path(log) {
            let refusal = "the file was moved away or replaced while it was in use".to_owned();
            let error = Error::Unavailable(format!("{path}: {refusal}"));
            state.refusal = Some(refusal);
            return Err(error);
        }
        let record = format::record(log.version, log.end.next, log.durable.next - 1, entry);
        let bytes = log.end.offset + record.len() as u64;
        if bytes > FILE_BYTES_MAX {
            return Err(Error::Unavailable(format!(
                "{path}: with the entry what is stored is too large: {bytes} bytes; a checkpoint takes the place of the entries"
            )));
        }
        if let Err(error) = self.disk.write_at(&log.file, &record, log.end.offset) {
            let error = self.failed("writing an entry", &error);
            state.refusal = Some(error.text().to_owned());
            // No sync: if a sync failed here, it would consume the error that earlier waiting entries need to see.
            self.cut_back(&log.file, log.end.offset, false);
            return Err(error);
        }
        log.end.offset += record.len() as u64;
        log.end.next += 1;
        if self.settings.shared_sync {
            state.syncs.written += 1;
        }
        Ok(Arc::clone(&log.file))
    }

    /// Removes what may have been written after the end. If that fails, this store does not read it while open; later
    /// it is an attempted entry or a torn tail.
    fn cut_back(&self, file: &OsFile, end: u64, sync: bool) {
        let cut = self.disk.cut(file, end);
        let cut = cut.and_then(|()| if sync { self.disk.sync_all(file) } else { Ok(()) });
        if let Err(error) = cut {
            tracing::warn!(path = %self.path().display(), offset = end, "checkpoint: cutting back a failed write: {error}");
        }
    }

    fn checkpoint(&self, data: &str) -> Result<(), Error> {
        within(self.path(), "the data", data, DATA_BYTES_MAX)?;
        let is_known = match &self.state.lock().content {
            Content::Unusable(..) => false,
            Content::Log(log) if self.is_at_path(log) => true,
            // If the file is gone, its content is known here, and this checkpoint restores it.
            Content::Missing | Content::Log(_) => place::look(self.path())?.is_none(),
        };
        if !is_known {
            // Another file, or none, exists now: replace it only if it is readable.
            self.load()?;
        }
        let epoch = self.next_epoch();
        let (header, head) = (format::header(epoch), format::record_head(Version::Two, 0, 0, data));
        let pieces = [header.as_slice(), head.as_slice(), data.as_bytes()];
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let keep = Keep::Newest(self.settings.keep_generations);
        let (file, unsure) = generations::replace(self.disk.as_ref(), self.path(), keep, &pieces)?;
        let end = End { offset: bytes, next: 1 };
        let log = self.log(file, Version::Two, epoch, end);
        let mut state = self.state.lock();
        state.content = match log {
            Ok(log) => Content::Log(log),
            Err(error) => Content::Unusable(error, None),
        };
        state.refusal = unsure.as_ref().map(|error| error.text().to_owned());
        if unsure.is_none() {
            state.anchor(self.disk.as_ref());
        }
        if self.settings.shared_sync {
            match &unsure {
                None => state.syncs.renew(),
                // It is unknown which of the two files a crash would leave, and the older one has lost its syncs.
                Some(error) if state.syncs.durable < state.syncs.written => state.syncs.fail(error),
                Some(_) => {}
            }
            self.settled.notify_waiters();
        }
        drop(state);
        unsure.map_or(Ok(()), Err)
    }

    /// The epoch of the next file: higher than that of any earlier one, as far as known.
    fn next_epoch(&self) -> u64 {
        let state = self.state.lock();
        let known = state.anchor.mark().map_or(0, |mark| mark.epoch);
        let present = match &state.content {
            Content::Log(log) => log.epoch,
            Content::Missing | Content::Unusable(..) => 0,
        };
        known.max(present) + 1
    }

    /// Syncs written changes as long as callers wait for more. The caller of this notifies them of the end.
    fn sync(&self) {
        loop {
            let (log, written) = {
                let mut state = self.state.lock();
                match &state.content {
                    Content::Log(log) if state.syncs.failed.is_none() => (log.clone(), state.syncs.written),
                    _ => {
                        state.syncs.is_running = false;
                        break;
                    }
                }
            };
            let synced = self.disk.sync_data(&log.file);
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let mut cut_at = None;
            match (&mut state.content, synced) {
                // Another file took its place meanwhile. A checkpoint made everything before it durable.
                (Content::Log(open), _) if !Arc::ptr_eq(&open.file, &log.file) => {}
                (Content::Log(open), Ok(())) => {
                    open.durable = log.end;
                    state.syncs.durable = state.syncs.durable.max(written);
                    state.anchor(self.disk.as_ref());
                }
                (Content::Log(open), Err(error)) => {
                    open.end = open.durable;
                    cut_at = Some(open.end.offset);
                    let error = self.failed("syncing entries", &error);
                    tracing::error!("checkpoint: {}; what was not durable is given up", error.text());
                    state.refusal = Some(error.text().to_owned());
                    state.syncs.fail(&error);
                }
                _ => {}
            }
            let goes_on = cut_at.is_none() && state.syncs.answer(state.syncs.wanted).is_none();
            state.syncs.is_running = goes_on;
            drop(guard);
            if let Some(end) = cut_at {
                self.cut_back(&log.file, end, true);
            }
            if !goes_on {
                break;
            }
            self.settled.notify_waiters();
        }
    }
}

/// The state of waiting callers. Changes are counted from the store's opening.
#[derive(Debug, Default)]
struct Syncs {
    written: u64,
    durable: u64,
    /// The highest change that any caller waits for.
    wanted: u64,
    /// Whether a sync is running.
    is_running: bool,
    /// Why the changes after `durable` are lost. Every caller that asks for them or for later changes gets this error.
    failed: Option<Error>,
    /// Changes after the first and up to the second number may be lost, whatever became durable later. If syncs failed
    /// several times, the range spans all failures. Callers in between are asked to check once more, which is harmless.
    lost: Option<(u64, u64)>,
}

impl Syncs {
    /// Gives up all changes that are not durable.
    fn fail(&mut self, error: &Error) {
        let after = self.lost.map_or(self.durable, |(after, _)| after);
        self.lost = Some((after, self.written));
        self.failed = Some(error.clone());
    }

    /// Starts again with everything durable. This counts as a change, to distinguish it from what was lost.
    fn renew(&mut self) {
        self.written += 1;
        self.durable = self.written;
        self.failed = None;
    }

    /// The answer for a caller that asks for the first `wanted` changes; `None` if it is not known yet.
    fn answer(&self, wanted: u64) -> Option<Result<(), Error>> {
        if self.lost.is_some_and(|(after, last)| after < wanted && wanted <= last) {
            let why = || Error::Unavailable("the sync that covered this change failed".to_owned());
            return Some(Err(self.failed.clone().unwrap_or_else(why)));
        }
        match wanted <= self.durable {
            true => Some(Ok(())),
            false => self.failed.clone().map(Err),
        }
    }
}
