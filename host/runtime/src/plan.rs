//! What a run would do now, and what prevents it: runs the guest's real decision to its end in a simulation that is
//! filled from real reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use trueup_base::clock::VirtualClock;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_capabilities::Backends;
use trueup_capabilities::holdings::Kept;
use trueup_capabilities::lbaas::planned::{Planned, Reads};
use trueup_capabilities::lbaas::{Api, Error, Kind, Object, ObjectRef, Spec};
use trueup_capabilities::log::NoLog;
use trueup_journal::Event;
use trueup_sources::Batch;

use crate::config::{Config, Guest, Lbaas, Neg};
use crate::guests::lbaas::adapter::{self, Key};
use crate::guests::lbaas::{self, Desired, Error as Reconciliation, Report};
use crate::lbaas::granted;
use crate::lbaas::job::describe;
use crate::lbaas::known::KnownKeys;
use crate::lbaas::setup::Setup;
use crate::lbaas::wishes::Wishes;
use crate::neg::plan::NegPlan;
use crate::registry::Registry;
use crate::setup::SetupError;
use crate::work::ground::Ground;
use crate::work::held::Held;
use crate::work::input;
use crate::work::input::{no_nodes, nothing_there};

/// What a run would do for one key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyPlan {
    /// `namespace/name`.
    pub key: String,
    /// The Service is gone: its objects would be removed.
    pub gone: bool,
    /// Objects that a killed host created and did not tag. A run first tags them, and then does what `writes` contains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untagged: Vec<Orphan>,
    /// In order.
    pub writes: Vec<Write>,
    /// Why it would fail. `None` if it would succeed.
    pub error: Option<String>,
}

/// One object that would be written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Write {
    /// The action.
    pub action: Action,
    /// `backend`, `frontend`, `bind` or `server`.
    pub kind: &'static str,
    /// The object's name, or its identifier if the name is unknown.
    pub name: String,
    /// Further details: its target, its address. References to objects that do not exist yet are `(new KIND NAME)`.
    pub details: String,
}

/// What would be done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It would be created.
    Create,
    /// It would be applied again unchanged.
    Reset,
    /// It would be destroyed.
    Destroy,
}

/// What a run would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Services, by key.
    pub keys: Vec<KeyPlan>,
    /// NEGs, by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub negs: Vec<NegPlan>,
    /// Notes about the source that change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Manifests that cannot be read, or are not used.
    pub problems: Vec<String>,
    /// Keys that no manifest names but whose objects a run would keep, since an unreadable manifest may name them.
    pub held: Vec<String>,
    /// Children of the configured load balancers without a service's tag, if requested.
    pub orphans: Vec<Orphan>,
}

/// A resource without a service's tag.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Orphan {
    /// `backend`, `frontend`, `bind` or `server`.
    pub kind: &'static str,
    /// Its identifier.
    pub identifier: String,
    /// Its name.
    pub name: String,
}

impl Plan {
    /// The number of objects that would be created.
    pub fn created(&self) -> usize {
        self.count(Action::Create)
    }

    /// The number of objects that would be destroyed.
    pub fn destroyed(&self) -> usize {
        self.count(Action::Destroy)
    }

    /// The number of objects that would be applied again.
    pub fn reset(&self) -> usize {
        self.count(Action::Reset)
    }

    /// The number of keys that would fail.
    pub fn failed(&self) -> usize {
        self.keys.iter().filter(|key| key.error.is_some()).count()
    }

    /// Whether something would fail, or could not be read.
    pub fn has_failed(&self) -> bool {
        self.failed() > 0 || self.negs.iter().any(|key| key.error.is_some()) || !self.problems.is_empty()
    }

    /// Whether a run would write something.
    pub fn has_changes(&self) -> bool {
        let changes = |key: &KeyPlan| !key.writes.is_empty() || !key.untagged.is_empty();
        self.keys.iter().any(changes) || self.negs.iter().any(NegPlan::has_changes)
    }

    fn count(&self, action: Action) -> usize {
        self.keys
            .iter()
            .flat_map(|key| &key.writes)
            .filter(|write| write.action == action)
            .count()
    }
}

/// Plans a run. Writes only to the simulation and, in the state folder, the compile cache and fetched guests. `orphans`
/// requests the resources that no service owns.
///
/// # Errors
/// If planning cannot start.
pub async fn plan(config: &Config, registry: &Registry, orphans: bool) -> Result<Plan, SetupError> {
    let Some(source) = config.source() else {
        return Err(SetupError::Misused(format!(
            "{}: nothing to plan: it names no load balancers and no NEGs, and pod addresses are given when pods ask",
            config.file.display()
        )));
    };
    let (lbaas, neg) = (config.world::<Lbaas>(), config.world::<Neg>());
    if lbaas.is_none() && neg.is_none() {
        return Err(SetupError::Misused(format!(
            "{}: nothing to plan: it names no load balancers and no NEGs, and what becomes of Services on a node is not planned",
            config.file.display()
        )));
    }
    let (all, _) = input::all(source).await?;
    let ground = Ground::new(config, registry, crate::worlds::worlds())?;
    let mut plan = Plan {
        problems: all.problems.iter().map(ToString::to_string).collect(),
        ..Plan::default()
    };
    if let Some(lbaas) = lbaas {
        plan_services(&mut plan, config, lbaas, &ground, &all, orphans).await?;
    }
    if let Some(neg) = neg {
        let negs = Box::pin(crate::neg::plan::plan(config, neg, &ground, &all)).await?;
        plan.negs = negs.keys;
        plan.notes.extend(negs.notes);
        // Only the endpoints of keys that are gone wait.
        let gone = plan.negs.iter().filter(|key| key.gone);
        let going = |kept: &Kept| gone.filter_map(|key| kept.held.get(&key.key)).sum();
        plan.notes
            .extend(waits(config, crate::guests::neg::NAME, &neg.guest, going)?);
        plan.held.extend(negs.held);
        // Report it only once.
        plan.problems
            .extend(negs.problem.filter(|problem| !plan.problems.contains(problem)));
    }
    Ok(plan)
}

async fn plan_services(
    plan: &mut Plan,
    config: &Config,
    lbaas: &Lbaas,
    ground: &Ground,
    all: &Batch,
    orphans: bool,
) -> Result<(), SetupError> {
    let setup = Setup::new(config, lbaas, ground, Fence::open()).await?;
    let wishes = Wishes::new(lbaas.adapter.clone(), &config.state_dir).map_err(SetupError::misused)?;
    let mut wishes = wishes.of(&lbaas.source);
    let known = KnownKeys::load(&config.state_dir.join("keys").join(lbaas::NAME)).map_err(SetupError::misused)?;

    wishes.take_in_unreadable(&all.unreadable);
    let looked = wishes.take_in(&all.changes, all.complete, known.keys().next().is_some());
    if looked.is_empty {
        plan.problems.push(nothing_there(wishes.is_cluster()));
    }
    if looked.no_nodes {
        plan.problems.push(no_nodes(wishes.is_cluster()));
    }
    let mut keys = wishes.keys();
    keys.extend(wishes.left_over());
    for key in known.keys() {
        if wishes.is_gone(key) || wishes.wish(key).is_some() {
            keys.insert(key.clone());
        } else if wishes.is_seen(key) {
            plan.held.push(key.to_string());
        }
    }
    for key in keys {
        let wish = wishes.wish(&key);
        let gone = wish.is_none();
        let outcome = match wish.transpose() {
            Ok(desired) => {
                let api = setup.api_of(wishes.owned(&key, &wishes.places(&known, &key)));
                plan_key(&setup, config, &key, api, &calls(&wishes, &known, &key, desired)).await
            }
            Err(error) => Outcome::failed(error),
        };
        plan.keys.push(KeyPlan {
            key: key.to_string(),
            gone,
            untagged: outcome.untagged,
            writes: outcome.writes,
            error: outcome.error,
        });
    }
    let going = plan.destroyed() as u64;
    plan.notes.extend(waits(config, lbaas::NAME, &lbaas.guest, |_| going)?);
    if orphans {
        plan.orphans = find_orphans(&setup, &lbaas.adapter.load_balancers).await?;
    }
    if let Some(engine) = setup.simulated_engine {
        engine.stop().await;
    }
    Ok(())
}

/// Why a run would wait for an approval first, in one line. `going`: how many objects it destroys, from what it holds.
fn waits(
    config: &Config,
    name: &str,
    guest: &Guest,
    going: impl FnOnce(&Kept) -> u64,
) -> Result<Option<String>, SetupError> {
    let kept = Held::open(&config.state_dir, name).map_err(SetupError::misused)?.kept();
    let going = going(&kept);
    let all = kept.held.values().sum::<u64>() + kept.destroyed;
    // Without counts, the fraction is unknown.
    let is_known = !kept.held.is_empty();
    let waits = is_known && guest.approve_above.is_above(going + kept.destroyed, all.max(going));
    Ok(waits.then(|| {
        format!(
            "a run waits for an approval before it destroys these {going} of {all} objects: `trueup approve {name}`, or `trueup run \
             --once --approve`"
        )
    }))
}

/// The calls of a run: the removal of objects under old UIDs, the desired state, and the removal of objects elsewhere.
fn calls(wishes: &Wishes, known: &KnownKeys, key: &Key, desired: Option<Desired>) -> Vec<Call> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (uid, on) in wishes.places(known, key) {
        let removal = |on: Vec<String>| Call {
            desired: adapter::removal(key, &uid, on, wishes.settings()),
            removing: true,
        };
        match &desired {
            _ if wishes.owner(&uid).is_some_and(|owner| owner != key) => {}
            Some(desired) if desired.service_uid == uid => {
                let left: Vec<String> = on
                    .into_iter()
                    .filter(|identifier| !desired.load_balancers.contains(identifier))
                    .collect();
                after.extend((!left.is_empty()).then(|| removal(left)));
            }
            _ => before.push(removal(on.into_iter().collect())),
        }
    }
    let desired = desired.map(|desired| Call {
        desired,
        removing: false,
    });
    before.into_iter().chain(desired).chain(after).collect()
}

/// One reconcile of a run.
struct Call {
    desired: Desired,
    /// Whether it removes everything.
    removing: bool,
}

async fn find_orphans(setup: &Setup, load_balancers: &[String]) -> Result<Vec<Orphan>, SetupError> {
    let Some(anexia) = &setup.anexia else {
        return Ok(Vec::new());
    };
    let found = anexia.orphans(load_balancers).await;
    let found = found
        .map_err(|error| SetupError::Failed(format!("listing orphans: {}", describe(&Reconciliation::Api(error)))))?;
    Ok(found.into_iter().map(Orphan::from).collect())
}

impl From<Object> for Orphan {
    fn from(object: Object) -> Self {
        Self {
            kind: object.spec.kind().name(),
            name: object.spec.name().to_owned(),
            identifier: object.identifier,
        }
    }
}

#[derive(Default)]
struct Outcome {
    untagged: Vec<Orphan>,
    writes: Vec<Write>,
    error: Option<String>,
}

impl Outcome {
    fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// Runs the guest's decision for one key, with the real grants: a plan is refused whatever a run would be refused.
async fn plan_key(setup: &Setup, config: &Config, key: &Key, api: Arc<dyn Api>, calls: &[Call]) -> Outcome {
    let instances = &setup.active.instances();
    let clock = Arc::new(VirtualClock::new(SystemClock.now_ms()));
    let planned = Arc::new(Planned::new(Reads::of(api), Arc::clone(&clock)));
    let lbaas: Arc<dyn Api> = Arc::<Planned>::clone(&planned);
    let backends = Backends {
        clock,
        log: Arc::new(NoLog),
        metrics: Arc::default(),
        ..setup.backends(config.seed, &key.to_string(), lbaas)
    };
    let mut instance = match instances.start_unrecorded(&key.to_string(), backends, None).await {
        Ok(instance) => instance,
        Err(error) => return Outcome::failed(error.to_string()),
    };
    let mut error = None;
    for Call { desired, removing } in calls {
        #[derive(Serialize)]
        struct Args<'a> {
            desired: &'a Desired,
        }
        let host = instance.host_mut();
        host.removing(*removing);
        if let Err(refused) = granted::check(&host.identity, &host.grants, &host.backends, &desired.load_balancers) {
            error = Some(refused);
            break;
        }
        let Ok(args) = to_raw_value(&Args { desired }) else {
            return Outcome::failed("the desired state is no JSON".to_owned());
        };
        let answer = match instance.call("reconciliation.reconcile", &args).await {
            Ok(answer) => answer,
            Err(stopped) => {
                error = Some(stopped.to_string());
                break;
            }
        };
        match serde_json::from_str::<Result<Report, Reconciliation>>(answer.get()) {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => {
                error = Some(describe(&refused));
                break;
            }
            Err(unreadable) => {
                error = Some(format!("the guest's answer: {unreadable}"));
                break;
            }
        }
    }
    let events = instance
        .host_mut()
        .tape
        .take_entries()
        .into_iter()
        .map(|entry| entry.event);
    let mut story = Story::default();
    events.for_each(|event| story.read(&event));
    Outcome {
        untagged: planned.leftovers().into_iter().map(Orphan::from).collect(),
        writes: story.writes,
        error,
    }
}

/// Reads the tape of a plan: the writes, and the meaning of identifiers in them.
#[derive(Default)]
struct Story {
    writes: Vec<Write>,
    /// Listed objects, by kind and identifier.
    existing: BTreeMap<(&'static str, String), Spec>,
    /// Objects that the plan created: names by kind and identifier.
    new: BTreeMap<(&'static str, String), String>,
}

impl Story {
    fn read(&mut self, event: &Event) {
        let Event::Ask(ask) = event else { return };
        let Some(answer) = &ask.answer else { return };
        match ask.name.as_str() {
            "api.list-tagged" => {
                let listed: Result<Result<Vec<Object>, Error>, _> = serde_json::from_str(answer.get());
                for object in listed.into_iter().flatten().flatten() {
                    self.existing
                        .insert((object.spec.kind().name(), object.identifier), object.spec);
                }
            }
            "api.create" => {
                let created: Vec<Result<Object, Error>> = serde_json::from_str(answer.get()).unwrap_or_default();
                for object in created.into_iter().flatten() {
                    let kind = object.spec.kind().name();
                    let (name, details) = (object.spec.name().to_owned(), self.details(&object.spec));
                    self.new.insert((kind, object.identifier), name.clone());
                    self.writes.push(Write {
                        action: Action::Create,
                        kind,
                        name,
                        details,
                    });
                }
            }
            "api.destroy" => self.existing_written(Action::Destroy, &ask.args, answer),
            "api.reset" => self.existing_written(Action::Reset, &ask.args, answer),
            _ => {}
        }
    }

    fn existing_written(&mut self, action: Action, args: &RawValue, answer: &RawValue) {
        let refs: Vec<ObjectRef> = serde_json::from_str::<Value>(args.get())
            .ok()
            .and_then(|mut args| serde_json::from_value(args.get_mut("refs")?.take()).ok())
            .unwrap_or_default();
        let answers: Vec<Result<(), Error>> = serde_json::from_str(answer.get()).unwrap_or_default();
        for (reference, answer) in refs.into_iter().zip(answers) {
            if answer.is_err() {
                continue;
            }
            let kind = reference.kind.name();
            let spec = self.existing.get(&(kind, reference.identifier.clone()));
            let name = spec.map_or_else(|| reference.identifier.clone(), |spec| spec.name().to_owned());
            let details = spec.map(|spec| self.details(spec)).unwrap_or_default();
            self.writes.push(Write {
                action,
                kind,
                name,
                details,
            });
        }
    }

    fn details(&self, spec: &Spec) -> String {
        match spec {
            Spec::Backend(backend) => format!("on {}", backend.load_balancer),
            Spec::Frontend(frontend) => {
                format!(
                    "on {}, to {}",
                    frontend.load_balancer,
                    self.named(Kind::Backend, &frontend.default_backend)
                )
            }
            Spec::Bind(bind) => {
                let address = if bind.address.contains(':') {
                    format!("[{}]", bind.address)
                } else {
                    bind.address.clone()
                };
                format!(
                    "{address}:{} of {}",
                    bind.port,
                    self.named(Kind::Frontend, &bind.frontend)
                )
            }
            Spec::Server(server) => {
                let ip = if server.ip.contains(':') {
                    format!("[{}]", server.ip)
                } else {
                    server.ip.clone()
                };
                format!("{ip}:{} in {}", server.port, self.named(Kind::Backend, &server.backend))
            }
        }
    }

    fn named(&self, kind: Kind, identifier: &str) -> String {
        match self.new.get(&(kind.name(), identifier.to_owned())) {
            Some(name) => format!("(new {} {name})", kind.name()),
            None => match self.existing.get(&(kind.name(), identifier.to_owned())) {
                Some(spec) => spec.name().to_owned(),
                None => identifier.to_owned(),
            },
        }
    }
}
