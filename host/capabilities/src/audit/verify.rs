//! Reads an audit log from its beginning and checks that every byte is as written.
//!
//! Changes nothing. Continues after a problem, so that one pass reports all of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trueup_base::regular;

use super::line::{AuditError, Kind, Line, NO_HASH, dropped, failed, sha256};
use super::writer::{HEAD, Head, segment_name};

/// The maximum number of problems in a verdict: a log that was cut to pieces has one per line.
pub const PROBLEMS_MAX: usize = 100;

/// A part of an audit log that differs from what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file's name.
    pub file: String,
    /// The line of the file, from 1; `None` if the problem is not about one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "`{}` line {line} {}", self.file, self.what),
            None => write!(f, "`{}` {}", self.file, self.what),
        }
    }
}

/// The result of checking a whole log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The number of files.
    pub files: usize,
    /// The number of lines, intact or not.
    pub lines: u64,
    /// The number of earlier lines that the log's limits removed.
    pub removed: u64,
    /// The problems in order. Empty if the log is whole.
    pub problems: Vec<Problem>,
    /// The number of further problems, which are not listed.
    pub more_problems: u64,
}

impl Verdict {
    /// Returns true if every byte is as written.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, file: &str, line: Option<u64>, what: String) {
        if self.problems.len() >= PROBLEMS_MAX {
            self.more_problems += 1;
            return;
        }
        let file = file.to_owned();
        self.problems.push(Problem { file, line, what });
    }
}

/// The files of a log with the numbers of their first lines, oldest first. Files with other names do not belong to the
/// log. None if there is no such folder.
pub(super) fn segments(folder: &Path) -> Result<Vec<(u64, PathBuf)>, AuditError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(failed("list", folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", folder))?;
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        let first = stem.and_then(|stem| stem.parse().ok());
        let first = first.filter(|first| name == *segment_name(*first));
        found.extend(first.map(|first| (first, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Returns whether this folder holds an audit log.
///
/// # Errors
/// If the folder exists and can't be listed: it may hold one.
pub fn is_log(folder: &Path) -> Result<bool, AuditError> {
    Ok(folder.join(HEAD).is_file() || !segments(folder)?.is_empty())
}

/// Checks every byte of a log.
///
/// # Errors
/// If the log can't be read or does not exist.
pub fn verify(folder: &Path) -> Result<Verdict, AuditError> {
    walk(folder, |_| ())
}

/// As [`verify`], and passes every intact line to `see`, in order.
///
/// # Errors
/// As [`verify`].
pub fn walk(folder: &Path, mut see: impl FnMut(Line)) -> Result<Verdict, AuditError> {
    if !is_log(folder)? {
        return Err(AuditError::None(folder.to_owned()));
    }
    let mut head = Head::read(folder)?;
    let mut walk: Option<Walk> = None;
    for (first, path) in segments(folder)? {
        let bytes = match regular::read(&path, regular::RECORDS) {
            // A running host removed it as one of the oldest.
            Err(error) if error.kind() == io::ErrorKind::NotFound && walk.is_none() => continue,
            read => read.map_err(failed("read", &path))?,
        };
        let walk = walk.get_or_insert_with(|| Walk::from(head.take(), first));
        walk.file(first, bytes, &mut see);
    }
    Ok(walk.unwrap_or_else(|| Walk::from(head, 0)).end())
}

/// The position while walking along the chain.
#[derive(Default)]
pub(super) struct Walk {
    verdict: Verdict,
    pub(super) head: Option<Result<Head, &'static str>>,
    /// The number of the first line of the first file. Above 0, lines were removed.
    first: u64,
    /// `prev` of that line; `None` if it can't be read.
    first_prev: Option<String>,
    /// The next line's required number.
    pub(super) next_n: u64,
    /// The `prev` that the next line must have; `None` after a changed line, where it is unknown.
    pub(super) prev: Option<String>,
    /// The last file, as it is on the disk.
    last: Option<(String, Vec<u8>)>,
    /// The hash of the line that the head names; `None` if the walk has not reached that line, or it was changed.
    at_head: Option<String>,
    /// Bytes after the last newline of the last file.
    pub(super) torn_bytes: usize,
    /// The first problem and its file, except a torn end, and except damage that an earlier line already reports.
    pub(super) damage: Option<(String, String)>,
    /// The first line that remained after the last removal, and the hash of the line before it.
    dropped: (u64, String),
}

impl Walk {
    /// Starts at the file whose first line is `first`.
    pub(super) fn from(head: Option<Result<Head, &'static str>>, first: u64) -> Self {
        let mut walk = Self {
            head,
            first,
            ..Self::default()
        };
        walk.go_to(first, (first == 0).then(|| NO_HASH.to_owned()));
        walk
    }

    /// The bytes of the last file; `None` if there was no file.
    pub(super) fn last_bytes(&self) -> Option<&[u8]> {
        self.last.as_ref().map(|(_, bytes)| bytes.as_slice())
    }

    fn wrong(&mut self, file: &str, line: Option<u64>, what: String) {
        let place = line.map(|line| format!("line {line} ")).unwrap_or_default();
        self.damage
            .get_or_insert_with(|| (file.to_owned(), format!("{place}{what}")));
        self.verdict.problem(file, line, what);
    }

    pub(super) fn file(&mut self, first: u64, bytes: Vec<u8>, mut see: impl FnMut(Line)) {
        let name = &segment_name(first);
        self.torn();
        self.verdict.files += 1;
        if first != self.next_n {
            let what = if first > self.next_n {
                missing(self.next_n, first, "before it")
            } else {
                format!(
                    "begins with line {first} of the log, must begin with line {}",
                    self.next_n
                )
            };
            self.wrong(name, None, what);
            self.go_to(first, None);
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // After the last newline comes either nothing or a torn line.
        self.torn_bytes = lines.next_back().map_or(0, <[u8]>::len);
        for (number, text) in (1..).zip(lines) {
            match self.line(number, text) {
                Ok(line) => {
                    self.go_to(line.n + 1, Some(line.hash.clone()));
                    if self.first == line.n {
                        self.first_prev = Some(line.prev.clone());
                    }
                    if let Some((stays, hash)) = dropped(&line) {
                        self.dropped = (stays, hash.to_owned());
                    }
                    if line.kind == Kind::Broken {
                        let what = format!("says that the log was found damaged here: {}", line.outcome);
                        self.verdict.problem(name, Some(number), what);
                    }
                    see(line);
                }
                Err((what, n)) => {
                    self.wrong(name, Some(number), what);
                    self.go_to(n.unwrap_or(self.next_n).saturating_add(1), None);
                }
            }
            self.verdict.lines += 1;
        }
        self.last = Some((name.to_owned(), bytes));
    }

    /// Returns what is wrong with the log's beginning.
    fn against_dropped(&mut self) -> Option<Problem> {
        let first = self.first;
        let (stays, hash) = &self.dropped;
        let file = segment_name(first);
        if first > *stays {
            let line = None;
            let what = missing(*stays, first, "before it");
            return Some(Problem { file, line, what });
        }
        self.verdict.removed = first;
        let is_other = first == *stays && self.first_prev.as_ref().is_some_and(|prev| prev != hash);
        (first > 0 && is_other).then(|| Problem {
            file,
            line: Some(1),
            what: "has a `prev` that is not the hash of the last line that was removed: a line was changed".to_owned(),
        })
    }

    /// The error is what is wrong with the line, and its number if it has one.
    fn line(&self, number: u64, text: &[u8]) -> Result<Line, (String, Option<u64>)> {
        let line = Line::open(text).map_err(|what| (what, None))?;
        let moved = |what: &str| Err((format!("{what}: a line was removed, inserted or moved"), Some(line.n)));
        if line.n != self.next_n {
            return moved(&format!("is line {} of the log, must be line {}", line.n, self.next_n));
        }
        let prev = match &self.last {
            // The seal on the damaged file, which remains as the host found it.
            _ if line.kind != Kind::Broken => self.prev.clone(),
            Some((_, bytes)) if number == 1 => Some(sha256(bytes)),
            None if number == 1 && self.next_n == 0 => Some(NO_HASH.to_owned()),
            _ => None,
        };
        if prev.is_some_and(|prev| prev != line.prev) {
            return moved("has a `prev` that is not the hash of what is before it");
        }
        Ok(line)
    }

    /// Continues before line `next_n`; the previous line has this hash.
    fn go_to(&mut self, next_n: u64, prev: Option<String>) {
        self.next_n = next_n;
        self.prev = prev;
        if let Some(Ok(head)) = &self.head
            && head.lines == next_n
        {
            self.at_head.clone_from(&self.prev);
        }
    }

    /// Reports the torn end of the last file, if it has one.
    fn torn(&mut self) {
        if let Some((name, _)) = &self.last
            && self.torn_bytes > 0
        {
            let what = format!("ends in a torn line of {} bytes", self.torn_bytes);
            self.verdict.problem(name, None, what);
        }
    }

    /// Compares the end with the head. Returns the problem and the file that it is about.
    pub(super) fn against_head(&self) -> Option<(String, String)> {
        let about_head = |what: &str| Some((HEAD.to_owned(), what.to_owned()));
        match &self.head {
            None => about_head("is missing, so it is unknown whether lines are missing at the end"),
            Some(Err(what)) => about_head(what),
            Some(Ok(head)) if head.lines > self.next_n => {
                let last = self.last.as_ref().map_or(HEAD, |(name, _)| name);
                Some((last.to_owned(), missing(self.next_n, head.lines, "at its end")))
            }
            Some(Ok(head)) if self.at_head.as_ref().is_some_and(|hash| *hash != head.hash) => {
                about_head("names another last line than the log has")
            }
            Some(Ok(_)) => None,
        }
    }

    fn end(mut self) -> Verdict {
        self.torn();
        if let Some((file, what)) = self.against_head() {
            self.wrong(&file, None, what);
        }
        if let Some(problem) = self.against_dropped() {
            // This problem comes first in order.
            self.verdict.problems.insert(0, problem);
        }
        self.verdict
    }
}

fn missing(from: u64, to: u64, place: &str) -> String {
    match to.saturating_sub(1) {
        last if last == from => format!("lacks line {from} of the log {place}"),
        last => format!("lacks lines {from} to {last} of the log {place}"),
    }
}
