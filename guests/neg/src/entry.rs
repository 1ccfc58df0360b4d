//! Endpoints in their order: sets, lookups, and twins.
//!
//! Parses each address once, when an endpoint comes in. Comparisons use numbers, and texts only if those are equal.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::words;

use crate::address::Rank;
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup, Location};

/// The effect of a migration on an endpoint of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// No effect: it is no migration endpoint.
    #[default]
    Stays,
    /// It is a migration endpoint, and waits.
    TakenOut,
    /// Its migration starts now.
    PutBack,
}

/// An endpoint with the fields that are compared first.
#[derive(Clone, Debug)]
pub struct Entry {
    ip: Rank,
    ipv6: Rank,
    /// The effect of a migration on it.
    pub mark: Mark,
    /// The endpoint as text.
    pub endpoint: Endpoint,
}

/// Ascending, each endpoint once.
pub type Set = Vec<Entry>;

/// Several locations.
pub type Locations = BTreeSet<Location>;

/// The sets of several locations.
pub type Groups = BTreeMap<Location, Set>;

impl Entry {
    /// Parses the addresses of an endpoint that may hold any text.
    pub fn new(endpoint: Endpoint) -> Self {
        Self::ranked(Rank::of(&endpoint.ip), Rank::of(&endpoint.ipv6), endpoint)
    }

    /// An endpoint with parsed addresses.
    pub const fn ranked(ip: Rank, ipv6: Rank, endpoint: Endpoint) -> Self {
        Self {
            ip,
            ipv6,
            mark: Mark::Stays,
            endpoint,
        }
    }

    /// A number that follows the order, with few collisions: sorting small items is faster than sorting whole entries.
    fn rough_rank(&self) -> u128 {
        let ((ip_case, ip), (ipv6_case, ipv6)) = (self.ip.number(), self.ipv6.number());
        // Two bits for a case, 32 for an IPv4 address, and as much of an IPv6 address as fits.
        let rest = match self.ip {
            Rank::Empty => (ipv6_case << 124) | (ipv6 >> 4),
            Rank::V4(_) => (ip << 94) | (ipv6_case << 92) | (ipv6 >> 36),
            Rank::V6(..) => ip >> 2,
            Rank::Text => 0,
        };
        (ip_case << 126) | rest
    }

    /// The part that is compared.
    pub fn view(&self) -> View<'_> {
        View::ranked(self.ip, self.ipv6, &self.endpoint)
    }
}

/// An endpoint outside of a set, used to look up twins. Ordered as endpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'e> {
    ip: (Rank, &'e str),
    ipv6: (Rank, &'e str),
    port: &'e str,
    node: &'e str,
}

impl<'e> View<'e> {
    /// Parses the addresses of an endpoint.
    pub fn of(endpoint: &'e Endpoint) -> Self {
        Self::ranked(Rank::of(&endpoint.ip), Rank::of(&endpoint.ipv6), endpoint)
    }

    fn ranked(ip: Rank, ipv6: Rank, endpoint: &'e Endpoint) -> Self {
        Self {
            ip: (ip, &endpoint.ip),
            ipv6: (ipv6, &endpoint.ipv6),
            port: &endpoint.port,
            node: &endpoint.node,
        }
    }

    /// True if it has both addresses.
    pub fn is_dual(&self) -> bool {
        self.has_ip() && self.has_ipv6()
    }

    /// True if `ip` is not empty.
    pub fn has_ip(&self) -> bool {
        self.ip.0 != Rank::Empty
    }

    /// True if `ipv6` is not empty.
    pub fn has_ipv6(&self) -> bool {
        self.ipv6.0 != Rank::Empty
    }

    /// The two twins of a dual-stack endpoint: without `ipv6`, and without `ip`. `None` if it is single-stack.
    pub fn twins(&self) -> Option<[Self; 2]> {
        const NONE: (Rank, &str) = (Rank::Empty, "");
        self.is_dual()
            .then_some([Self { ipv6: NONE, ..*self }, Self { ip: NONE, ..*self }])
    }
}

impl Ord for View<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_fields(self.ip, other.ip)
            .then_with(|| compare_fields(self.ipv6, other.ipv6))
            .then_with(|| words::compare(self.port, other.port))
            .then_with(|| words::compare(self.node, other.node))
    }
}

impl PartialOrd for View<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare_fields(left: (Rank, &str), right: (Rank, &str)) -> Ordering {
    left.0.cmp(&right.0).then_with(|| match left.0 {
        // No other text has this rank: an IPv4 address has one spelling.
        Rank::Empty | Rank::V4(_) => Ordering::Equal,
        Rank::V6(..) | Rank::Text => words::compare(left.1, right.1),
    })
}

/// Sorts a set and removes duplicates.
pub fn tidy(set: &mut Set) {
    // Sets from this guest's own answers are sorted: one pass is enough.
    if set.is_sorted_by(|left, right| left.view() < right.view()) {
        return;
    }
    set.sort_by_cached_key(Entry::rough_rank);
    for equals in set.chunk_by_mut(|left, right| left.rough_rank() == right.rough_rank()) {
        equals.sort_unstable_by(|left, right| left.view().cmp(&right.view()));
    }
    set.dedup_by(|right, left| left.view() == right.view());
}

/// The sets in the input form of `filter`: a location and an endpoint may come twice, a location may have no endpoints.
pub fn united(groups: Vec<EndpointGroup>) -> Groups {
    let mut united = Groups::new();
    for EndpointGroup { location, endpoints } in groups {
        let set = united.entry(location).or_default();
        set.extend(endpoints.into_iter().map(Entry::new));
    }
    united.values_mut().for_each(tidy);
    united
}

/// The sets in their output form: each location once, ascending, and none without endpoints.
pub fn answered(groups: Groups) -> Vec<EndpointGroup> {
    let group = |(location, set): (Location, Set)| EndpointGroup {
        location,
        endpoints: set.into_iter().map(|entry| entry.endpoint).collect(),
    };
    let filled = groups.into_iter().filter(|(_, set)| !set.is_empty());
    filled.map(group).collect()
}

/// The endpoint's index in a set; `None` if it is not in it. Doubles its step each time, starting at the position that
/// it last found, which `latest` holds: fast if each endpoint is near the previous one.
pub fn find_near(set: &[Entry], latest: &mut usize, wanted: View<'_>) -> Option<usize> {
    let is_before = |index: usize| set.get(index).is_some_and(|entry| entry.view() < wanted);
    let (mut low, mut step) = (0, 1_usize);
    if *latest > 0 && is_before(latest.saturating_sub(1)) {
        low = *latest;
    }
    while is_before(low.saturating_add(step).saturating_sub(1)) {
        low = low.saturating_add(step);
        step = step.saturating_mul(2);
    }
    let reach = low.saturating_add(step).min(set.len());
    let between = set.get(low..reach).unwrap_or_default();
    *latest = low.saturating_add(between.partition_point(|entry| entry.view() < wanted));
    let found = set.get(*latest)?;
    (found.view() == wanted).then_some(*latest)
}
