//! What a run would do with NEGs: the steps of each key to the end, with the pauses between them.
//!
//! The guest makes its real decisions, from its current recorded state, against a simulation that is filled from real
//! reads. A plan writes nothing: neither to Compute Engine nor to the state folder.

mod course;
mod story;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use trueup_base::clock::{Clock as _, SystemClock, VirtualClock};
use trueup_capabilities::Backends;
use trueup_capabilities::holdings::Kept;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_capabilities::neg::planned::Planned;
use trueup_capabilities::neg::simulated::Operation as UnderWay;
use trueup_capabilities::neg::{Endpoint, EndpointGroup};
use trueup_capabilities::random::Seeded;
use trueup_config::{Config, Neg};
use trueup_work::ground::stream_of;
use trueup_work::input::nothing_there;
use trueup_work::instance::Instance;
use trueup_work::instances::Instances;
use trueup_work::kind::Planning;
use trueup_work::plan::{OwnKeys, Plan};
use trueup_work::setup::SetupError;

use self::course::Course;
use self::story::Story;
use super::known::KnownNegs;
use super::left_of;
use super::progress::MIGRATION_ENDPOINTS;
use super::setup::Looking;
use crate::neg::adapter::{Key, Targets, Wish};
use crate::neg::guest::NAME;

/// What a run would do for one key.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct NegPlan {
    /// `namespace/name/port`.
    pub key: String,
    /// The key is no longer desired: its NEGs would be emptied.
    pub gone: bool,
    /// Operations that are under way now, by number. The plan assumes that they succeed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<OperationNow>,
    /// What would be done, in order.
    pub steps: Vec<Step>,
    /// Endpoints that would be added.
    pub attached: usize,
    /// Endpoints that would be removed.
    pub detached: usize,
    /// Endpoints that would be detached, and attached again with one address more or less.
    pub moved: usize,
    /// How long the guest waits in total before the last step, in milliseconds. The duration of operations comes on
    /// top.
    pub waits_ms: u64,
    /// Endpoints that change their address families and have no step here, since the plan was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplanned: Option<u64>,
    /// Endpoints that are ready but in no NEG, because of their Node or address.
    pub left_out: usize,
    /// Why the key would not reach its desired state. `None` if it would.
    pub error: Option<String>,
}

/// An operation that is really under way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OperationNow {
    /// Its number.
    pub operation: u64,
    /// `attach` or `detach`.
    pub action: Action,
    /// The NEG's name.
    pub neg: String,
    /// The NEG's zone.
    pub zone: String,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Step {
    /// When, in milliseconds from now, if operations took no time: how long the guest waits by itself.
    pub after_ms: u64,
    /// The action.
    pub action: Action,
    /// The NEG's name.
    pub neg: String,
    /// The NEG's zone.
    pub zone: String,
    /// The subnet of a NEG that is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The endpoints that are attached or detached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many of them are detached to be attached again, or attached again, with one address more or less.
    pub moved: usize,
}

/// What would be done to a NEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Creates the NEG.
    Create,
    /// Attaches endpoints.
    Attach,
    /// Detaches endpoints.
    Detach,
}

impl NegPlan {
    fn count(&mut self) {
        let endpoints = |action, steps: &[Step]| -> (usize, usize) {
            let of = steps.iter().filter(|step| step.action == action);
            of.fold((0, 0), |(all, moved), step| {
                (all + step.endpoints.len(), moved + step.moved)
            })
        };
        let (attached, back) = endpoints(Action::Attach, &self.steps);
        let (detached, out) = endpoints(Action::Detach, &self.steps);
        self.attached = attached - back;
        self.detached = detached - out;
        // Includes those that are already detached.
        self.moved = back;
        self.waits_ms = self.steps.last().map_or(0, |step| step.after_ms);
    }
}

/// The desired state of one key.
struct Wanted {
    settings: Map<String, Value>,
    target: Vec<EndpointGroup>,
    is_gone: bool,
    left_out: usize,
}

/// Adds what a run would do with all keys of what the source holds.
///
/// # Errors
/// If nothing could be begun.
pub(crate) async fn plan(
    kind: &'static str,
    (of, neg): (Planning<'_>, &Neg),
    plan: &mut Plan,
) -> Result<(), SetupError> {
    let (config, all) = (of.config, of.all);
    let unreadable = |error| SetupError::Misused(format!("reading the known keys: {error}"));
    let known = KnownNegs::load(&config.state_dir).map_err(unreadable)?;
    let places = known.places().map_err(unreadable)?;
    let looking = Looking::new(config, neg, of.ground).await?;
    let mut targets = Targets::new(&neg.adapter).of(&neg.source).with_places(places);
    targets.take_in_unreadable(&all.unreadable);
    let looked = targets.take_in(&all.changes, all.complete, known.keys().next().is_some());
    plan.notes.extend(looked.notes);
    if looked.is_empty {
        plan.problem(nothing_there(neg.source.is_cluster()));
    }
    let mut plans = Vec::new();
    let mut keys: BTreeSet<Key> = targets.keys();
    keys.extend(known.keys().cloned());
    for key in keys {
        let wanted = match targets.wish(&key) {
            Some(Ok(wish)) => Ok(Wanted::of(wish)),
            Some(Err(error)) => Err(error),
            None if targets.is_gone(&key) => match left_of(&key, &known, &targets) {
                Some(settings) => Ok(Wanted {
                    settings,
                    target: Vec::new(),
                    is_gone: true,
                    left_out: 0,
                }),
                None => continue,
            },
            None => {
                plan.held.push(key.to_string());
                continue;
            }
        };
        let planned = match wanted {
            Ok(wanted) => plan_key(&looking, config.seed, &key, wanted).await,
            Err(error) => NegPlan {
                error: Some(error),
                ..NegPlan::default()
            },
        };
        plans.push(NegPlan {
            key: key.to_string(),
            ..planned
        });
    }
    looking.stop().await;
    add(plan, kind, (config, neg), &plans)
}

fn add(
    plan: &mut Plan,
    kind: &'static str,
    (config, neg): (&Config, &Neg),
    plans: &[NegPlan],
) -> Result<(), SetupError> {
    // Only the endpoints of keys that are gone wait.
    let gone = plans.iter().filter(|key| key.gone);
    let going = |kept: &Kept| gone.filter_map(|key| kept.held.get(&key.key)).sum();
    plan.note_if_waits(config, (NAME, &neg.guest), going)?;
    plan.summaries.insert(kind, text::summary(plans));
    if plans.is_empty() {
        return Ok(());
    }
    let own = OwnKeys {
        json: serde_json::to_value(plans).map_err(SetupError::failed)?,
        lines: plans.iter().flat_map(text::lines).collect(),
        has_changes: plans.iter().any(|key| !key.steps.is_empty()),
        has_failed: plans.iter().any(|key| key.error.is_some()),
    };
    plan.own.insert(kind, own);
    Ok(())
}

impl Wanted {
    fn of(wish: Wish) -> Self {
        let Wish {
            settings,
            target,
            left_out,
            ..
        } = wish;
        Self {
            settings,
            target,
            is_gone: false,
            left_out,
        }
    }
}

/// Uses the real grants: a plan is refused what a run would be refused.
async fn plan_key(looking: &Looking, seed: u64, key: &Key, wanted: Wanted) -> NegPlan {
    let Wanted {
        settings,
        target,
        is_gone,
        left_out,
    } = wanted;
    let mut plan = NegPlan {
        gone: is_gone,
        left_out,
        ..NegPlan::default()
    };
    let instances = looking.instances.with_settings(&settings);
    let instance = key.to_string();
    let snapshot = match instances.state_now(&instance).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            plan.error = Some(error);
            return plan;
        }
    };
    let under_way = snapshot
        .as_deref()
        .map(|snapshot| story::under_way(snapshot, &instances.settings))
        .unwrap_or_default();
    plan.under_way = now_under_way(&under_way);
    let metrics = Arc::new(Metrics::default());
    let began_ms = SystemClock.now_ms();
    let clock = Arc::new(VirtualClock::new(began_ms));
    let planned = Arc::new(Planned::new(Arc::clone(&looking.reads), &under_way));
    let backends = Backends {
        clock: Arc::<VirtualClock>::clone(&clock),
        random: Arc::new(Seeded::new(seed, stream_of(&instance))),
        log: Arc::new(NoLog),
        metrics: Arc::clone(&metrics),
        neg: Some(Arc::<Planned>::clone(&planned)),
        quotas: Arc::clone(&looking.quotas),
        ..Backends::default()
    };
    let started = match start(&instances, &instance, backends, snapshot.as_deref()).await {
        Ok(started) => started,
        Err(error) => {
            plan.error = Some(error);
            return plan;
        }
    };
    let mut course = Course {
        instance: started,
        planned,
        clock,
        began_ms,
        target,
        story: Story::beginning_with(&under_way),
        calls: 0,
    };
    let ended = course.run().await;
    plan.steps = course.story.steps;
    plan.error = ended.error;
    plan.unplanned = ended
        .is_cut
        .then(|| super::progress::counted(&metrics, &instance, MIGRATION_ENDPOINTS));
    plan.count();
    plan
}

async fn start(
    instances: &Instances,
    key: &str,
    backends: Backends,
    snapshot: Option<&str>,
) -> Result<Instance, String> {
    let started = instances.start_unrecorded(key, backends, snapshot).await;
    started.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

fn now_under_way(under_way: &BTreeMap<u64, UnderWay>) -> Vec<OperationNow> {
    let each = under_way.iter().map(|(operation, of)| OperationNow {
        operation: *operation,
        action: if of.attaches { Action::Attach } else { Action::Detach },
        neg: of.neg.name.clone(),
        zone: of.neg.zone.clone(),
        endpoints: of.endpoints.clone(),
    });
    each.collect()
}
