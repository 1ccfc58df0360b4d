//! The filter answers for any sets as a plain model of its rules does, which compares every pair.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;

use super::{endpoint, location};
use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup, Location};
use crate::entry;
use crate::filter::{self, Committed};
use crate::settings::Settings;

type Sets = BTreeMap<Location, BTreeSet<Endpoint>>;

/// An address field in its order, parsed anew for each comparison.
fn field(text: &str) -> (u8, u128, &str) {
    match text.parse() {
        _ if text.is_empty() => (0, 0, ""),
        Ok(IpAddr::V4(address)) => (1, address.to_bits().into(), text),
        Ok(IpAddr::V6(address)) => (2, address.to_bits(), text),
        Err(_) => (3, 0, text),
    }
}

fn order(left: &Endpoint, right: &Endpoint) -> Ordering {
    let key = |endpoint: &Endpoint| (endpoint.port.clone(), endpoint.node.clone());
    (field(&left.ip), field(&left.ipv6), key(left)).cmp(&(field(&right.ip), field(&right.ipv6), key(right)))
}

fn united(groups: &[EndpointGroup]) -> Sets {
    let mut sets = Sets::new();
    for group in groups {
        sets.entry(group.location.clone())
            .or_default()
            .extend(group.endpoints.iter().cloned());
    }
    sets
}

fn answered(sets: Sets) -> Vec<EndpointGroup> {
    let group = |(location, set): (Location, BTreeSet<Endpoint>)| {
        let mut endpoints: Vec<Endpoint> = set.into_iter().collect();
        endpoints.sort_by(order);
        EndpointGroup { location, endpoints }
    };
    sets.into_iter().filter(|(_, set)| !set.is_empty()).map(group).collect()
}

/// True if one of the two is dual-stack and the other is the same without one address.
fn are_twins(one: &Endpoint, other: &Endpoint) -> bool {
    let is_twin_of = |twin: &Endpoint, dual: &Endpoint| {
        let without = |ip: &str, ipv6: &str| Endpoint {
            ip: ip.to_owned(),
            ipv6: ipv6.to_owned(),
            ..dual.clone()
        };
        let is_dual = !dual.ip.is_empty() && !dual.ipv6.is_empty();
        is_dual && (*twin == without(&dual.ip, "") || *twin == without("", &dual.ipv6))
    };
    is_twin_of(one, other) || is_twin_of(other, one)
}

/// The endpoints of one side with a twin on the other.
fn migrating(side: &Sets, opposite: &Sets) -> Sets {
    let none = BTreeSet::new();
    let of = |(location, set): (&Location, &BTreeSet<Endpoint>)| {
        let opposite = opposite.get(location).unwrap_or(&none);
        let found = set
            .iter()
            .filter(|one| opposite.iter().any(|other| are_twins(one, other)));
        (location.clone(), found.cloned().collect())
    };
    side.iter().map(of).collect()
}

fn without(sets: &Sets, taken: &Sets) -> Sets {
    let rest = |(location, set): (&Location, &BTreeSet<Endpoint>)| (location.clone(), set - &taken[location]);
    sets.iter().map(rest).collect()
}

fn count(sets: &Sets) -> usize {
    sets.values().map(BTreeSet::len).sum()
}

fn share(fraction: f64, n: usize) -> usize {
    (fraction * n as f64 - 0.000_000_001).ceil().max(0.0) as usize
}

fn model(settings: &Settings, facts: (bool, bool), add: &Sets, remove: &Sets, committed: &Sets) -> Filtered {
    let (is_paused, is_troubled) = facts;
    let (out_of_add, out_of_remove) = (migrating(add, remove), migrating(remove, add));
    let (add, mut remove) = (without(add, &out_of_add), without(remove, &out_of_remove));
    let number = count(&out_of_remove);
    let n = count(committed) + number;
    let many = count(&add) >= share(settings.fraction_for_pending_attachment_threshold, n);
    let stops = many && is_troubled;
    let mut detaching = None;
    if number > 0 && !is_paused && !stops {
        let largest = out_of_remove.values().map(BTreeSet::len).max().unwrap();
        let (place, set) = out_of_remove.iter().find(|(_, set)| set.len() == largest).unwrap();
        let mut ordered: Vec<Endpoint> = set.iter().cloned().collect();
        ordered.sort_by(order);
        ordered.truncate(share(settings.fraction_of_migrating_endpoints, n).max(1));
        remove.get_mut(place).unwrap().extend(ordered);
        detaching = Some(place.clone());
    }
    Filtered {
        add: answered(add),
        remove: answered(remove),
        detaching,
        migrating: number.try_into().unwrap(),
    }
}

fn an_endpoint(pods: u8) -> impl Strategy<Value = Endpoint> {
    let form = prop_oneof![
        4 => Just("10.0.0.N"), 4 => Just("10.0.0.N+fd00::N"), 4 => Just("fd00::N"),
        1 => Just("10.0.0.N+FD00::N"), 1 => Just("10.0.0.N+fd00::99"), 1 => Just("x+fd00::N"), 1 => Just("fd00::N+y"),
        1 => Just("x"), 1 => Just(""),
    ];
    let port = prop_oneof![5 => Just(""), 1 => Just("#443")];
    (form, 0..pods, port).prop_map(|(form, n, port)| endpoint(&(form.replace('N', &n.to_string()) + port)))
}

fn some_groups(pods: u8, most: usize) -> impl Strategy<Value = Vec<EndpointGroup>> {
    let group = (
        prop_oneof![3 => Just("z1"), 2 => Just("z2"), 1 => Just("z1/s0")],
        prop::collection::vec(an_endpoint(pods), 0..most),
    )
        .prop_map(|(place, endpoints)| EndpointGroup {
            location: location(place),
            endpoints,
        });
    prop::collection::vec(group, 0..4)
}

/// Whether it is paused, and whether there is trouble.
fn some_facts() -> impl Strategy<Value = (bool, bool)> {
    (prop::bool::weighted(0.2), prop::bool::weighted(0.75))
}

fn check(
    settings: &Settings,
    facts: (bool, bool),
    [add, remove, committed]: [Vec<EndpointGroup>; 3],
) -> Result<(), TestCaseError> {
    let expected = model(settings, facts, &united(&add), &united(&remove), &united(&committed));
    let (wanted, unwanted) = (count(&united(&add)), count(&united(&remove)));
    let committed = Committed::of(committed);
    let decision = filter::decide(settings, facts, entry::united(add), entry::united(remove), committed);
    let filtered = decision.answer();
    prop_assert_eq!(&filtered, &expected);
    // Each endpoint is counted once: it is in the answer, or it waits.
    let of = |groups: &[EndpointGroup]| groups.iter().map(|group| group.endpoints.len()).sum::<usize>();
    let waiting = (unwanted - of(&filtered.remove), filtered.migrating as usize);
    prop_assert!(waiting.0 <= waiting.1 && of(&filtered.add) <= wanted);
    prop_assert_eq!(waiting.0 < waiting.1, filtered.detaching.is_some());
    Ok(())
}

fn some_settings() -> impl Strategy<Value = Settings> {
    let migrating = prop_oneof![Just(0.1), Just(1.0), 0.000_001..1.0_f64];
    let pending = prop_oneof![Just(0.5), Just(0.0), 0.0..2.0_f64];
    (migrating, pending).prop_map(|(migrating, pending)| Settings {
        fraction_of_migrating_endpoints: migrating,
        fraction_for_pending_attachment_threshold: pending,
        ..Settings::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_filter_does_what_the_model_does_with_few(
        settings in some_settings(), facts in some_facts(),
        sets in [some_groups(3, 6), some_groups(3, 6), some_groups(3, 6)],
    ) {
        check(&settings, facts, sets)?;
    }

    #[test]
    fn and_with_many(
        settings in some_settings(), facts in some_facts(),
        sets in [some_groups(60, 80), some_groups(60, 80), some_groups(60, 40)],
    ) {
        check(&settings, facts, sets)?;
    }
}
