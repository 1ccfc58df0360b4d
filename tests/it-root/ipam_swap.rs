//! Swaps the guest `ipam` while pods get and release addresses: no two pods share an address, and no pod loses one.
//! Then kills the host (`kill -9`) in the middle of swaps: it comes back with one of the two versions and all of the
//! state.
//!
//! The two versions are the built-in one and the same under another number, whose bytes differ. The clients and the
//! rules are those of `ipam_crash`; this file adds the swaps.

use crate::ipam_crash::ledger;
use crate::ipam_crash::real;
use crate::ipam_crash::rounds;
use crate::renumbered;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use ledger::{Answered, Key};
use real::{Config, Real};
use rounds::{ANSWERS_MAX, Course, Host, Pool, Tally, drive};
use support::{Site, trueup, wait_until};

/// The seed, unless the variable `SWAP_TEST_SEED` sets another.
const SEED: u64 = 20_261_205;

/// How many clients ask at the same time.
const CLIENTS: u64 = 16;

/// How many swaps run under clients, and how many are killed.
const SWAPS: usize = 20;

/// If all kills came before the swap, or all after it, the test needs more; this is the limit.
const KILLS_MAX: u32 = 3 * SWAPS as u32;

/// Makes swaps meet whole checkpoints and entries alike.
const CONFIG: Config = Config {
    shared_sync: true,
    cooling_period_ms: 15,
    compact_after: 7,
    limits: "",
};

/// The numbers of the two versions.
const VERSIONS: [&str; 2] = ["1", "1.1"];

fn seed() -> u64 {
    let seed = std::env::var("SWAP_TEST_SEED").map_or(SEED, |seed| seed.parse().expect("SWAP_TEST_SEED is a number"));
    // Printed for a failed test.
    println!("SWAP_TEST_SEED={seed}");
    seed
}

/// The active revision's number, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Active {
    revision: u64,
    version: String,
}

/// A swap during which the test killed the host.
#[derive(Debug)]
struct Cut {
    before: Active,
    /// True if the caller got the answer that the swap is done.
    answered: bool,
}

/// The outcomes of the killed swaps.
#[derive(Debug, Default)]
struct Cuts {
    kills: usize,
    /// The previous version came back.
    old: usize,
    /// The next version came back.
    new: usize,
    /// The next version came back, though the caller got no answer.
    new_unanswered: usize,
    last: Option<Cut>,
    /// The time of the last completed swap.
    whole: Option<Duration>,
}

/// The real host whose guest is swapped.
struct Swapped {
    real: Real,
    other: PathBuf,
    is_up: AtomicBool,
    is_done: AtomicBool,
    /// When to kill the host during a swap; `None` if rounds end without a swap.
    moments: Option<Mutex<ChaCha8Rng>>,
    cuts: Mutex<Cuts>,
}

impl Swapped {
    fn new(moments: Option<ChaCha8Rng>) -> Self {
        let real = Real::new(CONFIG);
        let other = real.site().path("ipam-1.1.wasm");
        fs::write(&other, renumbered::renumbered("ipam", "1", VERSIONS[1])).unwrap();
        Self {
            real,
            other,
            is_up: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            moments: moments.map(Mutex::new),
            cuts: Mutex::default(),
        }
    }

    fn site(&self) -> &Site {
        self.real.site()
    }

    fn active(&self) -> Active {
        let standing = self
            .site()
            .guest(&["status", "ipam", "--output", "json"])
            .exits(0)
            .json();
        let active = &standing[0]["active"];
        Active {
            revision: active["revision"].as_u64().unwrap(),
            version: active["version"].as_str().unwrap().to_owned(),
        }
    }

    /// The command that makes the other version the active one.
    fn swap(&self, active: &Active) -> [&str; 3] {
        let other = if active.version == VERSIONS[0] {
            self.other.to_str().unwrap()
        } else {
            "ipam@1"
        };
        ["swap", "ipam", other]
    }

    /// Swaps while the clients ask, and kills the host in the middle of it; the first time, and if the swap ends first,
    /// after it. Half of the kills aim near its end, where the outcome is decided.
    fn kill_in_swap(&self, moments: &Mutex<ChaCha8Rng>) {
        let before = self.active();
        let mut command = self.site().guest_command(&self.swap(&before));
        let began = Instant::now();
        let mut swap = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut cuts = self.cuts.lock().unwrap();
        let moment = cuts.whole.map(|whole| {
            let whole = u64::try_from(whole.as_micros()).unwrap();
            let mut moments = moments.lock().unwrap();
            let from = if moments.random_range(0..2) == 0 {
                0
            } else {
                whole * 3 / 4
            };
            Duration::from_micros(moments.random_range(from..whole * 5 / 4))
        });
        while moment.is_none_or(|moment| began.elapsed() < moment) {
            if swap.try_wait().unwrap().is_some() {
                cuts.whole = Some(began.elapsed());
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        self.real.kill();
        let answered = swap.wait().unwrap().success();
        if !answered {
            let said: Vec<String> = BufReader::new(swap.stderr.take().unwrap())
                .lines()
                .map(Result::unwrap)
                .collect();
            assert!(
                said.len() == 1 && said[0].starts_with("error: "),
                "one line says it: {said:?}"
            );
        }
        cuts.kills += 1;
        cuts.last = Some(Cut { before, answered });
    }

    /// After a kill, one of the two versions is active; it is the next one if the caller got an answer.
    fn judge(&self) {
        let mut cuts = self.cuts.lock().unwrap();
        let Some(Cut { before, answered }) = cuts.last.take() else {
            return;
        };
        let active = self.active();
        if active == before {
            assert!(!answered, "a swap that was done is lost: {active:?} is active");
            cuts.old += 1;
            return;
        }
        let next = Active {
            revision: before.revision + 1,
            version: VERSIONS[usize::from(before.version == VERSIONS[0])].to_owned(),
        };
        assert_eq!(active, next, "after {before:?}");
        cuts.new += 1;
        cuts.new_unanswered += usize::from(!answered);
    }

    /// Replays every recording with the guest that made it; returns the number of calls of each.
    #[track_caller]
    fn replays(&self) -> BTreeMap<String, usize> {
        let mut by_version: BTreeMap<String, (Vec<String>, usize)> = BTreeMap::new();
        for file in self.site().journals() {
            let text = fs::read_to_string(&file).unwrap();
            let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let version = header["header"]["version"].as_str().unwrap().to_owned();
            let (files, calls) = by_version.entry(version).or_default();
            files.push(file.to_str().unwrap().to_owned());
            *calls += text.lines().filter(|line| line.contains("\"call\":")).count();
        }
        let replay = |(version, (files, calls)): (String, (Vec<String>, usize))| {
            let mut words = vec!["replay".to_owned()];
            if version == VERSIONS[1] {
                words.extend(["--guest".to_owned(), self.other.to_str().unwrap().to_owned()]);
            }
            let count = files.len();
            words.extend(files);
            let ran = trueup(words).exits(0);
            assert_eq!(ran.said("recorded by another guest"), Vec::<&str>::new(), "{ran}");
            assert_eq!(ran.stdout.matches(": identical").count(), count, "{ran}");
            (version, calls)
        };
        by_version.into_iter().map(replay).collect()
    }

    /// The revisions have consecutive numbers, and the versions alternate.
    #[track_caller]
    fn revisions(&self) -> usize {
        let history = self.site().history("ipam");
        for (at, revision) in history.iter().enumerate() {
            assert_eq!(revision["revision"], at + 1);
            assert_eq!(revision["version"], VERSIONS[at % 2], "{history:?}");
        }
        history.len()
    }
}

impl Host for Swapped {
    fn socket(&self) -> &Path {
        self.real.socket()
    }

    fn start(&self) {
        self.real.start();
        self.judge();
        self.is_up.store(true, Ordering::Relaxed);
    }

    fn start_in_vain(&self, lives: Duration) {
        self.real.start_in_vain(lives);
    }

    fn kill(&self) {
        match &self.moments {
            Some(moments) => self.kill_in_swap(moments),
            None => self.real.kill(),
        }
    }

    fn shown(&self) -> BTreeMap<Ipv4Addr, Key> {
        self.real.shown()
    }

    fn put_pool(&self, pool: &Pool) {
        self.real.put_pool(pool);
    }

    fn release(&self, key: &Key) -> Answered {
        self.real.release(key)
    }

    fn inspect(&self) -> Result<(), String> {
        self.real.inspect()
    }

    fn is_done(&self) -> bool {
        let cuts = self.cuts.lock().unwrap();
        // The first one is not interrupted.
        let is_cut = cuts.kills > SWAPS && cuts.old > 0 && cuts.new > 1;
        self.is_done.load(Ordering::Relaxed) || is_cut
    }
}

/// Ends the clients even if a swap fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn driven(host: &Swapped, course: Course) -> Tally {
    let tally = drive(host, course).unwrap_or_else(|broken| panic!("{broken}\n{}", host.real.said()));
    println!("{tally:?}");
    tally
}

#[test]
fn while_clients_ask_each_swap_takes_all_of_the_state_along() {
    let host = Swapped::new(None);
    let course = Course {
        seed: seed(),
        rounds: u32::MAX,
        clients: CLIENTS,
        answers_max: 50 * ANSWERS_MAX,
        kills: false,
        failures: false,
        rests: true,
    };
    let tally = thread::scope(|scope| {
        let swaps = scope.spawn(|| {
            let _done = Done(&host.is_done);
            wait_until("the host", || host.is_up.load(Ordering::Relaxed));
            let mut took = Vec::new();
            for _ in 0..SWAPS {
                let active = host.active();
                let began = Instant::now();
                host.site().guest(&host.swap(&active)).exits(0);
                took.push(began.elapsed());
            }
            // Shows whether the swaps made the test slow.
            println!("swaps: {took:?}");
        });
        let tally = driven(&host, course);
        swaps.join().unwrap();
        tally
    });
    assert!(
        tally.answers > 1_000 && tally.full > 0 && tally.unanswered == 0,
        "{tally:?}"
    );
    assert_eq!(host.revisions(), 1 + SWAPS);
    let calls = host.replays();
    println!("calls by version: {calls:?}");
    assert!(VERSIONS.iter().all(|version| calls[*version] > 100), "{calls:?}");
    trueup(["audit", "verify", host.site().folder().to_str().unwrap()]).exits(0);
}

#[test]
fn a_host_killed_in_a_swap_restarts_with_either_version_and_all_state() {
    let seed = seed();
    let host = Swapped::new(Some(ChaCha8Rng::seed_from_u64(seed)));
    let course = Course {
        seed,
        rounds: KILLS_MAX,
        clients: CLIENTS,
        answers_max: ANSWERS_MAX,
        kills: true,
        failures: false,
        rests: true,
    };
    let tally = driven(&host, course);
    let cuts = host.cuts.lock().unwrap();
    println!("{cuts:?}");
    assert!(cuts.kills > SWAPS, "{cuts:?}");
    // The test has covered its subject: swaps that were interrupted before and after the host recorded them.
    assert!(cuts.old > 0 && cuts.new > 1, "{cuts:?}");
    assert!(
        tally.held > 0 && tally.free > 0 && tally.unanswered > 0,
        "kills must hit work: {tally:?}"
    );
    assert!(host.revisions() > cuts.new);
    host.replays();
    trueup(["audit", "verify", host.site().folder().to_str().unwrap()]).exits(0);
}
