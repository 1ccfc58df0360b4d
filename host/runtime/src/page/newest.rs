//! What the page opens with: the newest problem of all recordings, or, if there is none, the newest decision.
//!
//! Reads files newest first, and none that is too old to hold anything newer than what is found.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;
use trueup_base::regular;

use super::catalog::Written;
use super::decision::{Lines, for_each_entry, text_of};
use super::growth::LINE_BYTES_MAX;
use super::index::{DECISIONS_MAX, Decision, Index, Outcome, Segment};
use super::source::Source;
use crate::http::{Refused, off_thread};

/// This much is read of the newest files together, and of the end of one: about 100,000 decisions, in a second or less.
const BYTES_MAX: u64 = 64 << 20;

/// This many of the newest files are read: a host has one or a few for each key.
const FILES_MAX: usize = 2000;

/// This many of the newest files are compared with another guest: each takes a replay.
const COMPARED_MAX: usize = 20;

/// The length of a problem's text, in characters: a few lines on a narrow screen.
const WORDS_MAX: usize = 300;

/// The newest problem and the newest decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Newest {
    problem: Option<Found>,
    decision: Option<Found>,
    /// The number of older files that were not read, although they might hold a problem.
    unread: usize,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Found {
    /// The recording's id. Empty in the newest of one file.
    r: String,
    n: u64,
    /// `None` for questions during a start.
    at_ms: Option<u64>,
    outcome: Outcome,
    /// Whether another guest, which the recording was compared with, decides differently.
    differs: bool,
    /// The beginning of the text of its problem.
    words: String,
}

/// The newest of each file that was read, by file and length: a file that did not grow is not read again.
pub(super) type Cache = Mutex<BTreeMap<(PathBuf, u64), Newest>>;

/// Searches these files, which are sorted, newest first.
pub(super) async fn newest(source: &Source, cache: &Cache, files: Vec<Written>) -> Result<Newest, Refused> {
    let (mut newest, mut bytes, count) = (Newest::default(), 0, files.len());
    let mut before = std::mem::take(&mut *cache.lock());
    let mut now = BTreeMap::new();
    for (at, file) in files.into_iter().enumerate() {
        let problem = newest.problem.as_ref();
        if problem.is_some_and(|problem| problem.at_ms >= file.changed_ms) {
            break;
        }
        if at >= FILES_MAX || bytes >= BYTES_MAX {
            newest.unread = count - at;
            break;
        }
        bytes += file.bytes;
        let (file_read, id) = ((file.path, file.bytes), file.id);
        let found = match before.remove(&file_read) {
            Some(found) => found,
            None => {
                let differs_at = match source.other_guest().filter(|_| at < COMPARED_MAX) {
                    Some(other) => other.segment(&file_read.0).await.diverged_at,
                    None => None,
                };
                let path = file_read.0.clone();
                // A file that is gone or unreadable holds nothing; the list says why.
                off_thread(move || Newest::of_file(&path, differs_at).unwrap_or_default()).await?
            }
        };
        later(&mut newest.problem, found.problem.as_ref(), &id);
        later(&mut newest.decision, found.decision.as_ref(), &id);
        now.insert(file_read, found);
    }
    *cache.lock() = now;
    Ok(newest)
}

/// Replaces a decision by a later one.
fn later(one: &mut Option<Found>, other: Option<&Found>, r: &str) {
    let is_later = |other: &&Found| one.as_ref().is_none_or(|one| one.at_ms < other.at_ms);
    if let Some(found) = other.filter(is_later).cloned() {
        *one = Some(Found {
            r: r.to_owned(),
            ..found
        });
    }
}

impl Newest {
    /// Reads one file as far as it is readable.
    fn of_file(file: &Path, differs_at: Option<u64>) -> io::Result<Self> {
        let mut index = Index::of_at_most(DECISIONS_MAX);
        index.segments.push(Segment {
            path: file.to_owned(),
            differs_at,
            ..Segment::default()
        });
        // What is unreadable ends the file.
        let _ = for_each_entry(file, beginning(file)?, u64::MAX, |located| {
            index.take(located);
            true
        });
        let is_problem = |decision: &&Decision| decision.outcome.is_problem() || index.differs(decision);
        let found = |decision: &Decision| Found {
            r: String::new(),
            n: decision.n,
            at_ms: decision.at_ms,
            outcome: decision.outcome,
            differs: index.differs(decision),
            words: words(file, decision),
        };
        Ok(Self {
            problem: index.decisions.iter().rev().find(is_problem).map(found),
            decision: index.decisions.last().map(found),
            unread: 0,
        })
    }
}

/// Where the first complete line begins in what is read of a file.
fn beginning(file: &Path) -> io::Result<u64> {
    let mut file = regular::open(file)?;
    let skipped = file.metadata()?.len().saturating_sub(BYTES_MAX);
    if skipped == 0 {
        return Ok(0);
    }
    file.seek(SeekFrom::Start(skipped))?;
    let mut line = Vec::new();
    let rest = BufReader::new(file).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(skipped + rest as u64)
}

/// The beginning of the text of a problem. Empty if the decision has none.
fn words(file: &Path, decision: &Decision) -> String {
    if !decision.outcome.is_problem() {
        return String::new();
    }
    let lines = Lines::read(file, decision, 0, 0).unwrap_or_default();
    let text = lines.ending.as_ref().map_or("", |(_, ending)| text_of(ending));
    text.chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// A recording of calls that begin at these times, each with its ending. Its file was written last at its end.
    fn write(folder: &Path, key: &str, calls: &[(u64, &str)]) {
        let path = folder.join("g").join(key).join("0.jsonl");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let line = |(at, (at_ms, ending)): (usize, &(u64, &str))| {
            let n = 2 * at + 1;
            format!(
                "{{\"n\":{n},\"at_ms\":{at_ms},\"call\":\"a.b\",\"args\":{{}}}}\n{{\"n\":{},{ending}}}\n",
                n + 1
            )
        };
        fs::write(&path, calls.iter().enumerate().map(line).collect::<String>()).unwrap();
        let changed = UNIX_EPOCH + Duration::from_millis(calls.last().unwrap().0 + 1);
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(changed)
            .unwrap();
    }

    const OK: &str = r#""result":{"Ok":1}"#;
    const ERROR: &str = r#""result":{"Err":"no"}"#;
    const TRAP: &str = r#""trap":"unreachable""#;
    const CANCELLED: &str = r#""cancelled":"newer input""#;

    /// The recording and entry of the newest problem, and of the newest decision.
    async fn found(source: &Source) -> (Option<(String, u64)>, Option<(String, u64)>) {
        let newest = source.newest(None).await.ok().unwrap();
        let place = |found: Found| (found.r, found.n);
        (newest.problem.map(place), newest.decision.map(place))
    }

    #[tokio::test]
    async fn the_newest_problem_of_all_recordings_is_found() {
        let state = tempfile::tempdir().unwrap();
        let source = Source::new(vec![state.path().to_owned()], None);
        let place = |key: &str, n: u64| Some((format!("g/{key}"), n));
        assert_eq!(found(&source).await, (None, None));
        write(state.path(), "a", &[(10, OK), (90, OK)]);
        write(state.path(), "b", &[(20, OK), (30, CANCELLED)]);
        assert_eq!(found(&source).await, (None, place("a", 3)));
        write(state.path(), "b", &[(20, OK), (30, ERROR), (40, OK)]);
        assert_eq!(found(&source).await, (place("b", 3), place("a", 3)));
        write(state.path(), "c", &[(25, TRAP), (26, OK)]);
        assert_eq!(found(&source).await.0, place("b", 3));
        write(state.path(), "c", &[(25, OK), (35, TRAP)]);
        assert_eq!(found(&source).await.0, place("c", 3));
        let of_b = source.newest(Some("g/b")).await.ok().unwrap();
        assert_eq!(of_b.problem.unwrap().words, r#"{"Err":"no"}"#);
        // A line that is damaged, and all after it, hides nothing before it.
        write(state.path(), "d", &[(50, TRAP), (60, "damaged"), (70, TRAP)]);
        assert_eq!(found(&source).await.0, place("d", 1));
    }

    #[tokio::test]
    async fn more_files_than_are_read_are_counted() {
        let state = tempfile::tempdir().unwrap();
        for at in 0..FILES_MAX + 2 {
            let ending = if at < 2 { TRAP } else { OK };
            write(state.path(), &at.to_string(), &[(10 + at as u64, ending)]);
        }
        let source = Source::new(vec![state.path().to_owned()], None);
        let newest = source.newest(None).await.ok().unwrap();
        assert_eq!((newest.problem.map(|found| found.r), newest.unread), (None, 2));
    }

    #[test]
    fn where_another_guest_differs_is_a_problem_at_its_decision() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", &[(10, OK), (20, OK), (30, OK)]);
        let file = folder.path().join("g/a/0.jsonl");
        let differs = Newest::of_file(&file, Some(4)).unwrap().problem.unwrap();
        assert_eq!((differs.n, differs.differs, differs.outcome), (3, true, Outcome::Ok));
        assert_eq!(Newest::of_file(&file, None).unwrap().problem, None);
    }
}
