//! The tests kill the host (`kill -9`) repeatedly while it creates, changes and destroys a load balancer's objects.
//! After each restart everything converges: no object exists twice, none is without an owner, and none is missing.
//!
//! The Engine is a simulated one in its own process. It is slow enough that kills interrupt work at every point, most
//! of all between a creation and its tagging. The desired state changes between a kill and the restart: the host finds
//! and tags an object without a tag before anything else, and destroys it if it is no longer desired.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use support::kills::{self, converge};
use support::{Engine, Site, Started, described, ran};

/// How often to kill each version of the guest, unless the variable `KILL_TEST_MOMENTS` sets another number.
const MOMENTS: u32 = 20;

/// The latest time of a kill after the host's first request: about as long as its work takes.
const WORK_MS: u64 = 500;

/// How much longer each tagging takes before a kill: most of the work's time is between a creation and its tagging.
const TAGGING_MS: u64 = 25;

/// The contents of the folder of manifests.
struct Wish {
    /// Name to internal address.
    nodes: BTreeMap<String, String>,
    services: BTreeMap<String, Service>,
    /// Gives everything a new number, so that nothing returns in its old form.
    made: u16,
}

struct Service {
    uid: String,
    address: String,
    /// Name to port and node port.
    ports: BTreeMap<String, (u16, u16)>,
}

impl Wish {
    fn first() -> Self {
        let mut wish = Self {
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            made: 0,
        };
        for _ in 0..2 {
            wish.add_node();
            wish.add_service();
        }
        wish
    }

    fn next(&mut self) -> u16 {
        self.made += 1;
        self.made
    }

    fn add_node(&mut self) {
        let n = self.next();
        self.nodes
            .insert(format!("node-{n}"), format!("192.0.{}.{}", n / 256, n % 256));
    }

    fn add_service(&mut self) {
        let n = self.next();
        let service = Service {
            uid: format!("uid-{n}"),
            address: format!("203.0.{}.{}", n / 256, n % 256),
            ports: BTreeMap::new(),
        };
        let name = format!("s{n}");
        self.services.insert(name.clone(), service);
        self.add_port(&name);
        self.add_port(&name);
    }

    fn add_port(&mut self, service: &str) {
        let n = self.next();
        let ports = &mut self.services.get_mut(service).unwrap().ports;
        ports.insert(format!("p{n}"), (1000 + n, 30_000 + n));
    }
}

impl kills::Wish for Wish {
    fn edit(&mut self, random: &mut ChaCha8Rng) {
        let n = self.next();
        let service = self
            .services
            .keys()
            .nth(random.random_range(0..self.services.len()))
            .unwrap()
            .clone();
        match random.random_range(0..10) {
            0 if self.nodes.len() < 3 => self.add_node(),
            1 if self.nodes.len() > 1 => {
                self.nodes.pop_first();
            }
            2 if self.services.len() < 3 => self.add_service(),
            3 if self.services.len() > 1 => {
                self.services.remove(&service);
            }
            4 if self.services[&service].ports.len() > 1 => {
                self.services.get_mut(&service).unwrap().ports.pop_first();
            }
            5 => self.services.get_mut(&service).unwrap().uid = format!("uid-{n}"),
            6 => {
                let ports = &mut self.services.get_mut(&service).unwrap().ports;
                ports.first_entry().unwrap().get_mut().1 = 30_000 + n;
            }
            7 => {
                // Keep the numbers, so that leftovers of the old one are in the way.
                let ports = &mut self.services.get_mut(&service).unwrap().ports;
                let (_, numbers) = ports.pop_first().unwrap();
                ports.insert(format!("p{n}"), numbers);
            }
            8 => {
                // The same ports under another name.
                let mut renamed = self.services.remove(&service).unwrap();
                renamed.uid = format!("uid-{n}");
                self.services.insert(format!("s{n}"), renamed);
            }
            _ if self.services[&service].ports.len() < 3 => self.add_port(&service),
            _ => self.services.get_mut(&service).unwrap().address = format!("203.0.{}.{}", n / 256, n % 256),
        }
    }

    fn manifests(&self) -> String {
        let mut text = String::new();
        for (name, address) in &self.nodes {
            write!(
                text,
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus:\n  \
                 addresses: [{{type: InternalIP, address: {address}}}]\n  conditions: [{{type: Ready, status: \"True\"}}]\n"
            )
            .unwrap();
        }
        for (name, Service { uid, address, ports }) in &self.services {
            write!(
                text,
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default, uid: {uid}}}\nspec:\n  \
                 type: LoadBalancer\n  loadBalancerIP: {address}\n  ports:\n"
            )
            .unwrap();
            for (port, (external, internal)) in ports {
                writeln!(text, "    - {{name: {port}, port: {external}, nodePort: {internal}}}").unwrap();
            }
        }
        text
    }
}

/// A load balancer and its host.
struct Place {
    engine: Engine,
    site: Site,
    /// The Engine's state at the beginning.
    empty: Value,
    /// Kills that left an object without a tag.
    untagged: u32,
    /// Those of them after which the next host knew nothing of it.
    unknown: u32,
}

impl Place {
    fn new(guest: &str, engine: &[&str]) -> Self {
        let engine = Engine::start(engine);
        let site = Site::against(&engine);
        site.edit("trueup.toml", "builtin:lbaas@1", guest);
        // The edits remove more than half at once.
        site.edit(
            "trueup.toml",
            "\n[guests.lbaas]\n",
            "\n[guests.lbaas]\napprove_above_percent = 100\n",
        );
        for shipped in ["nodes.yaml", "web.yaml", "api.yaml", "dns.yaml"] {
            site.remove_manifest(shipped);
        }
        Self {
            empty: engine.state(),
            engine,
            site,
            untagged: 0,
            unknown: 0,
        }
    }
}

impl kills::Place for Place {
    fn site(&self) -> &Site {
        &self.site
    }

    fn held(&self) -> Option<Vec<String>> {
        Some(described(&self.engine.objects()))
    }

    fn empty(&mut self) {
        self.engine.put_state(&self.empty);
    }

    fn strike(&mut self, args: &[&str], random: &mut ChaCha8Rng) -> Started {
        self.engine.fault(&json!({"path": "*/tags/*", "delay_ms": TAGGING_MS}));
        let requests = || self.engine.requests().values().sum::<u64>();
        let before = requests();
        let mut host = self.site.start("run", args);
        kills::wait_at_most(Duration::from_secs(10), &mut host, || requests() > before);
        kills::sleep_at_most(WORK_MS, random);
        host
    }

    fn killed(&mut self, random: &mut ChaCha8Rng) {
        self.engine.clear_faults();
        let is_untagged = self.engine.objects().iter().any(|object| object.tags.is_empty());
        self.untagged += u32::from(is_untagged);
        // As on a host that takes over without the disk of the previous one.
        if random.random_range(0..8) == 0 {
            let intents = self.site.state_dir().join("intents");
            self.unknown += u32::from(is_untagged && fs::remove_dir_all(intents).is_ok());
        }
    }

    fn is_covered(&self) -> bool {
        self.untagged > 0 && self.unknown > 0
    }
}

#[test]
fn a_killed_lbaas_1_converges_though_everything_is_edited_meanwhile() {
    converges("builtin:lbaas@1");
}

#[test]
fn a_killed_lbaas_2_converges_though_everything_is_edited_meanwhile() {
    converges("builtin:lbaas@2");
}

fn converges(guest: &str) {
    let places = [&["--latency-ms", "6", "--settle-ms", "50"][..], &[]].map(|engine| Place::new(guest, engine));
    let place = converge(Wish::first(), places, MOMENTS);
    println!(
        "{guest}: {} kills left an object without a tag, {} of them unknown",
        place.untagged, place.unknown
    );
    let plan = ran(&mut place.site.command("plan", &["--orphans"])).exits(0);
    assert!(plan.stdout.contains("0 orphans: "), "{plan}");
}
