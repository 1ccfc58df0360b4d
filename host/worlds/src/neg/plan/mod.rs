//! What a run would do with NEGs: the steps of each key to the end, with the pauses between them.
//!
//! The guest makes its real decisions, from its current recorded state, against a simulation that is filled from real
//! reads. A plan writes nothing: neither to Compute Engine nor to the state folder.

mod course;
mod story;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;
use trueup_base::clock::{Clock as _, SystemClock, VirtualClock};
use trueup_capabilities::Backends;
use trueup_capabilities::holdings::Kept;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_capabilities::neg::planned::Planned;
use trueup_capabilities::neg::simulated::Operation as UnderWay;
use trueup_capabilities::neg::{Endpoint, Reads};
use trueup_work::keyed;
use trueup_work::kind::Planning;
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::plan::{OwnKeys, Plan};
use trueup_work::setup::SetupError;

use self::course::Course;
use self::story::Story;
use super::progress::MIGRATION_ENDPOINTS;
use super::setup::NegSetup;
use super::{Negs, Work};
use crate::neg::adapter::{Desired, Key};
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

/// Adds what a run would do with all keys of what the source holds.
///
/// # Errors
/// If nothing could be begun.
pub(crate) async fn plan(setup: &NegSetup<'_>, of: Planning<'_>, plan: &mut Plan) -> Result<(), SetupError> {
    let reads = setup.reads()?;
    let quarantine = Arc::new(Quarantine::load(&setup.keyed.config.state_dir, NAME));
    // Nothing comes for a key of a plan.
    let mut negs = Negs::new(setup, true, quarantine, (mpsc::channel(1).1, mpsc::channel(1).1))?;
    let (mut plans, mut found) = (Vec::new(), BTreeMap::new());
    let known: Vec<Key> = negs.known.keys().cloned().collect();
    for (key, work) in keyed::plan::wanted(&mut negs, &setup.keyed, of.all, known, plan) {
        let planned = match work {
            Ok(work) => plan_key(setup, &reads, &key, work).await,
            Err(error) => NegPlan {
                error: Some(error),
                ..NegPlan::default()
            },
        };
        let desired = negs.targets.desired(&key).and_then(Result::ok);
        let endpoints = desired.as_ref().map(Desired::endpoints);
        found.insert(key.to_string(), endpoints.unwrap_or(planned.detached as u64));
        plans.push(NegPlan {
            key: key.to_string(),
            left_out: desired.as_ref().map_or(0, |desired| desired.left_out),
            ..planned
        });
    }
    add(plan, of.name, setup, (&plans, found))
}

fn add(
    plan: &mut Plan,
    kind: &'static str,
    setup: &NegSetup<'_>,
    (plans, found): (&[NegPlan], BTreeMap<String, u64>),
) -> Result<(), SetupError> {
    // Only the endpoints of keys that are gone wait.
    let gone = plans.iter().filter(|key| key.gone);
    let going = |kept: &Kept| gone.filter_map(|key| kept.held.get(&key.key)).sum();
    plan.note_if_waits(setup.keyed.config, (NAME, &setup.neg.guest), found, going)?;
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

async fn plan_key(setup: &NegSetup<'_>, reads: &Arc<dyn Reads>, key: &Key, work: Work) -> NegPlan {
    let mut plan = NegPlan {
        gone: work.is_gone,
        ..NegPlan::default()
    };
    if let Err(error) = plan.follow(setup, reads, &key.to_string(), work).await {
        plan.error = Some(error);
    }
    plan
}

impl NegPlan {
    /// Uses the real grants: a plan is refused what a run would be refused.
    ///
    /// # Errors
    /// One line: why there is no instance from which to plan, or why the key does not reach its desired state.
    async fn follow(
        &mut self,
        setup: &NegSetup<'_>,
        reads: &Arc<dyn Reads>,
        key: &str,
        work: Work,
    ) -> Result<(), String> {
        let instances = setup.keyed.active.instances().with_settings(&work.settings);
        let snapshot = instances.state_now(key).await?;
        let under_way = snapshot
            .as_deref()
            .map(|snapshot| story::under_way(snapshot, &instances.settings))
            .unwrap_or_default();
        self.under_way = now_under_way(&under_way);
        let metrics = Arc::new(Metrics::default());
        let began_ms = SystemClock.now_ms();
        let clock = Arc::new(VirtualClock::new(began_ms));
        let planned = Arc::new(Planned::new(Arc::clone(reads), &under_way));
        let backends = Backends {
            clock: Arc::<VirtualClock>::clone(&clock),
            metrics: Arc::clone(&metrics),
            neg: Some(Arc::<Planned>::clone(&planned)),
            ..setup.keyed.backends(key)
        };
        let started = instances.start_unrecorded(key, backends, snapshot.as_deref()).await;
        let mut course = Course {
            instance: started.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?,
            planned,
            clock,
            began_ms,
            target: work.target,
            story: Story::beginning_with(&under_way),
            calls: 0,
            is_cut: false,
        };
        let ended = course.run().await;
        self.steps = course.story.steps;
        self.unplanned = course
            .is_cut
            .then(|| super::progress::counted(&metrics, key, MIGRATION_ENDPOINTS));
        self.count();
        ended
    }
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
