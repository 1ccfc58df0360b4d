//! The test kills the host (`kill -9`) repeatedly, also in the middle of calls: the host requests each operation once,
//! and edits made while it is down take effect.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::cluster::{Cluster, Stack};
use super::compute::{Compute, Contents};
use super::stage::{HELD_MS, OPERATION_MS, Stage};
use super::{FEW, MANY};
use support::kills::{self, converge, seed};
use support::{Site, Started};

/// How often to kill the host during its work. Three more kills come while there is none.
const KILLS: usize = 20;

/// How often to kill it while Services are edited, unless the variable `KILL_TEST_MOMENTS` sets another number.
const EDITED_KILLS: u32 = 12;

/// The longest wait for a host's first request.
const START_MAX: Duration = Duration::from_secs(10);

/// The longest wait from there for a call, which may not come.
const CALL_MAX: Duration = Duration::from_secs(3);

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

    /// Counts a kill at the moment of [`strike`].
    fn add(&mut self, compute: &Compute, cut: Option<usize>) {
        let Some(cut) = cut.filter(|_| compute.is_faultless()) else {
            self.anytime += 1;
            return compute.clear_faults();
        };
        self.cut[cut] += 1;
        let (call, when) = CUTS[cut];
        if when == "after" && call != "listNetworkEndpoints" {
            let last = compute.changes().pop().unwrap();
            self.untold.insert(last.id);
        }
    }
}

/// Starts a host, and returns it inside a call, which never gets its answer; or at any moment.
fn strike(stage: &Stage, cut: Option<usize>, args: &[&str], random: &mut ChaCha8Rng) -> Started {
    let compute = &stage.compute;
    let before = compute.requests();
    if let Some((call, when)) = cut.map(|cut| CUTS[cut]) {
        let path = format!("*/{call}");
        compute.fault(&json!({"path": path, "times": 1, "delay_ms": HELD_MS, "when": when}));
    }
    let mut host = stage.site.start("run", args);
    kills::wait_at_most(START_MAX, &mut host, || compute.requests() > before);
    if cut.is_some() {
        kills::wait_at_most(CALL_MAX, &mut host, || compute.is_faultless());
        kills::sleep_at_most(100, random);
    } else {
        kills::sleep_at_most(500, random);
    }
    host
}

impl kills::Wish for Cluster {
    fn edit(&mut self, random: &mut ChaCha8Rng) {
        let names = self.names();
        let name = &names[random.random_range(0..names.len())];
        // A key that gets another NEG name leaves the endpoints in its old NEGs, as docs/neg.md says. So no name comes
        // back: it would come back with another NEG name.
        let other = format!("s{}", random.random_range(0..100_000));
        match random.random_range(0..6) {
            0 if names.len() < 3 => self.add(&other, FEW, Stack::Single),
            1 if names.len() > 1 => self.remove(name),
            // It keeps its NEGs.
            2 => self.rename(name, &other),
            3 => self.set_stack([Stack::Single, Stack::Dual][random.random_range(0..2)]),
            _ => self.resize(name, random.random_range(1..4)),
        }
    }

    fn manifests(&self) -> String {
        Self::manifests(self)
    }
}

/// NEGs and their host.
struct Place {
    stage: Stage,
    /// Compute Engine's state at the beginning.
    empty: Value,
    cut: Option<usize>,
    kills: Kills,
}

impl Place {
    fn new() -> Self {
        let stage = Stage::new(Cluster::default(), Compute::start(OPERATION_MS, &[]));
        // The edits remove more than half at once.
        stage.site.edit(
            "trueup.toml",
            "\n[guests.neg]\n",
            "\n[guests.neg]\napprove_above_percent = 100\n",
        );
        stage.site.remove_manifest("negs.yaml");
        Self {
            empty: stage.compute.state(),
            stage,
            cut: None,
            kills: Kills::default(),
        }
    }
}

impl kills::Place for Place {
    fn site(&self) -> &Site {
        &self.stage.site
    }

    fn held(&self) -> Option<Vec<String>> {
        let lines = |contents: Contents| {
            let endpoints = contents.into_iter().flat_map(|(place, there)| {
                let lines = there.into_iter().map(move |endpoint| format!("{place:?} {endpoint:?}"));
                lines.collect::<Vec<_>>()
            });
            endpoints.collect()
        };
        self.stage.compute.at_rest().map(lines)
    }

    fn empty(&mut self) {
        self.stage.compute.put_state(&self.empty);
    }

    fn strike(&mut self, args: &[&str], random: &mut ChaCha8Rng) -> Started {
        self.cut = Some(random.random_range(0..=CUTS.len())).filter(|cut| *cut < CUTS.len());
        strike(&self.stage, self.cut, args, random)
    }

    fn killed(&mut self, _: &mut ChaCha8Rng) {
        self.kills.add(&self.stage.compute, self.cut);
    }

    fn is_covered(&self) -> bool {
        self.kills.cut.iter().all(|count| *count > 0)
    }
}

#[test]
fn a_killed_host_converges_though_services_are_edited_meanwhile() {
    let places = [(), ()].map(|()| Place::new());
    let place = converge(Cluster::of(FEW, Stack::Single), places, EDITED_KILLS);
    println!("{:?}", place.kills);
}

#[test]
fn a_killed_host_goes_on_where_it_was_and_asks_for_nothing_twice() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut stage = Stage::new(Cluster::of(MANY, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let (mut hits, mut deck) = (Kills::default(), Vec::new());
    // Creating and filling the NEGs, the move there, and back; repeated if a move was faster than the kills,
    // or no kill hit one of the cuts.
    let enough = [KILLS / 5, KILLS * 3 / 5, KILLS];
    for phase in 0.. {
        let is_covered = hits.cut.iter().all(|count| *count > 0) && hits.untold.len() >= 3;
        if phase >= enough.len() && (hits.count() >= 3 * KILLS || hits.count() >= KILLS && is_covered) {
            break;
        }
        let enough = enough
            .get(phase)
            .copied()
            .unwrap_or(KILLS.max(hits.count() + KILLS / 5));
        let stacks = [Stack::Single, Stack::Dual];
        stage.change(|cluster| cluster.set_stack(stacks[phase % 2]));
        while hits.count() < enough && !stage.is_true() {
            // In random order, each equally often.
            if deck.is_empty() {
                deck.extend(0..=CUTS.len());
            }
            let cut = Some(deck.swap_remove(random.random_range(0..deck.len()))).filter(|cut| *cut < CUTS.len());
            strike(&stage, cut, &[], &mut random).kill();
            hits.add(&stage.compute, cut);
            // Operations may end meanwhile.
            kills::sleep_at_most(200, &mut random);
        }
        stage.start();
        stage.comes_true();
        stage.kill();
    }
    println!("{hits:?}");
    // Only the next host may get the last event.
    stage.start();
    let judged = stage.judge();
    assert_eq!(judged.failed, 0, "{judged}");
    // The test has covered its subject.
    let cuts_hit = hits.cut.iter().all(|count| *count > 0);
    assert!(hits.count() >= KILLS && cuts_hit && hits.untold.len() >= 3, "{hits:?}");
    for operation in stage.compute.changes() {
        let asked_again = operation.repeats > 0;
        assert!(
            asked_again || !hits.untold.contains(&operation.id),
            "its number was never asked for again: {operation:?}"
        );
    }
    stage.terminate();
    stage.replays(None);
}
