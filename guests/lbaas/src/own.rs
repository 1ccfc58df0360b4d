//! Which listed resources are a load balancer's own, and which refers to which.
//!
//! Later steps see nothing else of the list: no other load balancer's resources, no children of untagged resources, no
//! frontend without a load balancer.

use std::collections::BTreeMap;

use trueup_guest::words;

use crate::bindings::trueup::lbaas::types::{Kind, Object, Spec};
use crate::order;

/// One load balancer's own resources by kind, then identifier: parents come before their children.
pub type Own<'a> = Vec<Found<'a>>;

/// An existing resource.
#[derive(Debug)]
pub struct Found<'a> {
    /// as listed
    pub object: &'a Object,
    /// the index of its parent in the same load balancer's list: of the backend that a frontend leads to or a server is
    /// in, of a bind's frontend; `None` if the parent is not there
    pub parent: Option<usize>,
}

/// A resource that may be a parent, and where it is: which load balancer's list, and the index in it.
type Parent<'a> = (Kind, &'a str, (usize, usize));

/// `parents` are sorted by kind, then identifier.
fn find(parents: &[Parent<'_>], kind: Kind, identifier: &str) -> Option<(usize, usize)> {
    let compare = |known: &Parent<'_>| known.0.cmp(&kind).then_with(|| words::compare(known.1, identifier));
    let found = parents.binary_search_by(compare).ok()?;
    parents.get(found).map(|parent| parent.2)
}

/// The own resources of each load balancer, in the order given. Looks at each resource once: parents come before
/// children in the order of kinds.
pub fn split<'a>(load_balancers: &[&str], listed: &'a [Object]) -> Vec<Own<'a>> {
    let slots: BTreeMap<&str, usize> = load_balancers.iter().copied().zip(0..).collect();
    let slot_of = |load_balancer: &str| slots.get(load_balancer).copied();
    let mut owned: Vec<Own<'a>> = load_balancers.iter().map(|_| Own::new()).collect();
    // In the order of insertion, which is that of `find`.
    let mut parents: Vec<Parent<'_>> = Vec::new();
    let beside = |parent: Option<(usize, usize)>| parent.map(|at| (at.0, at)).unzip();
    for object in ascending(listed) {
        let (slot, parent) = match &object.spec {
            Spec::Backend(spec) => (slot_of(&spec.load_balancer), None),
            Spec::Frontend(spec) => {
                let backend = find(&parents, Kind::Backend, &spec.default_backend);
                (slot_of(&spec.load_balancer), backend)
            }
            Spec::Bind(spec) => beside(find(&parents, Kind::Frontend, &spec.frontend)),
            Spec::Server(spec) => beside(find(&parents, Kind::Backend, &spec.backend)),
        };
        let Some((slot, own)) = slot.and_then(|slot| Some((slot, owned.get_mut(slot)?))) else {
            continue;
        };
        let kind = order::kind(&object.spec);
        if matches!(kind, Kind::Backend | Kind::Frontend) {
            parents.push((kind, &object.identifier, (slot, own.len())));
        }
        // A frontend may lead to a backend of another load balancer.
        let parent = parent.and_then(|(other, place)| (other == slot).then_some(place));
        own.push(Found { object, parent });
    }
    owned
}

/// The list by kind, then identifier, without duplicates. The API promises that order; then each is looked at once.
fn ascending(listed: &[Object]) -> Vec<&Object> {
    let compare = |left: &&Object, right: &&Object| {
        let kinds = order::kind(&left.spec).cmp(&order::kind(&right.spec));
        kinds.then_with(|| words::compare(&left.identifier, &right.identifier))
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
        own.iter().map(|found| found.object.identifier.as_str()).collect()
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
        let parents = |own: &Own<'_>| own.iter().map(|found| found.parent).collect::<Vec<_>>();
        assert_eq!(parents(&owned[1]), [None, None, Some(1), Some(2), Some(1)]);
        // The frontend leads to a backend of another load balancer.
        assert_eq!(parents(&owned[0]), [None, None, Some(0)]);
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
