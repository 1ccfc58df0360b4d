//! Compares the desired contents of a NEG with its contents after all operations end well.
//!
//! Pure. Knows no migration: it computes the whole difference, and can leave out what is in flight.

use std::cmp::Ordering;

use crate::address::{self, Rank};
use crate::bindings::trueup::neg::types::Endpoint;
use crate::entry::{self, Entry, Set, View};
use crate::filter::Committed;
use crate::operations::{Kind, Operation};

/// The listed endpoints, in order: valid addresses become canonical, other text stays.
pub fn listed(endpoints: Vec<Endpoint>) -> Set {
    let mut set = endpoints.into_iter().map(listed_entry).collect();
    entry::tidy(&mut set);
    set
}

fn listed_entry(mut endpoint: Endpoint) -> Entry {
    let ipv6 = address::v6(&mut endpoint.ipv6).unwrap_or_else(|| Rank::of(&endpoint.ipv6));
    Entry::ranked(Rank::of(&endpoint.ip), ipv6, endpoint)
}

/// The contents after the operations at this location end well.
pub fn current(mut listed: Set, operations: &[&Operation]) -> Set {
    let endpoints_of = |kind: Kind| {
        let of_kind = operations.iter().filter(move |operation| operation.kind == kind);
        of_kind.flat_map(|operation| &operation.endpoints)
    };
    listed.extend(endpoints_of(Kind::Attach).cloned().map(Entry::new));
    entry::tidy(&mut listed);
    let mut leaving: Vec<View<'_>> = endpoints_of(Kind::Detach).map(View::of).collect();
    leaving.sort_unstable();
    listed.retain(|entry| leaving.binary_search(&entry.view()).is_err());
    listed
}

/// The endpoints that are desired and missing, and those that exist and are not desired. Counts the common ones.
pub fn difference(target: Set, current: Set, committed: &mut Committed) -> (Set, Set) {
    let (mut add, mut remove) = (Set::new(), Set::new());
    let (mut target, mut current) = (target.into_iter().peekable(), current.into_iter().peekable());
    loop {
        let order = match (target.peek(), current.peek()) {
            (Some(wanted), Some(there)) => wanted.view().cmp(&there.view()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return (add, remove),
        };
        match order {
            Ordering::Less => add.extend(target.next()),
            Ordering::Greater => remove.extend(current.next()),
            Ordering::Equal => {
                target.next();
                if let Some(entry) = current.next() {
                    committed.count(entry.view());
                }
            }
        }
    }
}

/// The endpoints of one location that have an operation in flight, and their twins.
#[derive(Clone, Debug)]
pub struct Flying<'o> {
    /// Ascending.
    endpoints: Vec<View<'o>>,
    /// The twins of those that are dual-stack, ascending.
    twins: Vec<View<'o>>,
}

impl<'o> Flying<'o> {
    /// The endpoints of these operations.
    pub fn new(operations: &[&'o Operation]) -> Self {
        let all = operations.iter().flat_map(|operation| &operation.endpoints);
        let mut endpoints: Vec<View<'o>> = all.map(View::of).collect();
        let mut twins: Vec<View<'o>> = endpoints.iter().filter_map(View::twins).flatten().collect();
        endpoints.sort_unstable();
        twins.sort_unstable();
        Self { endpoints, twins }
    }

    /// Removes from a set what is in flight itself or by its twin; returns how many.
    pub fn leave_alone(&self, set: &mut Set) -> usize {
        let before = set.len();
        set.retain(|entry| !self.holds(entry.view()));
        before.saturating_sub(set.len())
    }

    fn holds(&self, view: View<'_>) -> bool {
        let flies = |view: &View<'_>| self.endpoints.binary_search(view).is_ok();
        // Only single-stack endpoints are among the twins.
        flies(&view) || self.twins.binary_search(&view).is_ok() || view.twins().iter().flatten().any(flies)
    }
}
