//! Toys as a world of keys: one key of etcd for each Service, with its ports. The smallest world, and the example of
//! docs/add-a-world.md.
//!
//! ```text
//! Service shop/web -> `/toy/shop/web` = `80/TCP,443/TCP` -> turn (one call of the guest) -> etcd
//! ```

mod adapter;
pub mod guest;
pub(crate) mod kind;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use trueup_capabilities::Backends;
use trueup_capabilities::meter::{Effects, Unapplied};
use trueup_sources::{Batch, Completeness, Kind, Objects};
use trueup_work::decisions::{ChangedNodes, ChangedObject, Input};
use trueup_work::event::{Event, Message, WorldEvent};
use trueup_work::keyed::key_records::{KeyRecord, KeyRecords};
use trueup_work::keyed::turn::{CutCalls, Turn};
use trueup_work::keyed::{Reconciler, Rules, SourceChanges, Turning, Wanted};
use trueup_work::lifecycle::failure::{End, Failure};
use trueup_work::lifecycle::quarantine::Quarantine;
use trueup_work::objects::Id as Key;

use self::guest::{Desired, Error, NAME, Outcome, RECONCILE, Reconcile};
use self::kind::Setup;

/// What the loop needs to know of toys.
struct Toys<'a> {
    setup: &'a Setup<'a>,
    objects: Objects,
    completeness: Completeness,
    known: KeyRecords<Written>,
    quarantine: Arc<Quarantine>,
}

/// What is known of one key: the format of its file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    key: String,
    /// The keys of etcd that may exist: several if `prefix` changed.
    at: BTreeSet<String>,
}

impl KeyRecord for Written {
    type Key = Key;
    const SAYS: &'static str = "which keys of etcd a Service has, should that go away";

    fn key(&self) -> &str {
        &self.key
    }
}

impl Toys<'_> {
    /// The value of a key. `None` if there is no such Service, or it has no ports.
    fn value(&self, key: &Key) -> Option<String> {
        adapter::value(self.objects.service(&key.namespace, &key.name)?)
    }

    fn is_gone(&self, key: &Key) -> bool {
        self.completeness.is_gone(&key.of_kind(Kind::Service))
    }

    /// Keys that are not desired and may have a key of etcd, or are set aside.
    fn missing(&self) -> impl Iterator<Item = Key> {
        let keys = self.known.keys().cloned().chain(self.quarantine.keys());
        keys.filter(|key| self.value(key).is_none())
    }

    fn remember(&mut self, key: &Key, at: BTreeSet<String>) -> Result<(), String> {
        let key_text = key.to_string();
        let written = self.known.put(key, Written { key: key_text, at });
        written.map_err(|error| error.to_string())
    }

    /// The keys of etcd that may exist and are not the one of now.
    fn left(&self, key: &Key, now: Option<&str>) -> impl Iterator<Item = Desired> {
        let at = self.known.get(key).into_iter().flat_map(|known| &known.at);
        at.filter(move |at| now != Some(at.as_str())).map(|at| Desired {
            key: at.clone(),
            value: None,
        })
    }
}

impl Reconciler for Toys<'_> {
    type Key = Key;
    /// The calls of the turn.
    type Desired = Vec<Desired>;
    type Out = ();
    type Mail = Infallible;

    const RULES: Rules = Rules {
        guest: NAME,
        name: "toys",
        word: "toy",
        unchanged: "nothing changed: every key of etcd was as it should be",
        jobs_max: 64,
        cut: CutCalls::Dropped,
        left_behind: "calls",
        counted: "keys each Service",
    };

    fn look(&mut self, batch: &Batch) -> SourceChanges<Key> {
        let differ = self.completeness.take_in_unreadable(&batch.unreadable);
        let services = differ.iter().filter(|reference| reference.kind == Kind::Service);
        let mut affected: BTreeSet<Key> = services.map(Key::from).collect();
        let mut seen = Vec::new();
        for change in &batch.changes {
            self.completeness.see(change);
            let key = Key::from(&change.reference);
            let was = self.value(&key);
            let before = self.objects.apply(change);
            if change.reference.kind == Kind::Service && was != self.value(&key) {
                let input = Input::of(change, before.as_ref());
                let keys = vec![key.clone()];
                seen.push(ChangedObject { input, keys });
                affected.insert(key);
            }
        }
        let shown = self.known.keys().next().map(|_| self.objects.len());
        let missing = self.completeness.end_look(batch.complete, shown, None);
        let mut held = Vec::new();
        if self.completeness.completed() {
            // Keys that were deleted while the host was down, or while something could not be read.
            affected.extend(self.missing().filter(|key| self.is_gone(key)));
        } else if !self.completeness.is_complete() {
            held.extend(self.missing());
        }
        SourceChanges {
            affected,
            held,
            seen,
            nodes: ChangedNodes::default(),
            notes: Vec::new(),
            is_empty: missing.all,
            no_nodes: false,
            complete: self.completeness.is_complete(),
            objects: self.objects.counts(),
        }
    }

    fn keys(&self) -> BTreeSet<Key> {
        let services = self.objects.services().map(|(reference, _)| Key::from(reference));
        let desired = services.filter(|key| self.is_desired(key));
        desired.chain(self.missing().filter(|key| self.is_gone(key))).collect()
    }

    fn is_desired(&self, key: &Key) -> bool {
        self.value(key).is_some()
    }

    fn wanted(&mut self, key: &Key) -> Wanted<Vec<Desired>> {
        let (at, value) = (self.setup.toy.adapter.key(key), self.value(key));
        if value.is_some() {
            let left: Vec<Desired> = self.left(key, Some(&at)).collect();
            return Wanted::Work([vec![Desired { key: at, value }], left].concat());
        }
        let left: Vec<Desired> = self.left(key, None).collect();
        let admit = || self.setup.keyed.active.quotas.holdings.admit_all(&key.to_string());
        match self.is_gone(key) {
            true if left.is_empty() => Wanted::Forget,
            true => admit().map_or_else(Wanted::Waits, |()| Wanted::Work(left)),
            false if left.is_empty() => Wanted::Nothing,
            false => Wanted::Held,
        }
    }

    fn leaves(&self, key: &Key, has: u64) -> u64 {
        match self.value(key) {
            Some(_) => 1,
            None if self.is_gone(key) && self.left(key, None).next().is_some() => 0,
            None => has,
        }
    }

    /// On disk before anything is written, so that it is found again whatever happens next.
    fn prepare(&mut self, key: &Key, desired: &Vec<Desired>) -> Result<(), String> {
        let at = desired.iter().map(|desired| desired.key.clone()).collect();
        self.remember(key, at)
    }

    fn turn(&mut self, key: &Key, desired: Vec<Desired>, mut turn: Turn) -> Turning<Self> {
        let setup = self.setup;
        turn.set_backends(Backends {
            etcd: Some(Arc::clone(&setup.etcd)),
            ..setup.keyed.backends(turn.slot.key())
        });
        let key = key.clone();
        Box::pin(async move {
            let end = reconcile(&mut turn, desired).await;
            turn.end(key, end, ())
        })
    }

    fn succeeded(&mut self, key: &Key, gone: bool, effects: Effects, (): ()) -> Result<Option<Event>, String> {
        let (holdings, text) = (&self.setup.keyed.active.quotas.holdings, key.to_string());
        if gone {
            holdings.emptied(&text);
        } else {
            holdings.settled(&text, 1);
            self.remember(key, [self.setup.toy.adapter.key(key)].into())?;
        }
        let json = json!({ "key": text, "gone": gone, "did": BTreeMap::from(self.did(effects)) });
        let did = self.did(effects).into_iter().filter(|(_, count)| *count > 0);
        let did: Vec<String> = did.map(|(word, count)| format!("{count} {word}")).collect();
        let did = match did.as_slice() {
            [] => "nothing to do".to_owned(),
            did => did.join(", "),
        };
        let said = Message::outcome(&text, if gone { "gone" } else { "true" }, &did);
        Ok(Some(Event::Own(WorldEvent::new("settled", &json, Some(said)))))
    }

    fn forget(&mut self, key: &Key) {
        if let Err(error) = self.known.remove(key) {
            tracing::warn!(%key, "it is looked for once more at the next start: {error}");
        }
    }

    fn did(&self, effects: Effects) -> [(&'static str, u64); 2] {
        [("deleted", effects.destroyed), ("written", effects.created)]
    }
}

/// The calls of a turn. True: nothing is left of the key.
async fn reconcile(turn: &mut Turn, desired: Vec<Desired>) -> End {
    let mut gone = true;
    for desired in desired {
        if !turn.fence.may_act() {
            return Err(Failure::cut());
        }
        turn.ready(None).await?;
        turn.removing = desired.value.is_none();
        gone &= turn.removing;
        let read = |answer: Result<Outcome, Error>, _: &Unapplied| {
            answer.map_err(|Error::Database(error)| Failure::from(format!("etcd: {error}")))
        };
        match turn.call(RECONCILE, &Reconcile { desired }, read).await? {
            Outcome::Unchanged => {}
            Outcome::Written => turn.effects.created += 1,
            Outcome::Deleted => turn.effects.destroyed += 1,
        }
    }
    Ok(gone)
}
