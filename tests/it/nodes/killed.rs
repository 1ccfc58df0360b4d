//! The test kills the host of a node (`kill -9`) repeatedly, and edits everything while it is down: afterwards the
//! node's number and addresses, its kernel's packet filter and its agent's configuration are exactly those of the
//! manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use needs::needs;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::manifests::{self, Manifests};
use super::site::{Config, Host};
use super::store::Etcd;
use support::kills::{self, converge};
use support::network::{Listing, Network};
use support::{Site, Started, ran};

/// How often to kill the host, unless the variable `KILL_TEST_MOMENTS` sets another number.
const MOMENTS: u32 = 12;

/// The latest time of a kill after the start: on a slow machine the work takes about as long.
const WORK_MS: u64 = 1_500;

/// The contents of the folder of manifests.
struct Wish {
    /// Name to the last number of its address; `node-a` among them.
    nodes: BTreeMap<String, u8>,
    services: BTreeMap<String, Service>,
}

struct Service {
    /// The last number of its cluster IP.
    last: u8,
    /// 0 means none.
    node_port: u16,
    /// The last numbers of its endpoints' addresses.
    pods: BTreeSet<u8>,
}

impl Wish {
    fn add_service(&mut self, name: &str, random: &mut ChaCha8Rng) {
        let is_free = |last: &u8| self.services.values().all(|service| service.last != *last);
        let last = (1..).find(is_free).unwrap();
        let service = Service {
            last,
            node_port: 30_000 + u16::from(last),
            pods: [random.random_range(2..9)].into(),
        };
        self.services.insert(name.to_owned(), service);
    }
}

impl kills::Wish for Wish {
    fn edit(&mut self, random: &mut ChaCha8Rng) {
        // Names come back, too.
        let other = format!("s{}", random.random_range(1..6));
        let name = self.services.keys().nth(random.random_range(0..self.services.len()));
        let name = name.unwrap().clone();
        let (is_free, is_one) = (!self.services.contains_key(&other), self.services.len() == 1);
        let service = self.services.get_mut(&name).unwrap();
        match random.random_range(0..8) {
            0 if is_free => self.add_service(&other, random),
            1 if !is_one => _ = self.services.remove(&name),
            2 if is_free => {
                // The same cluster IP and node port under another name.
                let renamed = self.services.remove(&name).unwrap();
                self.services.insert(other, renamed);
            }
            3 => service.node_port = random.random_range(0..2) * (30_000 + 10 * u16::from(service.last)),
            4 if service.pods.len() > 1 => _ = service.pods.pop_first(),
            5 => _ = self.nodes.insert("node-a".to_owned(), random.random_range(1..4)),
            6 if self.nodes.remove("node-b").is_none() => {
                self.nodes.insert("node-b".to_owned(), random.random_range(4..8));
            }
            _ => _ = service.pods.insert(random.random_range(2..9)),
        }
    }

    fn manifests(&self) -> String {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|(name, last)| manifests::node(name, &format!("172.30.1.{last}")));
        let services = self.services.iter().flat_map(|(name, service)| {
            let pods: Vec<String> = service.pods.iter().map(|pod| format!("10.1.1.{pod}")).collect();
            [
                manifests::service(name, service.last, service.node_port),
                manifests::endpoints(name, &pods),
            ]
        });
        nodes.chain(services).collect::<Vec<_>>().join("---\n")
    }
}

/// A node: its host, its kernel, and its store.
struct Place {
    host: Host,
    manifests: Manifests,
    network: Network,
    etcd: Etcd,
}

impl Place {
    fn new() -> Self {
        let (manifests, network, etcd) = (Manifests::new(), Network::start(), Etcd::start());
        let config = Config::new("node-a", &manifests).against(&etcd.url()).numbered();
        let config = config.publishing(&["192.168.16.1/24"]).serving(&["nftables", "nat44"]);
        let nft = manifests.folder().join(".nft");
        let entering = network.command("nft");
        let words: Vec<_> = entering.get_args().map(|word| word.to_str().unwrap()).collect();
        fs::write(&nft, format!("#!/bin/sh\nexec nsenter {} \"$@\"\n", words.join(" "))).unwrap();
        fs::set_permissions(&nft, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            host: Host::new(config.filtering(nft)),
            manifests,
            network,
            etcd,
        }
    }

    fn nft(&self, args: &[&str]) -> support::Ran {
        ran(self.network.command("nft").args(args)).exits(0)
    }
}

impl kills::Place for Place {
    fn site(&self) -> &Site {
        &self.host.site
    }

    fn put(&self, manifests: &str) {
        self.manifests.put("all.yaml", manifests);
    }

    fn held(&self) -> Option<Vec<String>> {
        let filter = Listing::read(&self.nft(&["--json", "list", "ruleset"]));
        let stored = self.etcd.under("/").into_iter();
        let stored = stored.map(|(key, value)| format!("{key} {value}"));
        Some(stored.chain(filter.lines()).collect())
    }

    fn empty(&mut self) {
        self.etcd.clear();
        self.nft(&["flush", "ruleset"]);
    }

    fn strike(&mut self, args: &[&str], random: &mut ChaCha8Rng) -> Started {
        let host = self.site().start("run", args);
        kills::sleep_at_most(WORK_MS, random);
        host
    }
}

#[needs(etcd, netns, nft, root)]
#[test]
fn a_killed_host_renders_what_was_edited_meanwhile() {
    let service = |last| Service {
        last,
        node_port: 30_000 + u16::from(last),
        pods: [last].into(),
    };
    let wish = Wish {
        nodes: [("node-a".to_owned(), 1)].into(),
        services: [("s1".to_owned(), service(1)), ("s2".to_owned(), service(2))].into(),
    };
    converge(wish, [(), ()].map(|()| Place::new()), MOMENTS);
}
