//! The number of objects of each key of a guest, kept over restarts: `held/GUEST.json` in the state folder.
//!
//! A slightly outdated count does no harm. It only says how large a part of all objects a removal is, and each look
//! at the backend corrects it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trueup_capabilities::holdings::{Holdings, Kept};

use crate::files;

/// The minimum time between writes of the file while nothing waits for an approval.
const PAUSE: Duration = Duration::from_secs(60);

/// The object counts of one guest.
pub struct ObjectCounts {
    file: PathBuf,
    /// The counts that the last process kept.
    pub kept: Kept,
    /// Whether there was a last process.
    pub(crate) is_known: bool,
    written: Option<Instant>,
}

impl ObjectCounts {
    /// Reads what the last process kept. Empty if there was none.
    ///
    /// # Errors
    /// If the file can't be read. The error names it.
    pub fn open(state_dir: &Path, guest: &str) -> io::Result<Self> {
        let file = state_dir.join("held").join(format!("{guest}.json"));
        let kept = files::read_json(&file)
            .map_err(|error| io::Error::other(format!("{error}; remove it, and the counts are taken anew")))?;
        Ok(Self {
            file,
            is_known: kept.is_some(),
            kept: kept.unwrap_or_default(),
            written: None,
        })
    }

    /// Writes the current counts: immediately if `now` or [`Holdings::is_urgent`], else when `PAUSE` has passed.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn keep(&mut self, holdings: &Holdings, now: bool) -> io::Result<()> {
        let is_due = self.written.is_none_or(|written| written.elapsed() >= PAUSE);
        if !now && !is_due && !holdings.is_urgent() {
            return Ok(());
        }
        if let Some(kept) = holdings.changed() {
            files::replace_json(&self.file, &kept)?;
            self.written = Some(Instant::now());
        }
        Ok(())
    }
}
