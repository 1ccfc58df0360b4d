//! Sets of addresses with their network: without duplicates, in order, whatever their spelling.

use std::collections::BTreeSet;

use trueup_guest::network::Network;

use crate::world::World;

/// Addresses of one node on the data plane.
pub(crate) type Addresses = BTreeSet<Network>;

/// The valid addresses; logs a warning for each invalid one. `node` is their owner.
pub(crate) fn read(world: &mut impl World, node: &str, texts: &[String]) -> Addresses {
    let message = "an address with network does not parse and is left out";
    let read = |text: &String| world.or_warn(Network::parse(text), message, &[("node", node), ("address", text)]);
    texts.iter().filter_map(read).collect()
}

/// IPv4 before IPv6, by number, then by prefix length.
pub(crate) fn write(addresses: &Addresses) -> Vec<String> {
    addresses.iter().map(Network::to_string).collect()
}
