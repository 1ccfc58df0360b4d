//! Services as a world of keys: what the Service of a key should be, the calls of its turn (turn.rs), and what others
//! see of it (publish.rs).
//!
//! The loop is that of [`trueup_work::keyed`].

pub(crate) mod adapter;
mod desired;
pub mod guest;
pub(crate) mod kind;
mod known;
mod publish;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use trueup_capabilities::Backends;
use trueup_capabilities::holdings::Holdings;
use trueup_capabilities::meter::Effects;
use trueup_config::Lbaas;
use trueup_sources::Batch;
use trueup_work::event::{Event, Message, WorldEvent};
use trueup_work::keyed::turn::{CutCalls, Turn};
use trueup_work::keyed::{KeyProblem, LastResults, Reconciler, Rules, SourceChanges, Turning, Wanted};
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::setup::SetupError;

use self::adapter::Key;
use self::desired::DesiredState;
use self::guest::{AddressPorts, Desired};
use self::kind::Setup;
use self::known::KnownKeys;
use self::publish::Publisher;
use self::turn::{ServiceTurn, Shared};

/// What Services keep in the state folder. In a plan, changes stay in memory.
///
/// # Errors
/// If it can't be read.
fn open_state(lbaas: &Lbaas, state_dir: &Path, plans: bool) -> Result<(KnownKeys, DesiredState), SetupError> {
    let known = KnownKeys::open(state_dir, guest::NAME, plans)?;
    let desired = DesiredState::new(lbaas.adapter.clone(), &lbaas.source, state_dir, &known, plans);
    Ok((known, desired.map_err(SetupError::misused)?))
}

/// What the loop needs to know of Services.
pub(crate) struct Services<'a> {
    setup: &'a Setup<'a>,
    shared: Arc<Shared>,
    desired: DesiredState,
    quarantine: Arc<Quarantine>,
    /// The hash of the desired state, without its servers, that each key last reached.
    reached: BTreeMap<Key, u64>,
    /// The same of the turn that runs.
    begun: BTreeMap<Key, u64>,
}

/// A hash of what a Service asks for, without its servers.
fn without_servers(desired: &Desired) -> u64 {
    let without = Desired {
        servers: Vec::new(),
        ..desired.clone()
    };
    let mut hash = DefaultHasher::new();
    serde_json::to_string(&without).unwrap_or_default().hash(&mut hash);
    hash.finish()
}

impl<'a> Services<'a> {
    /// # Errors
    /// If the state folder can't be read.
    fn new(setup: &'a Setup<'a>, quarantine: Arc<Quarantine>, publisher: Publisher) -> Result<Self, SetupError> {
        let plans = setup.keyed.host_context.plans();
        let (known, desired) = open_state(setup.lbaas, &setup.keyed.config.state_dir, plans)?;
        Ok(Self {
            setup,
            shared: Arc::new(Shared {
                known: Mutex::new(known),
                settings: setup.lbaas.adapter.clone(),
                publisher,
            }),
            desired,
            quarantine,
            reached: BTreeMap::new(),
            begun: BTreeMap::new(),
        })
    }

    /// The UIDs of the source's Services, and of those whose objects may still exist.
    fn uids(&self) -> BTreeSet<String> {
        let known = self.shared.known.lock();
        let remembered = known.keys().flat_map(|key| known::locations(&known, key).into_keys());
        remembered.chain(self.desired.uids()).collect()
    }

    /// Keys that have objects and are no longer desired.
    fn gone(&self) -> Vec<Key> {
        let known = self.shared.known.lock();
        let gone = |key: &&Key| self.desired.completeness.shows(&key.namespace) && self.desired.desired(key).is_none();
        known.keys().filter(gone).cloned().collect()
    }

    /// Watching fewer namespaces than before does not mean that the Services of the others are gone.
    fn say_what_is_not_seen(&self) {
        let known = self.shared.known.lock();
        let is_unseen = |key: &&Key| !self.desired.completeness.shows(&key.namespace);
        let count = known.keys().filter(is_unseen).count();
        if count > 0 {
            tracing::warn!(
                "{count} services whose objects may exist are in namespaces that are not looked at: they stay as they are; \
                 see `namespaces` under [source.kubernetes]"
            );
        }
    }

    /// These, and keys that are set aside and no longer desired, including those that have no objects.
    fn set_aside_or_gone(&self) -> Vec<Key> {
        let mut keys = self.quarantine.keys();
        keys.retain(|key| self.desired.desired(key).is_none());
        keys.extend(self.gone());
        keys
    }
}

impl Reconciler for Services<'_> {
    type Key = Key;
    /// `None` if the key is gone: everything of it is to be removed.
    type Desired = Option<Desired>;
    /// What is in service now, if the turn found it out.
    type Out = Vec<AddressPorts>;
    type Mail = Infallible;

    const RULES: Rules = Rules {
        guest: guest::NAME,
        name: "services",
        word: "service",
        unchanged: "nothing changed: everything was true already",
        jobs_max: 256,
        cut: CutCalls::Dropped,
        left_behind: "calls",
        counted: "objects each Service",
    };

    fn look(&mut self, batch: &Batch) -> SourceChanges<Key> {
        let has_keys = self.shared.known.lock().keys().next().is_some();
        let unreadable = self.desired.take_in_unreadable(&batch.unreadable);
        let mut looked = self.desired.take_in(&batch.changes, batch.complete, has_keys);
        looked.affected.extend(unreadable);
        if let Err(error) = self.desired.remember() {
            tracing::warn!("the servers are not remembered for the next start: {error}");
        }
        if self.desired.completeness.completed() {
            // Keys that were deleted while the host was down, or while a manifest could not be read.
            looked.affected.extend(self.set_aside_or_gone());
            self.say_what_is_not_seen();
        } else if !looked.complete {
            looked.held = self.gone();
        }
        looked
    }

    fn keys(&self) -> BTreeSet<Key> {
        let mut keys = self.desired.keys();
        keys.extend(self.desired.left_over());
        if self.desired.completeness.is_complete() {
            keys.extend(self.set_aside_or_gone());
        }
        keys
    }

    fn is_desired(&self, key: &Key) -> bool {
        self.desired.desired(key).is_some()
    }

    fn wanted(&mut self, key: &Key) -> Wanted<Option<Desired>> {
        match self.desired.desired(key) {
            Some(Err(error)) => Wanted::Refused(error),
            Some(Ok(desired)) => Wanted::Work(Some(desired)),
            None if self.desired.is_gone(key) => Wanted::Work(None),
            None if self.desired.locations(&self.shared.known.lock(), key).is_empty() => Wanted::Nothing,
            None => Wanted::Held,
        }
    }

    fn leaves(&self, key: &Key, has: u64) -> u64 {
        match self.desired.desired(key) {
            Some(Ok(desired)) => adapter::object_count(&desired),
            None if self.desired.is_gone(key) => 0,
            // The count does not change.
            Some(Err(_)) | None => has,
        }
    }

    fn loses_no_others(&self, key: &Key) -> bool {
        let desired = self.desired.desired(key).and_then(Result::ok);
        desired.is_some_and(|desired| self.reached.get(key) == Some(&without_servers(&desired)))
    }

    fn is_outdated(&self, key: &Key, desired: &Option<Desired>) -> bool {
        self.desired.desired(key).and_then(Result::ok) != *desired
    }

    fn turn(&mut self, key: &Key, desired: Option<Desired>, mut turn: Turn) -> Turning<Self> {
        self.reached.remove(key);
        let locations = self.desired.locations(&self.shared.known.lock(), key);
        if let Some(desired) = &desired {
            self.begun.insert(key.clone(), without_servers(desired));
            let is_new = turn.shared.active.plan.is_none() && !locations.contains_key(&desired.service_uid);
            if is_new && desired.service_uid == adapter::made_uid(key, &self.desired.settings) {
                tracing::info!(%key, "the Service has no metadata.uid: its objects carry {}", desired.service_uid);
            }
        }
        let api = self.setup.api_of(self.desired.owned(key, &locations));
        turn.set_backends(Backends {
            lbaas: Some(api),
            ..self.setup.keyed.backends(turn.slot.key())
        });
        let is_moved = |(uid, _): &(String, _)| self.desired.owner(uid).is_some_and(|owner| owner != key);
        let (moved, own) = locations.into_iter().partition(is_moved);
        let mut turn = ServiceTurn {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            turn,
            in_service: Vec::new(),
        };
        Box::pin(async move {
            let end = turn.run(desired, moved, own).await;
            turn.turn.end(turn.key, end, turn.in_service)
        })
    }

    fn succeeded(&mut self, key: &Key, gone: bool, effects: Effects, out: Self::Out) -> Result<Option<Event>, String> {
        let in_service: Vec<_> = out.into_iter().map(|at| (at.address, at.ports)).collect();
        if let Some(begun) = self.begun.remove(key).filter(|_| !gone) {
            self.reached.insert(key.clone(), begun);
        }
        let Effects { created, destroyed } = effects;
        let ended = if gone { Holdings::forget } else { Holdings::done };
        ended(&self.setup.keyed.active.quotas.holdings, &key.to_string());
        let did = match (created, destroyed) {
            _ if gone => format!("{destroyed} destroyed"),
            (0, 0) => format!("nothing to do; {}", serving(&in_service)),
            _ => format!("{created} created, {destroyed} destroyed; {}", serving(&in_service)),
        };
        self.shared.publisher.report(publish::success(key, gone, effects, &did));
        let key = key.to_string();
        let json =
            json!({ "key": key, "gone": gone, "created": created, "destroyed": destroyed, "in_service": in_service });
        let said = Message::outcome(&key, if gone { "gone" } else { "true" }, &did);
        Ok(Some(Event::Own(WorldEvent::new("true", &json, Some(said)))))
    }

    fn in_service(out: &Vec<AddressPorts>) -> Vec<String> {
        let mut all = Vec::new();
        for AddressPorts { address, ports } in out {
            all.extend(ports.iter().map(|port| match address.contains(':') {
                true => format!("[{address}]:{port}"),
                false => format!("{address}:{port}"),
            }));
        }
        all
    }

    fn publish_problem(&self, key: &Key, problem: KeyProblem<'_>) {
        self.shared.publisher.report(Some(publish::problem(key, problem)));
    }

    fn about_to_wait(&mut self, is_at_rest: bool, last_results: &LastResults<Key>, sleepers: usize) {
        self.setup.keyed.host_context.host_status.sleeping(sleepers);
        let anexia = self.setup.anexia.as_ref().filter(|anexia| anexia.looks_by_name());
        let is_true = |key: &Key| matches!(last_results.get(key), Some(Ok(())));
        // Once every key is in its desired state, the intents on disk cover all that a kill may leave without its tags.
        if let Some(anexia) = anexia
            && is_at_rest
            && self.desired.completeness.is_complete()
            && self.desired.keys().iter().all(is_true)
            && self.gone().is_empty()
        {
            anexia.all_listed();
        }
    }

    async fn flush(&self) {
        self.shared.publisher.flush().await;
    }

    fn did(&self, effects: Effects) -> [(&'static str, u64); 2] {
        [("created", effects.created), ("destroyed", effects.destroyed)]
    }
}

/// `in service: 192.0.2.1 ports 80, 443; 192.0.2.2 port 80`.
fn serving(in_service: &[(String, Vec<u16>)]) -> String {
    if in_service.is_empty() {
        return "nothing in service".to_owned();
    }
    let serving = in_service.iter().map(|(address, ports)| {
        let word = if ports.len() == 1 { "port" } else { "ports" };
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        format!("{address} {word} {}", ports.join(", "))
    });
    format!("in service: {}", serving.collect::<Vec<_>>().join("; "))
}
