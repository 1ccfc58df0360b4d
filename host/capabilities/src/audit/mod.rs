//! The audit log: what was refused to guests, and what was done about them, so that nobody can change it unseen.
//!
//! A folder of files of JSON lines, each line chained to the one before by a hash. What was done about a guest is on the disk
//! before whoever did it goes on. Refusals are handed over to a thread and are on the disk moments later, together: a
//! guest that is refused a lot must not keep the host waiting for its disk, nor fill it, so of each guest
//! [`LINES_PER_MINUTE_MAX`] are written and the others counted in one line. It is outside what a guest can see: no journal depends on it, and a replay writes none. A chain without a key
//! shows what was edited, removed, inserted or moved; whoever writes the whole folder anew can still lie. Copy `head` to
//! another machine now and then to be safe against that, too.
//!
//! ```text
//! Guard (refusals) -- budget --\
//! host (swaps, ...) -----------+-> queue -> thread -> <folder>/0.jsonl, <folder>/5120.jsonl, ... and head
//!                                              verify: the whole chain <---------+
//! ```

mod budget;
mod found;
mod head;
mod line;
mod retention;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use trueup_journal::regular;

pub use line::{Kind, Line};
pub use verify::{PROBLEMS_MAX, Problem, Verdict, is_log, verify, walk};

use crate::clock::{Clock as _, SystemClock};
use crate::host::Identity;
use budget::Budgets;
use found::Found;
use verify::segment_name;
use writer::{End, Shared};

/// A file longer than this is followed by a new one. All of the newest file is checked at each start of the host: 16 MiB
/// are some 30,000 lines and a tenth of a second.
pub const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// So many refusals of one guest are written in a minute: ten a second show what it tries, and are 360 KB a minute on the
/// disk at most.
pub const LINES_PER_MINUTE_MAX: u32 = 600;

const MINUTE: Duration = Duration::from_secs(60);

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

impl AuditError {
    /// The same for another who waits.
    fn again(&self) -> Self {
        match self {
            Self::None(folder) => Self::None(folder.clone()),
            Self::Io { tried, path, source } => Self::Io {
                tried,
                path: path.clone(),
                source: io::Error::new(source.kind(), source.to_string()),
            },
            Self::Unwritable(error) => Self::Unwritable(serde::ser::Error::custom(error)),
            Self::Stopped => Self::Stopped,
        }
    }
}

/// An audit log that grows. One process has it at a time: the lock of the state folder sees to that. Dropped, it first
/// writes all that was handed over.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    /// None: dropped.
    thread: Option<JoinHandle<()>>,
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
        Self::open_budgeted(folder, segment_bytes_max, Budgets::new(LINES_PER_MINUTE_MAX, MINUTE))
    }

    fn open_budgeted(folder: &Path, segment_bytes_max: u64, budgets: Budgets) -> Result<Self, AuditError> {
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        let is_new = !is_log(folder);
        let found = Found::look(folder)?;
        let head_path = folder.join(head::NAME);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let head_file = regular::open_own(&mut options, &head_path).map_err(failed("open", &head_path))?;
        let end = End {
            head: found.head,
            head_file,
            segment: found.segment,
            stopped: false,
            dropped_before: 0,
        };
        if is_new {
            start_head(folder, &end).map_err(failed("write", &head_path))?;
            let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_folder(parent.unwrap_or(Path::new(".")))?;
        }
        let shared = Arc::new(Shared::new(folder, segment_bytes_max, budgets, end));
        if let Some(broken) = found.broken {
            tracing::error!("{broken}; it is kept as it is, and the audit log goes on in another file");
            let line = Line {
                prev: broken.seal,
                ..line_of(
                    Kind::Broken,
                    SystemClock.now_ms(),
                    &Identity::default(),
                    "audit.open",
                    &broken.file,
                    &broken.what,
                )
            };
            shared.write_under(&mut shared.end(), line)?;
        }
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || of_thread.work())
            .map_err(failed("start a thread for", folder))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Hands over that something was refused, to be written or, of a guest that is refused too much, counted. Waits for
    /// nothing. `entry`: the call's entry in the journal of the instance, where it has one.
    ///
    /// # Errors
    /// Where nothing can be written any more. Refused it is all the same.
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
        self.shared.hand_over(Line {
            decision: format!("{}/{}{number}", to.guest, to.instance),
            ..line_of(Kind::Refused, at_ms, to, call, scope, outcome)
        })
    }

    /// Writes down what was done about a guest: `action` is `swap`, `rollback`, `fall-back`, `shadow start`,
    /// `shadow stop`, `promote` or `quarantine`, `scope` what it was about (a version, a key), `outcome` what came of it, on
    /// one line. Of `about`, what is empty is not written: the instance, where it is about all of them. Answers when the line
    /// is on the disk, and with it all that was handed over before.
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
        let line = line_of(Kind::Managed, at_ms, about, action, scope, outcome);
        self.shared.wait_for(Some(line))
    }

    /// Answers when all that was handed over is on the disk.
    ///
    /// # Errors
    /// Where it can't be written.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.shared.wait_for(None)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, that was said.
            let _ = thread.join();
        }
    }
}

/// The first head: from here on a log without one is damaged.
fn start_head(folder: &Path, end: &End) -> io::Result<()> {
    end.head.write(&end.head_file)?;
    end.head_file.sync_all()?;
    File::open(folder)?.sync_all()
}

impl Open {
    fn create(folder: &Path, first: u64) -> Result<Self, AuditError> {
        let path = folder.join(segment_name(first));
        // Appending: after a line was taken back, the next one begins where the file ends.
        let file = regular::open_own(OpenOptions::new().append(true).create(true), &path);
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
