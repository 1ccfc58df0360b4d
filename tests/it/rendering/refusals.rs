//! Of three renderers, two refuse now and then: all end with the state of a resync, and the third is hardly disturbed.
//!
//! A renderer that never refuses gets, event by event:
//!
//! - Each question of the processor once, with the question's number.
//! - For parts without a refused question, exactly the questions that it would get if it were alone.
//! - For parts with a refused question: in each event, the processor repeats the question with the present desired
//!   state until one counts as accepted; it does not if that equals the last state that all accepted. After a refused
//!   resync the next event is one resync.
//! - A resync from the host, to the state that all accepted, only if the renderer accepted a call that counted as
//!   refused, and the processor's next call did not repeat that part: the inputs went back, and the renderer has
//!   something that no renderer should have.

use needs::needs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestCaseError;
use serde_json::json;
use trueup_capabilities::Backends;
use trueup_capabilities::etcd::embedded::Embedded;
use trueup_instance::Instances;
use trueup_worlds::node::guests::service::State;

use crate::programs::{backends, instances};

use super::inputs::Inputs;
use super::kernel::{Kernel, Tables};
use super::nat::Settings;
use super::recorded::{Call, Held, Part, Question, Told, questions, told};
use super::stores::{Fate, Fates, Filter, Store};
use super::universe::{self, Step};
use super::wired::{self, NAT44, NFTABLES, RUNTIME, Wired};

/// The number of cases unless `PROPTEST_CASES` sets another: a few seconds on an idle machine.
const CASES: u32 = 64;
const STEPS_MAX: usize = 24;
const FATES_MAX: usize = 32;

const LABEL: &str = "node-a";

#[derive(Debug, Clone)]
struct Case {
    settings: Settings,
    pod_subnets: Vec<&'static str>,
    state: State,
    steps: Vec<Step>,
    fates_of_store: Vec<Fate>,
    fates_of_filter: Vec<Fate>,
}

fn case() -> impl Strategy<Value = Case> {
    let pod_subnets = prop::sample::select(vec![Vec::new(), vec!["10.1.0.0/16", "fd00:1::/48", "10.1.1.0/24"]]);
    (
        universe::nat44_settings(),
        pod_subnets,
        universe::state(),
        universe::steps(STEPS_MAX),
        universe::fates(FATES_MAX),
        universe::fates(FATES_MAX),
    )
        .prop_map(
            |(settings, pod_subnets, state, steps, fates_of_store, fates_of_filter)| Case {
                settings,
                pod_subnets,
                state,
                steps,
                fates_of_store,
                fates_of_filter,
            },
        )
}

#[needs(etcd, etcdctl)]
#[test]
fn any_events_and_refusals_end_for_all_in_what_a_resync_gives() {
    super::runner(CASES)
        .run(&case(), |case| RUNTIME.block_on(check(&case)))
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// A node whose renderers write into memory.
struct Node {
    wired: Wired,
    flaky: Embedded,
    kernel: Kernel,
    steady: Embedded,
    fates: [Fates; 2],
}

/// The renderers' output.
type Made = (BTreeMap<String, String>, Tables, BTreeMap<String, String>);

impl Node {
    async fn new(case: &Case, folder: &Path, fates: [Fates; 2]) -> Self {
        let simulated = || Embedded::in_memory().unwrap();
        let (flaky, kernel, steady) = (simulated(), Kernel::default(), simulated());
        let store = |inner: &Embedded, fates: &Fates| Backends {
            etcd: Some(Arc::new(Store {
                inner: Arc::new(inner.clone()),
                fates: fates.clone(),
            })),
            ..backends()
        };
        let filter = Backends {
            nftables: Some(Arc::new(Filter {
                inner: kernel.clone(),
                fates: fates[1].clone(),
            })),
            ..backends()
        };
        let renderers = vec![
            (nat44(case, "nat44", folder).await, store(&flaky, &fates[0])),
            (nftables(case, folder).await, filter),
            (nat44(case, "steady", folder).await, store(&steady, &Fates::default())),
        ];
        Self {
            wired: Wired::new(json!({}), folder, renderers).await,
            flaky,
            kernel,
            steady,
            fates,
        }
    }

    fn made(&self) -> Made {
        (
            self.flaky.entries().unwrap(),
            self.kernel.tables(),
            self.steady.entries().unwrap(),
        )
    }
}

async fn nat44(case: &Case, name: &'static str, folder: &Path) -> Arc<Instances> {
    let grants = wired::grants("etcd", &[&format!("/vnf-agent/{LABEL}/")]);
    Arc::new(instances(&NAT44, name, case.settings.json(LABEL), grants, folder).await)
}

async fn nftables(case: &Case, folder: &Path) -> Arc<Instances> {
    let settings = json!({ "pod_subnets": case.pod_subnets });
    let grants = wired::grants("nftables", &["ip trueup", "ip6 trueup"]);
    Arc::new(instances(&NFTABLES, "nftables", settings, grants, folder).await)
}

async fn check(case: &Case) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let fates = [Fates::new(&case.fates_of_store), Fates::new(&case.fates_of_filter)];
    let mut node = Node::new(case, folder.path(), fates).await;
    let inputs = run(case, &mut node).await?;
    let made = node.made();
    let misused = node.kernel.refused();
    drop(node);
    prop_assert_eq!(misused, Vec::<String>::new());

    let fresh_folder = tempfile::tempdir().unwrap();
    let mut fresh = Node::new(case, fresh_folder.path(), Default::default()).await;
    prop_assert_eq!(fresh.wired.resync(&inputs.state()).await, Ok(()));
    let expected = fresh.made();
    prop_assert_eq!(made.0, expected.0, "nat44");
    prop_assert_eq!(made.1, expected.1, "nftables");
    prop_assert_eq!(made.2, expected.2, "nat44 whose store always works");

    let alone = alone(case).await?;
    undisturbed(&questions(folder.path()), &told(folder.path(), "steady"), &alone)
}

/// All steps, then the host's work once nothing fails any more.
async fn run(case: &Case, node: &mut Node) -> Result<Inputs, TestCaseError> {
    let mut inputs = Inputs::of(&case.state);
    // The recordings contain the answers.
    _ = node.wired.resync(&case.state).await;
    for step in &case.steps {
        match step {
            Step::Event(event) => {
                inputs.take(event);
                _ = node.wired.update(event).await;
            }
            Step::Resync(state) => {
                inputs = Inputs::of(state);
                _ = node.wired.resync(state).await;
            }
            Step::Retry => _ = node.wired.retry().await,
        }
    }
    node.fates.iter().for_each(Fates::end);
    prop_assert_eq!(node.wired.settle().await, Ok(()));
    // Inputs that went back left a renderer with too much.
    prop_assert!(node.wired.retry().await);
    prop_assert!(node.wired.all_in_step().await);
    Ok(inputs)
}

/// The processor's questions, call by call, without refusals.
async fn alone(case: &Case) -> Result<Vec<Vec<Question>>, TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let backends = Backends {
        etcd: Some(Arc::new(Embedded::in_memory().unwrap())),
        ..backends()
    };
    let renderer = (nat44(case, "steady", folder.path()).await, backends);
    let mut wired = Wired::new(json!({}), folder.path(), vec![renderer]).await;
    prop_assert_eq!(wired.resync(&case.state).await, Ok(()));
    for step in &case.steps {
        match step {
            Step::Event(event) => prop_assert_eq!(wired.update(event).await, Ok(())),
            Step::Resync(state) => prop_assert_eq!(wired.resync(state).await, Ok(())),
            Step::Retry => prop_assert!(wired.all_in_step().await),
        }
    }
    prop_assert_eq!(wired.settle().await, Ok(()));
    drop(wired);
    let questions = questions(folder.path());
    // A single renderer gets exactly the questions.
    let told = told(folder.path(), "steady");
    let asked: Vec<_> = questions
        .iter()
        .flatten()
        .map(|asked| (Some(asked.n), &asked.call))
        .collect();
    prop_assert_eq!(told.iter().map(|told| (told.by, &told.call)).collect::<Vec<_>>(), asked);
    Ok(questions)
}

/// A refusal by one renderer and the repeated question cause no resync of another; neither does a status check of a
/// renderer that is out of step, or its retry.
#[test]
fn a_retry_of_one_renderer_leaves_the_others_alone() {
    use trueup_worlds::node::guests::service::Event;
    RUNTIME.block_on(async {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let case = case().new_tree(&mut runner).unwrap().current();
        let case = Case {
            settings: Settings {
                snat_only: false,
                ..case.settings
            },
            ..case
        };
        let folder = tempfile::tempdir().unwrap();
        let fates = Fates::new(&[Fate::Done, Fate::Refused]);
        let mut node = Node::new(&case, folder.path(), [Fates::default(), fates]).await;
        let mut state = case.state.clone();
        (state.services, state.endpoints) = (Vec::new(), Vec::new());
        assert_eq!(node.wired.resync(&state).await, Ok(()));
        let (service, endpoints) = universe::web();
        assert_eq!(node.wired.update(&Event::EndpointsPut(endpoints)).await, Ok(()));
        let answer = node.wired.update(&Event::ServicePut(service)).await;
        assert_eq!(answer, Err("renderer `nftables`: nft: no".to_owned()));
        assert!(!node.wired.all_in_step().await);
        assert!(node.wired.retry().await);
        assert!(node.wired.all_in_step().await);
        assert_eq!(node.wired.settle().await, Ok(()));
        drop(node);
        let names = |renderer| {
            let told = told(folder.path(), renderer);
            told.into_iter()
                .map(|told| (told.call.name, told.by.is_some()))
                .collect::<Vec<_>>()
        };
        let call = |name: &str, is_asked| (format!("renderer.{name}"), is_asked);
        let refused = [call("resync", true), call("add-service", true)];
        let again = [call("add-service", true)];
        assert_eq!(names("steady"), [&refused[..], &again].concat());
        assert_eq!(
            names("nftables"),
            [&refused[..], &[call("resync", false)], &again].concat()
        );
    });
}

/// See the module: what the recordings of the renderer that never refuses must contain.
fn undisturbed(calls: &[Vec<Question>], told: &[Told], alone: &[Vec<Question>]) -> Result<(), TestCaseError> {
    prop_assert_eq!(calls.len(), alone.len());
    let mut processor = Processor::default();
    let mut steady = Steady {
        told: told.iter(),
        ..Steady::default()
    };
    for (questions, alone) in calls.iter().zip(alone) {
        processor.call(questions, alone)?;
        steady.call(questions)?;
    }
    steady.end()
}

/// The processor's questions, compared with those without refusals.
#[derive(Default)]
struct Processor {
    acknowledged: Held,
    alone: Held,
    /// Refused, and not accepted since.
    pending: BTreeSet<Part>,
    /// True if a resync is pending.
    is_all_pending: bool,
}

impl Processor {
    fn call(&mut self, questions: &[Question], alone: &[Question]) -> Result<(), TestCaseError> {
        alone.iter().for_each(|asked| self.alone.take(&asked.call));
        let is_resync = alone.iter().any(|asked| asked.call.part().is_none());
        if is_resync || self.is_all_pending {
            let [asked] = questions else {
                return Err(TestCaseError::fail(format!("not one resync, but {questions:?}")));
            };
            prop_assert_eq!(asked.call.part(), None);
            prop_assert_eq!(&Held::after(&asked.call), &self.alone);
            self.pending.clear();
            self.is_all_pending = !asked.taken;
            if asked.taken {
                self.acknowledged.take(&asked.call);
            }
            return Ok(());
        }
        let is_service_left = |part: &Part| matches!(part, Part::Service(_));
        let refused = questions
            .iter()
            .filter(|asked| !asked.taken)
            .filter_map(|asked| asked.call.part());
        let are_services_left =
            self.pending.iter().any(is_service_left) || refused.into_iter().any(|part| is_service_left(&part));
        let comparable = |asked: &Question| {
            let mut call = asked.call.clone();
            if are_services_left && call.part() == Some(Part::NodeIps) {
                // Its services are those that all accepted: here fewer, or others.
                call.args["services"].take();
            }
            call
        };
        let is_new = |asked: &&Question| asked.call.part().is_some_and(|part| !self.pending.contains(&part));
        let new: Vec<Call> = questions.iter().filter(is_new).map(comparable).collect();
        let new_alone: Vec<Call> = alone.iter().filter(is_new).map(comparable).collect();
        prop_assert_eq!(new, new_alone);
        self.check_repeated(questions)?;
        for asked in questions {
            let part = asked.call.part().unwrap();
            if asked.taken {
                self.acknowledged.take(&asked.call);
                self.pending.remove(&part);
            } else {
                self.pending.insert(part);
            }
        }
        Ok(())
    }

    /// A pending part must be repeated with its present desired state, unless all have exactly that.
    fn check_repeated(&mut self, questions: &[Question]) -> Result<(), TestCaseError> {
        for part in std::mem::take(&mut self.pending) {
            let mut repeated = questions
                .iter()
                .filter(|asked| asked.call.part().as_ref() == Some(&part));
            let wanted = self.alone.of(&part);
            if let Some(asked) = repeated.next() {
                prop_assert_eq!(asked.call.leaves(), wanted.cloned());
                prop_assert!(repeated.next().is_none());
                self.pending.insert(part);
            } else {
                prop_assert_eq!(self.acknowledged.of(&part), wanted, "{:?} is not asked for again", part);
            }
        }
        Ok(())
    }
}

/// The calls of the renderer that never refuses, compared with the processor's questions.
#[derive(Default)]
struct Steady<'a> {
    told: std::slice::Iter<'a, Told>,
    /// The state that all accepted, or that of the last resync.
    common: Held,
    /// The parts that it accepted although they counted as refused.
    ahead: BTreeSet<Part>,
    /// Some of these were not repeated.
    is_astray: bool,
}

impl Steady<'_> {
    fn call(&mut self, questions: &[Question]) -> Result<(), TestCaseError> {
        let mut refused = BTreeSet::new();
        for asked in questions {
            let part = asked.call.part();
            let next = self.told.as_slice().first();
            if self.is_astray && (part.is_some() || next.is_some_and(|told| told.by.is_none())) {
                self.own_resync()?;
            }
            let Some(told) = self.told.next() else {
                return Err(TestCaseError::fail(format!("it is not told {asked:?}")));
            };
            prop_assert_eq!((told.by, &told.call), (Some(asked.n), &asked.call));
            match part {
                None => {
                    // Accepted or not: the processor repeats it until it counts as accepted.
                    self.common.take(&asked.call);
                    refused.clear();
                    self.is_astray = false;
                    self.ahead.clear();
                }
                Some(part) if asked.taken => {
                    self.common.take(&asked.call);
                    self.ahead.remove(&part);
                }
                Some(part) => {
                    self.ahead.insert(part.clone());
                    refused.insert(part);
                }
            }
        }
        if !self.ahead.is_subset(&refused) {
            self.is_astray = true;
            self.ahead.clear();
        }
        Ok(())
    }

    /// By the retry timer, or just before the question.
    fn own_resync(&mut self) -> Result<(), TestCaseError> {
        let Some(told) = self.told.next() else {
            return Err(TestCaseError::fail("it is astray, and told nothing"));
        };
        prop_assert_eq!(told.call.part(), None);
        prop_assert_eq!(&Held::after(&told.call), &self.common);
        self.is_astray = false;
        Ok(())
    }

    fn end(mut self) -> Result<(), TestCaseError> {
        if self.is_astray {
            self.own_resync()?;
        }
        prop_assert_eq!(self.told.len(), 0, "it is told more than was asked");
        Ok(())
    }
}
