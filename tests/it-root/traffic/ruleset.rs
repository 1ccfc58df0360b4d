//! The contents of a node's kernel, as nft lists them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::services::Service;
use super::topology::Node;
use support::network::{Listing, Network};
use support::{Ran, ran};

const TABLE: &str = "trueup";

/// A table with its contents; empty if there is no such table.
#[track_caller]
pub(crate) fn listing(network: &Network, node: Node, family: &str) -> Listing {
    Listing::read(&nft(network, node, &["table", family, TABLE]))
}

/// Removes all rules of a node, as another program does that owns the packet filter.
#[track_caller]
pub(crate) fn flush(network: &Network, node: Node) {
    let mut command = network.command("ip");
    command.args(["netns", "exec", &node.name(), "nft", "flush", "ruleset"]);
    ran(&mut command).exits(0);
}

/// The chains of the endpoints among which a node chooses for a Service; `None` if it does not know the Service.
#[track_caller]
pub(crate) fn targets(network: &Network, node: Node, service: Service) -> Option<BTreeSet<String>> {
    let chain = nft(network, node, &["chain", service.family(), TABLE, &service.chain()]);
    let listing = Listing::read(&chain);
    let mut targets = BTreeSet::new();
    for (_, rule) in listing.objects.iter().filter(|(kind, _)| kind == "rule") {
        collect(rule, &mut targets);
    }
    if !targets.is_empty() {
        return Some(targets);
    }
    // Either not rendered yet, or without endpoints.
    let refused = nft(network, node, &["map", service.family(), TABLE, "no-endpoint-ips"]);
    let address = Value::from(service.cluster().ip().to_string()).to_string();
    (refused.code == Some(0) && refused.stdout.contains(&address)).then(BTreeSet::new)
}

/// Collects the targets of rules.
fn collect(value: &Value, targets: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            targets.extend(members.get("target").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|value| collect(value, targets));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, targets)),
        _ => {}
    }
}

fn nft(network: &Network, node: Node, what: &[&str]) -> Ran {
    let mut command = network.command("ip");
    command.args(["netns", "exec", &node.name(), "nft", "--json", "list"]);
    ran(command.args(what))
}
