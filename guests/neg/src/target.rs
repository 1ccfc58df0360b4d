//! Parses the target of a sync: each mistake has one text, and valid input becomes canonical.
//!
//! Pure. Reports the first mistake: groups in the order given; within a group zone, subnet, duplicate, endpoints.

use std::collections::BTreeMap;

use trueup_guest::text::quoted;

use crate::address::{self, Rank};
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup, Location};
use crate::entry::{self, Entry, Groups};

/// The locations of the target with their desired endpoints, of which there may be none.
///
/// # Errors
/// The first mistake, for `invalid-input`.
pub fn read(target: Vec<EndpointGroup>, neg_names: &BTreeMap<String, String>) -> Result<Groups, String> {
    let mut groups = Groups::new();
    for (index, EndpointGroup { location, endpoints }) in target.into_iter().enumerate() {
        check_location(&location, neg_names).map_err(|error| format!("target[{index}].location{error}"))?;
        if groups.contains_key(&location) {
            let (zone, subnet) = (quoted(&location.zone), quoted(&location.subnet));
            return Err(format!(
                "target[{index}].location: zone {zone} subnet {subnet} is a duplicate, each location may come once"
            ));
        }
        let mut set = Vec::with_capacity(endpoints.len());
        for (position, endpoint) in endpoints.into_iter().enumerate() {
            let entry = read_endpoint(endpoint);
            set.push(entry.map_err(|error| format!("target[{index}].endpoints[{position}]{error}"))?);
        }
        entry::tidy(&mut set);
        groups.insert(location, set);
    }
    Ok(groups)
}

fn check_location(location: &Location, neg_names: &BTreeMap<String, String>) -> Result<(), String> {
    if location.zone.is_empty() {
        return Err(r#".zone: "" is empty, it must name a zone"#.to_owned());
    }
    if neg_names.contains_key(&location.subnet) {
        return Ok(());
    }
    let known: Vec<String> = neg_names.keys().map(|subnet| quoted(subnet)).collect();
    let known = if known.is_empty() { "none" } else { &known.join(", ") };
    let subnet = quoted(&location.subnet);
    Err(format!(".subnet: {subnet} is not in neg_names, known are {known}"))
}

fn read_endpoint(mut endpoint: Endpoint) -> Result<Entry, String> {
    let Some(ip) = address::v4(&endpoint.ip) else {
        let ip = quoted(&endpoint.ip);
        return Err(format!(".ip: {ip} is not an IPv4 address, it must be one or empty"));
    };
    let Some(ipv6) = address::v6(&mut endpoint.ipv6) else {
        let ipv6 = quoted(&endpoint.ipv6);
        return Err(format!(".ipv6: {ipv6} is not an IPv6 address, it must be one or empty"));
    };
    if (ip, ipv6) == (Rank::Empty, Rank::Empty) {
        return Err(": ip and ipv6 are both empty, one must be given".to_owned());
    }
    if !address::is_port(&endpoint.port) {
        let port = quoted(&endpoint.port);
        return Err(format!(".port: {port} is not a port, it must be 1 to 65535 or empty"));
    }
    Ok(Entry::ranked(ip, ipv6, endpoint))
}
