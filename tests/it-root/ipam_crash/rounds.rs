//! Clients that get and release addresses until the host dies under them, again and again.
//!
//! ```text
//! start -> read all -> clients ask --kill--> inspect -> releases, other ENIs -> start -> ...
//! ```
//! Each client has its own network, so that it knows every request for its keys; all share the pool of addresses. The
//! ledger decides what is right and wrong, not this code.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use support::kills::{self, World};

use super::ledger::{Answered, Asked, Broken, FULL, Key, Ledger};

/// How many clients ask at the same time by default.
pub(crate) const CLIENTS: u64 = 8;

/// The same for every client: keys must be distinct even if only the network differs.
const CONTAINERS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const INTERFACES: [&str; 2] = ["eth0", "eth1"];

/// Fewer than the keys, and fewer than clients want to hold: addresses change hands, and run out.
const ADDRESSES: u8 = 24;

/// Device numbers of the ENIs, which share the addresses.
const DEVICES: [i64; 2] = [0, 1];

/// The device number of an ENI that takes another's place.
const SPARE_DEVICE: i64 = 2;

/// The default for the most answers before a round ends.
pub(crate) const ANSWERS_MAX: usize = 15;

/// The longest delay after that: some operation is always in flight, and the kill may hit any part of it.
const DELAY_MAX_US: u64 = 8_000;

/// On a machine with other work, an answer may take long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each address, with the device number of its ENI; `None` if no ENI has it.
pub(crate) type Pool = BTreeMap<Ipv4Addr, Option<i64>>;

/// A host that the rounds can start, ask and kill.
pub(crate) trait Host: Sync {
    fn socket(&self) -> &Path;

    /// Returns once the host serves.
    fn start(&self);

    /// Starts it, and kills it after this time, whatever its progress.
    fn start_in_vain(&self, lives: Duration);

    /// Like `kill -9`.
    fn kill(&self);

    /// Every held address, as the host lists them.
    fn shown(&self) -> BTreeMap<Ipv4Addr, Key>;

    /// Replaces the list of ENIs.
    fn put_pool(&self, pool: &Pool);

    /// DEL by the plugin, whether the host is up or not.
    fn release(&self, key: &Key) -> Answered;

    /// Inspects what a killed host left behind, and returns what is wrong with it, if anything.
    fn inspect(&self) -> Result<(), String>;

    /// Whether no further round is needed.
    fn is_done(&self) -> bool {
        false
    }
}

/// What to do to a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    pub(crate) seed: u64,
    /// The most rounds; with kills, the number of kills.
    pub(crate) rounds: u32,
    /// How many clients ask at the same time.
    pub(crate) clients: u64,
    /// The most answers before a round ends.
    pub(crate) answers_max: usize,
    /// If true, every round kills the host and changes ENIs; otherwise the host survives all rounds.
    pub(crate) kills: bool,
    /// Whether operations may fail for other reasons than a lack of free addresses.
    pub(crate) failures: bool,
    /// Whether released addresses may be unavailable for some time.
    pub(crate) rests: bool,
}

/// The totals of a run without violations: they show whether the test has covered its subject.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) answers: usize,
    pub(crate) full: usize,
    /// Errors other than those that report a state.
    pub(crate) failures: usize,
    pub(crate) unanswered: usize,
    /// The outcome of the operations without an answer, according to the next reading.
    pub(crate) held: u32,
    pub(crate) free: u32,
    /// Releases by the plugin while the host was down.
    pub(crate) spooled: u32,
    /// Hosts killed before they served.
    pub(crate) in_vain: u32,
    /// Readings that found an allocation whose address was not in the list of ENIs.
    pub(crate) unrouted: u32,
}

/// Answers, counted by concurrent clients.
#[derive(Default)]
struct Counts {
    answers: AtomicUsize,
    full: AtomicUsize,
    failures: AtomicUsize,
    unanswered: AtomicUsize,
}

/// One client's network and state.
struct Client {
    name: String,
    random: ChaCha8Rng,
    keys: Vec<Key>,
    /// Keys whose address is on no ENI: ADD may return another one then, so the client does not ask.
    unrouted: BTreeSet<Key>,
    failures: bool,
}

/// Asks the host once.
pub(crate) fn ask(socket: &Path, question: &Value) -> Result<Value, Answered> {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return Err(Answered::Unsent);
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A host that dies while the client writes may have read it all.
    _ = writeln!(stream, "{question}");
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Ok(_) if line.ends_with('\n') => Ok(serde_json::from_str(&line).unwrap()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer to {question} in {PATIENCE:?}"),
        _ => Err(Answered::Nothing),
    }
}

/// Makes a request.
pub(crate) fn done(socket: &Path, asked: &Asked<'_>) -> Answered {
    let about = |command: &str, key: &Key| {
        json!({"v": 1, "command": command, "instance": null,
               "network": key.network, "containerId": key.container, "ifName": key.interface})
    };
    let question = match asked {
        Asked::Add(key) => about("ADD", key),
        Asked::Del(key) | Asked::Release(key) => about("DEL", key),
        Asked::Check(key) => about("CHECK", key),
        Asked::Gc(all, stay) => {
            let valid: Vec<Value> = stay.iter().map(|key| json!([key.container, key.interface])).collect();
            json!({"v": 1, "command": "GC", "instance": null,
                   "network": all[0].network, "valid": valid, "gcMigrated": false})
        }
    };
    let answer = match ask(socket, &question) {
        Ok(answer) => answer,
        Err(none) => return none,
    };
    if let Some(error) = answer.get("error") {
        let text = error["msg"].as_str().unwrap();
        return Answered::Refused(error["code"].as_u64().unwrap(), text.to_owned());
    }
    match (asked, answer["ok"].get("ip")) {
        (Asked::Add(_) | Asked::Check(_) | Asked::Del(_), Some(ip)) => Answered::Address(
            ip.as_str().unwrap().parse().unwrap(),
            answer["ok"]["deviceNumber"].as_i64().unwrap(),
        ),
        (Asked::Add(_) | Asked::Check(_), None) => panic!("{question} is answered {answer}"),
        _ => Answered::Done,
    }
}

/// An ENI's address, counted from 0.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number + 1)
}

/// All addresses on their usual ENIs.
fn whole_pool() -> Pool {
    (0..ADDRESSES)
        .map(|number| (address(number), Some(DEVICES[usize::from(number % 2)])))
        .collect()
}

/// Some addresses are gone, some are on another ENI; now and then a whole ENI is gone.
fn other_pool(random: &mut ChaCha8Rng) -> Pool {
    let mut pool = whole_pool();
    for device in pool.values_mut() {
        match random.random_range(0..10) {
            0 => *device = None,
            1 => *device = Some(DEVICES[random.random_range(0..DEVICES.len())]),
            _ => {}
        }
    }
    if random.random_range(0..4) == 0 {
        let gone = Some(DEVICES[random.random_range(0..DEVICES.len())]);
        pool.values_mut()
            .filter(|device| **device == gone)
            .for_each(|device| *device = None);
    }
    pool
}

/// In the words of a history.
fn described(pool: &Pool) -> String {
    let mut text = "ENIs with all their addresses".to_owned();
    let home = whole_pool();
    for (address, device) in pool.iter().filter(|(address, device)| home[*address] != **device) {
        text += &device.map_or_else(
            || format!(", but {address}"),
            |device| format!(", but {address} on {device}"),
        );
    }
    text
}

impl Client {
    fn new(Course { seed, failures, .. }: Course, number: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(number + 1);
        let key = |container: &str, interface: &str| Key {
            network: format!("net-{number}"),
            container: container.to_owned(),
            interface: interface.to_owned(),
        };
        let keys = CONTAINERS
            .iter()
            .flat_map(|container| INTERFACES.map(|interface| key(container, interface)));
        Self {
            name: format!("client {number}"),
            random,
            keys: keys.collect(),
            unrouted: BTreeSet::new(),
            failures,
        }
    }

    /// Makes one request; false if there is no host.
    fn step(&mut self, host: &impl Host, ledger: &Ledger, counts: &Counts) -> bool {
        let chance = self.random.random_range(0..100);
        let key = &self.keys[self.random.random_range(0..self.keys.len())];
        let mut stay = BTreeSet::new();
        for key in &self.keys {
            if self.random.random_range(0..4) != 0 {
                stay.insert(key.clone());
            }
        }
        let again = !self.unrouted.contains(key);
        let asked = match (ledger.holds(key), chance) {
            (Some(true), 0..20) if again => Asked::Add(key),
            (Some(true), 0..35) => Asked::Check(key),
            (Some(true), 35..45) => Asked::Gc(&self.keys, &stay),
            (Some(true), 45..50) if !self.failures => Asked::Release(key),
            (Some(true), _) => Asked::Del(key),
            (_, 0..80) => Asked::Add(key),
            (_, 80..90) => Asked::Check(key),
            _ => Asked::Del(key),
        };
        let answered = ledger.carry_out(&self.name, asked, || match asked {
            Asked::Release(key) => host.release(key),
            _ => done(host.socket(), &asked),
        });
        let count = match &answered {
            Answered::Unsent => return false,
            Answered::Nothing => {
                counts.unanswered.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Answered::Refused(_, text) if text == FULL => Some(&counts.full),
            Answered::Refused(code, _) if *code != 3 => Some(&counts.failures),
            _ => None,
        };
        for count in count.into_iter().chain([&counts.answers]) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

/// A host with its clients.
struct Rounds<'a, H> {
    host: &'a H,
    course: Course,
    ledger: Ledger,
    clients: Vec<Client>,
    pool: Pool,
    counts: Counts,
    tally: Tally,
}

/// Runs the course on a host, which is dead before and after. `Err` with a violation.
pub(crate) fn drive(host: &impl Host, course: Course) -> Result<Tally, Broken> {
    let clients: Vec<Client> = (0..course.clients).map(|number| Client::new(course, number)).collect();
    let keys = clients.iter().flat_map(|client| client.keys.clone());
    let mut rounds = Rounds {
        host,
        course,
        ledger: Ledger::new(keys, course.failures),
        clients,
        pool: whole_pool(),
        counts: Counts::default(),
        tally: Tally::default(),
    };
    host.put_pool(&rounds.pool);
    let ended = rounds.all();
    host.kill();
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let tally = Tally {
        answers: count(&rounds.counts.answers),
        full: count(&rounds.counts.full),
        failures: count(&rounds.counts.failures),
        unanswered: count(&rounds.counts.unanswered),
        ..rounds.tally
    };
    match ended {
        Ok(()) => Ok(tally),
        Err(broken) => Err(Broken {
            what: format!("{} (seed {}, after {tally:?})", broken.what, course.seed),
            ..broken
        }),
    }
}

impl<H: Host> Rounds<'_, H> {
    fn all(&mut self) -> Result<(), Broken> {
        let mut random = ChaCha8Rng::seed_from_u64(self.course.seed);
        if self.course.kills {
            kills::drive(self, self.course.rounds, &mut random);
            self.ledger.broken()?;
            self.change_pool(whole_pool());
        }
        self.start(&mut random);
        self.read();
        while !self.course.kills && !self.is_over() {
            self.work(&mut random);
            self.read();
        }
        self.ledger.broken()?;
        self.hand_out_all()
    }

    /// Starts the host. Now and then kills it before it serves.
    fn start(&mut self, random: &mut ChaCha8Rng) {
        if self.course.kills && random.random_range(0..8) == 0 {
            let lives = Duration::from_millis(random.random_range(0..400));
            self.host.start_in_vain(lives);
            self.tally.in_vain += 1;
            self.ledger.note(format!("started for {lives:?}, and killed"));
        }
        self.host.start();
        self.ledger.note("started".to_owned());
    }

    fn change_pool(&mut self, pool: Pool) {
        self.pool = pool;
        self.ledger.note(described(&self.pool));
        self.host.put_pool(&self.pool);
    }

    /// Reads all holders while no client asks for anything.
    fn read(&mut self) {
        let mut found = BTreeMap::new();
        for client in &mut self.clients {
            client.unrouted.clear();
            for key in &client.keys {
                let check = Asked::Check(key);
                let holds = loop {
                    match done(self.host.socket(), &check) {
                        Answered::Address(address, device) => break Some((address, device)),
                        Answered::Refused(3, _) => break None,
                        // The host is replacing the instance.
                        Answered::Refused(11, _) if self.course.failures => thread::sleep(Duration::from_millis(1)),
                        other => {
                            self.ledger
                                .breaks(std::slice::from_ref(key), format!("{check} -> {other}"));
                            break None;
                        }
                    }
                };
                if let Some((address, device)) = holds {
                    // If the list has no place for it, a host may still know its earlier place, or hold it without an
                    // ENI.
                    let listed = self.pool.get(&address).copied().flatten();
                    // A running host drops an address only when no pod uses it.
                    if let Some(is) = listed
                        && self.course.kills
                        && device != is
                    {
                        let what = format!("{key} holds {address} of the device {device}, but it is on {is}");
                        self.ledger.breaks(std::slice::from_ref(key), what);
                    }
                    if listed.is_none() {
                        self.tally.unrouted += 1;
                    }
                    if device < 0 {
                        client.unrouted.insert(key.clone());
                    }
                }
                found.insert(key.clone(), holds.map(|(address, _)| address));
            }
        }
        let decided = self.ledger.read(&found, &self.host.shown());
        self.tally.held += decided.held;
        self.tally.free += decided.free;
    }

    /// All clients ask until the round has enough answers; then, while they still ask, kills the host.
    fn work(&mut self, random: &mut ChaCha8Rng) {
        let enough = self.counts.answers.load(Ordering::Relaxed) + random.random_range(0..self.course.answers_max);
        let delay = Duration::from_micros(random.random_range(0..DELAY_MAX_US));
        let pool = (self.course.kills && random.random_range(0..5) == 0).then(|| other_pool(random));
        let (host, ledger, counts, stop) = (self.host, &self.ledger, &self.counts, &AtomicBool::new(false));
        let kills = self.course.kills;
        thread::scope(|scope| {
            for client in &mut self.clients {
                scope.spawn(move || while !stop.load(Ordering::Relaxed) && client.step(host, ledger, counts) {});
            }
            let began = Instant::now();
            while counts.answers.load(Ordering::Relaxed) < enough && !ledger.is_broken() {
                assert!(began.elapsed() < PATIENCE, "the clients are stuck");
                thread::sleep(Duration::from_micros(200));
            }
            if let Some(pool) = pool {
                ledger.note(described(&pool));
                host.put_pool(&pool);
                self.pool = pool;
            }
            thread::sleep(delay);
            if kills {
                host.kill();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// Nothing got lost: each address can be given out exactly once.
    fn hand_out_all(&mut self) -> Result<(), Broken> {
        for client in &self.clients {
            let all = Asked::Gc(&client.keys, &BTreeSet::new());
            self.until_done(all)?;
        }
        let mut keys = self.clients.iter().flat_map(|client| &client.keys);
        for key in keys.by_ref().take(ADDRESSES.into()) {
            self.until_done(Asked::Add(key))?;
        }
        let add = Asked::Add(keys.next().unwrap());
        let answered = loop {
            match self
                .ledger
                .carry_out("at the end", add, || done(self.host.socket(), &add))
            {
                Answered::Refused(11, text) if self.course.failures && text != FULL => {}
                answered => break answered,
            }
        };
        if answered != Answered::Refused(11, FULL.to_owned()) {
            self.ledger
                .breaks(&[], format!("{add} when all {ADDRESSES} are given out -> {answered}"));
        }
        self.ledger.broken()
    }

    /// Repeats it while addresses rest, and while it may fail.
    fn until_done(&self, asked: Asked<'_>) -> Result<(), Broken> {
        let began = Instant::now();
        while let Answered::Refused(..) = self
            .ledger
            .carry_out("at the end", asked, || done(self.host.socket(), &asked))
        {
            self.ledger.broken()?;
            let may_wait = self.course.failures || self.course.rests;
            if !may_wait || began.elapsed() > PATIENCE {
                self.ledger
                    .breaks(asked.keys(), format!("{asked} does not come to anything"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.ledger.broken()
    }
}

impl<H: Host> World for Rounds<'_, H> {
    fn edit(&mut self, random: &mut ChaCha8Rng) {
        let address = address(random.random_range(0..ADDRESSES));
        let device = DEVICES[random.random_range(0..DEVICES.len())];
        let mut pool = self.pool.clone();
        match random.random_range(0..9) {
            0..3 if !self.course.failures => {
                let client = &self.clients[random.random_range(0..self.clients.len())];
                let key = &client.keys[random.random_range(0..client.keys.len())];
                let release = Asked::Release(key);
                self.ledger
                    .carry_out("while it is down", release, || self.host.release(key));
                self.tally.spooled += 1;
                return;
            }
            // An address leaves, or comes to an ENI, perhaps another one.
            3 => _ = pool.insert(address, None),
            4 => _ = pool.insert(address, Some(device)),
            // An ENI is replaced.
            5 => {
                let its = pool.values_mut().filter(|is| **is == Some(device));
                its.for_each(|is| *is = Some(SPARE_DEVICE));
            }
            6 => pool = other_pool(random),
            _ => pool = whole_pool(),
        }
        self.change_pool(pool);
    }

    fn kill(&mut self, random: &mut ChaCha8Rng) -> bool {
        self.start(random);
        self.read();
        self.work(random);
        self.ledger.note("killed".to_owned());
        // The next host would hide any damage, so check now.
        if random.random_range(0..4) == 0
            && let Err(wrong) = self.host.inspect()
        {
            self.ledger.breaks(&[], wrong);
        }
        true
    }

    fn settle(&mut self, random: &mut ChaCha8Rng) {
        self.start(random);
        self.read();
        self.host.kill();
    }

    fn is_over(&self) -> bool {
        self.host.is_done() || self.ledger.is_broken()
    }
}
