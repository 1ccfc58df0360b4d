//! What a run would do with NEGs: the writes of each key to the end, as its guest decides them.
//!
//! The guest makes its real decisions, from its current recorded state, against a simulation that is filled from real
//! reads, on a virtual clock. A plan writes nothing: neither to Compute Engine nor to the state folder.
//!
//! ```text
//! state of now -> sync -> ends of operations -> due timers -> sync -> ... -> the clock moves to the next timer -> ...
//! ```
//! Operations succeed at once, so the only time that passes is the guest's own waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;
use trueup_base::clock::{Clock as _, SystemClock, VirtualClock};
use trueup_capabilities::neg::planned::Planned;
use trueup_capabilities::neg::simulated::{Operation as UnderWay, Simulated};
use trueup_capabilities::neg::{Endpoint, EndpointGroup, Error as ApiError, NegRef, Reads, shown};
use trueup_capabilities::reading::{Action, Write};
use trueup_capabilities::{Backends, questions};
use trueup_config::{NEG_NAMES, NegBackend};
use trueup_instance::dispatch::read;
use trueup_instance::{Instance, with_causes};
use trueup_sims::Server;
use trueup_work::keyed;
use trueup_work::kind::Planning;
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::plan::{KeyPlan, Plan};
use trueup_work::setup::SetupError;

use super::Negs;
use super::kind::{self, NegSetup};
use super::operations::{InState, State};
use crate::neg::adapter::{Desired, Key};
use crate::neg::guest::{Error, NAME, OnOperation, OnTimer, Sync, SyncReport};
use crate::neg::turn::describe;

/// The maximum number of guest calls for one key. A move of 10,000 endpoints in steps of a hundredth takes some
/// hundred. A guest that never ends must not keep a plan from ending.
const CALLS_MAX: usize = 10_000;

/// After this many syncs in a row that started nothing, with nothing in flight, nothing more is to come. A guest
/// retries less often by default.
const FRUITLESS_MAX: usize = 20;

/// Adds what a run would do with all keys of what the source holds.
///
/// # Errors
/// If nothing could be begun.
pub(super) async fn plan(setup: &NegSetup<'_>, of: Planning<'_>, plan: &mut Plan) -> Result<(), SetupError> {
    let reads = match &setup.neg.backend {
        NegBackend::Remote(backend) => kind::reads(backend, setup.simulated.as_ref().map(Server::local_addr))?,
        NegBackend::Simulated => Arc::new(Simulated::default()),
    };
    let quarantine = Arc::new(Quarantine::load(&setup.keyed.config.state_dir, NAME));
    // Nothing comes for a key of a plan.
    let mut negs = Negs::new(setup, true, quarantine, (mpsc::channel(1).1, mpsc::channel(1).1))?;
    let mut plans = Vec::new();
    let mut found = BTreeMap::new();
    let known: Vec<Key> = negs.known.keys().cloned().collect();
    for (key, work) in keyed::plan::wanted(&mut negs, &setup.keyed, of.all, known, plan) {
        let text = key.to_string();
        let gone = work.as_ref().is_ok_and(|work| work.is_gone);
        let planned = match work {
            Ok(work) => plan_key(setup, &reads, &text, work, &mut plan.notes).await,
            Err(error) => Err(error),
        };
        let planned = planned.unwrap_or_else(|error| KeyPlan {
            error: Some(error),
            ..KeyPlan::default()
        });
        let desired = negs.targets.desired(&key).and_then(Result::ok);
        let endpoints = desired.as_ref().map(Desired::endpoints);
        found.insert(text.clone(), endpoints.unwrap_or_else(|| detached(&planned.writes)));
        plans.push(KeyPlan {
            gone,
            key: text,
            guest: NAME,
            ..planned
        });
    }
    // Only the endpoints of keys that are gone wait.
    let gone = plans.iter().filter(|plan| plan.gone);
    plan.note_if_waits(setup.keyed.config, (NAME, &setup.neg.guest), found, |kept| {
        gone.filter_map(|plan| kept.held.get(&plan.key)).sum()
    })?;
    plan.add(of.name, "neg", plans);
    Ok(())
}

/// How many endpoints these writes detach.
fn detached(writes: &[Write]) -> u64 {
    let detach = writes.iter().filter(|write| write.action == Action::Detach);
    let operations = detach.filter_map(|write| write.operation.as_ref());
    operations.map(|operation| operation.endpoints.len() as u64).sum()
}

/// Uses the real grants: a plan is refused what a run would be refused.
async fn plan_key(
    setup: &NegSetup<'_>,
    reads: &Arc<dyn Reads>,
    key: &str,
    work: Desired,
    notes: &mut Vec<String>,
) -> Result<KeyPlan, String> {
    let mut course = Course::begin(setup, reads, key, work).await?;
    let ended = course.run().await;
    if course.calls >= CALLS_MAX {
        notes.push(format!(
            "{key}: more follows that is not planned: a plan makes {CALLS_MAX} calls"
        ));
    }
    Ok(KeyPlan {
        writes: course.writes,
        waits_ms: (course.waits_ms > 0).then_some(course.waits_ms),
        error: ended.err(),
        ..KeyPlan::default()
    })
}

/// The course of one key.
struct Course {
    instance: Instance,
    planned: Arc<Planned>,
    clock: Arc<VirtualClock>,
    /// When the plan began, in milliseconds since 1970.
    began_ms: u64,
    target: Vec<EndpointGroup>,
    writes: Vec<Write>,
    /// How long the guest waited before the last of them.
    waits_ms: u64,
    /// The numbers of operations that were started and have not ended.
    in_flight: BTreeSet<u64>,
    calls: usize,
}

impl Course {
    /// # Errors
    /// Why there is no instance from which to plan.
    async fn begin(setup: &NegSetup<'_>, reads: &Arc<dyn Reads>, key: &str, work: Desired) -> Result<Self, String> {
        let instances = setup.keyed.active.instances().with_settings(&work.settings);
        let snapshot = instances.state_now(key).await?;
        let under_way = snapshot.as_deref().map(|text| under_way(text, &instances.settings));
        let under_way = under_way.unwrap_or_default();
        let began_ms = SystemClock.now_ms();
        let clock = Arc::new(VirtualClock::new(began_ms));
        let planned = Arc::new(Planned::new(Arc::clone(reads), &under_way));
        let backends = Backends {
            clock: Arc::<VirtualClock>::clone(&clock),
            metrics: Arc::default(),
            neg: Some(Arc::<Planned>::clone(&planned)),
            ..setup.keyed.backends(key)
        };
        let started = instances.start_unrecorded(key, backends, snapshot.as_deref()).await;
        Ok(Self {
            instance: started.map_err(with_causes)?,
            planned,
            clock,
            began_ms,
            target: work.target,
            writes: Vec::new(),
            waits_ms: 0,
            in_flight: under_way.into_keys().collect(),
            calls: 0,
        })
    }

    /// From the sync with which a host begins until nothing is left to do.
    ///
    /// # Errors
    /// Why the key does not reach its desired state.
    async fn run(&mut self) -> Result<(), String> {
        let (mut wanted, mut fruitless, mut looked) = (true, 0, Ok(()));
        while fruitless < FRUITLESS_MAX && self.calls < CALLS_MAX {
            if wanted {
                let before = self.writes.len();
                looked = self.look().await?;
                let is_fruitless = self.writes.len() == before && self.in_flight.is_empty();
                fruitless = if is_fruitless { fruitless + 1 } else { 0 };
            }
            let Some(wants) = self.notify().await? else { break };
            wanted = wants;
        }
        looked
    }

    /// Notifies the guest of what ended and what is due, or moves the clock to what is due next. Returns whether the
    /// guest wants a sync. `None` if nothing is left.
    async fn notify(&mut self) -> Result<Option<bool>, String> {
        let mut wanted = false;
        let mut has_notified = false;
        while let Some(operation) = self.in_flight.pop_first() {
            let ended = self.planned.end(operation).await;
            ended.map_err(|error| shown::in_words(&error, None))?;
            let failure = None;
            let args = OnOperation { operation, failure };
            wanted |= self.call::<bool>("syncer.on-operation", &args).await?;
            has_notified = true;
        }
        if !has_notified && let Some(due_ms) = self.instance.host().timers.next_due_ms() {
            // If a timer is already due, the clock does not go back.
            self.clock.set_ms(due_ms.max(self.clock.now_ms()));
        }
        while self.calls < CALLS_MAX {
            let now_ms = self.clock.now_ms();
            let Some((_, timer)) = self.instance.host_mut().timers.take_due(now_ms) else {
                break;
            };
            wanted |= self.call::<bool>("timer-events.on-timer", &OnTimer { timer }).await?;
            has_notified = true;
        }
        Ok(has_notified.then_some(wanted))
    }

    /// A sync. The inner error is about one NEG; the others could be read and changed.
    async fn look(&mut self) -> Result<Result<(), String>, String> {
        let target = self.target.clone();
        let answer: Result<SyncReport, Error> = self.call("syncer.sync", &Sync { target }).await?;
        match answer {
            Ok(_) => Ok(Ok(())),
            // One NEG failed; the guest goes on with the others.
            Err(error @ Error::Api(ApiError::NotFound | ApiError::Refused(_))) => Ok(Err(describe(&error, None))),
            Err(error) => Err(describe(&error, None)),
        }
    }

    async fn call<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, String> {
        self.calls += 1;
        let args = to_raw_value(args).map_err(|error| format!("arguments of `{call}`: {error}"))?;
        let answer = self.instance.call(call, &args).await;
        // Taken at once, even after a failure: the endpoint lists of a long course would not fit.
        let writes = questions::planned(&self.instance.host_mut().tape.take_entries());
        if !writes.is_empty() {
            self.waits_ms = self.clock.now_ms().saturating_sub(self.began_ms);
        }
        let operations = writes.iter().filter_map(|write| write.operation.as_ref());
        self.in_flight.extend(operations.map(|operation| operation.number));
        self.writes.extend(writes);
        answer.and_then(|answer| read(call, &answer)).map_err(with_causes)
    }
}

/// The operations under way in a snapshot of the guest, by number. Empty if the guest uses another format. `settings`
/// has the name of each subnet's NEG.
fn under_way(snapshot: &str, settings: &Value) -> BTreeMap<u64, UnderWay> {
    let State { operations, .. } = State::read(snapshot).unwrap_or_default();
    let endpoint = |(ip, ipv6, port, node)| Endpoint { ip, ipv6, port, node };
    let read = |operation: InState| {
        let name = settings.get(NEG_NAMES)?.get(&operation.subnet)?.as_str()?.to_owned();
        let attaches = operation.started().attaches;
        let zone = operation.zone;
        let under_way = UnderWay {
            attaches,
            neg: NegRef { name, zone },
            endpoints: operation.endpoints.into_iter().map(endpoint).collect(),
        };
        Some((operation.operation, under_way))
    };
    operations.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_under_way_is_read_from_the_guests_state() {
        let row = json!(["10.0.0.1", "", "80", "vm"]);
        let snapshot = json!({"version": 1, "operations": [
            {"operation": 7, "does": "detach", "zone": "a", "subnet": "s", "migration": true, "endpoints": [row]},
            {"operation": 8, "does": "attach", "zone": "a", "subnet": "unnamed", "migration": false, "endpoints": [row]},
        ]});
        let found = under_way(&snapshot.to_string(), &json!({"neg_names": {"s": "web"}}));
        let found: Vec<_> = found.iter().map(|(number, of)| (*number, of.attaches)).collect();
        assert_eq!(found, [(7, false)], "the other's NEG has no name");
        assert_eq!(under_way("another guest's", &json!({})), BTreeMap::new());
    }
}
