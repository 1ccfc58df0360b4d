//! One family's part of a change to some services: the old and the new state of these alone, and of the keys that they
//! claim.
//!
//! Pure. A service's rules are its own; a key may belong to another service, before or after: of several services that
//! claim it, the first by id gets it. When that one goes, the next one gets the key.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::types::ContivService;
use crate::change::Change;
use crate::render::Part;
use crate::ruleset::{Content, Family, Key, Verdict};

/// Claims of some services.
type OfServices<'i> = Vec<(&'i ObjectId, BTreeMap<Key, Verdict>)>;

/// The part.
#[derive(Debug)]
pub(crate) struct Step<'i> {
    family: Family,
    claimed: OfServices<'i>,
    claiming: OfServices<'i>,
    before: Content,
    after: Content,
}

impl<'i> Step<'i> {
    /// Services in `old` that are missing in `new` go. `all` has the present claims of all services.
    pub(crate) fn new(family: Family, all: &Claims, old: &[&'i ContivService], new: &[&'i ContivService]) -> Self {
        let (mut before, mut after) = (Content::default(), Content::default());
        let mut step = Self {
            family,
            claimed: render(old, family, &mut before),
            claiming: render(new, family, &mut after),
            before,
            after,
        };
        // The present and the future owner of each key.
        let both = step.claimed.iter().chain(&step.claiming);
        let keys: BTreeSet<Key> = both.flat_map(|(_, claims)| claims.keys().copied()).collect();
        let changing: BTreeSet<&ObjectId> = step.claimed.iter().map(|(id, _)| *id).collect();
        for key in keys {
            if let Some((_, verdict)) = all.holder(key, &BTreeSet::new()) {
                step.before.add(key, verdict.clone());
            }
            let own = step
                .claiming
                .iter()
                .filter_map(|(id, claims)| Some((*id, claims.get(&key)?)));
            let first = own.chain(all.holder(key, &changing)).min_by_key(|&(id, _)| id);
            if let Some((_, verdict)) = first {
                step.after.add(key, verdict.clone());
            }
        }
        step
    }

    /// The commands.
    pub(crate) fn change(&self) -> Change<'_> {
        Change::between(self.family, false, &self.before, &self.after)
    }

    /// Marks the commands as done.
    pub(crate) fn take_effect(&self, claims: &mut Claims) {
        for (id, claimed) in &self.claimed {
            claims.remove(id, claimed);
        }
        for (id, claiming) in &self.claiming {
            claims.add(id, claiming);
        }
    }
}

/// Adds the services' chains to the content; returns their claims.
fn render<'i>(services: &[&'i ContivService], family: Family, content: &mut Content) -> OfServices<'i> {
    let one = |service: &&'i ContivService| {
        let part = Part::of(service, family);
        content.chains.extend(part.chains);
        (&service.id, part.claims)
    };
    services.iter().map(one).collect()
}

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
        let claims = self.by_key.range((key, Rc::new(least))..);
        let claims = claims.take_while(|((of, _), _)| *of == key);
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
