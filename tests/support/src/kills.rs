//! Hosts that are killed (`kill -9`) at random moments of their work, while everything they work on changes.
//!
//! ```text
//! changes -> start, kill -> changes -> start, in sync -> compare -> changes -> ...
//!                              \-> now and then: kill the next host, too
//! ```
//! Each test describes its world: what a change is, when to kill the host, and what its backend holds. [`drive`] is the
//! sequence for any world; [`converge`] is for worlds of manifests and a backend, and compares the backend with that of
//! a host that has only ever seen the last manifests.

use std::fs;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{PATIENCE, Site, Started, files_under, program, ran, trueup};

/// The seed, unless the variable `KILL_TEST_SEED` sets another.
const SEED: u64 = 20_261_122;

/// How often a test kills a host: the variable `KILL_TEST_MOMENTS`, or else this.
pub fn moments(default: u32) -> u32 {
    let given = std::env::var("KILL_TEST_MOMENTS");
    let moments = given.map_or(default, |text| text.parse().expect("KILL_TEST_MOMENTS is a number"));
    // Printed for a failed test.
    println!("KILL_TEST_MOMENTS={moments}");
    moments
}

/// The seed of a test's chances: the variable `KILL_TEST_SEED`, or else the usual one.
pub fn seed() -> u64 {
    let seed = std::env::var("KILL_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("KILL_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("KILL_TEST_SEED={seed}");
    seed
}

/// What hosts work on, and what is asked of them.
pub trait World {
    /// Makes one change while no host runs: something comes, goes, is edited, or gets another name.
    fn edit(&mut self, random: &mut ChaCha8Rng);

    /// Starts a host, and kills it at a random moment. False if it ended its work before.
    fn kill(&mut self, random: &mut ChaCha8Rng) -> bool;

    /// Starts a host, checks what it makes of everything, and ends it.
    fn settle(&mut self, random: &mut ChaCha8Rng);

    /// Whether the kills have hit everything that they must hit.
    fn is_covered(&self) -> bool {
        true
    }

    /// Whether no further kill is of use.
    fn is_over(&self) -> bool {
        false
    }
}

/// Kills hosts of a world this often, and more often until the kills have hit everything, with changes before and after
/// each kill.
pub fn drive(world: &mut impl World, moments: u32, random: &mut ChaCha8Rng) {
    let (mut kills, mut late) = (0, 0);
    while !world.is_over() && (kills < moments || (!world.is_covered() && kills < 3 * moments)) {
        for _ in 0..random.random_range(1..4) {
            world.edit(random);
        }
        let in_time = world.kill(random);
        if in_time {
            kills += 1;
        } else {
            late += 1;
            assert!(late < 6 * moments, "the host ends its work before it can be killed");
        }
        for _ in 0..random.random_range(1..6) {
            world.edit(random);
        }
        // Now and then, kill the next host too.
        if !in_time || random.random_range(0..4) > 0 {
            world.settle(random);
        }
    }
    println!("{kills} kills, {late} of others came too late");
}

/// What the manifests say.
pub trait Wish {
    /// Makes one change: something comes, goes, is edited, or gets another name.
    fn edit(&mut self, random: &mut ChaCha8Rng);

    /// All manifests, as one file.
    fn manifests(&self) -> String;
}

/// A host's folder, and the backend that the host fills.
pub trait Place {
    fn site(&self) -> &Site;

    /// Replaces all manifests.
    fn put(&self, manifests: &str) {
        self.site().put_manifest("all.yaml", manifests);
    }

    /// Everything in the backend, in order, without what differs between two equal hosts. `None` while something is in
    /// flight there.
    fn held(&self) -> Option<Vec<String>>;

    /// Removes everything from the backend.
    fn empty(&mut self);

    /// Starts `trueup run` with these further arguments, and returns the host at the moment at which to kill it.
    fn strike(&mut self, args: &[&str], random: &mut ChaCha8Rng) -> Started;

    /// Takes note of what the kill hit.
    fn killed(&mut self, _random: &mut ChaCha8Rng) {}

    /// Whether the kills have hit everything that they must hit.
    fn is_covered(&self) -> bool {
        true
    }
}

/// A world of manifests.
struct Manifests<W, P> {
    wish: W,
    place: P,
    /// Where a host makes the same from nothing.
    fresh: P,
    /// In the backend before the kill, and after it.
    was: Option<Vec<String>>,
    left: Option<Vec<String>>,
    /// Kills that left the work half done.
    halves: u32,
    settled: u32,
}

/// Kills hosts at one place, with changes before and after each kill. After each restart, the host comes in sync by
/// itself, and its backend holds exactly what a host at the other place makes of the same manifests from nothing.
/// Returns the place. In the end all recordings must replay.
pub fn converge<P: Place>(wish: impl Wish, [place, fresh]: [P; 2], default: u32) -> P {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut world = Manifests {
        wish,
        place,
        fresh,
        was: None,
        left: None,
        halves: 0,
        settled: 0,
    };
    drive(&mut world, moments(default), &mut random);
    world.settle(&mut random);
    println!(
        "{} kills left the work half done; {} hosts came in sync",
        world.halves, world.settled
    );
    assert!(world.is_covered(), "kills must hit all of it");
    let site = world.place.site();
    // The recordings are complete, up to each kill.
    trueup([vec!["replay".into()], site.journals()].concat()).exits(0);
    world.place
}

impl<W: Wish, P: Place> World for Manifests<W, P> {
    fn edit(&mut self, random: &mut ChaCha8Rng) {
        self.wish.edit(random);
    }

    fn kill(&mut self, random: &mut ChaCha8Rng) -> bool {
        self.place.put(&self.wish.manifests());
        let args: &[&str] = if random.random() { &["--once"] } else { &[] };
        let mut host = self.place.strike(args, random);
        let ended = host.ended();
        let said = host.killed();
        // It may have failed before the kill because of what the last one left.
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}: {said}");
        self.left = self.place.held();
        self.place.killed(random);
        ended.is_none()
    }

    fn settle(&mut self, random: &mut ChaCha8Rng) {
        let manifests = self.wish.manifests();
        self.fresh.empty();
        forget(self.fresh.site());
        self.fresh.put(&manifests);
        self.fresh.site().run_once().exits(0);
        let fresh = self.fresh.held();
        self.place.put(&manifests);
        let said = if random.random() {
            self.place.site().run_once().exits(0).to_string()
        } else {
            in_sync(&self.place, &fresh)
        };
        let held = self.place.held();
        assert!(
            held.is_some() && held == fresh,
            "{}{manifests}\n{said}",
            differences(&held, &fresh)
        );
        self.halves += u32::from(self.left != self.was && self.left != held);
        (self.was, self.left) = (held.clone(), held);
        self.settled += 1;
    }

    fn is_covered(&self) -> bool {
        self.halves > 0 && self.place.is_covered()
    }
}

/// Starts a host that runs on, waits until the backend holds this and the host reports that all is well, and ends it in
/// order. Returns its output. All may be well while a NEG's endpoints still move, a tenth at a time.
fn in_sync(place: &impl Place, fresh: &Option<Vec<String>>) -> String {
    let site = place.site();
    let mut host = site.start("run", &[]);
    let began = Instant::now();
    loop {
        let status = ran(program().args(["status", "--config"]).arg(site.folder()));
        let held = place.held();
        if held == *fresh && status.code == Some(0) && status.stdout.contains("all is well") {
            break;
        }
        let is_late = host.ended().is_some() || began.elapsed() > PATIENCE;
        assert!(
            !is_late,
            "not in sync: {}{status}\n{}{}",
            differences(&held, fresh),
            host.stdout(),
            host.stderr()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (ended, _) = host.terminate();
    ended.exits(0).to_string()
}

/// Removes everything that a host knows, except for compiled code, which only saves time.
fn forget(site: &Site) {
    let cache = site.state_dir().join("cache");
    for file in files_under(&site.state_dir()) {
        if !file.starts_with(&cache) {
            fs::remove_file(file).unwrap();
        }
    }
}

/// What only the killed hosts or only a fresh one made.
fn differences(held: &Option<Vec<String>>, fresh: &Option<Vec<String>>) -> String {
    let (Some(held), Some(fresh)) = (held, fresh) else {
        return format!(
            "in flight: {}, of the fresh host: {}\n",
            held.is_none(),
            fresh.is_none()
        );
    };
    let extra = held.iter().filter(|line| !fresh.contains(line));
    let missing = fresh.iter().filter(|line| !held.contains(line));
    let extra = extra.map(|line| format!("only after kills: {line}\n"));
    let missing = missing.map(|line| format!("only of a fresh host: {line}\n"));
    extra.chain(missing).collect()
}

/// Waits until this is so, the host ends, or the time has passed.
pub fn wait_at_most(time: Duration, host: &mut Started, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() && host.ended().is_none() && began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sleeps for a random time up to this.
pub fn sleep_at_most(ms: u64, random: &mut ChaCha8Rng) {
    std::thread::sleep(Duration::from_millis(random.random_range(0..=ms)));
}
