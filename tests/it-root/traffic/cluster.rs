//! The cluster: manifests that all nodes read, and a host with its guests on each node.
//!
//! A node has rendered a change once its kernel holds it; the host's output does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{fs, iter, thread};

use serde_json::Value;
use tempfile::TempDir;

use super::agents::Agents;
use super::compiled;
use super::dialing::now_us;
use super::ready::Ready;
use super::ruleset;
use super::services::{self, Endpoint, Service};
use super::topology::{self, NODES, Node, PODS, PODS_6, Pod, pods};
use support::network::Network;
use support::{Ran, Site, Started, ran, wait_until};

/// The address of etcd. The network belongs to the test, so no other process has the port.
const ETCD: &str = "http://127.0.0.1:2379";

/// The size of each manifest. The largest, a slice with all pods, takes about half of it.
const MANIFEST_BYTES: usize = 4_096;

/// Fields drop in order: hosts end before etcd, and all before the network.
pub(crate) struct Cluster {
    pub(crate) agents: Agents,
    /// Which pod was an endpoint of which Service when.
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
    /// Starts one with these Services and their endpoints, and waits until every node has rendered them.
    #[track_caller]
    pub(crate) fn start(services: &[(Service, Vec<(Pod, Endpoint)>)]) -> Self {
        let network = topology::network();
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
            compiled::put(&site);
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
        cluster
    }

    pub(crate) fn endpoint(&self, service: Service, pod: Pod) -> Endpoint {
        let of_service = &self.endpoints[&service];
        of_service.get(&pod).copied().unwrap_or(Endpoint::Absent)
    }

    /// Changes endpoints of different Services in a row, and waits until all nodes have rendered them.
    #[track_caller]
    pub(crate) fn set(&mut self, changes: &[(Service, Pod, Endpoint)]) {
        let begun_us = now_us();
        let mut ended = Vec::new();
        for (service, pod, endpoint) in changes.iter().copied() {
            match (
                self.endpoint(service, pod) == Endpoint::Ready,
                endpoint == Endpoint::Ready,
            ) {
                (false, true) => self.ready.begins(service, pod, now_us()),
                (true, false) => ended.push((service, pod)),
                _ => {}
            }
            let of_service = self.endpoints.get_mut(&service).unwrap();
            of_service.insert(pod, endpoint);
            let (file, content) = service.slice(of_service.clone());
            put(self.folder.path(), &file, &content);
        }
        for (service, _, _) in changes {
            self.wait_until_rendered(*service);
            self.ready.changed(*service, begun_us, now_us());
        }
        for (service, pod) in ended {
            self.ready.ends(service, pod, now_us());
        }
    }

    /// Restarts a node's host without its state, and waits until it has created its tables anew.
    #[track_caller]
    pub(crate) fn start_anew(&mut self, node: Node) {
        let begun_us = now_us();
        let tables =
            |network: &Network| ["ip", "ip6"].map(|family| ruleset::listing(network, node, family).table_handle());
        let before = tables(&self.network);
        let Host { site, running } = self.hosts.remove(&node).unwrap();
        let (ran, _) = running.terminate();
        assert_eq!(ran.code, Some(0), "{ran}");
        fs::remove_dir_all(site.state_dir()).unwrap();
        compiled::put(&site);
        let running = started(&self.network, &site);
        self.hosts.insert(node, Host { site, running });
        self.wait_until(node, "tables made anew", |network| {
            let after = tables(network);
            after[0] != before[0] && after[1] != before[1]
        });
        let services: Vec<Service> = self.endpoints.keys().copied().collect();
        for service in services {
            self.wait_until_rendered(service);
            self.ready.changed(service, begun_us, now_us());
        }
    }

    /// Has a node's host work on a key at once.
    pub(crate) fn reconcile(&self, node: Node, key: &str) -> Ran {
        let site = &self.hosts[&node].site;
        ran(&mut site.command_of(&["reconcile", key, "--config"], &[]))
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

impl Drop for Cluster {
    /// The hosts' output may explain a failed test.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for (node, host) in &self.hosts {
            let (stdout, stderr) = (host.running.stdout(), host.running.stderr());
            println!("--- {} said\n{stdout}--- and on stderr\n{stderr}---", node.name());
        }
    }
}

/// Writes a whole manifest atomically, like an editor. JSON is YAML. All have the same size: a host trusts a file that
/// became smaller only after two seconds.
pub(super) fn put(folder: &Path, file: &str, content: &Value) {
    let draft = folder.join("draft");
    let mut text = content.to_string();
    assert!(text.len() < MANIFEST_BYTES, "{file}: {} bytes", text.len());
    text.extend(iter::repeat_n('\n', MANIFEST_BYTES - text.len()));
    fs::write(&draft, text).unwrap();
    fs::rename(draft, folder.join("manifests").join(file)).unwrap();
}

/// One etcd for all nodes, in the network of their hosts.
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

/// Starts the host. It is in the router's network, and changes its node's network.
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

pub(super) fn configuration(node: Node, manifests: &Path) -> String {
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
