//! The Services of these tests, one of each kind that connections can distinguish, and their manifests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};

use super::agent::PORT;
use super::topology::{NODES, Node, Pod};

/// The namespace of everything here.
const NAMESPACE: &str = "traffic";

/// The only port of each Service, and its name.
const SERVICE_PORT: u16 = 80;
const PORT_NAME: &str = "http";

/// A Service. Its number determines its cluster address, external addresses and node port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    number: u8,
    has_node_port: bool,
    /// One on each node.
    has_external_addresses: bool,
    /// External traffic policy: Local.
    is_local: bool,
    /// Session affinity: ClientIP.
    is_sticky: bool,
    is_ipv6: bool,
}

const NONE: Service = Service {
    name: "",
    number: 0,
    has_node_port: false,
    has_external_addresses: false,
    is_local: false,
    is_sticky: false,
    is_ipv6: false,
};

/// With only a cluster address.
pub(crate) const PLAIN: Service = Service {
    name: "plain",
    number: 1,
    ..NONE
};
pub(crate) const NODE_PORT: Service = Service {
    name: "node-port",
    number: 2,
    has_node_port: true,
    ..NONE
};
pub(crate) const EXTERNAL: Service = Service {
    name: "external",
    number: 3,
    has_external_addresses: true,
    ..NONE
};
pub(crate) const STICKY: Service = Service {
    name: "sticky",
    number: 4,
    has_node_port: true,
    is_sticky: true,
    ..NONE
};
pub(crate) const LOCAL: Service = Service {
    name: "local",
    number: 5,
    has_node_port: true,
    has_external_addresses: true,
    is_local: true,
    ..NONE
};
pub(crate) const IPV6: Service = Service {
    name: "six",
    number: 6,
    has_node_port: true,
    is_ipv6: true,
    ..NONE
};
/// With a single endpoint.
pub(crate) const SINGLE: Service = Service {
    name: "single",
    number: 7,
    ..NONE
};
/// With an endpoint that is not ready.
pub(crate) const EMPTY: Service = Service {
    name: "empty",
    number: 8,
    has_node_port: true,
    has_external_addresses: true,
    ..NONE
};

/// Whether and how a pod is in an EndpointSlice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Ready,
    NotReady,
    Absent,
}

impl Service {
    pub(crate) fn cluster(self) -> SocketAddr {
        let address: IpAddr = if self.is_ipv6 {
            Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, self.number.into()).into()
        } else {
            Ipv4Addr::new(10, 96, 0, self.number).into()
        };
        (address, SERVICE_PORT).into()
    }

    /// On one node. The test never asks this of a Service without a node port.
    #[track_caller]
    pub(crate) fn node_port(self, node: Node) -> SocketAddr {
        assert!(self.has_node_port, "{self:?}");
        let address: IpAddr = if self.is_ipv6 {
            node.address_6().into()
        } else {
            node.address().into()
        };
        (address, self.node_port_number()).into()
    }

    fn node_port_number(self) -> u16 {
        30_000 + u16::from(self.number)
    }

    /// The address that the router sends to this node.
    #[track_caller]
    pub(crate) fn external(self, node: Node) -> SocketAddr {
        assert!(self.has_external_addresses, "{self:?}");
        (node.external(self.number), SERVICE_PORT).into()
    }

    /// Whether this is one of its addresses.
    pub(crate) fn is_at(self, address: SocketAddr) -> bool {
        let at = |node| {
            self.has_node_port && self.node_port(node) == address
                || self.has_external_addresses && self.external(node) == address
        };
        self.cluster() == address || NODES.into_iter().any(at)
    }

    /// The file name and the contents.
    pub(crate) fn manifest(self) -> (String, Value) {
        let addresses: Vec<IpAddr> = match self.has_external_addresses {
            true => NODES.map(|node| self.external(node).ip()).into(),
            false => Vec::new(),
        };
        let mut port = json!({"name": PORT_NAME, "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP"});
        if self.has_node_port {
            port["nodePort"] = self.node_port_number().into();
        }
        let mut spec = json!({"type": "ClusterIP", "clusterIP": self.cluster().ip(), "ports": [port]});
        let mut status = json!({});
        if self.is_sticky {
            spec["sessionAffinity"] = "ClientIP".into();
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10_800}});
        }
        if self.is_local {
            spec["type"] = "LoadBalancer".into();
            spec["externalTrafficPolicy"] = "Local".into();
            let ingress: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
            status = json!({"loadBalancer": {"ingress": ingress}});
        } else {
            if self.has_node_port {
                spec["type"] = "NodePort".into();
            }
            spec["externalIPs"] = json!(addresses);
        }
        let content = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": NAMESPACE, "name": self.name},
            "spec": spec, "status": status,
        });
        (format!("service-{}.yaml", self.name), content)
    }

    /// The same for its EndpointSlice.
    pub(crate) fn slice(self, pods: impl IntoIterator<Item = (Pod, Endpoint)>) -> (String, Value) {
        let present = pods.into_iter().filter(|(_, endpoint)| *endpoint != Endpoint::Absent);
        let endpoints: Vec<Value> = present
            .map(|(pod, endpoint)| {
                let is_ready = endpoint == Endpoint::Ready;
                json!({
                    "addresses": [self.address_of(pod)],
                    "conditions": {"ready": is_ready, "serving": is_ready, "terminating": false},
                    "nodeName": pod.node.name(),
                    "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": pod.name()},
                })
            })
            .collect();
        let content = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "namespace": NAMESPACE, "name": format!("{}-1", self.name),
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": if self.is_ipv6 { "IPv6" } else { "IPv4" },
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP"}],
            "endpoints": endpoints,
        });
        (format!("endpoints-{}.yaml", self.name), content)
    }

    fn address_of(self, pod: Pod) -> IpAddr {
        if self.is_ipv6 {
            pod.address_6().into()
        } else {
            pod.address().into()
        }
    }

    /// The family of the table that it is in.
    pub(crate) fn family(self) -> &'static str {
        if self.is_ipv6 { "ip6" } else { "ip" }
    }

    /// The chain that chooses among all of its endpoints, as the renderer's specification names it.
    pub(crate) fn chain(self) -> String {
        format!("svc/{NAMESPACE}/{}/{PORT_NAME}", self.name)
    }

    /// The chain of one endpoint.
    pub(crate) fn endpoint_chain(self, pod: Pod) -> String {
        let address = self.address_of(pod).to_string().replace(':', ".");
        format!("ep/{NAMESPACE}/{}/{PORT_NAME}/{address}/{PORT}", self.name)
    }
}

/// A Node's manifest.
pub(crate) fn node(node: Node) -> (String, Value) {
    let content = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name()},
        "spec": {"podCIDR": node.pod_subnet()},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": node.address()}, {"type": "Hostname", "address": node.name()},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    (format!("{}.yaml", node.name()), content)
}

/// A Pod's manifest.
pub(crate) fn pod(pod: Pod) -> (String, Value) {
    let content = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": pod.name(), "uid": format!("uid-of-{}", pod.name())},
        "spec": {"nodeName": pod.node.name(), "containers": [{"name": "echo", "image": "none"}]},
        "status": {
            "phase": "Running", "podIP": pod.address(),
            "podIPs": [{"ip": pod.address()}, {"ip": pod.address_6()}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    (format!("{}.yaml", pod.name()), content)
}
