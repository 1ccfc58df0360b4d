//! The contents of a node's kernel, as nft lists them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::services::Service;
use super::topology::Node;
use support::network::Network;
use support::{Ran, ran};

const TABLE: &str = "trueup";

/// A table with its contents.
pub(crate) struct Listing {
    objects: Vec<(String, Value)>,
}

impl Listing {
    /// Empty if there is no such table.
    #[track_caller]
    pub(crate) fn of(network: &Network, node: Node, family: &str) -> Self {
        Self::read(&nft(network, node, &["table", family, TABLE]))
    }

    #[track_caller]
    fn read(ran: &Ran) -> Self {
        if ran.code != Some(0) {
            assert!(ran.stderr.contains("No such file or directory"), "{ran}");
            return Self { objects: Vec::new() };
        }
        let objects = ran.json()["nftables"].as_array().unwrap().clone();
        let objects = objects.iter().flat_map(|object| object.as_object().unwrap().clone());
        let objects = objects.filter(|(kind, _)| kind != "metainfo").collect();
        Self { objects }
    }

    /// A number that changes with every new table, even one of the same name.
    pub(crate) fn table_handle(&self) -> Option<u64> {
        let (_, table) = self.objects.iter().find(|(kind, _)| kind == "table")?;
        table["handle"].as_u64()
    }

    /// A line for each object, without handles: chains, sets and their elements sorted, rules in the order of their
    /// chain.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, content) in &self.objects {
            let mut content = content.clone();
            content.as_object_mut().unwrap().remove("handle");
            if let Some(elements) = content.get_mut("elem").and_then(Value::as_array_mut) {
                elements.sort_by_key(Value::to_string);
            }
            let chain = content["chain"].as_str().unwrap_or_default().to_owned();
            // The stable sort keeps a chain's rules in order.
            let order = if kind == "rule" { chain } else { content.to_string() };
            lines.push((kind.clone(), order, content));
        }
        lines.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        lines
            .into_iter()
            .map(|(kind, _, content)| format!("{kind} {content}"))
            .collect()
    }
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
