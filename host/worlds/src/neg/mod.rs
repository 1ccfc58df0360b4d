//! NEGs as a world of keys: the endpoints that the NEGs of a key should have, the calls of its turn (turn.rs), and what
//! comes for it beside the source: ends of operations, due timers, and the error state that an operator requests.
//!
//! ```text
//! state_dir/keys/neg/<key>.json    a key that this host has worked on, and the settings that the adapter gave it: the
//!                                  zones and the names of its NEGs, to empty those of a Service that was deleted while
//!                                  the host was down
//! state_dir/neg/places.json        zones and subnets that Nodes were in
//! state_dir/neg/term.json          how often the Lease had changed hands when this host acted last
//! ```
//!
//! A guest's calls start operations that go on without it, so the host never cuts a call, and first finishes one that
//! a kill cut short. The loop is that of [`trueup_work::keyed`].

pub(crate) mod adapter;
pub mod guest;
pub(crate) mod kind;
mod operations;
mod plan;
mod turn;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use trueup_config::NEG_NAMES;
use trueup_work::decisions::Cause;
use trueup_work::files;
use trueup_work::keyed::key_records::{KeyRecord, KeyRecords};
use trueup_work::kind::SetErrorState;
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::setup::SetupError;
use trueup_work::status::{NegAt, OperationShown};

pub use trueup_work::status::Migration;

use self::adapter::{Key, Locations, Targets};
use self::kind::NegSetup;
use self::operations::{Ended, InFlight};
use self::turn::Out;

/// What waits for one instance until a turn takes it: ends of operations, a requested error state, and whether to sync
/// its NEGs. What a turn did not get to goes back, without replacing what came meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Inbox {
    /// Operations that ended, by number, and why they failed. `None` if they succeeded. The guest gets them in this
    /// order.
    ends: BTreeMap<u64, Option<String>>,
    /// The error state that an operator requested. `None` if there is no request.
    error_state: Option<bool>,
    /// Whether to compare its NEGs with the target.
    sync: bool,
}

impl Inbox {
    /// Puts back what a job took and did not use. What came since is newer and stays.
    fn put_back(&mut self, left: Self) {
        for (operation, failure) in left.ends {
            self.ends.entry(operation).or_insert(failure);
        }
        self.error_state = self.error_state.or(left.error_state);
        self.sync |= left.sync;
    }
}

/// What is known of a key, with or without an instance.
#[derive(Debug, Default)]
struct Entry {
    inbox: Inbox,
    /// The digest of the last desired state.
    digest: Option<String>,
    /// When the first timer of its instance is due, by `Clock::steady_ms`.
    timer_ms: Option<u64>,
    last_at_ms: u64,
    /// The number of syncs in a row that met an error, and of operations in a row that failed.
    sync_failures: u32,
    operation_failures: u32,
    /// As in [`Out`].
    operation_failure: Option<String>,
    /// The operations of its instance, as of its last turn.
    operations: InFlight,
    /// Its desired state changed and may change more: since when, and when it is queued, by `Clock::steady_ms`. `None`
    /// if it does not gather.
    gathers: Option<(u64, u64)>,
    /// With `--once`: it failed too often and is not tried again.
    given_up: bool,
}

/// What the loop needs to know of NEGs.
pub(crate) struct Negs<'a> {
    setup: &'a NegSetup<'a>,
    once: bool,
    targets: Targets,
    known: KnownKeys,
    /// Calls that began before this time are not finished, since others have acted since. In milliseconds since 1970;
    /// 0 if no other host has acted.
    finishes_from_ms: u64,
    entries: BTreeMap<Key, Entry>,
    /// When the timers of each key are due, by `Clock::steady_ms`.
    alarms: BTreeSet<(u64, Key)>,
    /// Until when the changes of each key are gathered, by the same clock.
    gathering: BTreeSet<(u64, Key)>,
    attached: u64,
    detached: u64,
    quarantine: Arc<Quarantine>,
    error_states: mpsc::Receiver<SetErrorState>,
    ends: mpsc::Receiver<Ended>,
}

/// What NEGs keep in the state folder, beside the operations. In a plan, changes stay in memory.
///
/// # Errors
/// If it can't be read.
fn open_state(state_dir: &Path, plans: bool) -> Result<(KnownKeys, Locations), SetupError> {
    let known = KnownKeys::open(state_dir, guest::NAME, plans)?;
    let locations: Option<Locations> = files::read_json(&locations_file(state_dir)).map_err(SetupError::misused)?;
    Ok((known, locations.unwrap_or_default()))
}

impl<'a> Negs<'a> {
    /// `ends`: of operations. `error_states`: requests, of which there are none without a control socket.
    ///
    /// # Errors
    /// If the state folder can't be read.
    fn new(
        setup: &'a NegSetup<'a>,
        once: bool,
        quarantine: Arc<Quarantine>,
        (ends, error_states): (mpsc::Receiver<Ended>, mpsc::Receiver<SetErrorState>),
    ) -> Result<Self, SetupError> {
        let (neg, state_dir) = (setup.neg, &setup.keyed.config.state_dir);
        let (known, locations) = open_state(state_dir, setup.keyed.host_context.plans())?;
        Ok(Self {
            setup,
            once,
            targets: Targets::new(&neg.adapter, &neg.source, locations, held_negs(&known)),
            known,
            finishes_from_ms: 0,
            entries: BTreeMap::new(),
            alarms: BTreeSet::new(),
            gathering: BTreeSet::new(),
            attached: 0,
            detached: 0,
            quarantine,
            error_states,
            ends,
        })
    }

    fn entry(&mut self, key: &Key) -> &mut Entry {
        self.entries.entry(key.clone()).or_default()
    }

    fn is_known(&self, key: &Key) -> bool {
        self.known.get(key).is_some() || self.targets.desired(key).is_some()
    }

    /// An operation has ended. Returns the key that started it, if the key still exists.
    fn take_end(&mut self, ended: Ended, is_running: impl Fn(&Key) -> bool) -> Option<(Key, Cause)> {
        let Ended {
            instance,
            operation,
            failure,
        } = ended;
        let key = instance.parse::<Key>().ok();
        let Some(key) = key.filter(|key| is_running(key) || self.is_known(key)) else {
            tracing::info!(instance, operation, "an operation of a key that is no more has ended");
            let operations = Arc::clone(&self.setup.operations);
            // This need not complete: if the process ends first, the end comes again.
            tokio::spawn(async move { operations.acknowledged(&instance, operation).await });
            return None;
        };
        let entry = self.entry(&key);
        entry.inbox.ends.insert(operation, failure.clone());
        (!entry.given_up).then_some((key, Cause::Operation { operation, failure }))
    }

    fn set_error_state(&mut self, request: SetErrorState, may_act: bool) -> Option<(Key, Cause)> {
        let SetErrorState { key: text, on, reply } = request;
        let key = match text.parse() {
            _ if !may_act => Err("this host does not act now: ask the one that leads".to_owned()),
            Ok(key) if !self.is_known(&key) => Err(format!(
                "key `{text}`: no NEG is desired for it; `trueup status --keys` shows all keys"
            )),
            parsed => parsed,
        };
        // The caller may have disconnected; the request still applies.
        let _ = reply.send(key.as_ref().map(|_| ()).map_err(Clone::clone));
        let key = key.ok()?;
        let inbox = &mut self.entry(&key).inbox;
        inbox.error_state = Some(on);
        inbox.sync = true;
        Some((key, Cause::ErrorState { on }))
    }

    /// Sets when the first timer of a key's instance is due.
    fn set_alarm(&mut self, key: &Key, timer_ms: Option<u64>) {
        let before = std::mem::replace(&mut self.entry(key).timer_ms, timer_ms);
        if let Some(before) = before {
            self.alarms.remove(&(before, key.clone()));
        }
        if let Some(timer_ms) = timer_ms {
            self.alarms.insert((timer_ms, key.clone()));
        }
    }

    fn show(&self, key: &Key, out: &Out) {
        let Some(state) = &out.state else { return };
        let host_context = self.setup.keyed.host_context;
        let instance = key.to_string();
        let in_flight = state.operations.iter().map(|of| OperationShown {
            key: instance.clone(),
            operation: of.operation,
            action: if of.started().attaches { "attach" } else { "detach" }.to_owned(),
            endpoints: of.endpoints.len(),
            at: of.at(),
            since_ms: host_context.host_status.now_ms(),
        });
        let at = NegAt {
            in_flight: in_flight.collect(),
            attached: out.attached,
            detached: out.detached,
            migration: state.migration(&host_context.metrics, &instance),
            in_error_state: state.in_error_state,
        };
        host_context.host_status.neg(&instance, at);
    }

    /// The last settings of a key that is not desired, with those of its NEGs that belong to no other key by now.
    /// `None` if there are none.
    fn settings_left(&self, key: &Key) -> Option<Map<String, Value>> {
        let mut settings = self.known.get(key)?.settings.clone();
        let names = settings.get_mut(NEG_NAMES).and_then(Value::as_object_mut)?;
        names.retain(|_, name| {
            let owner = name.as_str().and_then(|name| self.targets.owner(name));
            owner.is_none_or(|owner| owner == key)
        });
        (!names.is_empty()).then_some(settings)
    }
}

/// The next key whose time has come.
fn pop_due(times: &mut BTreeSet<(u64, Key)>, now_ms: u64) -> Option<Key> {
    times.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
    times.pop_first().map(|(_, key)| key)
}

/// What is known of one key: the format of its file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeySettings {
    key: String,
    settings: Map<String, Value>,
}

impl KeyRecord for KeySettings {
    type Key = Key;
    const SAYS: &'static str = "which NEGs a Service has, should that go away";

    fn key(&self) -> &str {
        &self.key
    }
}

/// All known keys.
type KnownKeys = KeyRecords<KeySettings>;

/// The names of the NEGs that known keys have.
fn held_negs(known: &KnownKeys) -> impl Iterator<Item = (String, Key)> {
    let records = known.keys().filter_map(|key| Some((key, known.get(key)?)));
    records.flat_map(|(key, record)| {
        let names = record.settings.get(NEG_NAMES).and_then(Value::as_object);
        let names = names.into_iter().flat_map(Map::values).filter_map(Value::as_str);
        names.map(|name| (name.to_owned(), key.clone()))
    })
}

/// The file with the zones and subnets that Nodes are and were in.
fn locations_file(state_dir: &Path) -> PathBuf {
    state_dir.join(guest::NAME).join("places.json")
}

/// The format of the file that says when this host acted last, by the Lease's count of its holders.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acted {
    transitions: i32,
}

/// This host acts from here on, with this count. Returns whether others acted since it did last: what a kill cut short
/// is finished from its recorded answers only if no other host has changed anything since. If the file can't be read,
/// assumes that they did.
fn others_acted(state_dir: &Path, transitions: i32) -> bool {
    let file = state_dir.join(guest::NAME).join("term.json");
    let before = files::read_json(&file).unwrap_or_else(|error| {
        tracing::warn!("{error}: others may have acted since this host did");
        Some(Acted { transitions: i32::MIN })
    });
    if let Err(error) = files::replace_json(&file, &Acted { transitions }) {
        tracing::warn!("{error}: the next start takes it that others have acted");
    }
    // One more is this host succeeding itself: it was started again, or had given the Lease back.
    before.is_some_and(|before| !(0..=1).contains(&transitions.saturating_sub(before.transitions)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_not_used_goes_back_and_what_is_newer_stays() {
        let left = Inbox {
            ends: [(1, None), (2, Some("old".to_owned()))].into(),
            error_state: Some(true),
            sync: true,
        };
        let mut inbox = Inbox {
            ends: [(2, Some("new".to_owned()))].into(),
            error_state: Some(false),
            sync: false,
        };
        assert_ne!(inbox, Inbox::default());
        inbox.put_back(left.clone());
        assert_eq!(inbox.ends, [(1, None), (2, Some("new".to_owned()))].into());
        assert_eq!((inbox.error_state, inbox.sync), (Some(false), true));
        let mut empty = Inbox::default();
        empty.put_back(left.clone());
        assert_eq!(empty, left);
    }

    fn settings(zones: &Value) -> Map<String, Value> {
        Map::from_iter([("zones".to_owned(), zones.clone())])
    }

    fn remember(known: &mut KnownKeys, key: &Key, settings: &Map<String, Value>) -> std::io::Result<()> {
        let record = KeySettings {
            key: key.to_string(),
            settings: settings.clone(),
        };
        known.put(key, record)
    }

    #[test]
    fn a_restart_keeps_what_a_key_had_and_not_forgotten_keys() {
        let dir = tempfile::tempdir().unwrap();
        let [web, api] = ["shop/web/80", "shop/api/443"].map(|key| key.parse::<Key>().unwrap());
        let mut known = KnownKeys::load(dir.path()).unwrap();
        remember(&mut known, &web, &settings(&json!(["a"]))).unwrap();
        remember(&mut known, &web, &settings(&json!(["a", "b"]))).unwrap();
        remember(&mut known, &api, &settings(&json!([]))).unwrap();
        known.remove(&api).unwrap();
        known.remove(&api).unwrap();
        let file = locations_file(dir.path());
        let locations = Locations {
            zones: ["a".to_owned()].into(),
            ..Locations::default()
        };
        assert_eq!(files::read_json::<Locations>(&file).unwrap(), None);
        files::replace_json(&file, &locations).unwrap();

        let known = KnownKeys::load(dir.path()).unwrap();
        assert_eq!(known.keys().collect::<Vec<_>>(), [&web]);
        assert_eq!(known.get(&web).unwrap().settings, settings(&json!(["a", "b"])));
        assert_eq!(files::read_json(&file).unwrap(), Some(locations));
    }

    #[test]
    fn a_damaged_file_is_named_not_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = KnownKeys::load(dir.path()).unwrap();
        let key: Key = "shop/web/80".parse().unwrap();
        remember(&mut known, &key, &Map::new()).unwrap();
        let file = known.file(&key);
        let moved = std::fs::read_to_string(&file).unwrap().replace("80", "81");
        for text in ["{", r#"{"key":"shop/web","settings":{}}"#, &moved] {
            std::fs::write(&file, text).unwrap();
            let error = KnownKeys::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(".json") && error.contains("repair it"), "{error}");
        }
    }

    #[test]
    fn others_have_acted_where_the_lease_changed_hands_more_than_once() {
        let folder = tempfile::tempdir().unwrap();
        let others_acted = |transitions| others_acted(folder.path(), transitions);
        assert!(!others_acted(4), "nothing was done before");
        assert!(!others_acted(4), "it holds it still");
        assert!(!others_acted(5), "from itself to itself");
        assert!(others_acted(7), "to another, and back");
        assert!(others_acted(0), "another Lease");
        assert!(!others_acted(1));
        std::fs::write(folder.path().join("neg/term.json"), "{").unwrap();
        assert!(others_acted(2), "the outcome is unknown");
    }
}
