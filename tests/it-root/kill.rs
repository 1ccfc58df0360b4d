//! The tests kill the host (`kill -9`) repeatedly while it works. After each restart everything converges: no object
//! exists twice, none is without an owner, and none is missing.
//!
//! The Engine is a simulated one in its own process. It is slow enough that kills interrupt work at every point, most
//! of all between a creation and its tagging. The desired state changes between a kill and the restart: the host finds
//! and tags an object without a tag before anything else, and destroys it if it is no longer desired.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use support::{Engine, Site, described, kill_moments, ran, trueup};

/// How often to kill each version of the guest during its work, unless the variable `KILL_TEST_MOMENTS` sets another
/// number.
const MOMENTS: u32 = 30;

/// The seed, unless the variable `KILL_TEST_SEED` sets another.
const SEED: u64 = 20_260_418;

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

    /// One change, of any kind that is possible now.
    fn change(&mut self, random: &mut ChaCha8Rng) {
        let n = self.next();
        let service = self
            .services
            .keys()
            .nth(random.random_range(0..self.services.len()))
            .unwrap()
            .clone();
        match random.random_range(0..9) {
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
            _ if self.services[&service].ports.len() < 3 => self.add_port(&service),
            _ => self.services.get_mut(&service).unwrap().address = format!("203.0.{}.{}", n / 256, n % 256),
        }
    }

    /// Writes exactly these manifests.
    fn write(&self, site: &Site) {
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
        site.put_manifest("all.yaml", &text);
    }

    /// Every object that must exist, in the form of [`described`].
    fn objects(&self) -> Vec<String> {
        let mut objects = Vec::new();
        for (name, Service { uid, address, ports }) in &self.services {
            for (port, (external, internal)) in ports {
                let parent = format!("{port}.{name}.default.quickstart");
                let tag = format!("[\"anxccm-svc-uid={uid}\"] 3");
                objects.push(format!(
                    "backend {parent} on lb-1 tcp \"adv_check\": \"tcp-check\" {tag}"
                ));
                objects.push(format!("frontend {parent} on lb-1 tcp to {parent} {tag}"));
                objects.push(format!("bind v4.{parent} {address} {external} of {parent} {tag}"));
                for (node, ip) in &self.nodes {
                    objects.push(format!(
                        "server {node}.{parent} {ip} {internal} enabled in {parent} {tag}"
                    ));
                }
            }
        }
        objects.sort();
        objects
    }
}

/// Starts the host, and kills it this long after its first request; false if it finished first.
fn kill_after(engine: &Engine, site: &Site, wait: Duration) -> bool {
    let requests = || engine.requests().values().sum::<u64>();
    let before = requests();
    let mut host = site.start("run", &["--once"]);
    while requests() == before {
        if host.ended().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(wait);
    let inside = host.ended().is_none();
    host.kill();
    inside
}

#[test]
fn a_killed_lbaas_1_converges_though_everything_is_edited_meanwhile() {
    converges("builtin:lbaas@1", 0);
}

#[test]
fn a_killed_lbaas_2_converges_though_everything_is_edited_meanwhile() {
    converges("builtin:lbaas@2", 1);
}

/// The states that kills have hit.
#[derive(Debug, Default)]
struct Hits {
    kills: u32,
    too_late: u32,
    /// Work was half done.
    halves: u32,
    /// An object had no tag.
    untagged: u32,
    /// An object had no tag, and the next host knew nothing of it.
    unknown: u32,
}

fn converges(guest: &str, stream: u64) {
    let seed = std::env::var("KILL_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("KILL_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("KILL_TEST_SEED={seed}");
    let moments = kill_moments(MOMENTS);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    let engine = Engine::start(&["--latency-ms", "6", "--settle-ms", "50"]);
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
    let began = Instant::now();
    let mut wish = Wish::first();
    let (mut hits, mut was) = (Hits::default(), Vec::new());
    // On a machine of varying speed, it takes more kills to hit everything.
    let hit_all = |hits: &Hits| hits.halves >= moments / 5 && hits.untagged > 0 && hits.unknown > 0;
    while hits.kills < moments || (!hit_all(&hits) && hits.kills < 3 * moments) {
        wish.write(&site);
        engine.fault(&json!({"path": "*/tags/*", "delay_ms": TAGGING_MS}));
        let wait = Duration::from_millis(random.random_range(0..WORK_MS));
        let killed = kill_after(&engine, &site, wait);
        engine.clear_faults();
        if killed {
            hits.kills += 1;
            let left = engine.objects();
            hits.halves += u32::from(![&was, &wish.objects()].contains(&&described(&left)));
            let is_untagged = left.iter().any(|object| object.tags.is_empty());
            hits.untagged += u32::from(is_untagged);
            // As on a host that takes over without the disk of the previous one.
            if random.random_range(0..8) == 0 {
                let intents = site.state_dir().join("intents");
                hits.unknown += u32::from(is_untagged && fs::remove_dir_all(intents).is_ok());
            }
        } else {
            hits.too_late += 1;
            assert!(
                hits.too_late < 6 * moments,
                "the host is done before it can be killed: WORK_MS is too long"
            );
        }
        for _ in 0..random.random_range(1..6) {
            wish.change(&mut random);
        }
        // Now and then, kill the next host too.
        if killed && random.random_range(0..4) == 0 {
            continue;
        }
        wish.write(&site);
        let ran = site.run_once();
        assert_eq!(ran.code, Some(0), "{hits:?}: {ran}");
        was = described(&engine.objects());
        assert_eq!(was, wish.objects(), "{hits:?}; the last run said: {ran}");
        for _ in 0..random.random_range(1..4) {
            wish.change(&mut random);
        }
    }
    println!("{guest}: {hits:?} in {:?}", began.elapsed());
    assert!(hit_all(&hits), "kills must hit all of it: {hits:?}");
    wish.write(&site);
    site.run_once().exits(0);
    assert_eq!(described(&engine.objects()), wish.objects());
    let plan = ran(&mut site.command("plan", &["--orphans"])).exits(0);
    assert!(plan.stdout.contains("0 orphans: "), "{plan}");

    // The recordings are complete, up to each kill.
    let replayed = trueup([vec!["replay".into()], site.journals()].concat()).exits(0);
    let cut = replayed
        .stdout
        .lines()
        .filter(|line| line.contains(": identical as far as recorded: "));
    assert!(cut.count() > 0, "{replayed}");
}
