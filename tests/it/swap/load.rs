//! Swaps, rollbacks and bad candidates while the manifests change all the time: no wish is lost, no effect is repeated,
//! and everything gets in sync.
//!
//! ```text
//! writer --200 changes a second--> manifests -> host -> Engine
//!                       swaps, rollbacks, candidates --^
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::recorded::{self, Recorded};
use super::{active, candidates, configure, error, revisions};
use support::{Engine, Site, described, trueup, wait_until};

/// The seed, unless the variable `SWAP_TEST_SEED` sets another.
const SEED: u64 = 20_261_204;

/// Enough Services that each file rests for longer than the 0.2 s after which the host trusts it, so that every change
/// reaches the host.
const SERVICES: usize = 100;

const CHANGES_PER_S: u64 = 200;

/// How often the two versions alternate.
const SWAPS: usize = 20;

/// The numbers of swaps after which a rollback follows.
const ROLLBACKS: [usize; 2] = [4, 11];

/// A third rollback, after a version that panics passed without a gate.
const LET_IN: usize = 16;

/// The gate waits this long for a candidate that never answers, as it would for the recorded guest. Long enough for an
/// honest guest on a busy machine. No approval: after the version that panics, all Services have changed several times,
/// and bringing them in sync replaces more than half of the objects at once.
const LIMITS: &str = "limits = { cpu_ms = 5000 }\napprove_above_percent = 100\n";

/// The longest time to get in sync, even on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// How close to a swap to look for a pause.
const NEAR_MS: u64 = 1_000;

/// The contents of one manifest. Every change keeps its length: the host trusts a file that shrank only later.
#[derive(Debug, Clone)]
struct Service {
    number: usize,
    port_name: &'static str,
    port: u16,
    node_port: u16,
    network: &'static str,
}

impl Service {
    fn new(number: usize) -> Self {
        Self {
            number,
            port_name: "pa",
            port: 1_000,
            node_port: 30_000,
            network: "203.0.113",
        }
    }

    fn name(&self) -> String {
        format!("s{}", self.number)
    }

    fn address(&self) -> String {
        format!("{}.{}", self.network, 100 + self.number)
    }

    /// Replaces one server, one bind, or all of it.
    fn change(&mut self, random: &mut ChaCha8Rng) {
        match random.random_range(0..10) {
            0..6 => self.node_port = 30_000 + (self.node_port - 30_000 + 1) % 2_000,
            6..8 => self.port = 1_000 + (self.port - 1_000 + 1) % 9_000,
            8 => self.network = other(self.network, ["203.0.113", "203.0.114"]),
            _ => self.port_name = other(self.port_name, ["pa", "pb"]),
        }
    }

    fn write(&self, site: &Site) {
        let mut text = String::new();
        write!(
            text,
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {}, namespace: default, uid: uid-{}}}\nspec:\n  \
             type: LoadBalancer\n  loadBalancerIP: {}\n  ports: [{{name: {}, port: {}, nodePort: {}}}]\n",
            self.name(),
            self.number,
            self.address(),
            self.port_name,
            self.port,
            self.node_port
        )
        .unwrap();
        site.put_manifest(&format!("{}.yaml", self.name()), &text);
    }

    /// Every object that must exist, in the form of [`described`].
    fn objects(&self) -> [String; 4] {
        let parent = format!("{}.{}.default.quickstart", self.port_name, self.name());
        let tag = format!("[\"anxccm-svc-uid=uid-{}\"] 3", self.number);
        let (address, port, node_port) = (self.address(), self.port, self.node_port);
        [
            format!("backend {parent} on lb-1 tcp \"adv_check\": \"tcp-check\" {tag}"),
            format!("frontend {parent} on lb-1 tcp to {parent} {tag}"),
            format!("bind v4.{parent} {address} {port} of {parent} {tag}"),
            format!("server node-1.{parent} 192.0.2.11 {node_port} enabled in {parent} {tag}"),
        ]
    }
}

fn other(this: &str, both: [&'static str; 2]) -> &'static str {
    let [one, two] = both;
    if this == one { two } else { one }
}

/// Every object that these Services want.
fn wished(services: &[Service]) -> Vec<String> {
    let mut all: Vec<String> = services.iter().flat_map(Service::objects).collect();
    all.sort();
    all
}

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus:\n  \
                    addresses: [{type: InternalIP, address: 192.0.2.11}]\n  conditions: [{type: Ready, status: \"True\"}]\n";

/// Changes one Service after another, each equally often, until the stop. Returns the number of changes.
fn change(site: &Site, services: &mut [Service], random: &mut ChaCha8Rng, stop: &AtomicBool) -> u64 {
    let began = Instant::now();
    let mut order: Vec<usize> = (0..services.len()).collect();
    order.shuffle(random);
    for (changes, at) in (0..).zip(order.into_iter().cycle()) {
        let due = Duration::from_micros(changes * 1_000_000 / CHANGES_PER_S);
        thread::sleep(due.saturating_sub(began.elapsed()));
        if stop.load(Ordering::Relaxed) {
            return changes;
        }
        services[at].change(random);
        services[at].write(site);
    }
    unreachable!("it cycles")
}

/// Waits until the Engine has exactly this, and shows the difference if that does not happen.
#[track_caller]
fn comes_true(engine: &Engine, wished: &[String]) {
    let began = Instant::now();
    loop {
        let is = described(&engine.objects());
        if is == wished {
            return;
        }
        if began.elapsed() > PATIENCE {
            let missing: Vec<&String> = wished.iter().filter(|object| !is.contains(object)).collect();
            let surplus: Vec<&String> = is.iter().filter(|object| !wished.contains(object)).collect();
            panic!(
                "missing: {missing:#?}\nsurplus: {surplus:#?}\n{} of {}",
                is.len(),
                wished.len()
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The version that is not active.
fn next(site: &Site) -> &'static str {
    other(&active(site).1, ["lbaas@1", "lbaas@2"])
}

/// All work on the guest while the manifests change. Returns the number of refused candidates.
fn swap_and_swap(site: &Site) -> usize {
    let [panics, silent, forgetful] = [
        candidates::panics(site),
        candidates::silent(site),
        candidates::forgetful(site),
    ];
    let refused: [(usize, &str, &str); 4] = [
        (2, &panics, " recordings differ; the first in "),
        (7, &silent, "; given up: a call gave no answer in its time"),
        (9, "ipam@1", " is refused at world: guest `ipam@1` is of the world "),
        (14, &forgetful, " recordings differ; the first in "),
    ];
    for swap in 1..=SWAPS {
        site.guest(&["swap", "lbaas", next(site)]).exits(0);
        if let Some((_, candidate, says)) = refused.iter().find(|(after, ..)| *after == swap) {
            let before = active(site);
            let ran = site.guest(&["swap", "lbaas", candidate]).exits(1);
            assert!(error(&ran).contains(says), "{ran}");
            assert_eq!(active(site), before);
        }
        if swap == LET_IN {
            site.guest(&["swap", "lbaas", &panics, "--gate", "off"]).exits(0);
            // It affects some keys before the operator notices.
            thread::sleep(Duration::from_millis(500));
        }
        if ROLLBACKS.contains(&swap) || swap == LET_IN {
            site.guest(&["rollback", "lbaas"]).exits(0);
        }
    }
    refused.len()
}

#[test]
fn swaps_under_load_lose_nothing_and_repeat_nothing() {
    let seed = std::env::var("SWAP_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("SWAP_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("SWAP_TEST_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let engine = Engine::start(&super::SETTLE);
    let site = Site::against(&engine);
    configure(&site, LIMITS);
    for shipped in ["nodes.yaml", "web.yaml", "api.yaml", "dns.yaml"] {
        site.remove_manifest(shipped);
    }
    site.put_manifest("node.yaml", NODE);
    let mut services: Vec<Service> = (0..SERVICES).map(Service::new).collect();
    services.iter().for_each(|service| service.write(&site));
    let panics = candidates::panics(&site);
    let host = site.start("run", &[]);
    comes_true(&engine, &wished(&services));

    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let (changes, refused) = thread::scope(|scope| {
        let writer = scope.spawn(|| change(&site, &mut services, &mut random, &stop));
        let _stops = Stops(&stop);
        let refused = swap_and_swap(&site);
        stop.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), refused)
    });
    let took = began.elapsed();
    println!(
        "{changes} changes in {took:?} under {SWAPS} swaps: {} a second",
        changes / took.as_secs().max(1)
    );
    comes_true(&engine, &wished(&services));
    let standing = site.guest(&["status", "lbaas", "--output", "json"]).exits(0).json();
    // The last of them still check their results.
    wait_until("the host to rest", || {
        let said = host.stdout();
        thread::sleep(Duration::from_millis(500));
        host.stdout() == said
    });
    assert_eq!(standing[0]["quarantined"], Value::Array(Vec::new()));
    let (ran, _) = host.terminate();
    let last = ran.last_line().to_owned();
    assert!(
        last.starts_with("100 services: 100 true, 0 failed; "),
        "{last}\n{}",
        ran.stderr
    );
    assert_eq!(described(&engine.objects()), wished(&services));

    let history = revisions(&site);
    let numbers: Vec<u64> = history.iter().map(|(number, ..)| *number).collect();
    // The first one, the one without a gate, and those that rollbacks left.
    let expected = 1 + SWAPS + 1 + ROLLBACKS.len() + 1;
    assert_eq!(numbers, (1..=expected as u64).collect::<Vec<_>>());
    let rollbacks = history.iter().filter(|(.., by)| by == "rollback").count();
    assert_eq!(rollbacks, ROLLBACKS.len() + 1);
    verify_audit(&site, expected - 1 + refused);

    let recorded = recorded::all(&site);
    let of_panics = site
        .history("lbaas")
        .iter()
        .find(|it| it["version"] == "panics")
        .unwrap()["digest"]
        .clone();
    // Exactly one recorded decision caused each, and each decision was carried out.
    let created: usize = recorded.iter().map(|segment| segment.created).sum();
    let posted: u64 = engine
        .requests()
        .iter()
        .filter(|(request, _)| request.starts_with("POST /api/LBaaS/"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(created as u64, posted, "{:?}", engine.requests());
    assert!(last.contains(&format!("; {created} created, ")), "{last}");

    let files = BTreeMap::from([(of_panics.as_str().unwrap().to_owned(), panics)]);
    assert_eq!(recorded::replays(&recorded, &files), recorded.len());
    show_pauses(&site, &recorded);

    // No key has anything left to do, with any version.
    site.converges("100 services: 100 true, 0 failed; 0 created, 0 destroyed");
}

/// Ends the writer even if the swaps fail.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn verify_audit(site: &Site, changes: usize) {
    let folder = site.folder().to_str().unwrap();
    let verified = trueup(["audit", "verify", folder]).exits(0);
    assert!(verified.last_line().ends_with(": whole"), "{verified}");
    let lines = trueup(["audit", "show", folder, "--output", "json"]).exits(0).json();
    let managed = |line: &&Value| line["call"] == "swap" || line["call"] == "rollback";
    assert_eq!(
        lines.as_array().unwrap().iter().filter(managed).count(),
        changes,
        "{lines}"
    );
}

/// How long no call began around each swap: only printed, since other tests judge it on an idle machine.
fn show_pauses(site: &Site, recorded: &[Recorded]) {
    let mut calls: Vec<u64> = recorded
        .iter()
        .flat_map(|segment| segment.calls.iter().map(|call| call.at_ms))
        .collect();
    calls.sort_unstable();
    let longest = |around: u64| {
        let near = calls.windows(2).filter(|pair| {
            let (from, to) = (around.saturating_sub(NEAR_MS), around + NEAR_MS);
            pair[0] <= to && pair[1] >= from
        });
        near.map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    };
    let pauses = site.history("lbaas").into_iter().skip(1).map(|revision| {
        let at_ms = revision["at_ms"].as_u64().unwrap();
        (revision["revision"].clone(), longest(at_ms))
    });
    let pauses: Vec<(Value, u64)> = pauses.collect();
    let shown: Vec<String> = pauses
        .iter()
        .map(|(revision, ms)| format!("{revision}: {ms}"))
        .collect();
    let max = pauses.iter().map(|(_, ms)| ms).max().unwrap();
    println!(
        "{} calls; the longest pause within {NEAR_MS} ms of each change of the version, in ms: {}; of all {max}",
        calls.len(),
        shown.join(", ")
    );
}
