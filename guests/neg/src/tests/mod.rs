//! Whole calls against a simulated world, rule by rule, and properties of any sequence of them.

#[path = "../../../nodesync/src/tests/cases.rs"]
pub(crate) mod cases;
mod errors;
mod filtering;
mod laws;
mod migrating;
mod pausing;
mod properties;
#[path = "../../../nodesync/src/tests/refusing.rs"]
mod refusing;
mod restarting;
mod syncing;

use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::exports::trueup::neg::syncer::{Error, SyncReport};
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup, Location};
use crate::neg::Neg;
use crate::simulated::{Simulation, short};
use trueup_guest::Guest as _;

/// The settings of most tests.
const CONFIG: &str = r#"{"neg_names": {"s1": "web-s1"}}"#;

/// A new instance with these settings as JSON.
fn instance(config: &str) -> Neg {
    Neg::init(config).unwrap()
}

fn location(place: &str) -> Location {
    let (zone, subnet) = place.split_once('/').unwrap_or((place, "s1"));
    Location {
        zone: zone.to_owned(),
        subnet: subnet.to_owned(),
    }
}

/// `10.0.0.1+fd00::1#81@n2`: the output of `short`. Without `+`, a text with two colons is IPv6.
fn endpoint(text: &str) -> Endpoint {
    let (text, node) = text.split_once('@').unwrap_or((text, "n1"));
    let (text, port) = text.split_once('#').unwrap_or((text, "80"));
    let (ip, ipv6) = match text.split_once('+') {
        Some(both) => both,
        None if text.contains("::") => ("", text),
        None => (text, ""),
    };
    Endpoint {
        ip: ip.to_owned(),
        ipv6: ipv6.to_owned(),
        port: port.to_owned(),
        node: node.to_owned(),
    }
}

/// Groups in the notation of tests: the location, and its endpoints with blanks between them.
fn groups(written: &[(&str, &str)]) -> Vec<EndpointGroup> {
    let group = |&(place, endpoints): &(&str, &str)| EndpointGroup {
        location: location(place),
        endpoints: endpoints.split_whitespace().map(endpoint).collect(),
    };
    written.iter().map(group).collect()
}

/// The groups in one line: `z1/s1: 10.0.0.1 fd00::1; z2/s1: ...`.
fn line(groups: &[EndpointGroup]) -> String {
    let group = |group: &EndpointGroup| {
        let endpoints: Vec<String> = group.endpoints.iter().map(short).collect();
        format!(
            "{}/{}: {}",
            group.location.zone,
            group.location.subnet,
            endpoints.join(" ")
        )
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// The answer of `filter` in lines: add, remove, detaching, migrating.
fn answer(filtered: &Filtered) -> (String, String, Option<String>, u32) {
    let detaching = filtered
        .detaching
        .as_ref()
        .map(|place| format!("{}/{}", place.zone, place.subnet));
    (
        line(&filtered.add),
        line(&filtered.remove),
        detaching,
        filtered.migrating,
    )
}

/// A NEG of subnet `s1` with these endpoints.
fn given(world: &mut Simulation, zone: &str, endpoints: &str) {
    let endpoints = endpoints.split_whitespace().map(endpoint).collect();
    world.negs.insert((zone.to_owned(), "web-s1".to_owned()), endpoints);
}

/// The contents of a NEG of subnet `s1`.
fn there(world: &Simulation, zone: &str) -> String {
    let endpoints = &world.negs[&(zone.to_owned(), "web-s1".to_owned())];
    endpoints.iter().map(short).collect::<Vec<_>>().join(" ")
}

/// A sync's report: attaching, detaching, in flight, and where a migration started.
fn sync(
    neg: &mut Neg,
    world: &mut Simulation,
    target: &[(&str, &str)],
) -> Result<(u32, u32, u32, Option<Location>), Error> {
    let report = |report: SyncReport| (report.attaching, report.detaching, report.in_flight, report.migration);
    neg.sync(world, groups(target)).map(report)
}

/// Ends an operation in the API, and notifies the guest.
fn end(neg: &mut Neg, world: &mut Simulation, operation: u64, failure: Option<&str>) -> bool {
    let failure = world.end(operation, failure);
    neg.on_operation(world, operation, failure)
}

/// Advances the clock; returns the timers that fired with the calls that they made.
fn advance(neg: &mut Neg, world: &mut Simulation, ms: u64) -> Vec<(u64, bool)> {
    let until_ms = world.now_ms + ms;
    let mut fired = Vec::new();
    while let Some(timer) = world.next_timer(until_ms) {
        fired.push((timer, neg.on_timer(world, timer)));
    }
    world.now_ms = until_ms;
    fired
}

/// A new instance takes over the state.
fn restart(neg: &Neg, world: &mut Simulation, config: &str) -> Neg {
    let snapshot = neg.snapshot();
    world.restart();
    let mut new = instance(config);
    new.restore(world, &snapshot).unwrap();
    new
}
