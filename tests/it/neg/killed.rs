//! The test kills the host (`kill -9`) repeatedly, also in the middle of calls: the host requests each operation once,
//! and edits made while it is down take effect.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::cluster::{Cluster, Stack};
use super::compute::Compute;
use super::stage::{HELD_MS, OPERATION_MS, Stage};
use super::{FEW, MANY};
use support::kill_moments;

/// How often to kill the host during its work. Three more kills come while there is none.
const KILLS: usize = 20;

/// How often to kill it while Services are edited, unless the variable `KILL_TEST_MOMENTS` sets another number.
const EDITED_KILLS: u32 = 12;

/// The seed, unless the variable `NEG_TEST_SEED` sets another.
const SEED: u64 = 20_261_122;

/// The calls during which to kill the host, and whether the request has taken effect by then.
const CUTS: [(&str, &str); 5] = [
    ("listNetworkEndpoints", "after"),
    ("attachNetworkEndpoints", "before"),
    ("attachNetworkEndpoints", "after"),
    ("detachNetworkEndpoints", "before"),
    ("detachNetworkEndpoints", "after"),
];

/// What the kills have hit.
#[derive(Debug, Default)]
struct Kills {
    /// Within each of [`CUTS`].
    cut: [usize; CUTS.len()],
    /// At any time.
    anytime: usize,
    /// Operations that have started, and whose number no host received.
    untold: BTreeSet<u64>,
}

impl Kills {
    fn count(&self) -> usize {
        self.cut.iter().sum::<usize>() + self.anytime
    }
}

fn up_to(random: &mut ChaCha8Rng, ms: u64) -> Duration {
    Duration::from_millis(random.random_range(0..=ms))
}

/// Kills the host inside a call, which never gets its answer.
fn kill_within(stage: &mut Stage, cut: usize, random: &mut ChaCha8Rng, kills: &mut Kills) {
    let (call, when) = CUTS[cut];
    let path = format!("*/{call}");
    stage
        .compute
        .fault(&json!({"path": path, "times": 1, "delay_ms": HELD_MS, "when": when}));
    stage.start();
    stage.wait_until("such a call", |stage| stage.compute.is_faultless() || stage.is_true());
    std::thread::sleep(up_to(random, 100));
    stage.kill();
    if stage.compute.is_faultless() {
        kills.cut[cut] += 1;
        if when == "after" && call != "listNetworkEndpoints" {
            let last = stage.compute.changes().pop().unwrap();
            kills.untold.insert(last.id);
        }
    } else {
        kills.anytime += 1;
    }
    stage.compute.clear_faults();
}

/// Kills the host at an arbitrary moment.
fn kill_anytime(stage: &mut Stage, random: &mut ChaCha8Rng, kills: &mut Kills) {
    let before = stage.compute.requests();
    stage.start();
    stage.wait_until("the first request", |stage| stage.compute.requests() > before);
    std::thread::sleep(up_to(random, 500));
    stage.kill();
    kills.anytime += 1;
}

fn seeded() -> ChaCha8Rng {
    let seed = std::env::var("NEG_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("NEG_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("NEG_TEST_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// One change: of pods, of their addresses, or of a Service that comes or goes.
fn edit(cluster: &mut Cluster, random: &mut ChaCha8Rng) {
    match random.random_range(0..4) {
        0 if cluster.has("api") => cluster.remove("api"),
        0 | 1 if !cluster.has("api") => cluster.add("api", FEW, Stack::Single),
        1 => cluster.resize("api", random.random_range(1..4)),
        2 => cluster.set_stack([Stack::Single, Stack::Dual][random.random_range(0..2)]),
        _ => cluster.resize("web", random.random_range(1..4)),
    }
}

#[test]
fn a_killed_host_converges_though_services_are_edited_meanwhile() {
    let mut random = seeded();
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let mut kills = Kills::default();
    for _ in 0..kill_moments(EDITED_KILLS) {
        match random.random_range(0..=CUTS.len()) {
            cut if cut < CUTS.len() => kill_within(&mut stage, cut, &mut random, &mut kills),
            _ => kill_anytime(&mut stage, &mut random, &mut kills),
        }
        stage.change(|cluster| edit(cluster, &mut random));
        // Now and then, kill the next host too.
        if random.random_range(0..3) == 0 {
            continue;
        }
        stage.start();
        stage.comes_true();
        stage.kill();
        stage.change(|cluster| edit(cluster, &mut random));
    }
    println!("{kills:?}");
    assert!(kills.cut.iter().sum::<usize>() > 0, "{kills:?}");
    stage.start();
    stage.comes_true();
    stage.kill();
    stage.replays(None);
}

#[test]
fn a_killed_host_goes_on_where_it_was_and_asks_for_nothing_twice() {
    let mut random = seeded();
    let mut stage = Stage::new(Cluster::of(MANY, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let (mut kills, mut deck) = (Kills::default(), Vec::new());
    // Creating and filling the NEGs, the move there, and back; repeated if a move was faster than the kills.
    let enough = [KILLS / 5, KILLS * 3 / 5, KILLS];
    for phase in 0.. {
        if phase >= enough.len() && kills.count() >= KILLS {
            break;
        }
        let enough = enough.get(phase).copied().unwrap_or(KILLS);
        let stacks = [Stack::Single, Stack::Dual];
        stage.change(|cluster| cluster.set_stack(stacks[phase % 2]));
        while kills.count() < enough && !stage.is_true() {
            // In random order, each equally often.
            if deck.is_empty() {
                deck.extend(0..=CUTS.len());
            }
            match deck.swap_remove(random.random_range(0..deck.len())) {
                cut if cut < CUTS.len() => kill_within(&mut stage, cut, &mut random, &mut kills),
                _ => kill_anytime(&mut stage, &mut random, &mut kills),
            }
            // Operations may end meanwhile.
            std::thread::sleep(up_to(&mut random, 200));
        }
        stage.start();
        stage.comes_true();
        stage.kill();
    }
    println!("{kills:?}");
    // Only the next host may get the last event.
    stage.start();
    let judged = stage.judge();
    assert_eq!(judged.failed, 0, "{judged}");
    // The test has covered its subject.
    let cuts_hit = kills.cut.iter().all(|count| *count > 0);
    assert!(
        kills.count() >= KILLS && cuts_hit && kills.untold.len() >= 3,
        "{kills:?}"
    );
    for operation in stage.compute.changes() {
        let asked_again = operation.repeats > 0;
        assert!(
            asked_again || !kills.untold.contains(&operation.id),
            "its number was never asked for again: {operation:?}"
        );
    }
    stage.terminate();
    stage.replays(None);
}
