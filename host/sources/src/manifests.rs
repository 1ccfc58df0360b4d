//! A folder of Kubernetes manifests as a source: its current content, and its changes.
//!
//! This module decides which files count, when a file is used, and which object wins if two files contain the same one.
//! `documents.rs` parses files, and `watch.rs` waits for changes.
//!
//! ```text
//! folder -> look -> files that settled -> objects, problems
//! ```
//!
//! *Which files*: all `.yaml`, `.yml` and `.json` below the folder. Symbolic links to files count (that is how a
//! ConfigMap is mounted), links to folders do not (they may form cycles). Names that begin with `.`, `~` or `#` are
//! hidden files and temporary files of editors.
//!
//! *When a file is used*: the host reads a file when two looks at least [`QUIET_MS`] apart saw the same size and
//! modification time. If a file with objects shrinks or disappears, it must stay so for [`SHRUNK_MS`]: many programs
//! truncate or move a file before they write it again, and a half-written file must not remove a Service. A slower
//! writer cannot be detected; such a program should write a temporary file and rename it.
//!
//! *Unreadable content*: while anything in a file is unreadable, all objects that it contained before stay in force,
//! unless its readable part says otherwise. The same applies to a folder that cannot be read, and to a file that
//! contained objects and is blank now: a program may have truncated it. Only a file that is gone, or a fully readable
//! one, removes an object.
//!
//! *Duplicates*: if an object appears twice, the first one counts, in order of paths and lines, and the other is a
//! problem.

mod documents;
mod rules;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use trueup_base::regular;
use trueup_base::text;

pub use watch::watch;

use self::documents::Found;
use super::{Location, ObjectRef, Objects, Problem};

/// A file must keep its size and modification time for this long before the host reads it, in ms. Programs write a file
/// at once, or in pieces a few ms apart; people do not notice the delay.
pub const QUIET_MS: u64 = 200;

/// A file with objects must have been smaller, or gone, for this long before the change counts, in ms.
pub const SHRUNK_MS: u64 = 2_000;

/// A larger file is a problem and not read, in bytes. 10,000 Services printed by `kubectl get -o yaml` take 20 MB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Further files are a problem and not read: each look queries the size of every file.
pub const FILES_MAX: usize = 100_000;

/// Deeper folders are a problem and not read.
pub const DEPTH_MAX: usize = 32;

/// [`load`] waits at most this long for files that are still changing, in ms.
const LOAD_MS_MAX: u64 = 5_000;

/// The folder as a whole is unusable.
#[derive(Debug, thiserror::Error)]
#[error("reading the manifests folder `{}`; check the path under [source]", folder.display())]
pub struct FolderError {
    /// The folder.
    pub folder: PathBuf,
    /// The error.
    pub source: io::Error,
}

/// The content of a folder at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Its objects.
    pub objects: Objects,
    /// Sorted by file and line.
    pub problems: Vec<Problem>,
}

impl Snapshot {
    /// Whether nothing hides an object, so that a missing object does not exist. Only then may it be removed.
    pub fn is_complete(&self) -> bool {
        !self.problems.iter().any(|problem| problem.hides_objects)
    }
}

/// Reads a folder once, for a one-time run. Blocks for [`QUIET_MS`], and up to 5 s while files are changing. A file
/// that is still changing then is a problem.
pub fn load(folder: &Path) -> Result<Snapshot, FolderError> {
    let mut reading = Folder::open(folder)?;
    let mut now_ms = 0;
    while reading.look(now_ms).is_some() && now_ms < LOAD_MS_MAX {
        std::thread::sleep(Duration::from_millis(QUIET_MS));
        now_ms += QUIET_MS;
    }
    let mut now = reading.now;
    let left_out = format!("is still being written after {LOAD_MS_MAX} ms: left out");
    let manifests = reading.manifests.iter();
    let unsettled = manifests.filter(|(_, manifest)| manifest.differs.is_some());
    now.problems
        .extend(unsettled.map(|(file, _)| hiding(file, None, left_out.clone())));
    now.problems.sort();
    Ok(now)
}

/// Distinguishes the states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    bytes: u64,
    changed: SystemTime,
}

/// A file as it was last read, and its state since then.
#[derive(Debug, Default)]
struct Manifest {
    /// Its state when it was last read. `None` if it never was.
    read: Option<Look>,
    /// It could not be opened: its permissions may change without a change of size or time.
    unreadable: bool,
    /// A state other than the one last read, and when it began. `None` as the state means that the file is gone.
    differs: Option<(Option<Look>, u64)>,
    objects: Vec<Found>,
    problems: Vec<Problem>,
}

/// What to do with a file after a look.
enum Next {
    Keep,
    /// It has not settled: look again after this many ms.
    Wait(u64),
    Read(Look),
    Drop,
}

impl Manifest {
    /// The next action after a look at the file. `None` means that it does not exist.
    fn next(&mut self, look: Option<Look>, now_ms: u64) -> Next {
        if look == self.read {
            self.differs = None;
            return match look {
                Some(look) if self.unreadable => Next::Read(look),
                Some(_) => Next::Keep,
                // It was in a listing, but disappeared before it was ever read.
                None => Next::Drop,
            };
        }
        let since_ms = match self.differs {
            Some((seen, since_ms)) if seen == look => since_ms,
            _ => now_ms,
        };
        self.differs = Some((look, since_ms));
        // How long it must have been in this state before it counts.
        let was_bytes = self.read.map_or(0, |was| was.bytes);
        let shrank = look.is_none_or(|now| now.bytes < was_bytes);
        let is_loss = shrank && !self.objects.is_empty();
        let patience_ms = if is_loss { SHRUNK_MS } else { QUIET_MS };
        let until_ms = since_ms.saturating_add(patience_ms);
        match (until_ms.saturating_sub(now_ms), look) {
            (0, Some(look)) => Next::Read(look),
            (0, None) => Next::Drop,
            (wait_ms, _) => Next::Wait(wait_ms),
        }
    }

    /// Reads the file if it is still in the state `look`. Returns false if it has changed since.
    fn read_again(&mut self, file: &Path, look: Look) -> bool {
        let read = read_text(file, look);
        if look_at(file).ok() != Some(look) {
            return false;
        }
        self.read = Some(look);
        self.differs = None;
        self.unreadable = read.is_err();
        match read {
            Ok(text) => self.hold(file, &text),
            Err(reason) => self.problems = vec![hiding(file, None, reason)],
        }
        true
    }

    /// Uses the content of the file. While the content has flaws, missing objects stay as they were.
    fn hold(&mut self, file: &Path, text: &str) {
        let contents = documents::parse(text);
        let held = std::mem::replace(&mut self.objects, contents.objects);
        let flaws = contents.flaws.into_iter();
        self.problems = flaws.map(|flaw| hiding(file, Some(flaw.line), flaw.reason)).collect();
        // At the start, the previous content of a file is unknown. A file without a single byte was truncated, or is
        // not written yet.
        if contents.is_blank && (!held.is_empty() || text.is_empty()) {
            self.problems.push(hiding(file, Some(1), blank(held.len())));
        }
        if !self.problems.is_empty() {
            let now: BTreeSet<ObjectRef> = self.objects.iter().map(|found| found.object.reference()).collect();
            let is_lost = |found: &Found| !now.contains(&found.object.reference());
            self.objects.extend(held.into_iter().filter(is_lost));
        }
    }
}

/// A folder, and the content used so far.
#[derive(Debug, Default)]
struct Folder {
    root: PathBuf,
    manifests: BTreeMap<PathBuf, Manifest>,
    now: Snapshot,
    /// What the last look could not list.
    unlisted: Vec<Problem>,
    /// Whether the last look could list the folder itself.
    listed: bool,
}

impl Folder {
    fn open(root: &Path) -> Result<Self, FolderError> {
        let folder = root.to_owned();
        fs::read_dir(root).map_err(|source| FolderError { folder, source })?;
        Ok(Self {
            root: root.to_owned(),
            listed: true,
            ..Self::default()
        })
    }

    /// Looks at every file, and reads those that settled. Returns how soon to look again if a file has not settled.
    /// `now_ms` is a monotonic time with any origin.
    fn look(&mut self, now_ms: u64) -> Option<u64> {
        let mut found = Listing::default();
        found.list(&self.root, 0);
        self.listed = !found.unlisted.contains(&self.root);
        for file in found.files.keys() {
            self.manifests.entry(file.clone()).or_default();
        }

        let mut waits_ms = Vec::new();
        let mut news = found.problems != self.unlisted;
        self.manifests.retain(|file, manifest| {
            let look = found.files.get(file).copied();
            if look.is_none() && found.unlisted.iter().any(|folder| file.starts_with(folder)) {
                return true;
            }
            let next = manifest.next(look, now_ms);
            match next {
                Next::Keep => {}
                Next::Wait(wait_ms) => waits_ms.push(wait_ms),
                Next::Read(look) if manifest.read_again(file, look) => news = true,
                Next::Read(_) => waits_ms.push(QUIET_MS),
                Next::Drop => news = true,
            }
            !matches!(next, Next::Drop)
        });

        self.unlisted = found.problems;
        if news {
            self.now = self.merged();
        }
        waits_ms.into_iter().min()
    }

    /// Whether the current content of every file was read, and nothing hides an object.
    fn is_complete(&self) -> bool {
        self.manifests.values().all(|manifest| manifest.differs.is_none()) && self.now.is_complete()
    }

    /// All objects, the first of duplicates, and all problems.
    fn merged(&self) -> Snapshot {
        let mut problems = self.unlisted.clone();
        let mut places: BTreeMap<ObjectRef, (&Path, &Found)> = BTreeMap::new();
        for (file, manifest) in &self.manifests {
            problems.extend(manifest.problems.iter().cloned());
            for found in &manifest.objects {
                let reference = found.object.reference();
                let Some((first_file, first)) = places.get(&reference) else {
                    places.insert(reference, (file, found));
                    continue;
                };
                let first = format!("{}:{}", first_file.display(), first.line);
                let reason = format!("{reference} is already in {first}: this one is not used");
                let mut duplicate = hiding(file, Some(found.line), reason);
                duplicate.hides_objects = false;
                problems.push(duplicate);
            }
        }
        problems.sort();
        let objects = places.values().map(|(_, found)| found.object.clone()).collect();
        Snapshot { objects, problems }
    }
}

/// The files of a folder, and what could not be listed.
#[derive(Default)]
struct Listing {
    files: BTreeMap<PathBuf, Look>,
    /// Folders that could not be listed, or files without a known size: their previous objects stay.
    unlisted: Vec<PathBuf>,
    problems: Vec<Problem>,
}

impl Listing {
    fn list(&mut self, folder: &Path, depth: usize) {
        if depth > DEPTH_MAX {
            return self.refuse(folder, format!("lies more than {DEPTH_MAX} folders deep: not read"));
        }
        let entries = match fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()) {
            Ok(entries) => entries,
            // It disappeared after its parent was listed. The top folder must exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => return,
            Err(error) => return self.refuse(folder, format!("cannot be listed: {error}")),
        };
        for entry in entries {
            let path = entry.path();
            let name = entry.file_name();
            let first = name.as_encoded_bytes().first();
            if first.is_none_or(|first| b".~#".contains(first)) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if is_manifest(&path) {
                    self.refuse(&path, "is a folder, must be a file".to_owned());
                }
                self.list(&path, depth + 1);
            } else if is_manifest(&path) {
                self.add(path);
            }
        }
    }

    fn add(&mut self, file: PathBuf) {
        match look_at(&file) {
            Ok(_) if self.files.len() >= FILES_MAX => {
                let reason = format!("is beyond the {FILES_MAX} files of one folder: not read");
                self.refuse(&file, reason);
            }
            Ok(look) => {
                self.files.insert(file, look);
            }
            // It disappeared after its folder was listed.
            Err(_) if fs::symlink_metadata(&file).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {}
            Err(error) => self.refuse(&file, format!("cannot be read: {error}")),
        }
    }

    fn refuse(&mut self, path: &Path, reason: String) {
        self.problems.push(hiding(path, None, reason));
        self.unlisted.push(path.to_owned());
    }
}

fn hiding(file: &Path, line: Option<u64>, reason: String) -> Problem {
    let file = file.to_owned();
    Problem {
        at: Location::File { file, line },
        reason,
        hides_objects: true,
    }
}

/// The message for a file without an object that contained `held` objects.
fn blank(held: usize) -> String {
    let held = match held {
        0 => "holds nothing".to_owned(),
        1 => "held 1 object, and holds nothing now: what was known of it stays".to_owned(),
        _ => format!("held {held} objects, and holds nothing now: what was known of them stays"),
    };
    format!("{held}; put objects into the file, or remove it")
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Follows a symbolic link. Anything other than a file, such as a pipe, is an error.
fn look_at(file: &Path) -> io::Result<Look> {
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    Ok(Look {
        bytes: metadata.len(),
        changed: metadata.modified()?,
    })
}

fn read_text(file: &Path, look: Look) -> Result<String, String> {
    if look.bytes > FILE_BYTES_MAX {
        let bytes = look.bytes;
        return Err(format!("has {bytes} bytes, more than {FILE_BYTES_MAX}: not read"));
    }
    regular::read_text(file, FILE_BYTES_MAX).map_err(|error| format!("cannot be read: {}", text::cause(&error)))
}

#[cfg(test)]
mod tests;
