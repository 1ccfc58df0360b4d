//! Pending writes, without what the database has, in transactions that it accepts. The cache is what is known of the
//! database under the agent's keys.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trueup_guest::bindings::trueup::etcd::kv::Operation;
use trueup_guest::etcd;

use crate::world::World;

/// The most operations that etcd takes in one transaction (its `--max-txn-ops`).
const OPERATIONS_MAX: usize = 128;

/// The size of one transaction's keys and values, in bytes. etcd takes requests of 1.5 MiB (its `--max-request-bytes`),
/// and a request holds a little more than keys and values.
const BYTES_MAX: usize = 1 << 20;

/// Deletions and puts by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    /// Never holds a key that is put.
    pub(crate) deletes: BTreeSet<String>,
    /// Values by key.
    pub(crate) puts: BTreeMap<String, String>,
}

impl Writes {
    /// Writes what the cache does not have, deletions first, until all is stored or a transaction fails.
    ///
    /// # Errors
    /// Why that transaction failed. Its keys are unknown now; what was stored before remains.
    pub(crate) fn store(self, world: &mut impl World, cache: &mut Cache) -> Result<(), String> {
        for batch in self.batches(cache) {
            let answer = match world.commit(&batch) {
                Ok(true) => Ok(()),
                // Impossible: there was nothing to compare. Treat it as not stored.
                Ok(false) => Err("unavailable: a commit without compares was not stored".to_owned()),
                Err(error) => Err(etcd::words(&error)),
            };
            if let Err(error) = answer {
                for operation in batch {
                    let (Operation::Put((key, _)) | Operation::Delete(key)) = operation;
                    cache.keys.insert(key, None);
                }
                return Err(error);
            }
            world.counter_add(
                "nat44_writes_total",
                &[],
                u64::try_from(batch.len()).unwrap_or(u64::MAX),
            );
            for operation in batch {
                match operation {
                    Operation::Put((key, value)) => cache.keys.insert(key, Some(value)),
                    Operation::Delete(key) => cache.keys.remove(&key),
                };
            }
        }
        Ok(())
    }

    fn batches(mut self, cache: &Cache) -> Vec<Vec<Operation>> {
        self.deletes
            .retain(|key| !cache.lacks(key) && !self.puts.contains_key(key));
        self.puts.retain(|key, value| !cache.has(key, value));
        let deletes = self.deletes.into_iter().map(Operation::Delete);
        let puts = self.puts.into_iter().map(Operation::Put);
        let (mut batches, mut bytes): (Vec<Vec<Operation>>, usize) = (Vec::new(), 0);
        for operation in deletes.chain(puts) {
            let size = match &operation {
                Operation::Put((key, value)) => key.len() + value.len(),
                Operation::Delete(key) => key.len(),
            };
            match batches.last_mut() {
                Some(batch) if batch.len() < OPERATIONS_MAX && bytes + size <= BYTES_MAX => {
                    batch.push(operation);
                    bytes += size;
                }
                // Try an operation that is too large on its own: the database decides.
                _ => {
                    batches.push(vec![operation]);
                    bytes = size;
                }
            }
        }
        batches
    }
}

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
