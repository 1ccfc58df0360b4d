//! The cluster's network: namespaces, links, addresses and routes. `services` has the endpoints, `agents` and `nodes`
//! the programs in the namespaces.
//!
//! All of it is inside one [`Network`], which is the router's own network, so nothing remains, however the test ends.
//!
//! ```text
//! pod-a1 10.1.1.2 --+                            +-- the router -- client 203.0.113.2
//! pod-a2 10.1.1.3 --+-- node-a 192.168.16.1 -----+
//! pod-b1 10.1.2.2 --+-- node-b 192.168.16.2 -----+
//! pod-b2 10.1.2.3 --+                            |
//! pod-c1 10.1.3.2 --+-- node-c 192.168.16.3 -----+
//! pod-c2 10.1.3.3 --+
//! ```
//!
//! Every node and pod with an IPv4 address also has an IPv6 address; external addresses are IPv4 only.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;

use support::network::Network;

pub(crate) const NODES: [Node; 3] = [Node { number: 1 }, Node { number: 2 }, Node { number: 3 }];

/// The client outside the cluster.
pub(crate) const CLIENT: &str = "client";

/// The pod networks of all nodes, for IPv4 and IPv6.
pub(crate) const PODS: &str = "10.1.0.0/16";
pub(crate) const PODS_6: &str = "fd10::/16";

/// A node, by its number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) number: u8,
}

impl Node {
    /// Its namespace, and its name in Kubernetes: `node-a`.
    pub(crate) fn name(self) -> String {
        format!("node-{}", self.letter())
    }

    fn letter(self) -> char {
        char::from(b'a' + self.number - 1)
    }

    /// The address for other nodes and the router.
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 16, self.number)
    }

    pub(crate) fn address_6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x16, 0, 0, 0, 0, 0, self.number.into())
    }

    pub(crate) fn pod_subnet(self) -> String {
        format!("10.1.{}.0/24", self.number)
    }

    fn pod_subnet_6(self) -> String {
        format!("fd10:0:0:{}::/64", self.number)
    }

    /// The gateway of its pods.
    fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 1, self.number, 1)
    }

    fn gateway_6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd10, 0, 0, self.number.into(), 0, 0, 0, 1)
    }

    /// Every address that masquerading may use.
    pub(crate) fn own(self) -> [IpAddr; 4] {
        [
            self.address().into(),
            self.gateway().into(),
            self.address_6().into(),
            self.gateway_6().into(),
        ]
    }

    pub(crate) fn pods(self) -> [Pod; 2] {
        [1, 2].map(|number| Pod { node: self, number })
    }

    /// The first of the 64 external addresses that the router sends here.
    pub(crate) fn external(self, number: u8) -> Ipv4Addr {
        assert!(number < 64);
        Ipv4Addr::new(198, 51, 100, (self.number - 1) * 64 + number)
    }
}

/// A pod, by its number from 1 on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pod {
    pub(crate) node: Node,
    number: u8,
}

impl Pod {
    /// Its namespace, and its name in Kubernetes: `pod-a1`.
    pub(crate) fn name(self) -> String {
        format!("pod-{}{}", self.node.letter(), self.number)
    }

    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 1, self.node.number, self.number + 1)
    }

    pub(crate) fn address_6(self) -> Ipv6Addr {
        let subnet = self.node.number.into();
        Ipv6Addr::new(0xfd10, 0, 0, subnet, 0, 0, 0, u16::from(self.number) + 1)
    }
}

/// All six, in order.
pub(crate) fn pods() -> Vec<Pod> {
    NODES.into_iter().flat_map(Node::pods).collect()
}

/// The n-th of the client's many additional addresses.
pub(crate) fn client_address(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low).into()
}

/// The client's own address.
pub(crate) const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
pub(crate) const CLIENT_ADDRESS_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// The router's addresses: on the client's link, and on the bridge of the nodes.
const ROUTER: &str = "203.0.113.1";
const ROUTER_6: &str = "2001:db8::1";
const NODES_ROUTER: &str = "192.168.16.254";
const NODES_ROUTER_6: &str = "fd00:16::fe";

/// The route to cluster addresses for clients outside the cluster: the first node.
const CLUSTER_ADDRESSES: &str = "10.96.0.0/16";

/// Creates all of it.
#[track_caller]
pub(crate) fn network() -> Network {
    let network = Network::start();
    let nodes = NODES.map(Node::name);
    let pods: Vec<String> = pods().into_iter().map(Pod::name).collect();
    let all = || nodes.iter().chain(&pods).map(String::as_str).chain([CLIENT]);
    network.add_pods(all());
    for namespace in all() {
        run(&network, &["ip", "netns", "exec", namespace, "sh", "-c", FORWARD], "");
    }
    run(&network, &["sh", "-c", FORWARD], "");
    run(&network, &["ip", "-batch", "-"], &router());
    run(&network, &["ip", "-netns", CLIENT, "-batch", "-"], &client());
    for node in NODES {
        run(&network, &["ip", "-netns", &node.name(), "-batch", "-"], &of_node(node));
        for pod in node.pods() {
            run(&network, &["ip", "-netns", &pod.name(), "-batch", "-"], &of_pod(pod));
        }
    }
    network
}

/// Forwards packets between links, even from unexpected sources; uses addresses at once, without duplicate detection;
/// `lo` is up.
const FORWARD: &str = "ip link set lo up && cd /proc/sys/net && echo 1 > ipv4/ip_forward && \
    echo 1 > ipv6/conf/all/forwarding && echo 0 > ipv6/conf/default/accept_dad && \
    echo 0 > ipv4/conf/all/rp_filter && echo 0 > ipv4/conf/default/rp_filter";

/// The router's links, and the other end of each in its namespace.
fn router() -> String {
    let mut lines = format!(
        "link add nodes0 type bridge\nlink set nodes0 up\n\
         address add {NODES_ROUTER}/24 dev nodes0\naddress add {NODES_ROUTER_6}/64 dev nodes0\n\
         link add client0 type veth peer name eth0 netns {CLIENT}\nlink set client0 up\n\
         address add {ROUTER}/24 dev client0\naddress add {ROUTER_6}/64 dev client0\n\
         route add 198.18.0.0/16 via {CLIENT_ADDRESS}\n"
    );
    for node in NODES {
        let (name, at, at_6) = (node.name(), node.address(), node.address_6());
        let (external, subnet, subnet_6) = (node.external(0), node.pod_subnet(), node.pod_subnet_6());
        writeln!(lines, "link add {name} type veth peer name eth0 netns {name}").unwrap();
        writeln!(lines, "link set {name} master nodes0 up").unwrap();
        for (to, via) in [(subnet, at.to_string()), (subnet_6, at_6.to_string())] {
            writeln!(lines, "route add {to} via {via} dev nodes0 onlink").unwrap();
        }
        writeln!(lines, "route add {external}/26 via {at} dev nodes0 onlink").unwrap();
    }
    let first = NODES[0].address();
    writeln!(lines, "route add {CLUSTER_ADDRESSES} via {first} dev nodes0 onlink").unwrap();
    lines
}

/// A local route makes every address in it the client's own, without further configuration.
fn client() -> String {
    format!(
        "link set eth0 up\n\
         address add {CLIENT_ADDRESS}/24 dev eth0\naddress add {CLIENT_ADDRESS_6}/64 dev eth0\n\
         route add default via {ROUTER}\nroute add default via {ROUTER_6}\n\
         route add local 198.18.0.0/16 dev lo\n"
    )
}

fn of_node(node: Node) -> String {
    let (at, at_6) = (node.address(), node.address_6());
    let (gateway, gateway_6) = (node.gateway(), node.gateway_6());
    let mut lines = format!(
        "link set eth0 up\naddress add {at}/24 dev eth0\naddress add {at_6}/64 dev eth0\n\
         route add default via {NODES_ROUTER}\nroute add default via {NODES_ROUTER_6}\n"
    );
    for other in NODES.into_iter().filter(|other| *other != node) {
        writeln!(lines, "route add {} via {}", other.pod_subnet(), other.address()).unwrap();
        writeln!(lines, "route add {} via {}", other.pod_subnet_6(), other.address_6()).unwrap();
    }
    for pod in node.pods() {
        let name = pod.name();
        writeln!(lines, "link add {name} type veth peer name eth0 netns {name}").unwrap();
        writeln!(lines, "link set {name} up").unwrap();
        writeln!(lines, "address add {gateway}/32 dev {name}").unwrap();
        writeln!(lines, "address add {gateway_6}/128 dev {name}").unwrap();
        writeln!(lines, "route add {}/32 dev {name}", pod.address()).unwrap();
        writeln!(lines, "route add {}/128 dev {name}", pod.address_6()).unwrap();
    }
    lines
}

/// All traffic goes through its node, even to the pod beside it.
fn of_pod(pod: Pod) -> String {
    let (gateway, gateway_6) = (pod.node.gateway(), pod.node.gateway_6());
    format!(
        "link set eth0 up\n\
         address add {}/32 dev eth0\naddress add {}/128 dev eth0\n\
         route add {gateway} dev eth0\nroute add {gateway_6} dev eth0\n\
         route add default via {gateway}\nroute add default via {gateway_6}\n",
        pod.address(),
        pod.address_6()
    )
}

#[track_caller]
fn run(network: &Network, command: &[&str], stdin: &str) {
    let (program, args) = command.split_first().unwrap();
    let mut child = network.command(program);
    child.args(args).stdin(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}\n{stdin}");
}
