//! Whether others have acted since this state folder's host did, by the Lease's count of its holders.
//!
//! The host finishes what a kill cut short from its recorded answers, but only if no other host has changed anything
//! since.
//!
//! ```text
//! state_dir/neg/term.json    the count when this host acted last
//! ```

use std::path::Path;

use serde::{Deserialize, Serialize};
use trueup_work::files;

use crate::neg::guest::NAME;

/// The format of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acted {
    transitions: i32,
}

/// This host acts from here on, with this count. Returns whether others acted since it did last. If the file can't be
/// read, assumes that they did.
pub(super) fn others_acted(state_dir: &Path, transitions: i32) -> bool {
    let file = state_dir.join(NAME).join("term.json");
    let before = files::read_json(&file).unwrap_or_else(|error| {
        tracing::warn!("{error}: others may have acted since this host did");
        Some(Acted { transitions: i32::MIN })
    });
    if let Err(error) = files::replace_json(&file, &Acted { transitions }) {
        tracing::warn!("{error}: the next start takes it that others have acted");
    }
    // One more is this host succeeding itself: it was started again, or had given the Lease back.
    before.is_some_and(|before| !(0..=1).contains(&transitions.saturating_sub(before.transitions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_acted_where_the_lease_changed_hands_more_than_once() {
        let folder = tempfile::tempdir().unwrap();
        let others_acted = |transitions| others_acted(folder.path(), transitions);
        assert!(!others_acted(4), "nothing was done before");
        assert!(!others_acted(4), "it holds it still");
        assert!(!others_acted(5), "from itself to itself");
        assert!(others_acted(7), "to another, and back");
        assert!(others_acted(0), "another Lease");
        assert!(!others_acted(1));
        std::fs::write(folder.path().join("neg/term.json"), "{").unwrap();
        assert!(others_acted(2), "the outcome is unknown");
    }
}
