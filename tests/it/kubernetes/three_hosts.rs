//! Several hosts, one Lease, one Engine: two never act at once, and nothing is lost.
//!
//! ```text
//! load -> API server <- host 1 -> relay 1 -+
//!                    <- host 2 -> relay 2 -+-> Engine
//!                    <- host 3 -> relay 3 -+
//! ```
//!
//! The hosts are processes of the real binary, each with its own state folder and user. The test judges when bytes of
//! each host came to the Engine, and which host held the Lease then. It prints how fast a Lease changes hands, and
//! requires no speed.

mod judge;
mod load;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;

use judge::{Relay, Turn};
use load::Load;
use support::api_server::{ApiServer, LeaseChange};
use support::{Engine, Site, Started, described, ran, wait_until};

/// How often to kill the leader.
const KILLS: usize = 10;

/// The seed, unless the variable `THREE_HOSTS_SEED` sets another.
const SEED: u64 = 20_261_121;

/// A short lease, which hosts can still renew in time on a machine with other work.
const SHORT: &str = "lease_duration_ms = 4000\nrenew_deadline_ms = 2800\nretry_period_ms = 200\n";

/// The lease duration in [`SHORT`].
const LEASE: Duration = Duration::from_secs(4);

/// The default times: nothing ends by its time in a shorter test.
const USUAL: &str = "";

/// The most arrivals at the Engine before a kill of the leader: about a second of its work.
const ARRIVALS_MAX: usize = 600;

/// Anything slower counts as a hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// One of several hosts, running or not.
struct Host {
    name: String,
    relay: Relay,
    site: Site,
    running: Option<Started>,
}

impl Host {
    fn new(number: usize, server: &ApiServer, engine: &Engine, election: &str) -> Self {
        let name = format!("host-{number}");
        let relay = Relay::start(engine.url().strip_prefix("http://").unwrap().parse().unwrap());
        let site = Site::against(engine);
        let edit = |from, to: &str| site.edit("trueup.toml", from, to);
        edit(
            "manifests = \"manifests\"",
            "kubernetes = { kubeconfig = \"kubeconfig\" }",
        );
        edit(engine.url(), &relay.url());
        edit(
            "backoff_initial_ms = 10\n",
            &format!("backoff_initial_ms = 10\nbackoff_max_ms = 500\n\n[election]\n{election}"),
        );
        // At times more than half of the objects go at once.
        edit("\n[guests.lbaas]\n", "\n[guests.lbaas]\napprove_above_percent = 100\n");
        fs::write(
            site.path("kubeconfig"),
            server.kubeconfig(&name, &format!("token-of-{name}")),
        )
        .unwrap();
        Self {
            name,
            relay,
            site,
            running: None,
        }
    }

    fn start(&mut self) {
        self.running = Some(self.site.start("run", &[]));
    }

    fn process(&mut self) -> &mut Started {
        self.running.as_mut().unwrap()
    }
}

/// An API server, an Engine, and running hosts.
struct Hosts<'s> {
    server: &'s ApiServer,
    engine: &'s Engine,
    hosts: Vec<Host>,
}

impl<'s> Hosts<'s> {
    /// Starts this many hosts.
    fn start(server: &'s ApiServer, engine: &'s Engine, count: usize, election: &str) -> Self {
        let hosts = (1..=count).map(|number| Host::new(number, server, engine, election));
        let mut hosts = Self {
            server,
            engine,
            hosts: hosts.collect(),
        };
        hosts.hosts.iter_mut().for_each(Host::start);
        hosts
    }

    fn changes(&self) -> Vec<LeaseChange> {
        self.server.lease_changes("default", "trueup")
    }

    fn turns(&self) -> Vec<Turn> {
        judge::turns(&self.changes())
    }

    /// The last host that took the Lease, and when.
    fn leader(&self) -> Option<(usize, Instant)> {
        let turns = self.turns();
        let (at, host) = turns
            .iter()
            .rev()
            .find_map(|turn| Some((turn.at, turn.host.as_ref()?)))?;
        let index = self.hosts.iter().position(|known| known.name == *host).unwrap();
        Some((index, at))
    }

    /// Waits until the leader has come to the Engine this often during its term; then it is in the middle of its work.
    fn leader_in_work(&self, arrivals: usize) -> usize {
        let mut leader = 0;
        wait_until("a host that leads and acts", || {
            self.leader().is_some_and(|(index, since)| {
                leader = index;
                self.hosts[index].relay.arrived_since(since) >= arrivals
            })
        });
        leader
    }

    /// Waits until some host takes the Lease after this moment.
    fn wait_for_another_turn(&self, after: Instant) {
        wait_until("a host to take the lease", || {
            self.leader().is_some_and(|(_, since)| since > after)
        });
    }

    /// Kills the leader during its work; returns its number.
    fn kill_the_leader(&mut self, arrivals: usize) -> usize {
        let leader = self.leader_in_work(arrivals);
        self.hosts[leader].running.take().unwrap().kill();
        leader
    }

    fn breaches(&self) -> Vec<String> {
        let arrivals: BTreeMap<String, Vec<Instant>> = self
            .hosts
            .iter()
            .map(|host| (host.name.clone(), host.relay.arrivals()))
            .collect();
        judge::breaches(&self.turns(), &arrivals)
    }

    /// Waits until the last wish is in effect for the API server, the Engine and each host.
    fn come_true(&self, load: &Load<'_>) {
        let began = Instant::now();
        let objects = || described(&self.engine.objects());
        while !load.untrue().is_empty() || objects() != load.objects() {
            assert!(
                began.elapsed() < PATIENCE,
                "untrue: {:?}\nwanted: {:#?}\nthere: {:#?}\n{}",
                load.untrue(),
                load.objects(),
                objects(),
                self.said()
            );
            thread::sleep(Duration::from_millis(50));
        }
        for host in &self.hosts {
            // A plan does not act as a host: it needs no lease, and its reads must not be judged.
            host.site.edit("trueup.toml", &host.relay.url(), self.engine.url());
            let plan = ran(&mut host.site.command("plan", &["--orphans"])).exits(0);
            assert!(plan.stdout.contains(" 0 to create, 0 to destroy, 0 failed"), "{plan}");
            assert!(plan.stdout.contains("0 orphans: "), "{plan}");
        }
    }

    /// The hosts' logs, for the messages of assertions.
    fn said(&self) -> String {
        let said = self.hosts.iter().filter_map(|host| {
            let running = host.running.as_ref()?;
            Some(format!("--- {}\n{}\n{}", host.name, running.stdout(), running.stderr()))
        });
        said.collect()
    }

    /// Ends all hosts cleanly, and judges their work.
    fn end(mut self) {
        for host in &mut self.hosts {
            if let Some(running) = host.running.take() {
                running.terminate().0.exits(0);
            }
        }
        let breaches = self.breaches();
        assert!(
            breaches.is_empty(),
            "{} arrivals without the lease: {:#?}\n{:#?}",
            breaches.len(),
            breaches.iter().take(10).collect::<Vec<_>>(),
            self.turns()
        );
    }
}

/// Keeps a load running; dropping the value ends it, so that a failed test ends too.
struct Running<'scope, 's> {
    stop: &'scope AtomicBool,
    thread: Option<ScopedJoinHandle<'scope, Load<'s>>>,
}

impl<'s> Running<'_, 's> {
    /// Ends the load; the last wish remains.
    fn finish(mut self) -> Load<'s> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Runs hosts under load.
fn under_load(count: usize, election: &str, seed: u64, test: impl FnOnce(Hosts<'_>, Running<'_, '_>)) {
    // Slow enough that some work is always in flight.
    let (server, engine) = (
        ApiServer::start(),
        Engine::start(&["--latency-ms", "3", "--settle-ms", "10"]),
    );
    let load = Load::new(&server, seed);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = Running {
            stop: &stop,
            thread: Some(scope.spawn(|| load.run(&stop))),
        };
        test(Hosts::start(&server, &engine, count, election), running);
    });
}

/// How the Lease changed hands: for each host that took it from another process, the time since that one's last write,
/// and whether that write gave the Lease back.
fn handovers(changes: &[LeaseChange]) -> Vec<(Duration, bool)> {
    let pairs = changes.windows(2);
    let taken = pairs.filter(|pair| pair[0].holder != pair[1].holder && !pair[1].holder.is_empty());
    taken
        .map(|pair| (pair[1].at - pair[0].at, pair[0].holder.is_empty()))
        .collect()
}

#[test]
fn three_hosts_with_one_lease_never_act_together_and_lose_nothing() {
    let seed =
        std::env::var("THREE_HOSTS_SEED").map_or(SEED, |seed| seed.parse().expect("THREE_HOSTS_SEED is a number"));
    // Printed for a failed test.
    println!("THREE_HOSTS_SEED={seed}");
    let began = Instant::now();
    under_load(3, SHORT, seed, |mut hosts, load| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut half_done = 0;
        for kill in 0..KILLS {
            if kill == KILLS / 2 {
                stop_and_continue(&mut hosts);
            }
            let killed = hosts.kill_the_leader(random.random_range(1..ARRIVALS_MAX));
            let at = Instant::now();
            half_done += u32::from(hosts.engine.objects().iter().any(|object| object.tags.is_empty()));
            // A host that restarts at once may be the next leader, too.
            if random.random_range(0..2) == 0 {
                hosts.hosts[killed].start();
                hosts.wait_for_another_turn(at);
            } else {
                hosts.wait_for_another_turn(at);
                hosts.hosts[killed].start();
            }
        }
        let after_kills = handovers(&hosts.changes());
        hand_over(&mut hosts);

        let load = load.finish();
        hosts.come_true(&load);
        assert!(load.deletions > 0);
        let mut pauses: Vec<Duration> = after_kills
            .iter()
            .filter(|(_, given_back)| !given_back)
            .map(|(pause, _)| *pause)
            .collect();
        pauses.sort();
        println!(
            "{:?}: {} changes, {} of them deletions; {half_done} of {KILLS} kills left an object without a tag; a lease of \
             {LEASE:?} went over after {pauses:?}, and when it was given back after {:?}",
            began.elapsed(),
            load.changes,
            load.deletions,
            handovers(&hosts.changes()).last(),
        );
        assert!(pauses.len() >= KILLS && pauses[0] >= LEASE, "{pauses:?}");
        hosts.end();
    });
}

/// A leader that is stopped until another one leads, and then continued, notices that before it acts.
fn stop_and_continue(hosts: &mut Hosts<'_>) {
    let stopped = hosts.leader_in_work(ARRIVALS_MAX);
    hosts.hosts[stopped].process().signal(Signal::STOP);
    hosts.wait_for_another_turn(Instant::now());
    // By now the other one is working.
    assert_ne!(hosts.leader_in_work(ARRIVALS_MAX), stopped);
    let process = hosts.hosts[stopped].process();
    process.signal(Signal::CONT);
    process.wait_for_warning("no longer leading");
}

/// A leader that is asked to end gives the Lease back, and another one takes it before it would have expired.
fn hand_over(hosts: &mut Hosts<'_>) {
    let leader = hosts.leader_in_work(ARRIVALS_MAX);
    let written = hosts.changes().len();
    hosts.hosts[leader].running.take().unwrap().terminate().0.exits(0);
    let name = hosts.hosts[leader].name.clone();
    let mut since = Vec::new();
    wait_until("another host to take what was given back", || {
        since = hosts.changes().split_off(written);
        since.iter().any(|change| change.user != name)
    });
    let mut words = since.iter().skip_while(|change| !change.holder.is_empty());
    let given_back = words.next().unwrap();
    assert_eq!(given_back.user, name, "{since:#?}");
    let taken = words.next().unwrap();
    assert!(taken.user != name && !taken.holder.is_empty(), "{since:#?}");
    hosts.leader_in_work(1);
    hosts.hosts[leader].start();
}

#[test]
fn hosts_stop_acting_without_the_api_server_and_go_on_when_it_is_back() {
    under_load(2, SHORT, SEED, |mut hosts, load| {
        let leader = hosts.leader_in_work(ARRIVALS_MAX);
        hosts.server.go_away();
        let away = Instant::now();
        hosts.hosts[leader]
            .process()
            .wait_for_warning("no longer leading: could not renew in time");
        // Twice the lease: the test would notice a host that still acts.
        thread::sleep((away + 2 * LEASE).saturating_duration_since(Instant::now()));
        let back = Instant::now();
        hosts.server.come_back();
        wait_until("a renewal", || {
            hosts.changes().last().is_some_and(|change| change.at > back)
        });
        assert!(
            hosts
                .turns()
                .iter()
                .any(|turn| turn.host.is_none() && turn.at > away && turn.at < back),
            "the lease ended meanwhile: {:#?}",
            hosts.turns()
        );
        wait_until("work", || {
            hosts.hosts.iter().any(|host| host.relay.arrived_since(back) > 0)
        });
        let load = load.finish();
        hosts.come_true(&load);
        hosts.end();
    });
}

#[test]
fn a_leader_leads_on_after_a_reload_and_hands_over_at_its_end() {
    under_load(2, USUAL, SEED, |mut hosts, load| {
        let leader = hosts.leader_in_work(ARRIVALS_MAX);
        hosts.hosts[leader]
            .site
            .edit("trueup.toml", "backoff_max_ms = 500", "backoff_max_ms = 400");
        let process = hosts.hosts[leader].process();
        process.signal(Signal::HUP);
        process.wait_for("trueup.toml is read again and taken");
        let now = Instant::now();
        wait_until("work, and renewals", || {
            hosts.hosts[leader].relay.arrived_since(now) > 0
                && hosts.changes().last().is_some_and(|change| change.at > now)
        });
        let holders = |hosts: &Hosts<'_>| {
            let mut holders: Vec<String> = hosts.changes().into_iter().map(|change| change.holder).collect();
            holders.dedup();
            holders
        };
        assert_eq!(holders(&hosts).len(), 1, "one term: {:#?}", hosts.turns());
        // Its lease would still last for many seconds.
        hand_over(&mut hosts);
        assert_eq!(holders(&hosts).len(), 3, "{:#?}", hosts.turns());
        assert_eq!(holders(&hosts)[1], "");
        let load = load.finish();
        hosts.come_true(&load);
        hosts.end();
    });
}

#[test]
fn what_waits_on_the_leader_waits_on_the_next_one_too() {
    let (server, engine) = (ApiServer::start(), Engine::start(&["--settle-ms", "5"]));
    let mut load = Load::new(&server, SEED);
    let mut hosts = Hosts::start(&server, &engine, 0, SHORT);
    for number in 1..=2 {
        let mut host = Host::new(number, &server, &engine, SHORT);
        host.site.edit(
            "trueup.toml",
            "approve_above_percent = 100",
            "approve_above_percent = 50",
        );
        host.start();
        hosts.hosts.push(host);
    }
    wait_until("all objects", || described(&engine.objects()) == load.objects());
    let leader = hosts.leader_in_work(1);
    let waits = |hosts: &Hosts<'_>, host: usize| {
        let status = ran(&mut hosts.hosts[host].site.command_of(&["status", "--config"], &[]));
        status
            .last_line()
            .contains("guest `lbaas` waits for an approval to destroy ")
    };
    let before = engine.objects().len();
    load.delete_calm();
    wait_until("the leader to wait", || waits(&hosts, leader));

    let at = Instant::now();
    hosts.hosts[leader].running.take().unwrap().terminate();
    // What began before the leader waited has come to its end.
    let left = engine.objects();
    assert!(2 * left.len() >= before, "{} of {before}", left.len());
    hosts.wait_for_another_turn(at);
    let standby = 1 - leader;
    wait_until("the standby to wait", || waits(&hosts, standby));
    assert_eq!(described(&engine.objects()), described(&left));
    ran(&mut hosts.hosts[standby].site.command_of(&["approve", "--config"], &[])).exits(0);
    wait_until("what was deleted to go", || {
        described(&engine.objects()) == load.objects()
    });
}

#[test]
fn a_command_to_a_standby_names_the_leader() {
    let (server, engine) = (ApiServer::start(), Engine::start(&[]));
    let load = Load::new(&server, SEED);
    let mut hosts = Hosts::start(&server, &engine, 1, USUAL);
    hosts.leader_in_work(1);
    let mut standby = Host::new(2, &server, &engine, USUAL);
    standby.start();
    hosts.hosts.push(standby);
    let [leader, standby] = [0, 1].map(|index| &hosts.hosts[index].site);
    let mut identity = String::new();
    wait_until("the standby to know the leader", || {
        let status = ran(&mut standby.command_of(&["status", "--config"], &["--output", "json"]));
        status.code == Some(0) && {
            identity = status.json()["host"]["leader"].as_str().unwrap_or_default().to_owned();
            !identity.is_empty()
        }
    });
    let status = ran(&mut standby.command_of(&["status", "--config"], &[])).exits(0);
    assert_eq!(status.last_line(), format!("standby: `{identity}` leads; ask it"));
    let approve = ran(&mut standby.command_of(&["approve", "--config"], &[])).exits(1);
    let why = format!("this host is a standby, where nothing waits for an approval; `{identity}` leads: ask it");
    assert!(approve.stderr.contains(&why), "{approve}");
    let all = ran(&mut standby.command_of(&["status", "--config"], &["--keys", "--output", "json"])).json();
    let key = all["all_keys"][0]["key"].as_str().unwrap().to_owned();
    let reconcile = ran(&mut standby.command_of(&["reconcile", &key, "--config"], &[])).exits(1);
    let why = format!("this host is a standby, where no key is reconciled; `{identity}` leads: ask it");
    assert!(reconcile.stderr.contains(&why), "{reconcile}");
    let note = format!("this host is a standby: `{identity}` leads and keeps its own version; type it there too\n");
    let swapped = standby.guest(&["swap", "lbaas", "lbaas@2", "--gate", "off"]).exits(0);
    assert!(swapped.stderr.contains(&note), "{swapped}");
    let back = standby.guest(&["rollback", "lbaas"]).exits(0);
    assert!(back.stderr.contains(&note), "{back}");
    let swapped = leader.guest(&["swap", "lbaas", "lbaas@2", "--gate", "off"]).exits(0);
    assert!(!swapped.stderr.contains("standby"), "{swapped}");
    drop(load);
}

#[test]
fn a_host_that_acts_without_an_election_is_found_out() {
    let (server, engine) = (ApiServer::start(), Engine::start(&[]));
    let load = Load::new(&server, SEED);
    let mut hosts = Hosts::start(&server, &engine, 1, USUAL);
    hosts.leader_in_work(1);
    assert_eq!(hosts.breaches(), [""; 0]);
    let mut other = Host::new(2, &server, &engine, "enabled = false\n");
    other.start();
    hosts.hosts.push(other);
    wait_until("the other host to act", || {
        hosts
            .breaches()
            .iter()
            .any(|breach| breach.contains("after host-1 came to hold the lease"))
    });
    assert!(hosts.breaches().iter().all(|breach| breach.starts_with("host-2, ")));
    drop(load);
}
