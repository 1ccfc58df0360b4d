//! Which of several claiming services gets a key: the first by id. When it goes, the next one gets the key.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::bindings::trueup::kube::types::ObjectId;
use crate::ruleset::{Content, Key, Verdict};

/// Every claim of every acknowledged service, in one family's table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims {
    /// Sorted by key, then by id. One map for all: most keys have one claim, and a map for each would be mostly
    /// overhead.
    by_key: BTreeMap<(Key, Rc<ObjectId>), Verdict>,
}

impl Claims {
    /// Adds the claims of a new service.
    pub(crate) fn add(&mut self, id: &ObjectId, claims: &BTreeMap<Key, Verdict>) {
        let id = Rc::new(id.clone());
        for (key, verdict) in claims {
            self.by_key.insert((*key, Rc::clone(&id)), verdict.clone());
        }
    }

    /// Removes the claims of a service.
    pub(crate) fn remove(&mut self, id: &ObjectId, claims: &BTreeMap<Key, Verdict>) {
        let id = Rc::new(id.clone());
        for key in claims.keys() {
            self.by_key.remove(&(*key, Rc::clone(&id)));
        }
    }

    /// The verdict of the key's owner, without these services.
    pub(crate) fn holder(&self, key: Key, except: &BTreeSet<&ObjectId>) -> Option<(&ObjectId, &Verdict)> {
        let least = ObjectId {
            namespace: String::new(),
            name: String::new(),
        };
        let claims = self
            .by_key
            .range((key, Rc::new(least))..)
            .take_while(|((of, _), _)| *of == key);
        let mut others = claims.filter(|((_, id), _)| !except.contains(&**id));
        others.next().map(|((_, id), verdict)| (&**id, verdict))
    }

    /// Puts every claimed key into its map.
    pub(crate) fn put_into(&self, content: &mut Content) {
        let mut last = None;
        for ((key, _), verdict) in &self.by_key {
            if last.replace(*key) != Some(*key) {
                content.add(*key, verdict.clone());
            }
        }
    }
}
