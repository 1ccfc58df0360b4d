//! Properties of any sequence of target changes, failures, timers and restarts: once faults end, the guest reaches the
//! target, and until then no migration exceeds its limit, or starts too soon.

use std::collections::BTreeSet;
use trueup_guest::Guest as _;

use proptest::prelude::*;
use proptest::sample::select;

use super::{instance, location, restart};
use crate::bindings::trueup::neg::api::Error;
use crate::bindings::trueup::neg::types::{Endpoint, EndpointGroup};
use crate::neg::Neg;
use crate::operations::Kind;
use crate::simulated::Simulation;

/// How many sequences to try; `PROPTEST_CASES` sets more.
const CASES: u32 = 400;
const WAIT_MS: u64 = 60_000;
const FRACTION: f64 = 0.3;
const CONFIG: &str = r#"{"neg_names": {"s1": "web-s1"}, "zones": ["z1", "z2"], "max_endpoints_per_operation": 2,
    "fraction_of_migrating_endpoints": 0.3, "max_retries": 0}"#;

/// For each pod its zone, and whether it has IPv4 and IPv6.
type Target = Vec<(&'static str, bool, bool)>;

/// One event.
#[derive(Clone, Debug)]
enum Step {
    Target(Target),
    Sync,
    /// the operation at this position among those in flight ends
    End(usize, Option<&'static str>),
    /// this many milliseconds pass, timers fire
    Advance(u64),
    ErrorState(bool),
    Fault(&'static str, Error),
    /// a new build takes the snapshot
    Carry,
    /// a new instance without a snapshot
    Fresh,
    /// another client empties a zone
    Empty(&'static str),
}

fn a_target() -> impl Strategy<Value = Target> {
    prop::collection::vec((select(&["z1", "z1", "z2"][..]), any::<bool>(), any::<bool>()), 7)
}

/// All pods in one form: the start and the end of a migration.
fn a_plain_target() -> impl Strategy<Value = Target> {
    let form = select(&[(true, false), (false, true), (true, true)][..]);
    form.prop_map(|(ip, ipv6)| {
        (0..7)
            .map(|pod| (if pod < 5 { "z1" } else { "z2" }, ip, ipv6))
            .collect()
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    let error = prop_oneof![
        Just(Error::Unavailable("503".to_owned())),
        Just(Error::Refused((400, "no".to_owned()))),
        Just(Error::RateLimited(Some(7000))),
        Just(Error::RateLimited(None)),
        Just(Error::Unauthorized),
    ];
    let failure = prop_oneof![4 => Just(None), 1 => Just(Some("quota"))];
    prop_oneof![
        2 => a_plain_target().prop_map(Step::Target),
        1 => a_target().prop_map(Step::Target),
        2 => Just(Step::Sync),
        12 => (0..6_usize, failure).prop_map(|(index, failure)| Step::End(index, failure)),
        8 => select(&[0, 999, 5000, 30_000, WAIT_MS, 400_000][..]).prop_map(Step::Advance),
        1 => any::<bool>().prop_map(Step::ErrorState),
        2 => (select(&["ensure", "list", "attach", "detach"][..]), error).prop_map(|(call, error)| Step::Fault(call, error)),
        2 => Just(Step::Carry),
        1 => Just(Step::Fresh),
        1 => select(&["z1", "z2"][..]).prop_map(Step::Empty),
    ]
}

type Placed = BTreeSet<(String, Endpoint)>;

fn wanted(target: &Target) -> Placed {
    let text = |has: bool, text: String| if has { text } else { String::new() };
    let pods = target.iter().enumerate().filter(|(_, (_, ip, ipv6))| *ip || *ipv6);
    let place = |(pod, &(zone, ip, ipv6)): (usize, &(&str, bool, bool))| {
        let endpoint = Endpoint {
            ip: text(ip, format!("10.0.0.{}", pod + 1)),
            ipv6: text(ipv6, format!("fd00::{}", pod + 1)),
            port: "80".to_owned(),
            node: "n1".to_owned(),
        };
        (zone.to_owned(), endpoint)
    };
    pods.map(place).collect()
}

fn is_dual(endpoint: &Endpoint) -> bool {
    !endpoint.ip.is_empty() && !endpoint.ipv6.is_empty()
}

/// Pods have one address of each kind, so two endpoints with a common address are two forms of a pod.
fn are_twins(one: &(String, Endpoint), other: &(String, Endpoint)) -> bool {
    let shares = |one: &str, other: &str| !one.is_empty() && one == other;
    one.0 == other.0
        && is_dual(&one.1) != is_dual(&other.1)
        && (shares(&one.1.ip, &other.1.ip) || shares(&one.1.ipv6, &other.1.ipv6))
}

/// The host, and the checks on the guest.
struct Run {
    neg: Neg,
    world: Simulation,
    target: Target,
    /// Operations that this instance started or took over.
    own: BTreeSet<u64>,
    /// Those of the running migration.
    migration: BTreeSet<u64>,
    has_failed: bool,
    not_before_ms: u64,
}

impl Run {
    fn new() -> Self {
        Self {
            neg: instance(CONFIG),
            world: Simulation::default(),
            target: Vec::new(),
            own: BTreeSet::new(),
            migration: BTreeSet::new(),
            has_failed: false,
            not_before_ms: 0,
        }
    }

    /// The contents after the guest's known operations end well.
    fn current(&self) -> Placed {
        let negs = self.world.negs.iter();
        let mut current: Placed = negs
            .flat_map(|((zone, _), set)| set.iter().map(|endpoint| (zone.clone(), endpoint.clone())))
            .collect();
        for started in self.own.iter().filter_map(|number| self.world.started.get(number)) {
            let placed = started
                .endpoints
                .iter()
                .map(|endpoint| (started.name.0.clone(), endpoint.clone()));
            match started.kind {
                Kind::Attach => current.extend(placed),
                Kind::Detach => placed.for_each(|placed| {
                    current.remove(&placed);
                }),
            }
        }
        current
    }

    /// The endpoints of the guest's known operations.
    fn flying(&self) -> Placed {
        let started = self.own.iter().filter_map(|number| self.world.started.get(number));
        started
            .flat_map(|started| {
                started
                    .endpoints
                    .iter()
                    .map(|endpoint| (started.name.0.clone(), endpoint.clone()))
            })
            .collect()
    }

    fn groups(&self) -> Vec<EndpointGroup> {
        let wanted = wanted(&self.target);
        let group = |zone: &str| EndpointGroup {
            location: location(zone),
            endpoints: wanted
                .iter()
                .filter(|(at, _)| at == zone)
                .map(|(_, endpoint)| endpoint.clone())
                .collect(),
        };
        // The second zone leaves the target if it has no pods.
        let groups = [group("z1"), group("z2")].into_iter();
        groups
            .filter(|group| group.location.zone == "z1" || !group.endpoints.is_empty())
            .collect()
    }

    fn sync(&mut self) -> Result<(), TestCaseError> {
        let (current, wanted) = (self.current(), wanted(&self.target));
        let add: Placed = &wanted - &current;
        let migrating: Placed = (&current - &wanted)
            .into_iter()
            .filter(|placed| add.iter().any(|other| are_twins(placed, other)))
            .collect();
        let n = (&wanted & &current).len() + migrating.len();
        let most = ((FRACTION * n as f64 - 1e-9).ceil() as usize).max(1);
        let before = self.world.operation;

        let groups = self.groups();
        let result = self.neg.sync(&mut self.world, groups);

        let mut moving = Vec::new();
        let mut operations = BTreeSet::new();
        let flying = self.flying();
        for (&number, started) in self.world.started.range(before + 1..) {
            self.own.insert(number);
            let placed = started
                .endpoints
                .iter()
                .map(|endpoint| (started.name.0.clone(), endpoint.clone()));
            let mut placed: Vec<_> = placed.collect();
            let disturbs = |new: &(String, Endpoint)| flying.iter().any(|old| old == new || are_twins(old, new));
            prop_assert!(
                !placed.iter().any(disturbs),
                "{:?} while {:?} are in flight",
                placed,
                flying
            );
            placed.retain(|placed| migrating.contains(placed));
            if started.kind == Kind::Detach && !placed.is_empty() {
                operations.insert(number);
                moving.extend(placed);
            }
        }
        if let Ok(report) = &result {
            let place = moving.first().map(|(zone, _)| location(zone));
            prop_assert_eq!(&report.migration, &place, "the report says where");
        }
        if !operations.is_empty() {
            prop_assert!(moving.len() <= most, "{} of {} go at once", moving.len(), n);
            prop_assert!(
                moving.iter().all(|(zone, _)| *zone == moving[0].0),
                "in two locations: {:?}",
                moving
            );
            prop_assert!(self.migration.is_empty(), "another migration is under way");
            prop_assert!(
                self.world.now_ms >= self.not_before_ms,
                "{} ms early",
                self.not_before_ms - self.world.now_ms
            );
            self.migration = operations;
            // An operation that did not start fails the whole detachment if another did.
            self.has_failed = result.is_err();
        }
        Ok(())
    }

    fn end(&mut self, number: u64, failure: Option<&str>) -> Result<(), TestCaseError> {
        let failure = self.world.end(number, failure);
        if self.migration.remove(&number) {
            self.has_failed |= failure.is_some();
            if self.migration.is_empty() {
                self.not_before_ms = if self.has_failed {
                    0
                } else {
                    self.world.now_ms + WAIT_MS
                };
            }
        }
        self.own.remove(&number);
        if self.neg.on_operation(&mut self.world, number, failure) {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// False if no timer is due until then.
    fn fire(&mut self, until_ms: u64) -> Result<bool, TestCaseError> {
        let Some(timer) = self.world.next_timer(until_ms) else {
            return Ok(false);
        };
        prop_assert!(self.neg.on_timer(&mut self.world, timer), "an unknown timer");
        self.sync()?;
        Ok(true)
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Target(target) => {
                self.target = target;
                self.sync()?;
            }
            Step::Sync => self.sync()?,
            Step::End(index, failure) => {
                if let Some(&number) = self.world.started.keys().nth(index) {
                    self.end(number, failure)?;
                }
            }
            Step::Advance(ms) => {
                let until_ms = self.world.now_ms + ms;
                while self.fire(until_ms)? {}
                self.world.now_ms = until_ms;
            }
            Step::ErrorState(is_error) => self.neg.set_error_state(&mut self.world, is_error),
            Step::Fault(call, error) => self.world.fail(call, error),
            Step::Carry => {
                let new = restart(&self.neg, &mut self.world, CONFIG);
                prop_assert_eq!(new.snapshot(), self.neg.snapshot());
                self.neg = new;
            }
            Step::Fresh => {
                self.world.restart();
                self.neg = instance(CONFIG);
                // The guest forgets what is under way, and the wait.
                self.own.clear();
                self.migration.clear();
                self.not_before_ms = 0;
                self.sync()?;
            }
            Step::Empty(zone) => {
                if let Some(neg) = self.world.negs.get_mut(&(zone.to_owned(), "web-s1".to_owned())) {
                    neg.clear();
                }
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Faults have ended. Only the guest itself asks for a sync.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.world.faults.clear();
        for _ in 0..1000 {
            if let Some(&number) = self.world.started.keys().next() {
                self.end(number, None)?;
            } else if !self.fire(u64::MAX)? {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("it does not end"))
    }
}

proptest! {
    #![proptest_config(super::cases::at_least(CASES, 20_000))]

    #[test]
    fn after_faults_the_target_is_reached_and_migrations_kept_their_limits(
        first in a_plain_target(), steps in prop::collection::vec(a_step(), 0..60),
    ) {
        let mut run = Run::new();
        run.step(Step::Target(first))?;
        for step in steps {
            run.step(step)?;
        }
        run.settle()?;
        prop_assert_eq!(run.current(), wanted(&run.target));
        prop_assert!(!run.neg.migrator.is_paused(&run.neg.settings));
        // Nothing is left to do.
        run.world.take_asked();
        run.sync()?;
        prop_assert!(run.world.take_asked().iter().all(|call| !call.contains("tach")));
    }
}
