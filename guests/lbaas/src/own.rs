//! Which listed resources are a load balancer's own, and which refers to which.
//!
//! Later steps see nothing else of the list: no other load balancer's resources, no children of untagged resources, no
//! frontend without a load balancer.

use std::collections::BTreeMap;

use trueup_guest::words;

use crate::bindings::trueup::lbaas::types::{Backend, Bind, Frontend, Kind, Object, Server, Spec, State};
use crate::order;

/// One load balancer's own resources, each list by identifier.
#[derive(Debug, Default)]
pub struct Own<'a> {
    /// backends on it
    pub backends: Vec<Found<'a, Backend>>,
    /// frontends on it; the parent is the backend that they lead to
    pub frontends: Vec<Found<'a, Frontend>>,
    /// binds of its frontends
    pub binds: Vec<Found<'a, Bind>>,
    /// servers of its backends
    pub servers: Vec<Found<'a, Server>>,
}

/// An existing resource.
#[derive(Debug)]
pub struct Found<'a, T> {
    /// as listed
    pub object: &'a Object,
    /// its spec, in `object`
    pub spec: &'a T,
    /// the index of its parent in the same load balancer's list; `None` if the parent is not there
    pub parent: Option<usize>,
}

impl<'a> Own<'a> {
    /// All of them, by kind, then identifier.
    pub fn objects(&self) -> impl Iterator<Item = &'a Object> {
        (self.backends.iter().map(|found| found.object))
            .chain(self.frontends.iter().map(|found| found.object))
            .chain(self.binds.iter().map(|found| found.object))
            .chain(self.servers.iter().map(|found| found.object))
    }

    /// All of them in one state.
    pub fn in_state(&self, state: State) -> impl Iterator<Item = &'a Object> {
        self.objects().filter(move |object| object.state == state)
    }

    /// The number of each kind.
    pub fn counts(&self) -> [(Kind, usize); 4] {
        [
            (Kind::Backend, self.backends.len()),
            (Kind::Frontend, self.frontends.len()),
            (Kind::Bind, self.binds.len()),
            (Kind::Server, self.servers.len()),
        ]
    }
}

/// Where resources that may be parents are: the load balancer, and the index in its list. Sorted by identifier, which
/// is the order of insertion.
#[derive(Default)]
struct Parents<'a>(Vec<(&'a str, Location)>);

/// Which load balancer's list, and where in it.
type Location = (usize, usize);

impl<'a> Parents<'a> {
    fn add(&mut self, identifier: &'a str, place: Location) {
        self.0.push((identifier, place));
    }

    fn find(&self, identifier: &str) -> Option<Location> {
        let found = self.0.binary_search_by(|(known, _)| words::compare(known, identifier));
        self.0.get(found.ok()?).map(|&(_, place)| place)
    }
}

/// The own resources of each load balancer, in the order given. Looks at each resource once: parents come before
/// children in the order of kinds.
pub fn split<'a>(load_balancers: &[&str], listed: &'a [Object]) -> Vec<Own<'a>> {
    let slots: BTreeMap<&str, usize> = load_balancers
        .iter()
        .enumerate()
        .map(|(slot, &id)| (id, slot))
        .collect();
    let mut owned: Vec<Own<'a>> = load_balancers.iter().map(|_| Own::default()).collect();
    let mut backends = Parents::default();
    let mut frontends = Parents::default();
    for object in ascending(listed) {
        match &object.spec {
            Spec::Backend(spec) => {
                if let Some(&slot) = slots.get(spec.load_balancer.as_str())
                    && let Some(own) = owned.get_mut(slot)
                {
                    backends.add(&object.identifier, (slot, own.backends.len()));
                    let parent = None;
                    own.backends.push(Found { object, spec, parent });
                }
            }
            Spec::Frontend(spec) => {
                if let Some(&slot) = slots.get(spec.load_balancer.as_str())
                    && let Some(own) = owned.get_mut(slot)
                {
                    frontends.add(&object.identifier, (slot, own.frontends.len()));
                    let backend = backends.find(&spec.default_backend);
                    let parent = backend.and_then(|(other, place)| (other == slot).then_some(place));
                    own.frontends.push(Found { object, spec, parent });
                }
            }
            Spec::Bind(spec) => {
                if let Some((slot, place)) = frontends.find(&spec.frontend)
                    && let Some(own) = owned.get_mut(slot)
                {
                    let parent = Some(place);
                    own.binds.push(Found { object, spec, parent });
                }
            }
            Spec::Server(spec) => {
                if let Some((slot, place)) = backends.find(&spec.backend)
                    && let Some(own) = owned.get_mut(slot)
                {
                    let parent = Some(place);
                    own.servers.push(Found { object, spec, parent });
                }
            }
        }
    }
    owned
}

/// The list by kind, then identifier, without duplicates. The API promises that order; then each is looked at once.
fn ascending(listed: &[Object]) -> Vec<&Object> {
    let key = |object: &Object| order::kind(&object.spec);
    let compare = |left: &&Object, right: &&Object| {
        key(left)
            .cmp(&key(right))
            .then_with(|| words::compare(&left.identifier, &right.identifier))
    };
    let mut objects: Vec<&Object> = listed.iter().collect();
    if !objects.is_sorted_by(|left, right| compare(left, right).is_lt()) {
        objects.sort_by(compare);
        objects.dedup_by(|right, left| compare(left, right).is_eq());
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{backend, bind, frontend, server};

    fn identifiers<'a>(own: &Own<'a>) -> Vec<&'a str> {
        own.objects().map(|object| object.identifier.as_str()).collect()
    }

    #[test]
    fn children_belong_to_their_parents_load_balancer_and_the_rest_to_none() {
        let listed = [
            server("s-9", "s", "b-unknown", "10.0.0.1", 1),
            server("s-2", "s", "b-2", "10.0.0.1", 1),
            server("s-1", "s", "b-1", "10.0.0.1", 1),
            bind("n-9", "n", "f-9", "192.0.2.1", 1),
            bind("n-1", "n", "f-1", "192.0.2.1", 1),
            frontend("f-9", "f", "", "b-1"),
            frontend("f-2", "f", "lb-2", "b-1"),
            frontend("f-1", "f", "lb-1", "b-1"),
            backend("b-3", "b", "lb-3"),
            backend("b-2", "b", "lb-2"),
            backend("b-1", "b", "lb-1"),
            backend("b-0", "b", "lb-1"),
        ];
        let owned = split(&["lb-2", "lb-1"], &listed);
        assert_eq!(identifiers(&owned[0]), ["b-2", "f-2", "s-2"]);
        assert_eq!(identifiers(&owned[1]), ["b-0", "b-1", "f-1", "n-1", "s-1"]);
        assert_eq!(owned[1].frontends[0].parent, Some(1));
        assert_eq!(owned[1].servers[0].parent, Some(1));
        // It leads to a backend of another load balancer.
        assert_eq!(owned[0].frontends[0].parent, None);
    }

    #[test]
    fn what_is_listed_twice_counts_once() {
        let listed = [
            backend("b-1", "b", "lb-1"),
            backend("b-0", "b", "lb-1"),
            backend("b-1", "b", "lb-1"),
        ];
        assert_eq!(identifiers(&split(&["lb-1"], &listed)[0]), ["b-0", "b-1"]);
    }
}
