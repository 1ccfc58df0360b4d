//! The store that a host has by default: one file, the data first and an entry behind the other (`format.rs`).
//!
//! ```text
//! append      one write at the known end -> fdatasync        (shared_sync: the sync comes later, see below)
//! checkpoint  a new file beside it, synced -> renamed over it -> folder synced
//! open        read whole -> a torn tail is kept beside the file and cut off; damage is left as it is -> synced
//! ```
//! After each of them the anchor beside the file is raised (`anchor.rs`): a file that has less than it says is not served.
//!
//! With `shared_sync` an append is answered once it is written, and `durable` is what waits for the disk: one sync is under
//! way at a time, and all who wait meanwhile share the next. Where it fails, what was not durable is given up: the file is
//! cut back, whoever waits for such a change gets an error, now and later, and so does whoever asks about the present state,
//! until `restore` (the instance is being rebuilt from what is durable) or a checkpoint.

use std::fs::File as OsFile;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard};

use super::anchor::{self, Anchor, Mark};
use super::disk::{Disk, Real};
use super::format::{self, Torn, Version};
use super::generations::{self, Keep};
use super::lock::{Lock, OpenError};
use super::syncs::Syncs;
use super::{DATA_BYTES_MAX, ENTRY_BYTES_MAX, Error, Saved, Store, blocking, place, within};
use crate::Answer;
use crate::metrics::{HOST, Line, Registry};

/// The largest file: data of the largest size with what stands around it. Entries beyond could be written, but what is
/// stored could not be given back in one answer.
const FILE_BYTES_MAX: u64 = (format::HEADER_BYTES + format::RECORD_HEAD_BYTES + DATA_BYTES_MAX) as u64;

/// Counts the torn tails that were cut off.
pub const TORN_TAILS_TOTAL: &str = "trueup_checkpoint_torn_tails_total";

/// Which file, and what it costs to be sure of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// So many replaced ones stay as `PATH.1`, the newest, to `PATH.N`; 0: none.
    pub keep_generations: u32,
    /// Whether appends are answered before they are durable and share syncs. Whoever lets an answer of the instance out of
    /// the host then asks `durable` first.
    pub shared_sync: bool,
}

/// A store in a file of its own.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    disk: Arc<dyn Disk>,
    metrics: Arc<Registry>,
    /// Whoever has it reads or writes; those who wait for a sync do not need it.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Never held while the disk is waited for, but for the write of one entry into the system's cache.
    state: Mutex<State>,
    /// A sync came to its end, or the state changed in another way that those who wait must know.
    settled: Arc<Notify>,
    _lock: Lock,
}

#[derive(Debug)]
struct State {
    content: Content,
    /// Why there are no appends until a checkpoint has replaced the file.
    refusal: Option<String>,
    /// Grows whenever another file, or none, takes the place of the one that was open.
    turnovers: u64,
    syncs: Syncs,
    anchor: Anchor,
}

impl State {
    /// What is durable can't be lost unnoticed from here on.
    fn anchor(&mut self, disk: &dyn Disk) {
        if let Content::Log(log) = &self.content {
            let records = log.durable.next - 1;
            let epoch = log.epoch;
            self.anchor.raise(disk, Mark { epoch, records });
        }
    }
}

#[derive(Debug)]
enum Content {
    /// It is not to be touched. Looked at anew at every call: an operator may have moved it away.
    Unusable(Error),
    /// What stood in this file is damaged, seen while it was open. As long as it is this file it is not judged anew: a
    /// record at its end that was answered would look like a write that was interrupted.
    Damaged(Error, (u64, u64)),
    /// There is no file.
    Missing,
    Log(Log),
}

/// A file and what of it stands.
#[derive(Debug, Clone)]
struct Log {
    file: Arc<OsFile>,
    version: Version,
    /// As the file's header has it.
    epoch: u64,
    /// Which file it is, so that another one in its place is seen.
    identity: (u64, u64),
    end: End,
    /// What a sync has covered. Always `end` where syncs are not shared.
    durable: End,
}

#[derive(Debug, Clone, Copy)]
struct End {
    offset: u64,
    /// The number of the record that would come next.
    next: u64,
}

impl File {
    /// Takes the lock and reads the file. Where that is damaged, or not ours, the store is open all the same: each call
    /// says what is wrong, until an operator has moved it away.
    ///
    /// # Errors
    /// Where another host has it, or its folder or lock file can't be made.
    pub fn open(settings: Settings, metrics: Arc<Registry>) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Real), settings, metrics)
    }

    pub(super) fn open_on(disk: Arc<dyn Disk>, settings: Settings, metrics: Arc<Registry>) -> Result<Self, OpenError> {
        let lock = Lock::take(&settings.path)?;
        let anchor = Anchor::of(&settings.path);
        metrics.take(HOST, TORN_TAILS_TOTAL, &[], Line::CounterAdd(0));
        let shared = Shared {
            settings,
            disk,
            metrics,
            turn: Arc::default(),
            state: Mutex::new(State {
                content: Content::Missing,
                refusal: None,
                turnovers: 0,
                syncs: Syncs::default(),
                anchor,
            }),
            settled: Arc::default(),
            _lock: lock,
        };
        if let Err(error) = shared.load() {
            tracing::error!("checkpoint: {}: {}", error.kind(), error.text());
        }
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.shared.turn).lock_owned().await
    }

    /// Does something in its turn, which it has until it is done, also where nobody waits for it any more.
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

impl Store for File {
    fn checkpoint<'a>(&'a self, data: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async move {
            let (turn, data) = (self.turn().await, data.to_owned());
            self.in_turn(turn, move |shared| shared.checkpoint(&data)).await
        })
    }

    fn append<'a>(&'a self, entry: &'a str) -> Answer<'a, Result<(), Error>> {
        Box::pin(async move {
            let turn = self.turn().await;
            if self.shared.settings.shared_sync && !self.shared.is_unusable() {
                // A write into the system's cache: not worth the way to another thread.
                return self.shared.append(entry);
            }
            let entry = entry.to_owned();
            self.in_turn(turn, move |shared| shared.append(&entry)).await
        })
    }

    fn restore(&self) -> Answer<'_, Result<Option<Saved>, Error>> {
        Box::pin(async move {
            let turn = self.turn().await;
            self.in_turn(turn, Shared::restore).await
        })
    }

    fn written(&self) -> u64 {
        if self.shared.settings.shared_sync {
            self.shared.lock().syncs.written
        } else {
            0
        }
    }

    fn durable(&self, written: u64) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.settle(written))
    }
}

impl File {
    async fn settle(&self, written: u64) -> Result<(), Error> {
        if !self.shared.settings.shared_sync {
            return Ok(());
        }
        loop {
            let settled = self.shared.settled.notified();
            let mut settled = std::pin::pin!(settled);
            // From here on no news is missed.
            settled.as_mut().enable();
            let starts = {
                let mut state = self.shared.lock();
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
                    // Who is told that all is durable may close the store, and open it again.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole before anything in it could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_unusable(&self) -> bool {
        matches!(self.lock().content, Content::Unusable(_) | Content::Damaged(..))
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        place::failed(self.path(), what, error)
    }

    /// Looks at the file as if for the first time, unless it is one that was seen to be damaged.
    fn load(&self) -> Result<Option<Saved>, Error> {
        if let Content::Damaged(error, identity) = &self.lock().content
            && self.identity_at_path() == Some(*identity)
        {
            return Err(error.clone());
        }
        let (content, read) = match self.read() {
            Ok(None) => (Content::Missing, Ok(None)),
            Ok(Some((log, saved))) => (Content::Log(log), Ok(Some(saved))),
            Err(error) => (Content::Unusable(error.clone()), Err(error)),
        };
        self.give_way(content, "another file took its place before this change was durable");
        self.lock().anchor(self.disk.as_ref());
        read
    }

    /// Something else takes the place of the file that was open; what was not durable there is given up, and why.
    fn give_way(&self, content: Content, why: &str) {
        let mut state = self.lock();
        state.turnovers += 1;
        state.refusal = None;
        state.content = content;
        if state.syncs.durable < state.syncs.written && state.syncs.failed.is_none() {
            let error = Error::Unavailable(format!("{}: {why}", self.path().display()));
            state.syncs.fail(&error);
            self.settled.notify_waiters();
        }
    }

    fn read(&self) -> Result<Option<(Log, Saved)>, Error> {
        let path = self.path();
        let known = self.lock().anchor.read()?;
        let Some(mut file) = place::open_ours(path, true)? else {
            return anchor::lost(known, None).map_or(Ok(None), |lost| Err(corrupt(path, &lost)));
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| self.failed("reading", &error))?;
        let scan = format::scan(&bytes, known).map_err(|damage| corrupt(path, &damage))?;
        if let Some(torn) = &scan.torn {
            let tail = usize::try_from(torn.offset).ok().and_then(|from| bytes.get(from..));
            self.cut_tail(&file, torn, tail.unwrap_or_default())?;
        }
        // A host that was killed may have left what is only in the system's cache; from here on it counts as durable.
        let synced = self.disk.sync_data(&file);
        synced
            .and_then(|()| self.disk.sync_folder(place::folder(path)))
            .map_err(|error| self.failed("syncing", &error))?;
        let end = End {
            offset: scan.end,
            next: scan.saved.entries.len() as u64 + 1,
        };
        let log = self.log(file, scan.version, scan.epoch, end)?;
        Ok(Some((log, scan.saved)))
    }

    fn log(&self, file: OsFile, version: Version, epoch: u64, end: End) -> Result<Log, Error> {
        let meta = file.metadata().map_err(|error| self.failed("looking at", &error))?;
        Ok(Log {
            file: Arc::new(file),
            version,
            epoch,
            identity: place::identity(&meta),
            end,
            durable: end,
        })
    }

    /// Keeps the rest of an interrupted write beside the file, then cuts it off.
    fn cut_tail(&self, file: &OsFile, torn: &Torn, tail: &[u8]) -> Result<(), Error> {
        let path = self.path();
        let kept = place::beside(path, &format!(".torn-{}", torn.offset));
        let keep = || -> io::Result<()> {
            // From an earlier tear at the same place, or from an earlier attempt.
            match std::fs::remove_file(&kept) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let copy = place::create_new(&kept)?;
            self.disk.write_at(&copy, tail, 0)?;
            self.disk.sync_all(&copy)?;
            self.disk.sync_folder(place::folder(&kept))
        };
        keep().map_err(|error| place::failed(&kept, "keeping a torn tail", &error))?;
        let cut = self.disk.cut(file, torn.offset);
        cut.and_then(|()| self.disk.sync_all(file))
            .map_err(|error| self.failed("cutting off a torn tail", &error))?;
        self.metrics.take(HOST, TORN_TAILS_TOTAL, &[], Line::CounterAdd(1));
        tracing::warn!(
            path = %path.display(), offset = torn.offset, bytes = torn.bytes, kept = %kept.display(),
            "checkpoint: a write was interrupted: record {} ({}); it was never answered, and is cut off",
            torn.record, torn.reason
        );
        Ok(())
    }

    fn restore(&self) -> Result<Option<Saved>, Error> {
        let known = match &self.lock().content {
            Content::Log(log) => Some(log.clone()),
            Content::Missing | Content::Unusable(_) | Content::Damaged(..) => None,
        };
        let saved = match known {
            Some(log) if self.is_at_path(&log) => self.read_again(&log)?,
            _ => self.load()?,
        };
        let mut state = self.lock();
        if state.syncs.failed.is_some() {
            // Whoever asks now goes on from the answer: what was given up is of the past.
            state.syncs.renew();
            self.settled.notify_waiters();
        }
        Ok(saved)
    }

    /// Reads what is known to stand. No write was interrupted here: what is wrong now was right before.
    fn read_again(&self, log: &Log) -> Result<Option<Saved>, Error> {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; usize::try_from(log.end.offset).unwrap_or(usize::MAX)];
        let read = log.file.read_exact_at(&mut bytes, 0);
        let damage = match read {
            Ok(()) => match format::scan(&bytes, None) {
                Ok(format::Scan { saved, torn: None, .. }) => return Ok(Some(saved)),
                Ok(format::Scan { torn: Some(torn), .. }) => format!(
                    "record {} at offset {} is damaged: {}; it was whole when it was written",
                    torn.record, torn.offset, torn.reason
                ),
                Err(damage) => damage,
            },
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                format!("it was {} bytes long and is cut short", log.end.offset)
            }
            Err(error) => return Err(self.failed("reading", &error)),
        };
        let error = corrupt(self.path(), &damage);
        self.give_way(
            Content::Damaged(error.clone(), log.identity),
            "it was damaged before this change was durable",
        );
        Err(error)
    }

    /// Whether the file that is open is the one at the path.
    fn is_at_path(&self, log: &Log) -> bool {
        self.identity_at_path() == Some(log.identity)
    }

    fn identity_at_path(&self) -> Option<(u64, u64)> {
        let meta = std::fs::symlink_metadata(self.path()).ok()?;
        Some(place::identity(&meta))
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
        let mut state = self.lock();
        let Content::Log(log) = &mut state.content else {
            return synced;
        };
        if let Err(error) = synced {
            log.end = log.durable;
            let end = log.end.offset;
            state.refusal = Some(error.text().to_owned());
            drop(state);
            self.cut_back(&file, end, true);
            return Err(error);
        }
        log.durable = log.end;
        state.anchor(self.disk.as_ref());
        Ok(())
    }

    /// Writes an entry at the known end.
    fn write(&self, entry: &str) -> Result<Arc<OsFile>, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let log = match &mut state.content {
            Content::Log(log) => log,
            Content::Missing => return Err(Error::Unavailable("nothing to append to".to_owned())),
            Content::Unusable(error) | Content::Damaged(error, _) => return Err(error.clone()),
        };
        let path = self.path().display();
        if let Some(refusal) = &state.refusal {
            return Err(Error::Unavailable(format!(
                "{path}: no appends until a checkpoint has replaced the file, after: {refusal}"
            )));
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
            // Not synced: a sync that fails here would take the failure from the one that entries before this wait for.
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

    /// Removes what may have been written behind the end. Where it stays, it is not read as long as this store is open;
    /// afterwards it is an entry that was attempted, or a torn tail.
    fn cut_back(&self, file: &OsFile, end: u64, sync: bool) {
        let cut = self.disk.cut(file, end);
        let cut = cut.and_then(|()| if sync { self.disk.sync_all(file) } else { Ok(()) });
        if let Err(error) = cut {
            tracing::warn!(path = %self.path().display(), offset = end, "checkpoint: cutting back a failed write: {error}");
        }
    }

    fn checkpoint(&self, data: &str) -> Result<(), Error> {
        within(self.path(), "the data", data, DATA_BYTES_MAX)?;
        let stands = match &self.lock().content {
            Content::Unusable(_) | Content::Damaged(..) => false,
            Content::Missing => place::look(self.path())?.is_none(),
            // Where the file is gone, what it had is known here, and this checkpoint makes it good.
            Content::Log(log) => self.is_at_path(log) || place::look(self.path())?.is_none(),
        };
        if !stands {
            // Another file, or none, is there now: it is replaced only where it is one that could be read.
            self.load()?;
        }
        let epoch = self.next_epoch();
        let (header, head) = (format::header(epoch), format::record_head(Version::Two, 0, 0, data));
        let pieces = [header.as_slice(), head.as_slice(), data.as_bytes()];
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let keep = Keep::Newest(self.settings.keep_generations);
        let (file, unsure) = match generations::replace(self.disk.as_ref(), self.path(), keep, &pieces) {
            Ok(file) => (file, None),
            Err(unreplaced) => match unreplaced.in_place {
                Some(file) => (file, Some(unreplaced.error)),
                None => return Err(unreplaced.error),
            },
        };
        let end = End { offset: bytes, next: 1 };
        let log = self.log(file, Version::Two, epoch, end);
        let mut state = self.lock();
        state.turnovers += 1;
        state.content = match log {
            Ok(log) => Content::Log(log),
            Err(error) => Content::Unusable(error),
        };
        state.refusal = unsure.as_ref().map(|error| error.text().to_owned());
        if unsure.is_none() {
            state.anchor(self.disk.as_ref());
        }
        if self.settings.shared_sync {
            match &unsure {
                None => state.syncs.renew(),
                // Which of the two files a crash would leave is not known, and the older one has lost its syncs.
                Some(error) if state.syncs.durable < state.syncs.written => state.syncs.fail(error),
                Some(_) => {}
            }
            self.settled.notify_waiters();
        }
        drop(state);
        unsure.map_or(Ok(()), Err)
    }

    /// The epoch of the next file: higher than that of any before it, as far as this is known.
    fn next_epoch(&self) -> u64 {
        let state = self.lock();
        let known = state.anchor.mark().map_or(0, |mark| mark.epoch);
        let present = match &state.content {
            Content::Log(log) => log.epoch,
            Content::Missing | Content::Unusable(_) | Content::Damaged(..) => 0,
        };
        known.max(present) + 1
    }

    /// Makes durable what is written, for as long as somebody waits for more. Whoever calls tells those who wait of the end.
    fn sync(&self) {
        loop {
            let (log, written, turnovers) = {
                let mut state = self.lock();
                match &state.content {
                    Content::Log(log) if state.syncs.failed.is_none() => {
                        (log.clone(), state.syncs.written, state.turnovers)
                    }
                    _ => {
                        state.syncs.is_running = false;
                        break;
                    }
                }
            };
            let synced = self.disk.sync_data(&log.file);
            let mut state = self.lock();
            let failure = self.note_sync(&mut state, turnovers, written, log.end, synced);
            let goes_on = failure.is_none() && state.syncs.answer(state.syncs.wanted).is_none();
            state.syncs.is_running = goes_on;
            drop(state);
            if let Some(end) = failure {
                self.cut_back(&log.file, end, true);
            }
            if !goes_on {
                break;
            }
            self.settled.notify_waiters();
        }
    }

    /// Takes note of how a sync ended that began with `written` changes and this end. Where it failed: where to cut.
    fn note_sync(
        &self,
        state: &mut State,
        turnovers: u64,
        written: u64,
        end: End,
        synced: io::Result<()>,
    ) -> Option<u64> {
        if state.turnovers != turnovers {
            // A checkpoint came meanwhile, and with it everything before it is durable.
            return None;
        }
        let Content::Log(log) = &mut state.content else {
            return None;
        };
        match synced {
            Ok(()) => {
                log.durable = end;
                state.syncs.durable = state.syncs.durable.max(written);
                state.anchor(self.disk.as_ref());
                None
            }
            Err(error) => {
                log.end = log.durable;
                let offset = log.end.offset;
                let error = self.failed("syncing entries", &error);
                tracing::error!("checkpoint: {}; what was not durable is given up", error.text());
                state.refusal = Some(error.text().to_owned());
                state.syncs.fail(&error);
                Some(offset)
            }
        }
    }
}

fn corrupt(path: &Path, damage: &str) -> Error {
    Error::Corrupt(format!("{}: {damage}; {}", path.display(), anchor::way_out(path)))
}
