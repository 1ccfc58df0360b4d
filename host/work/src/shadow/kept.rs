//! The shadow's folder: the newest differences, each a recording that `trueup replay FILE --guest CANDIDATE` shows
//! again.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trueup_base::folder;
use trueup_base::replace::{Durable, remove, replace_file};
use trueup_journal::{Segment, path_component};

/// The maximum number of differences kept; the newest stay. The first few show what is wrong with a candidate.
pub const KEPT_FILES_MAX: usize = 100;

/// The maximum total size of these, like that of one instance's journal.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;

/// How many differences may be kept at once, before [`KEPT_PER_SECOND_MAX`] applies: as many as a status lists
/// ([`super::LAST_MAX`]). Each holds what the active guest did since a known state, and a candidate that differs in
/// every call would write one for each call.
pub const KEPT_AT_ONCE_MAX: u32 = 10;

/// The maximum number of differences kept per second. All are counted.
pub const KEPT_PER_SECOND_MAX: u32 = 2;

const EXTENSION: &str = ".jsonl";

/// The shadow's folder.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    /// The number of the next difference.
    next: u64,
    /// Oldest first, with their sizes.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
    rate: Rate,
    /// Whether an error was logged and nothing could be written since.
    failing: bool,
}

impl Kept {
    /// Continues in a folder, or creates it.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        folder::make(folder, Durable::No)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                found.push((number, entry.path(), entry.metadata()?.len()));
            }
        }
        found.sort();
        let mut kept = Self {
            folder: folder.to_owned(),
            next: found.last().map_or(1, |(number, ..)| number.saturating_add(1)),
            bytes: found.iter().map(|(.., bytes)| bytes).sum(),
            files: found.into_iter().map(|(_, path, bytes)| (path, bytes)).collect(),
            rate: Rate::new(KEPT_AT_ONCE_MAX, KEPT_PER_SECOND_MAX),
            failing: false,
        };
        kept.remove_old()?;
        Ok(kept)
    }

    /// Whether one more recording may be kept now, within the rate limit.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        self.rate.has(now)
    }

    /// Keeps a recording, and removes old ones. `None` if it can't be written, which is logged.
    pub(super) fn keep(&mut self, key: &str, recording: &Segment, now: Instant) -> Option<PathBuf> {
        self.rate.take(now);
        let name = format!("{}-{}{EXTENSION}", self.next, path_component(key));
        let path = self.folder.join(name);
        let write = |kept: &mut Self| {
            // If the folder is gone, this fails: an operator who removed it wants no more files.
            fs::metadata(&kept.folder)?;
            let mut text = Vec::new();
            recording.write(&mut text)?;
            replace_file(&path, &text, Durable::No)?;
            let bytes = text.len() as u64;
            kept.next += 1;
            kept.files.push_back((path.clone(), bytes));
            kept.bytes += bytes;
            kept.remove_old()
        };
        let written = write(self);
        // Logs an error once, not for every call: a full disk stays full for a while.
        let was_failing = std::mem::replace(&mut self.failing, written.is_err());
        if let Err(error) = &written
            && !was_failing
        {
            let folder = self.folder.display();
            tracing::warn!("keeping what a candidate decides in `{folder}`: {error}");
        }
        written.is_ok().then_some(path)
    }

    fn remove_old(&mut self) -> io::Result<()> {
        while (self.files.len() > KEPT_FILES_MAX || (self.bytes > KEPT_BYTES_MAX && self.files.len() > 1))
            && let Some((path, bytes)) = self.files.pop_front()
        {
            self.bytes -= bytes;
            remove(&path)?;
        }
        Ok(())
    }
}

/// The number at the beginning of a difference's file name.
fn number_of(name: &str) -> Option<u64> {
    let (number, _) = name.strip_suffix(EXTENSION)?.split_once('-')?;
    number.parse().ok()
}

/// A rate limit: a number at once, then a number per second. Times are arguments.
#[derive(Debug)]
struct Rate {
    /// One slot becomes free in each such interval.
    every: Duration,
    at_once: u32,
    /// When all slots are free again. `None` before the first action.
    free_at: Option<Instant>,
}

impl Rate {
    fn new(at_once: u32, per_second: u32) -> Self {
        Self {
            every: Duration::from_secs(1) / per_second.max(1),
            at_once,
            free_at: None,
        }
    }

    /// Whether one more action is allowed now.
    fn has(&self, now: Instant) -> bool {
        let taken = |free_at: Instant| free_at.saturating_duration_since(now);
        self.free_at
            .is_none_or(|free_at| taken(free_at) + self.every <= self.every * self.at_once)
    }

    /// Counts an action.
    fn take(&mut self, now: Instant) {
        self.free_at = Some(self.free_at.map_or(now, |free_at| free_at.max(now)) + self.every);
    }
}

#[cfg(test)]
mod tests {
    use trueup_journal::Header;

    use super::*;

    fn recording(snapshot: &str) -> Segment {
        let raw = || serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
        let header = Header {
            format: trueup_journal::FORMAT,
            guest: "g".into(),
            version: "1".into(),
            digest: "d".into(),
            world: "w".into(),
            host: "h".into(),
            settings: raw(),
            limits: raw(),
            snapshot: Some(snapshot.to_owned()),
        };
        Segment::of("test", 0, header, Vec::new()).unwrap()
    }

    #[test]
    fn the_newest_are_kept_and_numbers_go_on_in_the_next_shadow() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let names = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            let mut names: Vec<u64> = names.filter_map(|name| number_of(name.to_str().unwrap())).collect();
            names.sort_unstable();
            names
        };
        let mut kept = Kept::open(dir.path()).unwrap();
        for _ in 0..KEPT_FILES_MAX + 3 {
            kept.keep("default/web", &recording("s"), Instant::now()).unwrap();
        }
        assert_eq!(names(), (4..=103).collect::<Vec<_>>());
        let path = Kept::open(dir.path())
            .unwrap()
            .keep("default/web", &recording("s"), Instant::now())
            .unwrap();
        assert!(path.ends_with("104-default%2Fweb.jsonl"), "{}", path.display());
        assert_eq!(Segment::read(&path).unwrap().header.snapshot.as_deref(), Some("s"));
        assert_eq!(names(), (5..=104).collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_that_is_gone_costs_files_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("shadow");
        let mut kept = Kept::open(&folder).unwrap();
        fs::remove_dir(&folder).unwrap();
        assert_eq!(kept.keep("k", &recording("s"), Instant::now()), None);
        assert_eq!(kept.keep("k", &recording("s"), Instant::now()), None);
    }

    #[test]
    fn so_many_at_once_and_then_so_many_a_second() {
        let begun = Instant::now();
        let mut rate = Rate::new(3, 2);
        let mut done_at = |after_ms: u64| {
            let now = begun + Duration::from_millis(after_ms);
            let mut done = 0;
            while rate.has(now) {
                rate.take(now);
                done += 1;
            }
            done
        };
        assert_eq!([done_at(0), done_at(0)], [3, 0]);
        assert_eq!([done_at(499), done_at(500), done_at(500)], [0, 1, 0]);
        assert_eq!(done_at(1_500), 2);
        assert_eq!(
            done_at(60_000),
            3,
            "no more than at once, however long nothing was done"
        );
    }
}
