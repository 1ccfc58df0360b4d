//! How this node gets its number, and how it restores its record.
//!
//! The first node to store a key owns it: only `put-if-not-exists` decides among nodes that try at once.

use std::collections::BTreeSet;

use trueup_guest::bindings::trueup::etcd::kv;
use trueup_guest::etcd;

use crate::bindings::exports::trueup::nodesync::node_sync::Error;
use crate::node_sync::NodeSync;
use crate::record::{self, Stored};
use crate::view::{Addresses, read_addresses};
use crate::world::World;

/// The database's error as the answer of a call.
impl From<kv::Error> for Error {
    fn from(error: kv::Error) -> Self {
        Self::Database(etcd::words(&error))
    }
}

impl NodeSync {
    /// Stores this node's record under the smallest free number, and returns that number.
    ///
    /// # Errors
    /// `database`, or `attempts-exhausted` if another node was faster each time.
    pub(crate) fn allocate(&self, world: &mut impl World) -> Result<u32, Error> {
        for _ in 0..self.settings.allocation_attempts {
            let id = first_free(&self.ids_in_use(world)?)?;
            if self.put_if_not_exists(world, id)? {
                return Ok(id);
            }
        }
        Err(Error::AttemptsExhausted(self.settings.allocation_attempts))
    }

    fn ids_in_use(&self, world: &mut impl World) -> Result<BTreeSet<u32>, Error> {
        let prefix = &self.settings.key_prefix;
        let keys = world.list_keys(&record::prefix(prefix))?;
        let message = "a key among the node ids is none and is ignored";
        let id = |key: &String| world.or_warn(record::id(prefix, key), message, &[("key", key)]);
        Ok(keys.iter().filter_map(id).collect())
    }

    fn put_if_not_exists(&self, world: &mut impl World, id: u32) -> Result<bool, Error> {
        let (key, value) = self.record(id);
        Ok(world.put_if_not_exists(&key, &value)?)
    }

    /// Stores this node's record again after it disappeared. Returns the addresses that the database now holds of this
    /// node: these, or those that another writer stored in its name meanwhile.
    ///
    /// # Errors
    /// `id-taken` if another node's record, or an invalid one, is under this node's number; `database`.
    pub(crate) fn put_again(&self, world: &mut impl World, id: u32) -> Result<Addresses, Error> {
        if self.put_if_not_exists(world, id)? {
            let message = "the record of this node was gone and is stored again";
            world.warn(message, &[("id", &id.to_string())]);
            return Ok(self.own.addresses().clone());
        }
        let Some(found) = world.get(&record::key(&self.settings.key_prefix, id))? else {
            return Err(Error::Database("record of this node comes and goes".to_owned()));
        };
        let name = &self.settings.node_name;
        match Stored::read(&found.value) {
            Some(stored) if stored.name == *name => Ok(read_addresses(world, name, &stored.into_addresses())),
            Some(stored) => Err(Error::IdTaken(stored.name)),
            None => Err(Error::IdTaken(String::new())),
        }
    }
}

fn first_free(in_use: &BTreeSet<u32>) -> Result<u32, Error> {
    // No listing holds four billion keys; if one did, the database would be at fault.
    let none = || Error::Database("too many operations: no id is free".to_owned());
    (1..=u32::MAX).find(|id| !in_use.contains(id)).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_positive_number_not_in_use() {
        for (in_use, expected) in [
            (&[][..], 1),
            (&[1], 2),
            (&[2], 1),
            (&[1, 2, 4], 3),
            (&[1, 3, 4, 4_294_967_295], 2),
            (&[4_294_967_295], 1),
        ] {
            let in_use = in_use.iter().copied().collect();
            assert_eq!(first_free(&in_use), Ok(expected), "{in_use:?}");
        }
    }

    proptest! {
        #[test]
        fn all_below_it_are_in_use(in_use in prop::collection::btree_set(1..40_u32, 0..40)) {
            let free = first_free(&in_use).unwrap();
            prop_assert!(!in_use.contains(&free) && (1..free).all(|id| in_use.contains(&id)));
        }
    }
}
