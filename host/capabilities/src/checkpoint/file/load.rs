//! What a `file` store reads: everything when it is opened, and its valid part later.

use std::fs::File as OsFile;
use std::io::{self, Read as _};
use std::sync::Arc;

use trueup_base::replace;

use super::super::anchor;
use super::super::format::Torn;
use super::{Content, End, Error, Log, Saved, Shared, TORN_TAILS_TOTAL, Version, format, place};

impl Shared {
    /// Reads the file from scratch, unless it is the one already found damaged.
    pub(in crate::checkpoint) fn load(&self) -> Result<Option<Saved>, Error> {
        if let Content::Unusable(error, Some(identity)) = &self.state.lock().content
            && self.identity_at_path() == Some(*identity)
        {
            return Err(error.clone());
        }
        let (content, read) = match self.read() {
            Ok(None) => (Content::Missing, Ok(None)),
            Ok(Some((log, saved))) => (Content::Log(log), Ok(Some(saved))),
            Err(error) => (Content::Unusable(error.clone(), None), Err(error)),
        };
        self.give_way(content, "another file took its place before this change was durable");
        self.state.lock().anchor(self.disk.as_ref());
        read
    }

    /// Replaces the open file's state. Gives up its changes that are not durable, and records why.
    fn give_way(&self, content: Content, why: &str) {
        let mut state = self.state.lock();
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
        let known = self.state.lock().anchor.read()?;
        let Some(mut file) = place::open_ours(path, true)? else {
            return anchor::lost(known, None).map_or(Ok(None), |lost| Err(anchor::corrupt(path, &lost)));
        };
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| self.failed("reading", &error))?;
        let scan = format::scan(&bytes, known).map_err(|damage| anchor::corrupt(path, &damage))?;
        if let Some(torn) = &scan.torn {
            let tail = usize::try_from(torn.offset).ok().and_then(|from| bytes.get(from..));
            self.cut_tail(&file, torn, tail.unwrap_or_default())?;
        }
        // A killed host may have left changes only in the system's cache; from here on they count as durable.
        let synced = self.disk.sync_data(&file);
        let synced = synced.and_then(|()| self.disk.sync_folder(place::folder_of(path)));
        synced.map_err(|error| self.failed("syncing", &error))?;
        let offset = scan.end;
        let next = scan.saved.entries.len() as u64 + 1;
        let log = self.log(file, scan.version, scan.epoch, End { offset, next })?;
        Ok(Some((log, scan.saved)))
    }

    pub(super) fn log(&self, file: OsFile, version: Version, epoch: u64, end: End) -> Result<Log, Error> {
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
            replace::remove(&kept)?;
            let copy = place::create_new(&kept)?;
            self.disk.write_at(&copy, tail, 0)?;
            self.disk.sync_all(&copy)?;
            self.disk.sync_folder(place::folder_of(&kept))
        };
        keep().map_err(|error| place::failed(&kept, "keeping a torn tail", &error))?;
        let cut = self.disk.cut(file, torn.offset).and_then(|()| self.disk.sync_all(file));
        cut.map_err(|error| self.failed("cutting off a torn tail", &error))?;
        self.metrics.count(TORN_TAILS_TOTAL, &[], 1);
        tracing::warn!(
            path = %path.display(), offset = torn.offset, bytes = torn.bytes, kept = %kept.display(),
            "checkpoint: a write was interrupted: record {} ({}); it was never answered, and is cut off",
            torn.record, torn.reason
        );
        Ok(())
    }

    pub(super) fn restore(&self) -> Result<Option<Saved>, Error> {
        let known = match &self.state.lock().content {
            Content::Log(log) if self.is_at_path(log) => Some(log.clone()),
            _ => None,
        };
        let saved = match known {
            Some(log) => self.read_again(&log)?,
            None => self.load()?,
        };
        let mut state = self.state.lock();
        if state.syncs.failed.is_some() {
            // Callers that ask now continue from this answer; the changes given up no longer matter.
            state.syncs.renew();
            self.settled.notify_waiters();
        }
        Ok(saved)
    }

    /// Reads the part known to be valid. No write was interrupted here, so anything wrong now was intact before.
    fn read_again(&self, log: &Log) -> Result<Option<Saved>, Error> {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; usize::try_from(log.end.offset).unwrap_or(usize::MAX)];
        let damage = match log.file.read_exact_at(&mut bytes, 0) {
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
        let error = anchor::corrupt(self.path(), &damage);
        let content = Content::Unusable(error.clone(), Some(log.identity));
        self.give_way(content, "it was damaged before this change was durable");
        Err(error)
    }
}
