//! Sets of addresses with their network: without duplicates, in order, whatever their spelling.

use std::collections::BTreeSet;

use trueup_guest::network::Network;

use crate::world::World;

/// Addresses of one node on the data plane.
pub(crate) type Addresses = BTreeSet<Network>;

/// The valid addresses; logs a warning for each invalid one. `node` is their owner.
pub(crate) fn read(world: &mut impl World, node: &str, texts: &[String]) -> Addresses {
    let mut addresses = Addresses::new();
    for text in texts {
        match Network::parse(text) {
            Some(address) => {
                addresses.insert(address);
            }
            None => world.warn(
                "an address with network does not parse and is left out",
                &[("node", node), ("address", text)],
            ),
        }
    }
    addresses
}

/// IPv4 before IPv6, by number, then by prefix length.
pub(crate) fn write(addresses: &Addresses) -> Vec<String> {
    addresses.iter().map(Network::to_string).collect()
}
