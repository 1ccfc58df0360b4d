//! The known contents of the database under the agent's keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Known values and unknown keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// True if every key outside `keys` is missing from the database.
    pub(crate) is_complete: bool,
    /// `None` means that a write failed, so the key may exist or not, with this value or another. As JSON a list of
    /// pairs.
    #[serde(serialize_with = "write_pairs", deserialize_with = "read_pairs")]
    pub(crate) keys: BTreeMap<String, Option<String>>,
}

fn write_pairs<S: Serializer>(keys: &BTreeMap<String, Option<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys)
}

fn read_pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Option<String>>, D::Error> {
    let pairs: Vec<(String, Option<String>)> = Vec::deserialize(deserializer)?;
    Ok(pairs.into_iter().collect())
}

impl Cache {
    /// True if the key is known to have the value.
    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        matches!(self.keys.get(key), Some(Some(known)) if known == value)
    }

    /// True if the key is known to be missing.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        self.is_complete && !self.keys.contains_key(key)
    }
}
