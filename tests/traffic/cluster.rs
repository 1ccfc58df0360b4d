//! The cluster: manifests that all nodes read, and at each node a host with its guests.
//!
//! A node has rendered a change when its kernel holds it; what the host prints is not asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::agents::Agents;
use super::dialing::now_us;
use super::ready::Ready;
use super::ruleset::{self, Listing};
use super::services::{self, Endpoint, Service};
use super::topology::{self, NODES, Node, PODS, PODS_6, Pod, pods};
use crate::support::network::Network;
use crate::support::{Site, Started, ran, wait_until};

/// Where etcd answers. The network is the test's own, so that nobody else has the port.
const ETCD: &str = "http://127.0.0.1:2379";

/// A field comes before the next: hosts end before etcd, and all before the network.
pub(crate) struct Cluster {
    pub(crate) agents: Agents,
    /// When who was an endpoint of what.
    pub(crate) ready: Ready,
    endpoints: BTreeMap<Service, BTreeMap<Pod, Endpoint>>,
    hosts: BTreeMap<Node, Host>,
    #[expect(dead_code, reason = "it runs as long as this is there")]
    etcd: Started,
    folder: TempDir,
    pub(crate) network: Network,
}

struct Host {
    site: Site,
    running: Started,
}

impl Cluster {
    /// One with these Services and their endpoints, which every node has rendered. None where such tests are to be skipped.
    #[track_caller]
    pub(crate) fn start(services: &[(Service, Vec<(Pod, Endpoint)>)]) -> Option<Self> {
        let network = topology::network()?;
        ruleset::check_nft();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let of_nodes = NODES.map(services::node);
        let of_pods = pods().into_iter().map(services::pod);
        for (file, content) in of_nodes.into_iter().chain(of_pods) {
            put(folder.path(), &file, &content);
        }
        let mut ready = Ready::default();
        for (service, endpoints) in services {
            let slice = service.slice(endpoints.iter().copied());
            for (file, content) in [service.manifest(), slice] {
                put(folder.path(), &file, &content);
            }
            for (pod, _) in endpoints.iter().filter(|(_, endpoint)| *endpoint == Endpoint::Ready) {
                ready.begins(*service, *pod, now_us());
            }
        }
        let endpoints = services.iter().cloned();
        let endpoints = endpoints.map(|(service, endpoints)| (service, endpoints.into_iter().collect()));
        let etcd = etcd(&network, folder.path());
        let hosts = NODES.map(|node| {
            let site = Site::of(&configuration(node, &folder.path().join("manifests")));
            let running = started(&network, &site);
            (node, Host { site, running })
        });
        let mut cluster = Self {
            agents: Agents::start(&network),
            ready,
            endpoints: endpoints.collect(),
            hosts: hosts.into(),
            etcd,
            folder,
            network,
        };
        for (service, _) in services {
            cluster.wait_until_rendered(*service);
        }
        Some(cluster)
    }

    pub(crate) fn endpoint(&self, service: Service, pod: Pod) -> Endpoint {
        let of_service = &self.endpoints[&service];
        of_service.get(&pod).copied().unwrap_or(Endpoint::Absent)
    }

    /// Changes one endpoint, and waits until all nodes have rendered it.
    #[track_caller]
    pub(crate) fn set(&mut self, service: Service, pod: Pod, endpoint: Endpoint) {
        let was_ready = self.endpoint(service, pod) == Endpoint::Ready;
        let of_service = self.endpoints.get_mut(&service).unwrap();
        of_service.insert(pod, endpoint);
        let (file, content) = service.slice(of_service.clone());
        if endpoint == Endpoint::Ready && !was_ready {
            self.ready.begins(service, pod, now_us());
        }
        put(self.folder.path(), &file, &content);
        self.wait_until_rendered(service);
        if endpoint != Endpoint::Ready && was_ready {
            self.ready.ends(service, pod, now_us());
        }
    }

    /// Ends a node's host and starts it again with nothing of what it knew; waits until it has made its tables anew.
    #[track_caller]
    pub(crate) fn start_anew(&mut self, node: Node) {
        let tables = |network: &Network| ["ip", "ip6"].map(|family| Listing::of(network, node, family).table_handle());
        let before = tables(&self.network);
        let Host { site, running } = self.hosts.remove(&node).unwrap();
        let (ran, _) = running.terminate();
        assert_eq!(ran.code, Some(0), "{ran}");
        fs::remove_dir_all(site.state_dir()).unwrap();
        let running = started(&self.network, &site);
        self.hosts.insert(node, Host { site, running });
        self.wait_until(node, "tables made anew", |network| {
            let after = tables(network);
            after[0] != before[0] && after[1] != before[1]
        });
        let services: Vec<Service> = self.endpoints.keys().copied().collect();
        for service in services {
            self.wait_until_rendered(service);
        }
    }

    #[track_caller]
    fn wait_until_rendered(&mut self, service: Service) {
        let endpoints = &self.endpoints[&service];
        let ready = endpoints.iter().filter(|(_, endpoint)| **endpoint == Endpoint::Ready);
        let wanted: BTreeSet<String> = ready.map(|(pod, _)| service.endpoint_chain(*pod)).collect();
        for node in NODES {
            self.wait_until(node, service.name, |network| {
                let rendered = ruleset::targets(network, node, service);
                rendered.as_ref() == Some(&wanted)
            });
        }
    }

    #[track_caller]
    fn wait_until(&mut self, node: Node, what: &str, mut is_so: impl FnMut(&Network) -> bool) {
        let host = self.hosts.get_mut(&node).unwrap();
        wait_until(&format!("{what} at {}", node.name()), || {
            let ended = host.running.ended();
            assert!(ended.is_none(), "{} ended: {}", node.name(), host.running.stderr());
            is_so(&self.network)
        });
    }
}

/// Puts a manifest there, whole, as an editor does. JSON is YAML.
fn put(folder: &Path, file: &str, content: &Value) {
    let draft = folder.join("draft");
    fs::write(&draft, content.to_string()).unwrap();
    fs::rename(draft, folder.join("manifests").join(file)).unwrap();
}

/// One for all nodes, in the network that their hosts are in.
#[track_caller]
fn etcd(network: &Network, folder: &Path) -> Started {
    assert!(
        Command::new("etcd").arg("--version").output().is_ok(),
        "etcd is not there: apt-get install etcd-server"
    );
    let mut command = network.command("etcd");
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
    let mut started = Started::of(&mut command);
    wait_until("etcd", || {
        assert!(started.ended().is_none(), "etcd ended: {}", started.stderr());
        let mut listening = network.command("ss");
        let listening = ran(listening.args(["-ltnH", "sport = :2379"])).exits(0);
        !listening.stdout.trim().is_empty()
    });
    started
}

/// Starts the host. It is in the router's network: what it changes, it changes in its node's.
fn started(network: &Network, site: &Site) -> Started {
    let host = site.command("run", &[]);
    let mut command = network.command(host.get_program());
    command.args(host.get_args());
    for (name, value) in host.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Started::of(&mut command)
}

fn configuration(node: Node, manifests: &Path) -> String {
    let (name, address, manifests) = (node.name(), node.address(), manifests.display());
    let subnet = node.pod_subnet();
    format!(
        r#"
        [source]
        manifests = "{manifests}"

        [backend.etcd]
        kind = "etcd"
        endpoints = ["{ETCD}"]

        [guests.nodesync]
        use = "builtin:nodesync@1"
        grants = {{ etcd = {{ read = ["/vnf-agent/contiv-ksr/"], write = ["/vnf-agent/contiv-ksr/"] }} }}

        [guests.service]
        use = "builtin:service@1"

        [guests.nftables]
        use = "builtin:nftables@1"
        settings = {{ pod_subnets = ["{PODS}", "{PODS_6}"] }}
        grants = {{ nftables = {{ write = ["ip trueup", "ip6 trueup"] }} }}

        [backend.nftables]
        namespace = "{name}"

        [adapter.node]
        name = "{name}"
        addresses = ["{address}/24"]
        node_ip = "{address}"
        host_ips = ["{address}"]
        pod_subnet_this_node = "{subnet}"
        pod_subnet_all_nodes = "{PODS}"

        [adapter.service]
        renderers = ["nftables"]
        pod_interfaces = "{{name}}"
        "#
    )
}
