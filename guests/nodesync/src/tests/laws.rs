//! Properties of any sequence of changes: `update` reports exactly how the nodes changed, and the view is that of a
//! plain model, which keeps lists and walks over all of them.

use std::collections::BTreeMap;
use trueup_guest::Guest as _;

use proptest::prelude::*;
use proptest::sample::select;

use super::{CONFIG, instance, kube, line, record, state};
use crate::bindings::exports::trueup::nodesync::node_sync::{Change, ClusterState, Error};
use crate::bindings::trueup::nodesync::types::{IpVersion, Node};
use crate::simulated::Simulation;

/// How many sequences to try; `PROPTEST_CASES` sets more.
const CASES: u32 = 400;
const OWN_ID: u32 = 2;

const NAMES: [&str; 5] = ["a", "b", "c", "me", ""];
/// Two spellings of one address, and an invalid one.
const ADDRESSES: [&str; 6] = [
    "",
    "10.0.0.1/24",
    "10.0.0.1/24 fd00::1/64",
    "FD00:0::1/64 10.0.0.1/24 x",
    "10.0.0.1/8",
    "10.0.0.9",
];
const MANAGEMENT: [&str; 4] = ["", "10.9.0.1", "10.9.0.1 ::ffff:10.9.0.1 x", "10.9.0.2 10.9.0.1"];
const PODS: [&str; 4] = ["", "10.1.0.0/24", "10.1.0.7/24", "10.1.0.0/33"];

#[derive(Clone, Debug)]
enum Step {
    Record(u32, &'static str, &'static str),
    RecordGone(u32),
    Kube(&'static str, &'static str, &'static str),
    KubeGone(&'static str),
    Publish(&'static str),
    /// A new instance takes over the snapshot.
    Carry,
    /// A resync with everything.
    Resync,
}

fn a_step() -> impl Strategy<Value = Step> {
    let name = || select(&NAMES[..]);
    prop_oneof![
        6 => (0..6_u32, name(), select(&ADDRESSES[..])).prop_map(|(id, name, addresses)| Step::Record(id, name, addresses)),
        3 => (0..6_u32).prop_map(Step::RecordGone),
        3 => (name(), select(&MANAGEMENT[..]), select(&PODS[..])).prop_map(|(name, management, pods)| Step::Kube(name, management, pods)),
        2 => name().prop_map(Step::KubeGone),
        1 => select(&["10.0.0.2/8", "10.0.0.3/8 10.0.0.2/8", ""][..]).prop_map(Step::Publish),
        1 => Just(Step::Carry),
        1 => Just(Step::Resync),
    ]
}

/// The inputs as lists, and what follows from them.
#[derive(Default)]
struct Model {
    /// Without this node's record.
    records: Vec<(u32, &'static str, &'static str)>,
    nodes: Vec<(&'static str, &'static str, &'static str)>,
    own: &'static str,
}

impl Model {
    /// What a fresh instance would report after one resync with everything.
    fn all_nodes(&self) -> Vec<Node> {
        let mut fresh = instance(CONFIG);
        fresh.resync(&mut Simulation::default(), self.state()).unwrap();
        fresh.all_nodes()
    }

    fn state(&self) -> ClusterState {
        let mut records = self.records.clone();
        records.push((OWN_ID, "me", self.own));
        state(&records, &self.nodes)
    }

    /// `id name`, by the rules alone.
    fn ids(&self) -> Vec<String> {
        let mut lowest: BTreeMap<&str, u32> = BTreeMap::from([("me", OWN_ID)]);
        for &(id, name, _) in &self.records {
            let known = lowest.entry(name).or_insert(id);
            *known = id.min(*known);
        }
        lowest.iter().map(|(name, id)| format!("{id} {name}")).collect()
    }

    fn put(&mut self, id: u32, name: &'static str, addresses: &'static str) {
        if id == 0 || name.is_empty() {
            return;
        }
        if id == OWN_ID {
            if name == "me" {
                self.own = addresses;
            }
            return;
        }
        self.records.retain(|record| record.0 != id);
        if name != "me" {
            self.records.push((id, name, addresses));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn updates_tell_exactly_what_changed(steps in prop::collection::vec(a_step(), 0..60)) {
        let (mut model, mut world, mut node_sync) = (Model::default(), Simulation::default(), instance(CONFIG));
        node_sync.resync(&mut world, model.state()).unwrap();
        // What a listener to the updates alone would know.
        let mut heard: BTreeMap<String, Node> = node_sync.all_nodes().into_iter().map(|node| (node.name.clone(), node)).collect();
        for step in steps {
            let change = match step {
                Step::Record(id, name, addresses) => {
                    model.put(id, name, addresses);
                    Change::VppNodePut(record(&(id, name, addresses)))
                }
                Step::RecordGone(id) => {
                    model.records.retain(|record| record.0 != id);
                    Change::VppNodeDeleted(id)
                }
                Step::Kube(name, management, pods) => {
                    model.nodes.retain(|node| node.0 != name);
                    model.nodes.push((name, management, pods));
                    Change::KubeNodePut(kube(&(name, management, pods)))
                }
                Step::KubeGone(name) => {
                    model.nodes.retain(|node| node.0 != name);
                    Change::KubeNodeDeleted(name.to_owned())
                }
                Step::Publish(addresses) => {
                    let list: Vec<String> = addresses.split_whitespace().map(str::to_owned).collect();
                    prop_assert!(node_sync.publish_node_ips(&mut world, &list, IpVersion::Ipv4).is_ok());
                    continue;
                }
                Step::Carry => {
                    let snapshot = node_sync.snapshot();
                    node_sync = instance(CONFIG);
                    node_sync.restore(&mut world, &snapshot).unwrap();
                    prop_assert_eq!(node_sync.snapshot(), snapshot);
                    continue;
                }
                Step::Resync => {
                    let before = node_sync.all_nodes();
                    node_sync.resync(&mut world, model.state()).unwrap();
                    let others = |nodes: &[Node]| nodes.iter().filter(|node| node.name != "me").map(line).collect::<Vec<_>>();
                    prop_assert_eq!(others(&before), others(&node_sync.all_nodes()), "a resync of what is known changes nothing");
                    continue;
                }
            };
            let is_own = !matches!(change, Change::KubeNodePut(_) | Change::KubeNodeDeleted(_));
            let is_theft = matches!(&change, Change::VppNodePut(node) if node.id == OWN_ID && !["me", ""].contains(&node.name.as_str()));
            let updates = match node_sync.update(&mut world, change) {
                Err(error) => {
                    prop_assert!(is_theft && matches!(error, Error::IdTaken(_)), "{:?}", error);
                    continue;
                }
                Ok(updates) => updates,
            };
            prop_assert!(!is_theft);
            prop_assert!(updates.is_sorted_by(|one, other| one.node_name < other.node_name));
            for update in updates {
                prop_assert!(update.prev != update.new, "nothing changed");
                prop_assert!(update.node_name != "me" || !is_own, "only kube changes of this node are reported");
                let known = heard.get(&update.node_name).cloned();
                // The database reports this node's publishing to the others, not to itself.
                prop_assert!(known == update.prev || update.node_name == "me");
                match update.new {
                    Some(new) => heard.insert(update.node_name, new),
                    None => heard.remove(&update.node_name),
                };
            }
            let now: Vec<Node> = node_sync.all_nodes();
            let short: Vec<String> = now.iter().map(|node| format!("{} {}", node.id, node.name)).collect();
            prop_assert_eq!(short, model.ids());
            let others = |nodes: Vec<Node>| nodes.into_iter().filter(|node| node.name != "me").collect::<Vec<_>>();
            let now = others(now);
            prop_assert_eq!(&others(heard.values().cloned().collect()), &now);
            prop_assert_eq!(others(model.all_nodes()), now);
        }
    }
}
