//! No connection fails while endpoints change, and after all the changes the kernel's tables equal those of a resync.

use needs::needs;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::agent::{Order, Released};
use super::cluster::Cluster;
use super::ready::Ready;
use super::ruleset;
use super::services::{EXTERNAL, Endpoint, IPV6, LOCAL, NODE_PORT, PLAIN, STICKY, Service};
use super::topology::{CLIENT, NODES, Node, Pod, pods};
use support::network::Listing;

const CHANGES: usize = 200;

/// How many changes come in a row, each of another Service, before the test waits for all nodes: single or in groups,
/// changes must break no connection.
const AT_ONCE: [usize; 4] = [1, 2, 3, 4];

/// How many new connections the kernel itself may refuse: see [`Ready::may_be_refused`].
const REFUSED_BY_THE_KERNEL: usize = 3;

/// The Services that change in turn.
const SERVICES: [Service; 6] = [PLAIN, NODE_PORT, EXTERNAL, STICKY, LOCAL, IPV6];

/// Ready before, during and after the changes: one at each node.
fn healthy() -> [Pod; 3] {
    NODES.map(|node| node.pods()[0])
}

/// The others come and go.
fn changing() -> [Pod; 3] {
    NODES.map(|node| node.pods()[1])
}

#[needs(netns, nft, root)]
#[test]
fn nothing_fails_while_endpoints_change_and_a_resync_makes_the_same_rules() {
    // A held connection starts at a healthy pod: there are no others yet.
    let endpoints: Vec<(Pod, Endpoint)> = healthy().map(|pod| (pod, Endpoint::Ready)).into();
    let mut cluster = Cluster::start(&SERVICES.map(|service| (service, endpoints.clone())));
    let clients = clients();
    for (client, to) in &clients {
        cluster.agents.begin(client, &Order::Hold { to: to.clone() });
        cluster.agents.begin(client, &Order::Churn { to: to.clone() });
    }
    let mut numbers = 0..CHANGES;
    for at_once in AT_ONCE.into_iter().cycle() {
        let some: Vec<usize> = numbers.by_ref().take(at_once).collect();
        if some.is_empty() {
            break;
        }
        let changes: Vec<_> = some.into_iter().map(|number| change(&cluster, number)).collect();
        cluster.set(&changes);
    }
    let after_changes = listings(&cluster);
    // The host replaces tables atomically, so no connection notices this either.
    for node in NODES {
        cluster.start_anew(node);
    }
    let anew = listings(&cluster);
    let released = cluster.agents.release();
    assert_eq!(released.len(), clients.len());
    let mut refused = 0;
    for (client, released) in &released {
        refused += check(client, released, &clients[client], &cluster.ready);
    }
    assert!(refused <= REFUSED_BY_THE_KERNEL, "{refused} refused");
    for (of, listing) in &after_changes {
        check_rules(&format!("{of:?}"), listing, &anew[of]);
    }
}

#[needs(netns, nft, root)]
#[test]
fn flushed_rules_come_back_when_the_operator_reconciles_the_renderer() {
    let endpoints: Vec<(Pod, Endpoint)> = healthy().map(|pod| (pod, Endpoint::Ready)).into();
    let cluster = Cluster::start(&[(PLAIN, endpoints)]);
    let flushed = NODES[0];
    let rules = || ruleset::listing(&cluster.network, flushed, "ip").lines();
    let before = rules();
    for guest in ["nftables", "service"] {
        ruleset::flush(&cluster.network, flushed);
        assert_ne!(rules(), before);
        cluster
            .reconcile(flushed, &format!("{guest}/{}", flushed.name()))
            .exits(0);
        assert_eq!(rules(), before, "{guest}");
    }
    cluster
        .reconcile(flushed, &format!("nodesync/{}", flushed.name()))
        .exits(0);
}

/// The targets of each client: inside, cluster and external addresses and its own node's ports; outside, whatever is
/// reachable there.
fn clients() -> BTreeMap<String, Vec<SocketAddr>> {
    let inside = |node: Node| {
        let cluster = SERVICES.into_iter().map(Service::cluster);
        let ports = [NODE_PORT, STICKY, LOCAL, IPV6].map(|service| service.node_port(node));
        let external = [EXTERNAL, LOCAL].map(|service| service.external(node));
        cluster.chain(ports).chain(external).collect()
    };
    let nodes = NODES.map(|node| (node.name(), inside(node)));
    let pods = pods().into_iter().map(|pod| (pod.name(), inside(pod.node)));
    let at = |node: Node| {
        let ports = [NODE_PORT, STICKY, LOCAL, IPV6].map(|service| service.node_port(node));
        let external = [EXTERNAL, LOCAL].map(|service| service.external(node));
        ports.into_iter().chain(external)
    };
    let outside = NODES.into_iter().flat_map(at).collect();
    let mut clients: BTreeMap<String, Vec<SocketAddr>> = pods.chain(nodes).collect();
    clients.insert(CLIENT.to_owned(), outside);
    clients
}

/// Removes or restores an endpoint: by its absence from the slice, or by marking it as not ready.
fn change(cluster: &Cluster, number: usize) -> (Service, Pod, Endpoint) {
    let service = SERVICES[number % SERVICES.len()];
    let pods = changing();
    // Vary the order.
    let round = number / SERVICES.len();
    let pod = pods[(round + number * round) % pods.len()];
    let endpoint = match cluster.endpoint(service, pod) {
        Endpoint::Absent | Endpoint::NotReady => Endpoint::Ready,
        Endpoint::Ready if number.is_multiple_of(2) => Endpoint::Absent,
        Endpoint::Ready => Endpoint::NotReady,
    };
    (service, pod, endpoint)
}

fn listings(cluster: &Cluster) -> BTreeMap<(Node, &'static str), Listing> {
    let families = |node| ["ip", "ip6"].map(|family| (node, family));
    let all = NODES.into_iter().flat_map(families);
    all.map(|(node, family)| ((node, family), ruleset::listing(&cluster.network, node, family)))
        .collect()
}

#[track_caller]
fn check_rules(of: &str, after_changes: &Listing, anew: &Listing) {
    assert_ne!(
        after_changes.table_handle(),
        anew.table_handle(),
        "{of} was not made anew"
    );
    let (after_changes, anew) = (after_changes.lines(), anew.lines());
    let rules = after_changes.iter().filter(|line| line.starts_with("rule ")).count();
    assert!(rules > 20, "{of}: {after_changes:#?}");
    let lacks = |these: &[String], those: &[String]| -> Vec<String> {
        let lacking = these.iter().filter(|line| !those.contains(line));
        lacking.cloned().collect()
    };
    let differences = (lacks(&after_changes, &anew), lacks(&anew, &after_changes));
    assert_eq!(
        differences,
        (vec![], vec![]),
        "{of}: only after the changes, and only anew"
    );
    // Also in the same order.
    assert_eq!(after_changes, anew, "{of}");
}

/// Checks that no connection of this client failed, and that each reached an allowed pod. Returns how many the kernel
/// may have refused.
#[track_caller]
fn check(client: &str, released: &Released, to: &[SocketAddr], ready: &Ready) -> usize {
    assert_eq!(released.held.len(), to.len());
    for held in &released.held {
        let exchanges = held.exchanges.as_ref().copied();
        assert!(exchanges.is_ok_and(|exchanges| exchanges > 1), "{client}: {held:?}");
        assert!(healthy().iter().any(|pod| pod.name() == held.pod), "{client}: {held:?}");
    }
    let mut refused = 0;
    for attempt in &released.churned {
        let service = SERVICES.into_iter().find(|service| service.is_at(attempt.to)).unwrap();
        if ready.may_be_refused(service, attempt) {
            refused += 1;
            continue;
        }
        assert!(
            ready.allows(service, attempt),
            "{client}, {}: {attempt:?}",
            service.name
        );
    }
    let reached = |to| released.churned.iter().any(|attempt| attempt.to == to);
    assert!(to.iter().copied().all(reached), "{client} did not come to each address");
    refused
}
