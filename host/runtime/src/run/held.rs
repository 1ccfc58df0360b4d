//! How many objects each key of a guest has, over restarts: `held/GUEST.json` in the state folder.
//!
//! A count that is a little old does no harm: it says how much of all a removal is, and each look at the backend mends it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trueup_capabilities::holdings::{Holdings, Kept};

use super::files;

/// The file is written at most this often while nothing waits for an approval.
const PAUSE: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Held {
    file: PathBuf,
    kept: Kept,
    is_known: bool,
    written: Option<Instant>,
}

impl Held {
    /// What the last process kept; nothing where there was none.
    ///
    /// # Errors
    /// Where the file can't be read, with its name.
    pub(crate) fn open(state_dir: &Path, guest: &str) -> io::Result<Self> {
        let file = state_dir.join("held").join(format!("{guest}.json"));
        let named = |error: &dyn std::fmt::Display| {
            let next = "remove it, and the counts are taken anew";
            io::Error::other(format!("reading {}: {error}; {next}", file.display()))
        };
        let (kept, is_known) = match std::fs::read(&file) {
            Ok(text) => (serde_json::from_slice(&text).map_err(|error| named(&error))?, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Kept::default(), false),
            Err(error) => return Err(named(&error)),
        };
        Ok(Self {
            file,
            kept,
            is_known,
            written: None,
        })
    }

    /// What the last process kept.
    pub(crate) fn kept(&self) -> Kept {
        self.kept.clone()
    }

    /// Whether there was a last process.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Keeps what is known now: `now`, or when it is time.
    ///
    /// # Errors
    /// Where it can't be written.
    pub(crate) fn keep(&mut self, holdings: &Holdings, now: bool) -> io::Result<()> {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= PAUSE);
        if !now && !is_due && holdings.waiting().is_none() {
            return Ok(());
        }
        if let Some(kept) = holdings.changed() {
            files::replace_json(&self.file, &kept)?;
            self.written = Some(Instant::now());
        }
        Ok(())
    }
}
