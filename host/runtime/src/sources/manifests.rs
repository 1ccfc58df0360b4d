//! A folder of Kubernetes manifests as a source: what is in it now, and what changes.
//!
//! Here: which files count, when a file is believed, and whose object it is where two files hold the same one. What a
//! file says is `documents.rs`, waiting for changes is `watch.rs`.
//!
//! ```text
//! folder -> look -> files that settled -> objects, problems
//! ```
//!
//! *Which files*: all `.yaml`, `.yml` and `.json` below the folder, symbolic links to files included (that is how a
//! ConfigMap is mounted), links to folders not (they may lead in circles). Names that begin with `.`, `~` or `#` are
//! hidden files and what editors put beside the file they write.
//!
//! *When a file is believed*: a file is read when two looks at least [`QUIET_MS`] apart saw the same size and time of
//! change. Where it shrank, or is gone, while it held objects, it must stay so for [`SHRUNK_MS`]: many programs cut a file
//! to nothing before they write it anew, or move it away, and a half-written file must not take a Service down. That
//! a slower writer is at work cannot be seen; such writers write beside the file and rename.
//!
//! *What cannot be read*: while anything in a file cannot be read, everything that it held before stays in force, unless
//! what can be read of it says otherwise. The same holds for a folder that cannot be read, and for a file that held objects
//! and is blank now: a program may have cut it off. Only a file that is gone, or one that reads well, takes an object away.
//!
//! *Twice*: of one object in two places the first stays, in order of paths and lines, and the other is a problem.

mod documents;
mod located;
mod rules;
mod watch;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

pub use watch::watch;

use self::documents::{Contents, Found};
use super::{ObjectRef, Objects, Place, Problem};
use trueup_journal::regular;

/// A file must keep its size and time of change this long before it is read, in ms. Programs write a file in one go, in
/// pieces a few ms apart; people do not notice the wait.
pub const QUIET_MS: u64 = 200;

/// A file that held objects must have been smaller, or gone, this long before it is believed, in ms.
pub const SHRUNK_MS: u64 = 2_000;

/// A larger file is a problem and not read, in bytes. 10,000 Services as `kubectl get -o yaml` prints them are 20 MB.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// More files are a problem and not read: each look asks for the size of every one.
pub const FILES_MAX: usize = 100_000;

/// Folders within folders beyond this depth are a problem and not read.
pub const DEPTH_MAX: usize = 32;

/// [`load`] waits at most this long for files that are being written, in ms.
const LOAD_MS_MAX: u64 = 5_000;

/// The folder as a whole cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reading the manifests folder `{}`; check the path under [source]", folder.display())]
pub struct FolderError {
    /// Which folder.
    pub folder: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// What a folder holds at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Its objects.
    pub objects: Objects,
    /// In order of files and lines.
    pub problems: Vec<Problem>,
}

impl Snapshot {
    /// Nothing hides an object: what is not among the objects is not there. Only then may it be taken away.
    pub fn is_complete(&self) -> bool {
        !self.problems.iter().any(|problem| problem.hides_objects)
    }
}

/// Reads a folder once, for a run that ends. Blocks for [`QUIET_MS`], and up to 5 s while files are being written; one
/// that is still being written then is a problem.
pub fn load(folder: &Path) -> Result<Snapshot, FolderError> {
    let mut reading = Folder::open(folder)?;
    let mut now_ms = 0;
    while reading.look(now_ms).is_some() && now_ms < LOAD_MS_MAX {
        std::thread::sleep(Duration::from_millis(QUIET_MS));
        now_ms += QUIET_MS;
    }
    let mut problems = reading.problems.clone();
    problems.extend(reading.unsettled().map(|file| Problem {
        at: Place::File {
            file: file.to_owned(),
            line: None,
        },
        reason: format!("is still being written after {LOAD_MS_MAX} ms: left out"),
        hides_objects: true,
    }));
    problems.sort();
    Ok(Snapshot {
        objects: reading.objects,
        problems,
    })
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    bytes: u64,
    changed: SystemTime,
}

/// A file as it was read last, and what it has been since.
#[derive(Debug, Default)]
struct Manifest {
    /// As it was when it was read last; none before.
    read: Option<Look>,
    /// It could not be opened: its rights may change without its looks.
    unreadable: bool,
    /// Other than it was read, since when; a look of none is a file that is gone.
    differs: Option<(Option<Look>, u64)>,
    objects: Vec<Found>,
    problems: Vec<Problem>,
}

/// What to do about a file after a look.
enum Next {
    Keep,
    /// It has not settled: look again after so many ms.
    Wait(u64),
    Read(Look),
    Drop,
}

impl Manifest {
    /// What follows from a look at the file; none is a file that is not there.
    fn next(&mut self, look: Option<Look>, now_ms: u64) -> Next {
        if look == self.read {
            self.differs = None;
            return match look {
                Some(look) if self.unreadable => Next::Read(look),
                Some(_) => Next::Keep,
                // Seen in a listing, and gone before it was ever read.
                None => Next::Drop,
            };
        }
        let since_ms = match self.differs {
            Some((seen, since_ms)) if seen == look => since_ms,
            _ => now_ms,
        };
        self.differs = Some((look, since_ms));
        let until_ms = since_ms.saturating_add(self.patience_ms(look));
        match (until_ms.saturating_sub(now_ms), look) {
            (0, Some(look)) => Next::Read(look),
            (0, None) => Next::Drop,
            (wait_ms, _) => Next::Wait(wait_ms),
        }
    }

    /// How long a file must have looked like this before it is believed.
    fn patience_ms(&self, look: Option<Look>) -> u64 {
        let was_bytes = self.read.map_or(0, |was| was.bytes);
        let shrank = look.is_none_or(|now| now.bytes < was_bytes);
        if shrank && !self.objects.is_empty() {
            SHRUNK_MS
        } else {
            QUIET_MS
        }
    }

    /// Reads the file that looked like `look`; false where it looks different by then: it was not done.
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

    /// Believes what the file says; while it has flaws, what it does not say stays as it was.
    fn hold(&mut self, file: &Path, text: &str) {
        let Contents {
            objects,
            flaws,
            is_blank,
        } = documents::parse(text);
        let held = std::mem::replace(&mut self.objects, objects);
        let flaws = flaws.into_iter();
        self.problems = flaws.map(|flaw| hiding(file, Some(flaw.line), flaw.reason)).collect();
        // At the start it is not known what a file held. One without a single byte was cut off, or is not written yet.
        if is_blank && (!held.is_empty() || text.is_empty()) {
            self.problems.push(hiding(file, Some(1), blank(held.len())));
        }
        if !self.problems.is_empty() {
            let now: BTreeSet<ObjectRef> = self.objects.iter().map(|found| found.object.reference()).collect();
            self.objects.extend(
                held.into_iter()
                    .filter(|found| !now.contains(&found.object.reference())),
            );
        }
    }
}

/// A folder and what was believed of it so far.
#[derive(Debug)]
struct Folder {
    root: PathBuf,
    manifests: BTreeMap<PathBuf, Manifest>,
    objects: Objects,
    problems: Vec<Problem>,
    /// What the last look could not list.
    unlisted: Vec<Problem>,
    /// The last look could list the folder itself.
    listed: bool,
}

impl Folder {
    fn open(root: &Path) -> Result<Self, FolderError> {
        fs::read_dir(root).map_err(|source| FolderError {
            folder: root.to_owned(),
            source,
        })?;
        Ok(Self {
            root: root.to_owned(),
            manifests: BTreeMap::new(),
            objects: Objects::default(),
            problems: Vec::new(),
            unlisted: Vec::new(),
            listed: true,
        })
    }

    /// Looks at every file, and reads those that settled. Answers how soon to look again, where some file has not.
    /// `now_ms` counts from any moment, forwards.
    fn look(&mut self, now_ms: u64) -> Option<u64> {
        let mut found = Listing::default();
        found.list(&self.root, 0);
        self.listed = !found.unlisted.contains(&self.root);
        for file in found.files.keys() {
            self.manifests.entry(file.clone()).or_default();
        }

        let mut again_in_ms: Option<u64> = None;
        let mut news = found.problems != self.unlisted;
        self.manifests.retain(|file, manifest| {
            let look = found.files.get(file).copied();
            if look.is_none() && found.unlisted.iter().any(|folder| file.starts_with(folder)) {
                return true;
            }
            match manifest.next(look, now_ms) {
                Next::Keep => true,
                Next::Wait(wait_ms) => {
                    again_in_ms = Some(again_in_ms.map_or(wait_ms, |other_ms| other_ms.min(wait_ms)));
                    true
                }
                Next::Read(look) => {
                    if manifest.read_again(file, look) {
                        news = true;
                    } else {
                        again_in_ms = Some(again_in_ms.map_or(QUIET_MS, |other_ms| other_ms.min(QUIET_MS)));
                    }
                    true
                }
                Next::Drop => {
                    news = true;
                    false
                }
            }
        });

        self.unlisted = found.problems;
        if news {
            (self.objects, self.problems) = self.merged();
        }
        again_in_ms
    }

    /// Files that are not believed as they are now.
    fn unsettled(&self) -> impl Iterator<Item = &Path> {
        self.manifests
            .iter()
            .filter(|(_, manifest)| manifest.differs.is_some())
            .map(|(file, _)| file.as_path())
    }

    /// Every file was read as it is now, and nothing hides an object.
    fn is_complete(&self) -> bool {
        self.manifests.values().all(|manifest| manifest.differs.is_none())
            && !self.problems.iter().any(|problem| problem.hides_objects)
    }

    /// All objects, of two alike the first, and all problems.
    fn merged(&self) -> (Objects, Vec<Problem>) {
        let mut problems = self.unlisted.clone();
        let mut places: BTreeMap<ObjectRef, (&Path, &Found)> = BTreeMap::new();
        for (file, manifest) in &self.manifests {
            problems.extend(manifest.problems.iter().cloned());
            for found in &manifest.objects {
                match places.entry(found.object.reference()) {
                    btree_map::Entry::Vacant(place) => {
                        place.insert((file, found));
                    }
                    btree_map::Entry::Occupied(place) => {
                        let (first_file, first) = place.get();
                        let reason = format!(
                            "{} is already in {}:{}: this one is not used",
                            place.key(),
                            first_file.display(),
                            first.line
                        );
                        problems.push(Problem {
                            at: Place::File {
                                file: file.clone(),
                                line: Some(found.line),
                            },
                            reason,
                            hides_objects: false,
                        });
                    }
                }
            }
        }
        problems.sort();
        (
            places.values().map(|(_, found)| found.object.clone()).collect(),
            problems,
        )
    }
}

/// The files of a folder, and what could not be listed.
#[derive(Default)]
struct Listing {
    files: BTreeMap<PathBuf, Look>,
    /// Folders, or files whose size could not be asked: what was known below them stays.
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
            // Gone between the listing of its parent and now; the folder at the top must be there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => return,
            Err(error) => return self.refuse(folder, format!("cannot be listed: {error}")),
        };
        for entry in entries {
            let path = entry.path();
            if entry
                .file_name()
                .as_encoded_bytes()
                .first()
                .is_none_or(|first| b".~#".contains(first))
            {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.list(&path, depth + 1);
            } else if is_manifest(&path) {
                self.add(path);
            }
        }
    }

    fn add(&mut self, file: PathBuf) {
        match look_at(&file) {
            Ok(_) if self.files.len() >= FILES_MAX => {
                self.refuse(
                    &file,
                    format!("is beyond the {FILES_MAX} files of one folder: not read"),
                );
            }
            Ok(look) => {
                self.files.insert(file, look);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.refuse(&file, format!("cannot be read: {error}")),
        }
    }

    fn refuse(&mut self, path: &Path, reason: String) {
        self.problems.push(hiding(path, None, reason));
        self.unlisted.push(path.to_owned());
    }
}

fn hiding(file: &Path, line: Option<u64>, reason: String) -> Problem {
    Problem {
        at: Place::File {
            file: file.to_owned(),
            line,
        },
        reason,
        hides_objects: true,
    }
}

/// Said of a file without an object, where `held` objects were in it.
fn blank(held: usize) -> String {
    let held = match held {
        0 => "holds nothing".to_owned(),
        1 => "held 1 object, and holds nothing now: what was known of it stays".to_owned(),
        _ => format!("held {held} objects, and holds nothing now: what was known of them stays"),
    };
    format!("{held}; put objects into the file, or remove it")
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| matches!(extension, "yaml" | "yml" | "json"))
}

/// Follows a symbolic link. What is neither file nor link to one, such as a pipe, is not there.
fn look_at(file: &Path) -> io::Result<Look> {
    let metadata = fs::metadata(file)?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Look {
        bytes: metadata.len(),
        changed: metadata.modified()?,
    })
}

fn read_text(file: &Path, look: Look) -> Result<String, String> {
    if look.bytes > FILE_BYTES_MAX {
        return Err(format!(
            "has {} bytes, more than {FILE_BYTES_MAX}: not read",
            look.bytes
        ));
    }
    regular::read_text(file, FILE_BYTES_MAX).map_err(|error| format!("cannot be read: {}", crate::text::cause(&error)))
}

#[cfg(test)]
mod tests;
