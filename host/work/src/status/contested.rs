//! Keys whose objects another writer changes.
//!
//! One correction may follow an edit by hand. Another host with the same objects undoes each correction, so the next
//! resync corrects them again: two in a row are the sign of it.

use std::collections::BTreeMap;

/// So many resyncs in a row that correct objects make a key contested.
const CORRECTIONS_MIN: u32 = 2;

/// How many resyncs in a row corrected the objects of a key, by `GUEST/KEY`. Keys without a correction are absent.
#[derive(Debug, Default)]
pub(super) struct Contested(BTreeMap<String, u32>);

impl Contested {
    /// A resync of a key ended. Returns how many in a row corrected its objects.
    pub(super) fn resynced(&mut self, line: &str, corrected: bool) -> u32 {
        if !corrected {
            self.0.remove(line);
            return 0;
        }
        let corrections = self.0.entry(line.to_owned()).or_default();
        *corrections = corrections.saturating_add(1);
        *corrections
    }

    /// The contested keys, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let contested = self
            .0
            .iter()
            .filter(|(_, corrections)| **corrections >= CORRECTIONS_MIN);
        contested.map(|(line, _)| line.as_str())
    }
}
