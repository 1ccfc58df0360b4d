//! The audit log: what was refused to guests, and what was done about them, so that nobody can change it unseen.
//!
//! A folder of files of JSON lines, each line chained to the one before by a hash, each on the disk before whoever caused it
//! goes on. It is outside what a guest can see: no journal depends on it, and a replay writes none. A chain without a key
//! shows what was edited, removed, inserted or moved; whoever writes the whole folder anew can still lie. Copy `head` to
//! another machine now and then to be safe against that, too.
//!
//! ```text
//! Guard (refusals), host (swaps, rollbacks, ...) -> Audit -> <folder>/0.jsonl, <folder>/5120.jsonl, ... and head
//!                                                    verify: the whole chain <---------+
//! ```

mod found;
mod head;
mod line;
#[cfg(test)]
mod tests;
mod verify;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use line::{Kind, Line};
pub use verify::{PROBLEMS_MAX, Problem, Verdict, is_log, verify, walk};

use crate::clock::{Clock as _, SystemClock};
use crate::host::Identity;
use found::Found;
use head::Head;
use verify::segment_name;

/// A file longer than this is followed by a new one. All of the newest file is checked at each start of the host: 16 MiB
/// are some 30,000 lines and a tenth of a second.
pub const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// Why an audit log can't be opened, read or written. One line.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// There is none.
    #[error("no audit log in `{}`; a host keeps it under `audit` in its state folder", .0.display())]
    None(PathBuf),
    /// The operating system refused.
    #[error("can't {tried} `{}`", path.display())]
    Io {
        /// What was tried.
        tried: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A line has no JSON form.
    #[error("a line of the audit log can't be written")]
    Unwritable(#[from] serde_json::Error),
    /// What a write that failed left behind could not be taken back.
    #[error("nothing more is written to the audit log until the host is started again: a write failed in part")]
    Stopped,
}

fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |source| AuditError::Io {
        tried,
        path: path.to_owned(),
        source,
    }
}

/// An audit log that grows. One process has it at a time: the lock of the state folder sees to that.
#[derive(Debug)]
pub struct Audit {
    folder: PathBuf,
    segment_bytes_max: u64,
    end: Mutex<End>,
}

/// Where the next line goes.
#[derive(Debug)]
struct End {
    head: Head,
    head_file: File,
    /// The file that grows; none before the first line of a log.
    segment: Option<Open>,
    /// A write failed and left something behind.
    stopped: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Audit {
    /// Opens the log in `folder`, which is made where it is not there, and checks its newest file. A torn last line, which a
    /// killed host may leave, is cut off. Anything else that is wrong stays as it is: the log goes on in a new file, whose
    /// first line says what was found. Both are said in the host's log.
    ///
    /// # Errors
    /// Where the folder can't be read or written.
    pub fn open(folder: &Path) -> Result<Self, AuditError> {
        Self::open_with(folder, SEGMENT_BYTES_MAX)
    }

    /// The same with files of another size.
    ///
    /// # Errors
    /// As [`Audit::open`].
    pub fn open_with(folder: &Path, segment_bytes_max: u64) -> Result<Self, AuditError> {
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let is_new = !is_log(folder);
        let found = Found::look(folder)?;
        let head_path = folder.join(head::NAME);
        let head_file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&head_path)
            .map_err(failed("open", &head_path))?;
        let audit = Self {
            folder: folder.to_owned(),
            segment_bytes_max,
            end: Mutex::new(End {
                head: found.head.clone(),
                head_file,
                segment: found.segment,
                stopped: false,
            }),
        };
        if is_new {
            audit.start_head(&found.head).map_err(failed("write", &head_path))?;
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_folder(parent.unwrap_or(Path::new(".")))?;
        }
        if let Some(broken) = found.broken {
            tracing::error!("{broken}; it is kept as it is, and the audit log goes on in another file");
            audit.append(&mut Line {
                prev: broken.seal,
                ..line_of(
                    Kind::Broken,
                    SystemClock.now_ms(),
                    &Identity::default(),
                    "audit.open",
                    &broken.file,
                    &broken.what,
                )
            })?;
        }
        Ok(audit)
    }

    /// Writes down that something was refused. `entry`: the call's entry in the journal of the instance, where it has one.
    ///
    /// # Errors
    /// Where the line is not on the disk. Refused it is all the same.
    pub fn refused(
        &self,
        at_ms: u64,
        to: &Identity,
        entry: Option<u64>,
        call: &str,
        scope: &str,
        outcome: &str,
    ) -> Result<(), AuditError> {
        let number = entry.map(|entry| format!("#{entry}")).unwrap_or_default();
        self.append(&mut Line {
            decision: format!("{}/{}{number}", to.guest, to.instance),
            ..line_of(Kind::Refused, at_ms, to, call, scope, outcome)
        })
    }

    /// Writes down what was done about a guest: `action` is `swap`, `rollback`, `shadow start`, `shadow stop`,
    /// `shadow promote` or `quarantine`, `scope` what it was about (a version, a key), `outcome` what came of it, on one
    /// line. Of `about`, what is empty is not written: the instance, where it is about all of them.
    ///
    /// # Errors
    /// Where the line is not on the disk.
    pub fn managed(
        &self,
        at_ms: u64,
        about: &Identity,
        action: &str,
        scope: &str,
        outcome: &str,
    ) -> Result<(), AuditError> {
        self.append(&mut line_of(Kind::Managed, at_ms, about, action, scope, outcome))
    }

    /// The first head: from here on a log without one is damaged.
    fn start_head(&self, head: &Head) -> io::Result<()> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        head.write(&end.head_file)?;
        end.head_file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// Numbers a line, chains it, and brings it to the disk.
    fn append(&self, line: &mut Line) -> Result<(), AuditError> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let end = &mut *end;
        if end.stopped {
            return Err(AuditError::Stopped);
        }
        line.n = end.head.lines;
        if line.kind != Kind::Broken {
            line.prev.clone_from(&end.head.hash);
        }
        let bytes = line.seal()?;
        let length = bytes.len() as u64;
        let full = |open: &Open| open.bytes > 0 && open.bytes + length > self.segment_bytes_max;
        let mut open = match end.segment.take() {
            Some(open) if !full(&open) => open,
            _ => Open::create(&self.folder, line.n)?,
        };
        let written = open.file.write_all(&bytes).and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            // The line was not promised to anyone: what there is of it goes.
            end.stopped = open.file.set_len(open.bytes).is_err();
            let path = open.path.clone();
            end.segment = Some(open);
            return Err(failed("write", &path)(error));
        }
        open.bytes += length;
        end.segment = Some(open);
        end.head = Head {
            lines: line.n + 1,
            hash: line.hash.clone(),
        };
        // A head that is behind is no damage: the line stands, and the next one tries again.
        if let Err(error) = end.head.write(&end.head_file) {
            tracing::warn!("can't write `{}`: {error}", self.folder.join(head::NAME).display());
        }
        Ok(())
    }
}

impl Open {
    fn create(folder: &Path, first: u64) -> Result<Self, AuditError> {
        let path = folder.join(segment_name(first));
        // Appending: after a line was taken back, the next one begins where the file ends.
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.map_err(failed("create", &path))?;
        // An earlier try may have come this far. A file that holds something is another's.
        let is_empty = file.metadata().map(|about| about.len() == 0);
        if !is_empty.map_err(failed("look at", &path))? {
            return Err(failed("create", &path)(io::ErrorKind::AlreadyExists.into()));
        }
        sync_folder(folder)?;
        Ok(Self { file, path, bytes: 0 })
    }
}

fn sync_folder(folder: &Path) -> Result<(), AuditError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("sync", folder))
}

fn line_of(kind: Kind, at_ms: u64, about: &Identity, call: &str, scope: &str, outcome: &str) -> Line {
    Line {
        n: 0,
        at_ms,
        kind,
        guest: about.guest.clone(),
        version: about.version.clone(),
        digest: about.digest.clone(),
        instance: about.instance.clone(),
        decision: String::new(),
        call: call.to_owned(),
        scope: scope.to_owned(),
        outcome: outcome.to_owned(),
        prev: String::new(),
        hash: String::new(),
    }
}
