//! Endpoints of one service in three zones: the input of `filter` during a migration, and the target of `sync`.
//!
//! Texts are as long as Compute Engine's. Knows neither guest nor host.

use std::net::{Ipv4Addr, Ipv6Addr};

use trueup_capabilities::neg::{Endpoint, EndpointGroup, Location};
use trueup_guest_neg::bindings::trueup::neg::types as native;

/// The zones, ascending.
pub const ZONES: [&str; 3] = ["europe-west3-a", "europe-west3-b", "europe-west3-c"];

/// The one subnet.
pub const SUBNET: &str = "default";

/// Pods on each Node.
const PODS_PER_NODE: u32 = 30;

/// The stack of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Only IPv4.
    Single,
    /// Both.
    Dual,
}

/// The three sets that `migrator.filter` takes.
#[derive(Debug, Clone)]
pub struct Sets {
    /// Endpoints to attach.
    pub add: Vec<EndpointGroup>,
    /// Endpoints to detach.
    pub remove: Vec<EndpointGroup>,
    /// Endpoints that are desired and already exist.
    pub committed: Vec<EndpointGroup>,
}

/// The same, in the native guest's types.
#[derive(Debug, Clone)]
pub struct NativeSets {
    /// Endpoints to attach.
    pub add: Vec<native::EndpointGroup>,
    /// Endpoints to detach.
    pub remove: Vec<native::EndpointGroup>,
    /// Endpoints that are desired and already exist.
    pub committed: Vec<native::EndpointGroup>,
}

impl Sets {
    /// This many endpoints turn dual-stack, beside the given number that already are.
    #[must_use]
    pub fn migration(moving: u32, committed: u32) -> Self {
        Self {
            add: groups(0, moving, Stack::Dual),
            remove: groups(0, moving, Stack::Single),
            committed: groups(moving, committed, Stack::Dual),
        }
    }

    /// The same sets, not sorted.
    #[must_use]
    pub fn in_no_order(mut self) -> Self {
        for group in [&mut self.add, &mut self.remove, &mut self.committed]
            .into_iter()
            .flatten()
        {
            // Read from its end, an address is a number that jumps.
            group
                .endpoints
                .sort_by_cached_key(|endpoint| endpoint.ip.bytes().rev().collect::<Vec<u8>>());
        }
        self
    }

    /// In the native guest's types.
    #[must_use]
    pub fn native(&self) -> NativeSets {
        NativeSets {
            add: native_groups(&self.add),
            remove: native_groups(&self.remove),
            committed: native_groups(&self.committed),
        }
    }
}

/// This many endpoints, from number `first` on, alternating between the zones: one group for each zone, ascending.
#[must_use]
pub fn groups(first: u32, count: u32, stack: Stack) -> Vec<EndpointGroup> {
    let group = |(zone, offset): (&str, u32)| EndpointGroup {
        location: Location {
            zone: zone.to_owned(),
            subnet: SUBNET.to_owned(),
        },
        endpoints: (first..first + count)
            .skip(offset as usize)
            .step_by(ZONES.len())
            .map(|number| endpoint(number, stack))
            .collect(),
    };
    ZONES.into_iter().zip(0..).map(group).collect()
}

/// In the native guest's types.
#[must_use]
pub fn native_groups(groups: &[EndpointGroup]) -> Vec<native::EndpointGroup> {
    let group = |group: &EndpointGroup| native::EndpointGroup {
        location: native_location(&group.location),
        endpoints: group.endpoints.iter().map(native_endpoint).collect(),
    };
    groups.iter().map(group).collect()
}

/// In the native guest's types.
#[must_use]
pub fn native_location(location: &Location) -> native::Location {
    native::Location {
        zone: location.zone.clone(),
        subnet: location.subnet.clone(),
    }
}

fn native_endpoint(endpoint: &Endpoint) -> native::Endpoint {
    native::Endpoint {
        ip: endpoint.ip.clone(),
        ipv6: endpoint.ipv6.clone(),
        port: endpoint.port.clone(),
        node: endpoint.node.clone(),
    }
}

fn endpoint(number: u32, stack: Stack) -> Endpoint {
    // 10.64.0.0 and up, a typical range for pods of a cluster.
    const FIRST_V4: u32 = 0x0a40_0000;
    // The range for documentation (RFC 3849), with a /96 for each Node, as Compute Engine assigns them.
    const FIRST_V6: u128 = 0x2001_0db8_4000_6e1b << 64;
    let ipv6 = match stack {
        Stack::Single => String::new(),
        Stack::Dual => {
            let node = u128::from(number / PODS_PER_NODE) << 32;
            Ipv6Addr::from_bits(FIRST_V6 | node | u128::from(number)).to_string()
        }
    };
    Endpoint {
        ip: Ipv4Addr::from_bits(FIRST_V4 + number).to_string(),
        ipv6,
        port: "8080".to_owned(),
        node: format!("gke-cluster-1-default-pool-{:08x}-x9q2", number / PODS_PER_NODE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_in_one_zone_and_ascends_there() {
        let groups = groups(7, 100, Stack::Dual);
        assert_eq!(groups.iter().map(|group| group.endpoints.len()).sum::<usize>(), 100);
        for group in &groups {
            let address = |endpoint: &Endpoint| endpoint.ip.parse::<Ipv4Addr>().ok();
            assert!(group.endpoints.is_sorted_by_key(address), "{group:?}");
            assert!(!group.endpoints.is_empty());
        }
    }

    #[test]
    fn in_no_order_is_no_order_and_the_same_sets() {
        let (sets, mixed) = (Sets::migration(60, 30), Sets::migration(60, 30).in_no_order());
        for (mut set, mut mixed) in [(sets.add, mixed.add), (sets.committed, mixed.committed)] {
            assert_ne!(set, mixed);
            for group in set.iter_mut().chain(&mut mixed) {
                group.endpoints.sort_by(|left, right| left.ip.cmp(&right.ip));
            }
            assert_eq!(set, mixed);
        }
    }
}
