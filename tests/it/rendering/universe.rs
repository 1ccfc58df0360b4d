//! A small cluster in which everything interacts: two namespaces, four services, four pods, few addresses.
//!
//! Addresses have several spellings, and some are invalid; objects come, change, come twice and go.

use proptest::prelude::*;
use proptest::sample::select;
use trueup_worlds::node::guests::nodesync::Node;
use trueup_worlds::node::guests::service::{
    CustomInterface, CustomIpAllocation, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Event, LocalPod,
    NodeContext, ObjectId, Protocol, Service, ServicePort, State,
};

use super::nat::Settings;
use super::stores::Fate;

/// Addresses behind services: local pods, remote pods, hosts, neither, and invalid ones.
const IPS: &[&str] = &[
    "10.1.1.2",
    "10.1.1.3",
    "10.1.1.4",
    "::ffff:10.1.1.2",
    "10.1.2.2",
    "10.1.2.10",
    "192.168.16.1",
    "192.168.16.2",
    "172.30.1.1",
    "9.9.9.9",
    "fd00:1::2",
    "FD00:1:0:0::2",
    "fd00:1:0:1::3",
    "010.1.1.2",
    "",
];

/// An event, or the host's work between two events.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Event(Event),
    /// A resync with everything.
    Resync(State),
    /// The retry timer fires.
    Retry,
}

pub(crate) fn steps(at_most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        24 => event().prop_map(Step::Event),
        1 => state().prop_map(Step::Resync),
        3 => Just(Step::Retry),
    ];
    prop::collection::vec(step, 1..at_most)
}

pub(crate) fn fates(at_most: usize) -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![5 => Just(Fate::Done), 1 => Just(Fate::Refused), 1 => Just(Fate::Lost)];
    prop_oneof![1 => Just(Vec::new()), 3 => prop::collection::vec(fate, 1..at_most)]
}

/// One of them, as text.
fn text(texts: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    select(texts).prop_map(str::to_owned)
}

fn texts(texts: &'static [&'static str], at_most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(texts), 0..=at_most)
}

fn service_id() -> impl Strategy<Value = ObjectId> {
    select(vec![
        ("default", "web"),
        ("default", "db"),
        ("other", "web"),
        ("other", "a-1.x"),
    ])
    .prop_map(id)
}

fn pod_id() -> impl Strategy<Value = ObjectId> {
    select(vec![
        ("default", "p1"),
        ("default", "p2"),
        ("other", "p1"),
        ("other", "p3"),
    ])
    .prop_map(id)
}

fn id((namespace, name): (&str, &str)) -> ObjectId {
    ObjectId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![3 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 1 => Just(Protocol::Sctp)]
}

fn port_name() -> impl Strategy<Value = String> {
    text(&["http", "http", "dns", "", "a/b:\"ü\""])
}

fn service() -> impl Strategy<Value = Service> {
    let port = (
        port_name(),
        protocol(),
        select(vec![80_u16, 80, 53, 443, 0]),
        select(vec![0_u16, 30080, 30053]),
    );
    let port = port.prop_map(|(name, protocol, port, node_port)| ServicePort {
        name,
        protocol,
        port,
        node_port,
    });
    (
        service_id(),
        text(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName"]),
        text(&[
            "10.96.0.1",
            "10.96.0.1",
            "10.96.0.2",
            "10.96.0.10",
            "fd00:96::1",
            "None",
            "",
            "10.96.0",
        ]),
        texts(&["20.0.0.10", "20.0.0.2", "2001:DB8::1", "::ffff:20.0.0.2", "no"], 3),
        texts(&["20.0.0.2", "20.0.0.3", ""], 2),
        text(&["Cluster", "Local", "Local", "local", ""]),
        (text(&["None", "ClientIP", ""]), select(vec![0_u32, 10, 10_800])),
        prop::collection::vec(port, 0..4),
    )
        .prop_map(
            |(id, service_type, cluster_ip, external_ips, lb_ingress_ips, policy, affinity, ports)| Service {
                id,
                service_type,
                cluster_ip,
                external_ips,
                lb_ingress_ips,
                external_traffic_policy: policy,
                session_affinity: affinity.0,
                session_affinity_timeout_s: affinity.1,
                ports,
            },
        )
}

fn endpoints() -> impl Strategy<Value = Endpoints> {
    let address = (text(IPS), prop::option::of(pod_id())).prop_map(|(ip, target_pod)| EndpointAddress {
        ip,
        node_name: "node-a".to_owned(),
        target_pod,
    });
    let port = (port_name(), protocol(), select(vec![8080_u16, 8080, 53, 0]));
    let port = port.prop_map(|(name, protocol, port)| EndpointPort { name, protocol, port });
    let subset = (prop::collection::vec(address, 0..4), prop::collection::vec(port, 0..4));
    let subset = subset.prop_map(|(addresses, ports)| EndpointSubset { addresses, ports });
    (service_id(), prop::collection::vec(subset, 0..3)).prop_map(|(id, subsets)| Endpoints { id, subsets })
}

/// A service that concerns every renderer, and its endpoints, which belong to no known pod.
pub(crate) fn web() -> (Service, Endpoints) {
    let port = || "http".to_owned();
    let service = Service {
        id: id(("default", "web")),
        service_type: "ClusterIP".to_owned(),
        cluster_ip: "10.96.0.1".to_owned(),
        external_ips: Vec::new(),
        lb_ingress_ips: Vec::new(),
        external_traffic_policy: "Cluster".to_owned(),
        session_affinity: "None".to_owned(),
        session_affinity_timeout_s: 0,
        ports: vec![ServicePort {
            name: port(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
    };
    let subset = EndpointSubset {
        addresses: vec![EndpointAddress {
            ip: "10.1.2.2".to_owned(),
            node_name: "node-b".to_owned(),
            target_pod: None,
        }],
        ports: vec![EndpointPort {
            name: port(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
    };
    let endpoints = Endpoints {
        id: service.id.clone(),
        subsets: vec![subset],
    };
    (service, endpoints)
}

fn pod() -> impl Strategy<Value = LocalPod> {
    let interface = prop::option::of(text(&["tap-1", "tap-2", "tap-\"ü", "main0", ""]));
    (pod_id(), text(IPS), interface).prop_map(|(id, ip, interface_name)| LocalPod { id, ip, interface_name })
}

fn allocation() -> impl Strategy<Value = CustomIpAllocation> {
    let interface = (
        prop::option::of(text(&["memif-1", "memif-2", "tap-1", ""])),
        text(&["", "default", "blue"]),
        text(&[
            "10.1.1.9/24",
            "10.1.2.9",
            "192.168.16.1/24",
            "10.1.1.3",
            "fd00:1::9/64",
            "10.1.1",
            "",
        ]),
        any::<bool>(),
    );
    let interface = interface.prop_map(|(interface_name, network, ip, service_endpoint)| CustomInterface {
        name: "eth1".to_owned(),
        interface_name,
        network,
        ip,
        service_endpoint,
    });
    (pod_id(), prop::collection::vec(interface, 0..4))
        .prop_map(|(pod, interfaces)| CustomIpAllocation { pod, interfaces })
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let vpp = texts(
        &[
            "192.168.16.1/24",
            "192.168.16.2/24",
            "192.168.16.10/24",
            "fd00::1/64",
            "no/24",
        ],
        2,
    );
    let mgmt = texts(&["172.30.1.1", "172.30.1.2", "192.168.16.2", ""], 2);
    let node = (0_u32..3, text(&["node-a", "node-b"]), vpp, mgmt);
    let node = node.prop_map(|(id, name, vpp_ip_addresses, mgmt_ip_addresses)| Node {
        id,
        name,
        vpp_ip_addresses,
        mgmt_ip_addresses,
        pod_cidr: String::new(),
    });
    prop::collection::vec(node, 0..3)
}

fn context() -> impl Strategy<Value = NodeContext> {
    (
        text(&["192.168.16.1", "192.168.16.1", "fd00:1:0:1::3", ""]),
        texts(&["172.30.1.1", "192.168.16.1", "9.9.9.9", "no"], 2),
        text(&[
            "10.1.1.0/24",
            "10.1.1.0/24",
            "10.1.1.7/24",
            "fd00:1::/64",
            "10.1.1.0",
            "",
        ]),
        text(&["10.1.0.0/16", "10.1.0.0/16", "fd00:1::/48", ""]),
        text(&["main0", "main0", ""]),
        texts(&["other0", "other1", "main0", ""], 2),
        text(&["vxlan0", ""]),
        text(&["tap-0", ""]),
    )
        .prop_map(
            |(node_ip, host_ips, this, all, main, other_interfaces, vxlan, interconnect)| NodeContext {
                node_ip,
                host_ips,
                pod_subnet_this_node: this,
                pod_subnet_all_nodes: all,
                main_interface: main,
                other_interfaces,
                vxlan_bvi_interface: vxlan,
                host_interconnect_interface: interconnect,
            },
        )
}

/// A whole state; an id may be there twice.
pub(crate) fn state() -> impl Strategy<Value = State> {
    (
        context(),
        nodes(),
        prop::collection::vec(pod(), 0..4),
        prop::collection::vec(pod(), 0..3),
        prop::collection::vec(endpoints(), 0..5),
        prop::collection::vec(service(), 0..5),
        prop::collection::vec(allocation(), 0..3),
    )
        .prop_map(
            |(context, nodes, local_pods, remote_pods, endpoints, services, ip_allocations)| State {
                context,
                nodes,
                local_pods,
                remote_pods,
                endpoints,
                services,
                ip_allocations,
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => service().prop_map(Event::ServicePut),
        2 => service_id().prop_map(Event::ServiceDeleted),
        6 => endpoints().prop_map(Event::EndpointsPut),
        2 => service_id().prop_map(Event::EndpointsDeleted),
        3 => allocation().prop_map(Event::IpAllocationPut),
        3 => pod().prop_map(Event::PodAdded),
        2 => pod_id().prop_map(Event::PodDeleted),
        2 => pod().prop_map(Event::RemotePodPut),
        1 => pod_id().prop_map(Event::RemotePodDeleted),
        2 => nodes().prop_map(Event::Nodes),
    ]
}

/// All settings of `nat44`.
pub(crate) fn nat44_settings() -> impl Strategy<Value = Settings> {
    let interface = (
        select(vec!["other0", "other1", "main0", "nowhere"]),
        prop::collection::vec(select(vec!["10.9.0.1/16", "192.168.16.9/24", "172.30.1.1/30"]), 0..3),
    );
    (
        (
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.85),
            any::<bool>(),
            any::<bool>(),
        ),
        (
            select(vec![1_u8, 2, 255]),
            select(vec![0_u32, 1, 4_294_967_294]),
            select(vec![1_u32, 0, 2]),
        ),
        select(vec!["vxlan", "vxlan", "nooverlay", "srv6"]),
        select(vec!["", "10.1.1.0/24", "10.1.1.7/24"]),
        select(vec!["192.168.16.1/24", "192.168.16.1/24", "10.9.0.7/16", ""]),
        prop::collection::vec(select(vec!["172.30.1.1", "192.168.16.1", "9.9.9.9"]), 0..3),
        select(vec!["main0", "main0", ""]),
        prop::collection::vec(interface, 0..3),
        select(vec!["192.168.16.254", "10.9.0.254", "1.1.1.1", ""]),
        (prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
    )
        .prop_map(
            |(flags, numbers, transport, subnet, node_ip, host_ips, main_interface, others, gateway, modes)| Settings {
                snat_only: flags.0,
                nat_external_traffic: flags.1,
                service_local_endpoint_weight: numbers.0,
                main_vrf_id: numbers.1,
                pod_vrf_id: numbers.2,
                node_to_node_transport: transport,
                pod_subnet_this_node: subnet,
                node_ip,
                host_ips,
                main_interface,
                other_interfaces: others,
                default_gateway: gateway,
                stn_mode: modes.0,
                use_dhcp: modes.1,
                disable_nat_virtual_reassembly: flags.2,
                leaves_defaults_out: flags.3,
            },
        )
}
