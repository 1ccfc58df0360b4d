//! Whether others have acted since this state folder's host did, by the Lease's count of its holders.
//!
//! The host finishes what a kill cut short from its recorded answers, but only if no other host has changed anything
//! since.
//!
//! ```text
//! state_dir/neg/term.json    the count when this host acted last
//! ```

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trueup_work::files;

use crate::neg::guest::NAME;

/// The format of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acted {
    transitions: i32,
}

/// Remembers the term in which this host last acted.
#[derive(Debug)]
pub(super) struct LastTerm {
    file: PathBuf,
}

impl LastTerm {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            file: state_dir.join(NAME).join("term.json"),
        }
    }

    /// This host acts from here on, with this count. Returns whether others acted since it did last. If the file
    /// can't be read, assumes that they did.
    pub(super) fn begin(&self, transitions: i32) -> bool {
        let before = files::read_json(&self.file).unwrap_or_else(|error| {
            tracing::warn!("{error}: others may have acted since this host did");
            Some(Acted { transitions: i32::MIN })
        });
        if let Err(error) = files::replace_json(&self.file, &Acted { transitions }) {
            tracing::warn!("{error}: the next start takes it that others have acted");
        }
        // One more is this host succeeding itself: it was started again, or had given the Lease back.
        before.is_some_and(|before| !(0..=1).contains(&transitions.saturating_sub(before.transitions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_acted_where_the_lease_changed_hands_more_than_once() {
        let folder = tempfile::tempdir().unwrap();
        let term = || LastTerm::new(folder.path());
        assert!(!term().begin(4), "nothing was done before");
        assert!(!term().begin(4), "it holds it still");
        assert!(!term().begin(5), "from itself to itself");
        assert!(term().begin(7), "to another, and back");
        assert!(term().begin(0), "another Lease");
        assert!(!term().begin(1));
        std::fs::write(folder.path().join("neg/term.json"), "{").unwrap();
        assert!(term().begin(2), "the outcome is unknown");
    }
}
