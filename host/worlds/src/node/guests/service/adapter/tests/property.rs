//! Applying looks one by one has the same result as one look at everything, and the events lead there.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trueup_capabilities::bindings::kube::types::Node;

use super::*;
use crate::node::guests::service::{Endpoints, LocalPod, Service};

/// An object, and whether it is valid. There are few names, so that changes collide.
fn object() -> impl Strategy<Value = (Object, bool)> {
    prop_oneof![2 => services(), 4 => slices(), 2 => pods(), 1 => nodes()]
}

fn services() -> impl Strategy<Value = (Object, bool)> {
    let ip = prop_oneof![Just("10.96.0.1"), Just("10.96.0.2"), Just("None")];
    let port = prop_oneof![8 => Just(80), 1 => Just(81), 1 => Just(70_000)];
    ("[abc]", ip, port).prop_map(|(name, ip, port)| {
        let spec = json!({"clusterIP": ip, "ports": [{"name": "http", "port": port}]});
        (service(&name, spec), port < 70_000)
    })
}

fn slices() -> impl Strategy<Value = (Object, bool)> {
    let label = prop_oneof![9 => "[abc]", 1 => ""];
    let family = prop_oneof![9 => Just("IPv4"), 1 => Just("FQDN")];
    let condition = prop_oneof![4 => Just("ready"), 2 => Just("terminating"), 1 => Just("neither")];
    let endpoint_ = (1..5_u8, "[pq]", condition)
        .prop_map(|(last, pod, condition)| endpoint(&format!("10.1.1.{last}"), &pod, condition));
    let name = prop_oneof![Just("http"), Just("admin"), Just("")];
    let number = prop_oneof![9 => 80..82_i32, 1 => Just(70_000)];
    let ports = prop::collection::vec((name, number), 0..3);
    let endpoints = prop::collection::vec(endpoint_, 0..4);
    ("s[123]", label, family, ports, endpoints).prop_map(|(name, label, family, ports, endpoints)| {
        // An unused slice is not read.
        let is_used = !label.is_empty() && family == "IPv4";
        let is_good = !is_used || ports.iter().all(|(_, number)| *number < 70_000);
        let ports: Vec<Value> = ports
            .into_iter()
            .map(|(name, number)| json!({"name": name, "port": number}))
            .collect();
        let patch = json!({"addressType": family, "ports": ports, "endpoints": endpoints});
        (slice_of(&label, &name, patch), is_good)
    })
}

fn pods() -> impl Strategy<Value = (Object, bool)> {
    let node = prop_oneof![3 => Just("node-a"), 1 => Just("node-b")];
    let phase = prop_oneof![3 => Just("Running"), 1 => Just("Succeeded")];
    ("[pqr]", node, phase, any::<bool>(), 0..3_u8).prop_map(|(name, node, phase, on_host, last)| {
        let ip = if last == 0 {
            String::new()
        } else {
            format!("10.1.1.{last}")
        };
        let patch = json!({"spec": {"nodeName": node, "hostNetwork": on_host}, "status": {"phase": phase}});
        (pod(&name, &ip, patch), true)
    })
}

fn nodes() -> impl Strategy<Value = (Object, bool)> {
    ("n[12]", 1..3_u8).prop_map(|(name, last)| (node(&name, &format!("10.0.0.{last}")), true))
}

fn interfaces() -> impl Strategy<Value = Interfaces> {
    let file = || read_interfaces("shop/p: tap-p\nshop/q: eth1\n", "f".as_ref()).unwrap();
    prop_oneof![
        Just(Interfaces::None),
        Just(Interfaces::Pattern(Pattern::parse("tap-{name}").unwrap())),
        Just(Interfaces::File(file())),
    ]
}

/// What appears and disappears, whether the look is complete, and which of the missing objects are really unreadable.
type Step = (Vec<((Object, bool), bool)>, bool, BTreeSet<ObjectRef>);

fn step() -> impl Strategy<Value = Step> {
    let changes = prop::collection::vec((object(), prop::bool::weighted(0.7)), 0..5);
    let unreadable = prop::collection::vec(object().prop_map(|(object, _)| object.reference()), 0..3);
    (changes, prop::bool::weighted(0.7), unreadable)
        .prop_map(|(changes, complete, unreadable)| (changes, complete, unreadable.into_iter().collect()))
}

/// The content of the source, as far as it is known.
#[derive(Default)]
struct Source {
    /// The last valid version by name. `None` if the object exists and was never valid.
    there: BTreeMap<ObjectRef, Option<Object>>,
    /// Missing, but maybe only hidden.
    held: BTreeSet<ObjectRef>,
    interfaces: Interfaces,
    was_complete: bool,
}

impl Source {
    fn look(&mut self, changes: &[((Object, bool), bool)], complete: bool, unreadable: &BTreeSet<ObjectRef>) -> Batch {
        for ((object, is_good), stays) in changes {
            let reference = object.reference();
            if *stays {
                self.held.remove(&reference);
                let known = self.there.entry(reference).or_default();
                if *is_good {
                    *known = Some(object.clone());
                }
            } else if self.there.contains_key(&reference) {
                self.held.insert(reference);
            }
        }
        let is_empty = self.held.len() == self.there.len();
        if complete && !is_empty {
            let (hidden, gone) = std::mem::take(&mut self.held)
                .into_iter()
                .partition(|reference| unreadable.contains(reference));
            self.held = hidden;
            let gone: BTreeSet<ObjectRef> = gone;
            self.there.retain(|reference, _| !gone.contains(reference));
            self.was_complete = true;
        }
        let changes = changes
            .iter()
            .map(|((object, _), stays)| if *stays { is(object.clone()) } else { gone(object) });
        Batch {
            changes: changes.collect(),
            complete,
            unreadable: Arc::new(unreadable.clone()),
            ..Batch::default()
        }
    }

    /// The same in one look.
    fn at_once(&self) -> Cluster {
        let mut cluster = cluster_with(self.interfaces.clone());
        let changes = self.there.values().flatten().cloned().map(is);
        cluster.take_in(&look(changes));
        cluster
    }
}

/// The input that the guests hold.
#[derive(Debug, Default, PartialEq)]
struct Inputs {
    services: BTreeMap<String, Service>,
    endpoints: BTreeMap<String, Endpoints>,
    pods: BTreeMap<String, LocalPod>,
    nodes: BTreeMap<String, Node>,
}

impl Inputs {
    fn of(cluster: &Cluster) -> Self {
        let by = |id: &ObjectId| id.name.clone();
        Self {
            services: cluster.services().into_iter().map(|all| (by(&all.id), all)).collect(),
            endpoints: cluster.endpoints().into_iter().map(|all| (by(&all.id), all)).collect(),
            pods: cluster.local_pods().into_iter().map(|all| (by(&all.id), all)).collect(),
            nodes: cluster
                .kube_nodes()
                .into_iter()
                .map(|all| (all.name.clone(), all))
                .collect(),
        }
    }

    /// Whether the event changes anything.
    fn apply(&mut self, event: &Event) -> bool {
        match event.clone() {
            Event::ServicePut(now) => self.services.insert(now.id.name.clone(), now.clone()) != Some(now),
            Event::ServiceDeleted(id) => self.services.remove(&id.name).is_some(),
            Event::EndpointsPut(now) => self.endpoints.insert(now.id.name.clone(), now.clone()) != Some(now),
            Event::EndpointsDeleted(id) => self.endpoints.remove(&id.name).is_some(),
            Event::PodAdded(now) => self.pods.insert(now.id.name.clone(), now.clone()) != Some(now),
            Event::PodDeleted(id) => self.pods.remove(&id.name).is_some(),
            other => panic!("never told: {other:?}"),
        }
    }

    fn apply_node(&mut self, change: &Change) -> bool {
        match change.clone() {
            Change::KubeNodePut(now) => self.nodes.insert(now.name.clone(), now.clone()) != Some(now),
            Change::KubeNodeDeleted(name) => self.nodes.remove(&name).is_some(),
            other => panic!("never told: {other:?}"),
        }
    }
}

/// The sort order of events: services, then endpoints, then pods; each by name.
fn place(event: &str) -> (usize, String) {
    let (verb, name) = event.split_once(' ').unwrap();
    let kinds = ["service", "endpoints", "pod"];
    let kind = kinds.iter().position(|kind| verb.trim_start_matches('-') == *kind);
    (kind.unwrap(), name.to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn looks_lead_where_one_look_does_and_events_tell_all_of_it(
        steps in prop::collection::vec(step(), 1..14),
        interfaces in interfaces(),
    ) {
        let mut cluster = cluster_with(interfaces.clone());
        let mut source = Source {
            interfaces,
            ..Source::default()
        };
        let mut inputs: Option<Inputs> = None;
        for (changes, complete, unreadable) in steps {
            let before: BTreeSet<String> = cluster.notes().map(str::to_owned).collect();
            let told = cluster.take_in(&source.look(&changes, complete, &unreadable));
            prop_assert_eq!(cluster.is_complete(), source.was_complete);
            let now = Inputs::of(&cluster);
            prop_assert_eq!(&now, &Inputs::of(&source.at_once()));

            let places: Vec<(usize, String)> = short(&told.events).iter().map(|event| place(event)).collect();
            prop_assert!(places.is_sorted_by(|one, other| one < other), "{:?}", places);
            match &mut inputs {
                Some(inputs) => {
                    for event in &told.events {
                        prop_assert!(inputs.apply(event), "no change: {:?}", event);
                    }
                    for change in &told.nodes {
                        prop_assert!(inputs.apply_node(change), "no change: {:?}", change);
                    }
                    prop_assert_eq!(&*inputs, &now);
                }
                None => {
                    prop_assert!(told.events.is_empty() && told.nodes.is_empty());
                    inputs = cluster.is_complete().then_some(now);
                }
            }

            let notes: BTreeSet<String> = cluster.notes().map(str::to_owned).collect();
            let told: BTreeSet<String> = told.notes.into_iter().collect();
            prop_assert!(notes.difference(&before).all(|note| told.contains(note)), "{:?}", told);
        }
    }
}
