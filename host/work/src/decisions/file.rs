//! Stores the lines of a key: appends one line after each job, and reads them from a folder that a host may be writing
//! to.
//!
//! ```text
//! state_dir/decisions/<guest>/<key>.jsonl      the newest lines
//! state_dir/decisions/<guest>/<key>.old.jsonl  those before; replaced as a whole
//! ```
//! The host never syncs these files. If the host is killed, no line is lost; if the machine fails, the last ones may
//! be. A reader skips torn lines, and a newline separates them from the next line.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use trueup_base::replace::Durable;
use trueup_base::{folder, regular};

use super::record::{FORMAT, Record};
use crate::files::failed;

/// At this size a file becomes the old one. At 1 KiB a job this holds some two hundred jobs, and the old file as many.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// The file of a key.
pub(super) fn path(state_dir: &Path, guest: &str, key: &str) -> PathBuf {
    let name = format!("{}.jsonl", trueup_journal::path_component(key));
    trueup_journal::guest_dir(&state_dir.join("decisions"), guest).join(name)
}

fn old(file: &Path) -> PathBuf {
    file.with_extension("old.jsonl")
}

/// Appends one line. The duration does not depend on the number of lines.
///
/// # Errors
/// If it cannot be written, with the name of the file.
pub(super) fn append(file: &Path, record: &Record) -> io::Result<()> {
    let named = failed("writing", file);
    let mut line = b"\n".to_vec();
    serde_json::to_writer(&mut line, record)?;
    line.push(b'\n');
    let mut out = open(file).map_err(&named)?;
    let mut bytes = out.metadata().map_err(&named)?.len();
    if bytes > 0 && bytes + line.len() as u64 > FILE_BYTES_MAX {
        fs::rename(file, old(file)).map_err(&named)?;
        out = open(file).map_err(&named)?;
        bytes = 0;
    }
    // A process that was killed in the middle of a line left no newline.
    let is_whole = bytes == 0 || ends_a_line(&mut out).map_err(&named)?;
    let line = line.get(usize::from(is_whole)..).unwrap_or_default();
    out.write_all(line).map_err(named)
}

fn open(file: &Path) -> io::Result<File> {
    folder::make(regular::folder_of(file), Durable::No)?;
    regular::open_own(OpenOptions::new().read(true).append(true).create(true), file)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The lines of a key, oldest first; empty if there is no file. Unreadable lines (torn, or from a newer host) are
/// counted.
///
/// # Errors
/// If the file exists and cannot be read, with its name.
pub(super) fn read(file: &Path) -> io::Result<(Vec<Record>, usize)> {
    let (mut records, mut unread) = (Vec::new(), 0);
    // Read the newer one first: if the files rotate in between, lines come twice instead of never.
    let newer = lines(file)?;
    let older = lines(&old(file))?;
    let all = [older, newer];
    let all = all.iter().flat_map(|lines| lines.split(|byte| *byte == b'\n'));
    for line in all.filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Record>(line) {
            Ok(record) if record.format == FORMAT => records.push(record),
            _ => unread += 1,
        }
    }
    records.dedup();
    Ok((records, unread))
}

fn lines(file: &Path) -> io::Result<Vec<u8>> {
    match regular::read(file, regular::LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(failed("reading", file)),
    }
}

/// Every key of a guest that has a file. Keys with shortened names are left out: operators do not type them.
///
/// # Errors
/// If the folder exists and cannot be listed.
pub(super) fn keys(state_dir: &Path, guest: &str) -> io::Result<BTreeSet<String>> {
    let folder = trueup_journal::guest_dir(&state_dir.join("decisions"), guest);
    let keys = names(&folder, |name| {
        let stem = name.strip_suffix(".jsonl")?;
        trueup_journal::key_of(stem.strip_suffix(".old").unwrap_or(stem))
    })?;
    Ok(keys.into_iter().collect())
}

/// The names in a folder, mapped by `named`. Empty if the folder does not exist.
pub(super) fn names(folder: &Path, named: impl Fn(&str) -> Option<String>) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("listing", folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().to_str().and_then(&named));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::meter::Effects;

    use super::super::{Cause, JobResult, TimedCause};
    use super::*;

    fn record(at_ms: u64, error: &str) -> Record {
        Record {
            format: FORMAT,
            key: "default/web".to_owned(),
            causes: vec![TimedCause {
                at_ms,
                cause: Cause::Resync { by_operator: false },
            }],
            more_causes: 0,
            began_ms: at_ms,
            took_ms: 1,
            failures_before: 0,
            decisions: Vec::new(),
            came: JobResult::Failed {
                error: error.to_owned(),
            },
            effects: Effects::default(),
        }
    }

    fn numbers(file: &Path) -> (Vec<u64>, usize) {
        let (records, unread) = read(file).unwrap();
        (records.iter().map(|record| record.began_ms).collect(), unread)
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_a_torn_one_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "lbaas", "default/web");
        assert_eq!(file, dir.path().join("decisions/lbaas/default%2Fweb.jsonl"));
        assert_eq!(numbers(&file), (vec![], 0));
        append(&file, &record(1, "a")).unwrap();
        let whole = fs::metadata(&file).unwrap().len();
        append(&file, &record(2, "b")).unwrap();
        for cut in [whole + 1, whole + 20, whole * 2 - 1] {
            let out = OpenOptions::new().write(true).open(&file).unwrap();
            out.set_len(cut).unwrap();
            append(&file, &record(3, "c")).unwrap();
            let (numbers, unread) = numbers(&file);
            // A line without its newline is complete.
            if cut == whole * 2 - 1 {
                assert_eq!((numbers, unread), (vec![1, 2, 3], 0));
            } else {
                assert_eq!((numbers, unread), (vec![1, 3], 1), "{cut}");
            }
            fs::write(&file, b"").unwrap();
            append(&file, &record(1, "a")).unwrap();
            append(&file, &record(2, "b")).unwrap();
        }
        assert_eq!(keys(dir.path(), "lbaas").unwrap(), ["default/web".to_owned()].into());
        assert_eq!(keys(dir.path(), "ipam").unwrap(), BTreeSet::new());
    }

    #[test]
    fn a_long_file_becomes_the_old_one_and_neither_grows_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "lbaas", "default/web");
        let long = "x".repeat(10_000);
        for at in 0..100 {
            append(&file, &record(at, &long)).unwrap();
        }
        for file in [&file, &old(&file)] {
            let bytes = fs::metadata(file).unwrap().len();
            assert!(bytes > 0 && bytes <= FILE_BYTES_MAX, "{bytes}");
        }
        let (numbers, unread) = numbers(&file);
        assert_eq!(unread, 0);
        assert_eq!(numbers.last(), Some(&99));
        assert!(numbers.len() > 25 && numbers.is_sorted(), "{numbers:?}");
        assert_eq!(keys(dir.path(), "lbaas").unwrap(), ["default/web".to_owned()].into());
    }
}
