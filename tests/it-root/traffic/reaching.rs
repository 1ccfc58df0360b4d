//! A client that may connect to a Service reaches all of its endpoints and no other pod. Each endpoint gets its share,
//! and the client's address is kept where required.

use needs::needs;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::agents::Agents;
use super::cluster::Cluster;
use super::dialing::{Attempt, Dial};
use super::services::{EMPTY, EXTERNAL, Endpoint, IPV6, LOCAL, NODE_PORT, PLAIN, SINGLE, STICKY, Service};
use super::topology::{CLIENT, CLIENT_ADDRESS, NODES, Node, Pod, client_address, pods};

/// New connections to each Service.
const CONNECTIONS: u32 = 3_000;

/// The allowed distance of an endpoint from its share, in percent of all connections.
const POINTS: f64 = 5.0;

/// How long to wait for an answer where packets are dropped. A later answer goes unnoticed.
const DROPPED_MS: u64 = 2_000;

const TIMED_OUT: &str = "timed out";
const REFUSED: &str = "Connection refused (os error 111)";

#[needs(netns, nft, root)]
#[test]
fn connections_reach_exactly_the_right_pods() {
    let all = || ready(&pods());
    let local = ready(&local_pods());
    let mut cluster = Cluster::start(&[
        (PLAIN, all()),
        (NODE_PORT, all()),
        (EXTERNAL, all()),
        (STICKY, all()),
        (LOCAL, local),
        (IPV6, all()),
        (SINGLE, ready(&[pods()[0]])),
        (EMPTY, vec![(pods()[0], Endpoint::NotReady)]),
    ]);
    let agents = &mut cluster.agents;
    a_cluster_address_is_reached_from_pods_and_nodes(agents, PLAIN);
    a_cluster_address_is_reached_from_pods_and_nodes(agents, IPV6);
    a_node_port_is_reached_at_each_node(agents, NODE_PORT);
    a_node_port_is_reached_at_each_node(agents, IPV6);
    an_external_address_is_reached_through_each_node(agents);
    a_client_stays_with_its_pod(agents);
    local_traffic_stays_at_its_node(agents);
    others_reach_what_is_local_from_inside(agents);
    a_single_endpoint_reaches_itself_and_sees_who_comes(agents);
    a_service_without_endpoints_is_not_served(agents);
    // An endpoint comes, and goes again.
    cluster.set(&[(EMPTY, pods()[0], Endpoint::Ready)]);
    the_only_endpoint_is_reached_from_everywhere(&mut cluster.agents);
    cluster.set(&[(EMPTY, pods()[0], Endpoint::NotReady)]);
    a_service_without_endpoints_is_not_served(&mut cluster.agents);
}

fn ready(pods: &[Pod]) -> Vec<(Pod, Endpoint)> {
    pods.iter().map(|pod| (*pod, Endpoint::Ready)).collect()
}

/// Two on the first node, one on the second, none on the third.
fn local_pods() -> [Pod; 3] {
    let [first, second, _] = NODES.map(Node::pods);
    [first[0], first[1], second[0]]
}

/// A client's place: a pod of a node, a node, or outside.
#[derive(Clone, Copy)]
enum From {
    Pod(Pod),
    Node(Node),
    Outside,
}

impl From {
    /// All pods and all nodes.
    fn inside() -> Vec<Self> {
        let pods = pods().into_iter().map(From::Pod);
        pods.chain(NODES.map(From::Node)).collect()
    }

    fn name(self) -> String {
        match self {
            From::Pod(pod) => pod.name(),
            From::Node(node) => node.name(),
            From::Outside => CLIENT.to_owned(),
        }
    }

    /// Its node, if it has one.
    #[track_caller]
    fn node(self) -> Node {
        match self {
            From::Pod(pod) => pod.node,
            From::Node(node) => node,
            From::Outside => panic!("the client is at no node"),
        }
    }
}

/// The client's identity as a pod may see it.
#[derive(Clone, Copy)]
enum As {
    /// Its own address; a pod that reaches itself has an address of its node.
    Itself,
    /// One of this node's addresses.
    Node(Node),
}

/// Some connections of one client, and its visible identity.
struct Try {
    from: From,
    to: SocketAddr,
    times: u32,
    seen: As,
}

impl Try {
    fn fits(&self, attempt: &Attempt) -> bool {
        let Ok(seen) = &attempt.result else { return false };
        match (self.seen, self.from) {
            (As::Node(node), _) => node.own().contains(&seen.client),
            (As::Itself, From::Pod(pod)) if seen.pod == pod.name() => pod.node.own().contains(&seen.client),
            (As::Itself, From::Pod(pod)) => {
                [IpAddr::from(pod.address()), pod.address_6().into()].contains(&seen.client)
            }
            (As::Itself, From::Node(node)) => node.own().contains(&seen.client),
            (As::Itself, From::Outside) => seen.client == CLIENT_ADDRESS,
        }
    }
}

/// Makes the connections, and counts them by pod.
#[track_caller]
fn reached(agents: &mut Agents, tries: &[Try]) -> BTreeMap<String, u32> {
    let dial = |one: &Try| (one.from.name(), Dial::to(one.to, one.times));
    let attempts = agents.dial(&tries.iter().map(dial).collect::<Vec<_>>());
    let mut reached = BTreeMap::new();
    for (one, attempts) in tries.iter().zip(attempts) {
        assert_eq!(attempts.len(), one.times as usize);
        for attempt in attempts {
            assert!(one.fits(&attempt), "from {}: {attempt:?}", one.from.name());
            *reached.entry(attempt.result.unwrap().pod).or_default() += 1;
        }
    }
    reached
}

/// Checks that each of the pods has its share, and no other pod has one.
#[track_caller]
fn check_shares(reached: &BTreeMap<String, u32>, pods: &[Pod]) {
    let names: Vec<String> = pods.iter().map(|pod| pod.name()).collect();
    assert_eq!(Vec::from_iter(reached.keys()), Vec::from_iter(&names), "{reached:?}");
    let all: u32 = reached.values().sum();
    assert!(all >= CONNECTIONS, "{reached:?}");
    let percent = |count: u32| f64::from(count) * 100.0 / f64::from(all);
    let fair = 100.0 / f64::from(u32::try_from(pods.len()).unwrap());
    let unfair = reached.values().find(|count| (percent(**count) - fair).abs() > POINTS);
    assert_eq!(unfair, None, "{reached:?}");
}

#[track_caller]
fn a_cluster_address_is_reached_from_pods_and_nodes(agents: &mut Agents, service: Service) {
    let clients = From::inside();
    let times = CONNECTIONS.div_ceil(u32::try_from(clients.len()).unwrap());
    let one = |from| Try {
        from,
        to: service.cluster(),
        times,
        seen: As::Itself,
    };
    let tries: Vec<Try> = clients.into_iter().map(one).collect();
    check_shares(&reached(agents, &tries), &pods());
}

/// Connections to an address of this node, which is the client that the pod sees.
fn through_node(from: From, to: SocketAddr, node: Node, times: u32) -> Try {
    let seen = As::Node(node);
    Try { from, to, times, seen }
}

#[track_caller]
fn a_node_port_is_reached_at_each_node(agents: &mut Agents, service: Service) {
    // The pod sees the node where the connection comes in, because answers must return through it.
    let at = |from, node, times| through_node(from, service.node_port(node), node, times);
    let tries = NODES.map(|node| at(From::Outside, node, CONNECTIONS / 3));
    check_shares(&reached(agents, &tries), &pods());
    let from_inside = |from| NODES.map(|node| at(from, node, 10));
    let tries: Vec<Try> = From::inside().into_iter().flat_map(from_inside).collect();
    check_all_are_among(&reached(agents, &tries), &pods());
}

#[track_caller]
fn an_external_address_is_reached_through_each_node(agents: &mut Agents) {
    let at = |from, node, times| through_node(from, EXTERNAL.external(node), node, times);
    let tries = NODES.map(|node| at(From::Outside, node, CONNECTIONS / 3));
    check_shares(&reached(agents, &tries), &pods());
    // Inside, the client's own node answers, whatever the target.
    let from_inside = |from: From| {
        NODES.map(|node| Try {
            seen: As::Node(from.node()),
            ..at(from, node, 10)
        })
    };
    let tries: Vec<Try> = From::inside().into_iter().flat_map(from_inside).collect();
    check_all_are_among(&reached(agents, &tries), &pods());
}

/// Checks that all of the pods were reached, and no other pod.
#[track_caller]
fn check_all_are_among(reached: &BTreeMap<String, u32>, pods: &[Pod]) {
    let names: BTreeSet<String> = pods.iter().map(|pod| pod.name()).collect();
    assert_eq!(reached.keys().cloned().collect::<BTreeSet<_>>(), names, "{reached:?}");
}

#[track_caller]
fn a_client_stays_with_its_pod(agents: &mut Agents) {
    let clients: Vec<IpAddr> = (1..=u16::try_from(CONNECTIONS).unwrap()).map(client_address).collect();
    let mut at = |node: Node, from: &[IpAddr]| -> Vec<String> {
        let dial = Dial {
            from: from.to_vec(),
            ..Dial::to(STICKY.node_port(node), 1)
        };
        let attempts = agents.dial(&[(CLIENT, dial)]).remove(0);
        let seen = attempts.into_iter().map(|attempt| attempt.result.unwrap());
        seen.map(|seen| {
            assert!(node.own().contains(&seen.client), "{seen:?}");
            seen.pod
        })
        .collect()
    };
    let chosen = at(NODES[0], &clients);
    let mut shares = BTreeMap::new();
    for pod in &chosen {
        *shares.entry(pod.clone()).or_default() += 1;
    }
    check_shares(&shares, &pods());
    // Again, and on another node.
    for node in [NODES[0], NODES[2]] {
        assert_eq!(at(node, &clients[..500]), chosen[..500]);
    }
    for from in From::inside() {
        let try_it = Try {
            from,
            to: STICKY.cluster(),
            times: 50,
            seen: As::Itself,
        };
        let reached = reached(agents, &[try_it]);
        assert_eq!(reached.len(), 1, "{reached:?}");
    }
}

#[track_caller]
fn local_traffic_stays_at_its_node(agents: &mut Agents) {
    let [first, second, third] = NODES;
    let outside = |to, times| Try {
        from: From::Outside,
        to,
        times,
        seen: As::Itself,
    };
    for to in [LOCAL.node_port(first), LOCAL.external(first)] {
        check_shares(&reached(agents, &[outside(to, CONNECTIONS)]), &first.pods());
    }
    for to in [LOCAL.node_port(second), LOCAL.external(second)] {
        check_all_are_among(&reached(agents, &[outside(to, 50)]), &second.pods()[..1]);
    }
    for to in [LOCAL.node_port(third), LOCAL.external(third)] {
        let dial = Dial {
            patience_ms: Some(DROPPED_MS),
            ..Dial::to(to, 1)
        };
        assert_eq!(refusals(agents, &[(CLIENT.to_owned(), dial)]), [TIMED_OUT]);
    }
}

/// Pods and nodes are not limited to local endpoints.
#[track_caller]
fn others_reach_what_is_local_from_inside(agents: &mut Agents) {
    let mut tries = Vec::new();
    for from in From::inside() {
        let node = from.node();
        let one = |to, seen| Try {
            from,
            to,
            times: 20,
            seen,
        };
        tries.push(one(LOCAL.cluster(), As::Itself));
        for to in [LOCAL.node_port(node), LOCAL.external(node)] {
            tries.push(one(to, As::Itself));
        }
    }
    check_all_are_among(&reached(agents, &tries), &local_pods());
}

#[track_caller]
fn a_single_endpoint_reaches_itself_and_sees_who_comes(agents: &mut Agents) {
    let pod = pods()[0];
    // Clients outside are not masqueraded for a cluster address either: the router sends it to the pod's node.
    for from in [From::Pod(pod), From::Node(pod.node), From::Outside] {
        let try_it = Try {
            from,
            to: SINGLE.cluster(),
            times: 10,
            seen: As::Itself,
        };
        check_all_are_among(&reached(agents, &[try_it]), &[pod]);
    }
}

/// Every address of [`EMPTY`], with clients that may connect to it.
fn addresses_of_empty() -> Vec<(From, SocketAddr)> {
    let mut all = Vec::new();
    for from in From::inside() {
        let node = from.node();
        let addresses = [EMPTY.cluster(), EMPTY.external(node), EMPTY.node_port(node)];
        all.extend(addresses.map(|to| (from, to)));
    }
    for node in NODES {
        let addresses = [EMPTY.external(node), EMPTY.node_port(node)];
        all.extend(addresses.map(|to| (From::Outside, to)));
    }
    all
}

#[track_caller]
fn a_service_without_endpoints_is_not_served(agents: &mut Agents) {
    let addresses = addresses_of_empty().into_iter();
    let dials: Vec<(String, Dial)> = addresses.map(|(from, to)| (from.name(), Dial::to(to, 1))).collect();
    assert_eq!(refusals(agents, &dials), vec![REFUSED; dials.len()]);
}

#[track_caller]
fn the_only_endpoint_is_reached_from_everywhere(agents: &mut Agents) {
    let addresses = addresses_of_empty().into_iter();
    let dials: Vec<(String, Dial)> = addresses.map(|(from, to)| (from.name(), Dial::to(to, 1))).collect();
    let name = pods()[0].name();
    for attempt in agents.dial(&dials).into_iter().flatten() {
        assert_eq!(attempt.result.as_ref().map(|seen| &seen.pod), Ok(&name), "{attempt:?}");
    }
}

/// The error of each connection.
#[track_caller]
fn refusals(agents: &mut Agents, dials: &[(String, Dial)]) -> Vec<String> {
    let attempts = agents.dial(dials).into_iter().flatten();
    attempts.map(|attempt| attempt.result.unwrap_err()).collect()
}
