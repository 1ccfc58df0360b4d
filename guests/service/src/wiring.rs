//! The wiring of this node: which addresses are local, and which interfaces exist without pods.

use std::collections::BTreeSet;

use trueup_guest::{address::Address, network::Network};

use crate::{bindings::exports::trueup::service::processor::NodeContext, parse, world::World};

/// The location of an address, as seen from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) address: Address,
    /// On this node.
    pub(crate) is_local: bool,
    /// Outside of every pod network.
    pub(crate) is_host_network: bool,
}

/// The node's context with parsed addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wiring {
    context: NodeContext,
    /// `node-ip` and `host-ips`
    own: BTreeSet<Address>,
    /// `None` contains nothing.
    this_node: Option<Network>,
    /// `None` contains nothing.
    all_nodes: Option<Network>,
}

impl Wiring {
    /// Logs a warning for each text that is invalid and not empty.
    pub(crate) fn read(world: &mut impl World, context: NodeContext) -> Self {
        let filled = |text: &&String| !text.is_empty();
        let texts = context.host_ips.iter().chain(Some(&context.node_ip).filter(filled));
        let own = texts
            .filter_map(|text| parse::address(world, "an address of this node", &[], text))
            .collect();
        let mut network = |text: &String| {
            let network = Network::parse(text);
            if network.is_none() && !text.is_empty() {
                world.warn("a pod subnet does not parse and contains nothing", &[("subnet", text)]);
            }
            network
        };
        Self {
            own,
            this_node: network(&context.pod_subnet_this_node),
            all_nodes: network(&context.pod_subnet_all_nodes),
            context,
        }
    }

    /// The contract's form.
    pub(crate) fn context(&self) -> &NodeContext {
        &self.context
    }

    /// The location of a backend with this address.
    pub(crate) fn location(&self, address: Address) -> Location {
        let is_in = |network: Option<Network>| network.is_some_and(|network| network.contains(address));
        let is_host_network = !is_in(self.all_nodes);
        Location {
            address,
            is_local: is_in(self.this_node) || (is_host_network && self.own.contains(&address)),
            is_host_network,
        }
    }

    /// Interfaces of clients, except those of pods. Skips empty names.
    pub(crate) fn frontends(&self) -> impl Iterator<Item = &str> {
        let context = &self.context;
        let names = [
            &context.vxlan_bvi_interface,
            &context.main_interface,
            &context.host_interconnect_interface,
        ];
        filled(names.into_iter().chain(&context.other_interfaces))
    }

    /// Interfaces of backends, except those of pods. Skips empty names.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &str> {
        let context = &self.context;
        let overlay = filled([&context.vxlan_bvi_interface, &context.main_interface].into_iter()).next();
        let host = filled([&context.host_interconnect_interface].into_iter());
        overlay.into_iter().chain(host)
    }
}

fn filled<'n>(names: impl Iterator<Item = &'n String>) -> impl Iterator<Item = &'n str> {
    names.map(String::as_str).filter(|name| !name.is_empty())
}
