//! Hosts with wrong clocks, pauses, lost answers, deaths and clean stops, against a model of the API server in
//! simulated time. Two hosts must never act at the same moment; and when faults end, one acts. The model drives
//! [`Campaign`] as `run.rs` does, one request at a time. Its server keeps the API server's promises: it serializes
//! writes, and each replaces the version that it names.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use trueup_base::fence::Moment;

use super::*;

const TIMES: Times = Times {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// How much too fast or too slow a clock may run. Two of them differ by less than the margin, one part in ten.
const RATE_PER_MILLE: i64 = 45;

/// The maximum time of one step of the model. Events of one moment happen in the order of hosts.
const TICK_US: u64 = 20_000;

/// The maximum number of hosts of a plan, and the number that means the one that acts.
const ACTING: usize = 4;

/// How soon after the last fault a host must lead: a lease, the slowest look, and requests lost at the very end.
const RECOVERY_US: u64 = 40_000_000;

/// A fault.
#[derive(Debug, Clone)]
enum Fault {
    /// A host is stopped for this long, as after SIGSTOP. Its clock goes on.
    Pause { host: usize, us: u64 },
    /// A host dies, and is started again after this long.
    Kill { host: usize, us: u64 },
    /// A host stops cleanly, and is started again after this long.
    Resign { host: usize, us: u64 },
    /// No request of a host arrives for this long.
    Cut { host: usize, us: u64 },
    /// Requests of a host arrive, but no answers do, for this long.
    Mute { host: usize, us: u64 },
    /// The server is down for this long.
    Away { us: u64 },
    /// A third party changes fields that do not belong to the election.
    Touch,
    /// A third party removes the holder's name.
    Clear,
    /// A third party deletes the Lease, once every host has seen it.
    Delete,
}

#[derive(Debug, Clone)]
struct Plan {
    /// For each host: its clock's time at the start, in seconds, and how much too fast it is, per mille.
    clocks: Vec<(u64, i64)>,
    /// The delays of requests and of answers, in microseconds, repeated in order.
    delays_us: Vec<u64>,
    /// Faults, and when, in microseconds after the one before.
    faults: Vec<(u64, Fault)>,
    seed: u64,
    /// All hosts have the same name, which is wrong. It may cost time but nothing else.
    twins: bool,
}

fn plans(fault: impl Strategy<Value = Fault>) -> impl Strategy<Value = Plan> {
    let clocks = prop::collection::vec((0..1_000_000u64, -RATE_PER_MILLE..=RATE_PER_MILLE), 2..=ACTING);
    // Mostly fast; some slower than the timeout of a request.
    let delay = prop_oneof![6 => 0..50_000u64, 2 => 0..1_000_000u64, 2 => 0..4_000_000u64, 1 => 0..9_000_000u64];
    let delays = prop::collection::vec(delay, 1..40);
    let faults = prop::collection::vec((pauses_us(), fault), 0..30);
    let twins = prop::bool::weighted(0.2);
    (clocks, delays, faults, any::<u64>(), twins).prop_map(|(clocks, delays_us, faults, seed, twins)| Plan {
        clocks,
        delays_us,
        faults,
        seed,
        twins,
    })
}

/// The pause between two faults: often one comes right after the other.
fn pauses_us() -> impl Strategy<Value = u64> {
    prop_oneof![0..500_000u64, 0..3_000_000u64, 0..20_000_000u64]
}

/// How long a fault lasts: shorter than a renewal, than the deadline, or longer than a lease.
fn times_us() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..4_000_000u64, 0..12_000_000u64, 10_000_000..40_000_000u64]
}

/// Mistakes by hand. A host that starts while the Lease is gone can't know that another one acts.
fn by_hand() -> impl Strategy<Value = Fault> {
    let (host, us) = (0..=ACTING, times_us());
    prop_oneof![
        (host.clone(), us.clone()).prop_map(|(host, us)| Fault::Pause { host, us }),
        (host.clone(), us.clone()).prop_map(|(host, us)| Fault::Cut { host, us }),
        (host, us.clone()).prop_map(|(host, us)| Fault::Mute { host, us }),
        us.prop_map(|us| Fault::Away { us }),
        Just(Fault::Clear),
        Just(Fault::Delete),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let (host, us) = (0..=ACTING, times_us());
    let restart = 0..5_000_000u64;
    prop_oneof![
        (host.clone(), us.clone()).prop_map(|(host, us)| Fault::Pause { host, us }),
        (host.clone(), restart.clone()).prop_map(|(host, us)| Fault::Kill { host, us }),
        (host.clone(), restart).prop_map(|(host, us)| Fault::Resign { host, us }),
        (host.clone(), us.clone()).prop_map(|(host, us)| Fault::Cut { host, us }),
        (host, us.clone()).prop_map(|(host, us)| Fault::Mute { host, us }),
        us.prop_map(|us| Fault::Away { us }),
        Just(Fault::Touch),
    ]
}

/// The Lease, as the API server keeps it.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
    away_until: u64,
}

impl Server {
    fn write(&mut self, mut lease: Lease) -> Answer {
        let now = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        if lease.metadata.resource_version != now {
            return Answer::Conflict;
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Answer::Wrote(lease)
    }
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a model moves few of them")]
enum Request {
    Get,
    Write(Lease),
}

#[derive(Clone)]
enum Answer {
    Is(Option<Lease>),
    Wrote(Lease),
    Conflict,
}

/// A request under way. It arrives even if its host no longer waits for it.
struct Flight {
    host: usize,
    incarnation: u32,
    number: u64,
    arrives: u64,
    request: Option<Request>,
    back_us: u64,
    answer: Option<(u64, Answer)>,
}

struct Host {
    campaign: Campaign,
    incarnation: u32,
    offset_us: u64,
    rate_per_mille: i64,
    /// The request that it waits for: its number, when it was sent, until when it waits, and whether it gives the
    /// Lease back.
    waiting: Option<(u64, Moment, Moment, bool)>,
    paused_until: u64,
    /// If set, it is not running and starts at this time.
    down_until: Option<u64>,
    resigning: bool,
    cut_until: u64,
    mute_until: u64,
    /// Like the fence: it may act before this moment.
    fence: Option<Moment>,
}

impl Host {
    /// Its own clock.
    fn clock(&self, us: u64) -> Moment {
        let rate = u64::try_from(1000 + self.rate_per_mille).unwrap();
        Moment::after_start(Duration::from_micros(self.offset_us + us * rate / 1000))
    }

    fn may_act(&self, us: u64) -> bool {
        self.fence.is_some_and(|end| self.clock(us) < end)
    }
}

struct Model {
    plan: Plan,
    server: Server,
    hosts: Vec<Host>,
    flights: BTreeMap<u64, Flight>,
    requests: u64,
    us: u64,
    /// The host that acted, for each change.
    acted: Vec<usize>,
}

fn settings(host: usize, incarnation: u32, twins: bool) -> Settings {
    let identity = if twins {
        "host".to_owned()
    } else {
        format!("host-{host}_{incarnation}")
    };
    Settings {
        namespace: "default".to_owned(),
        name: "trueup".to_owned(),
        identity,
        times: TIMES,
    }
}

impl Model {
    fn new(plan: Plan) -> Self {
        let host = |(number, (offset, rate_per_mille)): (usize, &(u64, i64))| {
            let offset_us = offset * 1_000_000;
            let now = Moment::after_start(Duration::from_micros(offset_us));
            Host {
                campaign: Campaign::new(&settings(number, 0, plan.twins), plan.seed, now),
                incarnation: 0,
                offset_us,
                rate_per_mille: *rate_per_mille,
                waiting: None,
                paused_until: 0,
                down_until: None,
                resigning: false,
                cut_until: 0,
                mute_until: 0,
                fence: None,
            }
        };
        Self {
            hosts: plan.clocks.iter().enumerate().map(host).collect(),
            server: Server::default(),
            flights: BTreeMap::new(),
            requests: 0,
            us: 0,
            acted: Vec::new(),
            plan,
        }
    }

    fn run(&mut self) -> Result<(), TestCaseError> {
        let mut at = 0;
        for (after, fault) in self.plan.faults.clone() {
            at += after;
            self.until(at)?;
            self.strike(&fault);
        }
        // Remaining faults end by themselves, or with this.
        let end_of = |host: &Host| {
            [
                host.paused_until,
                host.cut_until,
                host.mute_until,
                host.down_until.unwrap_or(0),
            ]
        };
        let ends = self
            .hosts
            .iter()
            .flat_map(end_of)
            .chain([self.server.away_until, self.us]);
        let quiet = ends.max().unwrap_or_default();
        self.until(quiet)?;
        self.plan.delays_us = vec![1_000];
        self.until(quiet + RECOVERY_US)?;
        let acting = self.acting();
        prop_assert_eq!(
            acting.len(),
            1,
            "somebody acts when nothing is wrong any more: {:?}",
            acting
        );
        // And stays so: no host takes the Lease from one that renews.
        let changes = self.acted.len();
        self.until(quiet + 3 * RECOVERY_US)?;
        prop_assert_eq!(self.acting(), acting);
        prop_assert_eq!(
            self.acted.len(),
            changes,
            "who acts changed without need: {:?}",
            &self.acted
        );
        Ok(())
    }

    fn until(&mut self, end: u64) -> Result<(), TestCaseError> {
        while self.us < end {
            self.us = (self.us + TICK_US).min(end);
            self.arrivals();
            for host in 0..self.hosts.len() {
                self.turn(host);
            }
            let acting = self.acting();
            prop_assert!(acting.len() <= 1, "{acting:?} act at {} us", self.us);
            if let Some(host) = acting.first().filter(|host| self.acted.last() != Some(host)) {
                self.acted.push(*host);
            }
        }
        Ok(())
    }

    fn acting(&self) -> Vec<usize> {
        let may = |host: &usize| self.hosts.get(*host).is_some_and(|host| host.may_act(self.us));
        (0..self.hosts.len()).filter(may).collect()
    }

    fn strike(&mut self, fault: &Fault) {
        let now = self.us;
        if let Fault::Away { us } = fault {
            self.server.away_until = now + us;
            return;
        }
        if let Fault::Touch | Fault::Clear | Fault::Delete = fault {
            self.strike_lease(fault);
            return;
        }
        let (Fault::Pause { host, us }
        | Fault::Kill { host, us }
        | Fault::Resign { host, us }
        | Fault::Cut { host, us }
        | Fault::Mute { host, us }) = fault
        else {
            return;
        };
        // The number beyond the hosts means the one that acts: faults of other hosts mostly have no effect.
        let struck = if *host == ACTING {
            self.acting().first().copied()
        } else {
            Some(*host)
        };
        let Some(host) = struck.and_then(|host| self.hosts.get_mut(host)) else {
            return;
        };
        match fault {
            Fault::Pause { .. } => host.paused_until = now + us,
            Fault::Cut { .. } => host.cut_until = now + us,
            Fault::Mute { .. } => host.mute_until = now + us,
            Fault::Kill { .. } => {
                host.down_until = Some(now + us);
                // A dead process sends nothing again; the fence bounded what is under way.
                host.fence = None;
            }
            Fault::Resign { us, .. } => {
                host.resigning = true;
                host.down_until = host.down_until.or(Some(now + us + 10_000_000));
            }
            Fault::Away { .. } | Fault::Touch | Fault::Clear | Fault::Delete => {}
        }
    }

    fn strike_lease(&mut self, fault: &Fault) {
        let Some(mut lease) = self.server.lease.clone() else {
            return;
        };
        match fault {
            Fault::Touch => {
                lease.metadata.labels = Some([("touched".to_owned(), self.us.to_string())].into());
                self.server.write(lease);
            }
            Fault::Clear => {
                lease.spec.as_mut().unwrap().holder_identity = None;
                self.server.write(lease);
            }
            _ => {
                let has_seen = |host: &Host| host.campaign.seen().is_some_and(|seen| seen.exists);
                if self.hosts.iter().all(has_seen) {
                    self.server.lease = None;
                }
            }
        }
    }

    /// Delivers requests and answers.
    fn arrivals(&mut self) {
        let now = self.us;
        let is_away = now < self.server.away_until;
        for flight in self.flights.values_mut() {
            let host = &self.hosts[flight.host];
            if flight.arrives <= now
                && let Some(request) = flight.request.take()
                && !is_away
                && now >= host.cut_until
            {
                let answer = match request {
                    Request::Get => Answer::Is(self.server.lease.clone()),
                    Request::Write(lease) => self.server.write(lease),
                };
                if now >= host.mute_until {
                    flight.answer = Some((now + flight.back_us, answer));
                }
            }
        }
        self.flights
            .retain(|_, flight| flight.request.is_some() || flight.answer.is_some());
    }

    /// Runs a host at this moment, if it is running.
    fn turn(&mut self, number: usize) {
        let now_us = self.us;
        let host = &mut self.hosts[number];
        if host.down_until.is_some_and(|start| now_us >= start) {
            host.down_until = None;
            host.resigning = false;
            host.incarnation += 1;
            host.waiting = None;
            host.fence = None;
            let settings = settings(number, host.incarnation, self.plan.twins);
            host.campaign = Campaign::new(&settings, self.plan.seed, host.clock(now_us));
        }
        if now_us < host.paused_until || (host.down_until.is_some() && !host.resigning) {
            return;
        }
        let now = host.clock(now_us);
        if host.resigning && host.fence.take().is_some() {
            host.campaign.gave_up(Why::Taken, now);
        }
        self.hear(number, now);
        // Several steps at once: none of them takes time.
        for _ in 0..4 {
            let host = &mut self.hosts[number];
            if host.waiting.is_some() {
                return;
            }
            if host.resigning {
                self.give_back(number, now);
                return;
            }
            match host.campaign.next(now) {
                Action::HoldOn(_) | Action::WaitUntil(_) => return,
                Action::GiveUp(why) => {
                    host.campaign.gave_up(why, now);
                    if why == Why::Taken {
                        host.fence = None;
                    }
                }
                Action::Observe => self.send(number, now, Request::Get, false),
                Action::Acquire | Action::Renew => {
                    let draft = host.campaign.draft(wall(number, host.incarnation));
                    self.send(number, now, Request::Write(draft), false);
                }
            }
        }
    }

    /// Delivers an answer, or its timeout.
    fn hear(&mut self, number: usize, now: Moment) {
        let host = &mut self.hosts[number];
        let Some((request, sent, until, gives_back)) = host.waiting else {
            return;
        };
        let is_there = |flight: &&Flight| flight.answer.as_ref().is_some_and(|(at, _)| *at <= self.us);
        let answer = self.flights.get(&request).filter(is_there);
        let answer = answer.filter(|flight| flight.incarnation == host.incarnation && flight.number == request);
        match answer.and_then(|flight| flight.answer.clone()) {
            // A process that was stopped for long finds its answer before it finds that its time is over.
            Some((_, answer)) => {
                self.flights.remove(&request);
                host.waiting = None;
                match answer {
                    Answer::Is(lease) => host.campaign.observed(now, lease),
                    Answer::Wrote(lease) if gives_back => {
                        host.campaign.observed(now, Some(lease));
                        host.resigning = false;
                    }
                    Answer::Wrote(lease) => {
                        host.campaign.wrote(sent, now, lease, wall(number, host.incarnation));
                        host.fence = host.fence.max(host.campaign.acts_until());
                    }
                    Answer::Conflict => host.campaign.conflicted(now),
                }
            }
            None if now >= until => {
                host.waiting = None;
                host.campaign.failed(sent, now);
            }
            None => {}
        }
    }

    fn give_back(&mut self, number: usize, now: Moment) {
        let host = &mut self.hosts[number];
        if host.campaign.next(now) == Action::Observe {
            self.send(number, now, Request::Get, false);
        } else if host.campaign.is_mine() {
            let draft = host.campaign.release(wall(number, host.incarnation));
            self.send(number, now, Request::Write(draft), true);
        }
    }

    fn send(&mut self, number: usize, now: Moment, request: Request, gives_back: bool) {
        let delay = |nth: u64| {
            let index = usize::try_from(nth).unwrap() % self.plan.delays_us.len();
            self.plan.delays_us[index]
        };
        let (there, back_us) = (delay(self.requests * 2), delay(self.requests * 2 + 1));
        self.requests += 1;
        let host = &mut self.hosts[number];
        let patience = host
            .campaign
            .renew_deadline()
            .map_or(TIMES.request_timeout(), |deadline| {
                TIMES.request_timeout().min(deadline.since(now))
            });
        host.waiting = Some((self.requests, now, now + patience, gives_back));
        let flight = Flight {
            host: number,
            incarnation: host.incarnation,
            number: self.requests,
            arrives: self.us + there,
            request: Some(request),
            back_us,
            answer: None,
        };
        self.flights.insert(self.requests, flight);
    }
}

/// Wall clocks play no part: they do not move here, which is their worst case. Those of two processes differ.
fn wall(host: usize, incarnation: u32) -> Timestamp {
    let second = 1_795_000_000 + 1000 * i64::try_from(host).unwrap() + i64::from(incarnation);
    Timestamp::from_second(second).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn never_two_act_and_one_does_when_nothing_is_wrong(plan in plans(fault())) {
        Model::new(plan).run()?;
    }

    #[test]
    fn never_two_act_though_the_lease_is_changed_and_deleted_by_hand(plan in plans(by_hand())) {
        Model::new(plan).run()?;
    }
}

#[test]
fn an_answer_that_came_late_gives_no_time_that_had_passed() {
    // The third request is the first write of the first host. It arrives at once, and its answer just before the host
    // would give up. After that nothing of that host arrives.
    let mut delays_us = vec![1_000; 1_000];
    delays_us[5] = 3_900_000;
    let cut = Fault::Cut {
        host: 0,
        us: 60_000_000,
    };
    let mut model = Model::new(Plan {
        clocks: vec![(0, 0), (500, 0)],
        delays_us,
        faults: vec![(3_500_000, cut)],
        seed: 1,
        twins: false,
    });
    model.run().unwrap();
    assert_eq!(model.acted, [0, 1]);
}

#[test]
fn clocks_that_differ_by_more_than_the_margin_are_found_by_the_model() {
    // Beyond the assumption: the holder's clock is half as fast as the other one. The model must find the violation;
    // otherwise it could find nothing.
    let found = [0, 1].map(|slow| {
        let rate = |host| if host == slow { -400 } else { 400 };
        let plan = Plan {
            clocks: vec![(0, rate(0)), (500, rate(1))],
            delays_us: vec![1_000],
            faults: vec![
                (
                    20_000_000,
                    Fault::Cut {
                        host: slow,
                        us: 60_000_000,
                    },
                ),
                (60_000_000, Fault::Touch),
            ],
            seed: 1,
            twins: false,
        };
        Model::new(plan).run().is_err()
    });
    assert!(found.contains(&true), "{found:?}");
}
