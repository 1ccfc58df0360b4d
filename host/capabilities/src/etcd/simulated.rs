//! A store in memory, for guests in scenarios and tests.
//!
//! A scenario's faults answer first, and then nothing happens here. They only affect guests' requests, not the host's
//! own listings and watches.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

use super::history::{Cursor, HISTORY_REVISIONS_MAX, History, Look};
use super::rules::{self, Found};
use super::{
    Api, Changes, Compare, Error, Event, FIRST_REVISION, KeyValue, Listing, Operation, Stored, Watch, WatchEnd,
};
use crate::Answer;
use crate::faults::Faults;

/// A store in memory. Clones share the store.
#[derive(Debug, Clone, Default)]
pub struct Simulated {
    faults: Arc<Faults>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Changes with the revision.
    revisions: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    /// The store refuses a watch after an earlier revision.
    compacted: u64,
    keys: BTreeMap<Vec<u8>, Stored>,
    /// By revision; without those up to `compacted`.
    history: BTreeMap<u64, Vec<Event>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            revision: FIRST_REVISION,
            compacted: 0,
            keys: BTreeMap::new(),
            history: BTreeMap::new(),
        }
    }
}

/// The result of a transaction.
struct Applied {
    /// Whether its compares held.
    held: bool,
    /// Whether anything changed.
    changed: bool,
    /// The store's revision after it.
    revision: u64,
}

impl Simulated {
    /// A store with these entries, each stored at a revision of its own, by key; `faults` answer first.
    pub fn new(faults: Arc<Faults>, entries: BTreeMap<String, String>) -> Self {
        let simulated = Self {
            faults,
            shared: Arc::default(),
        };
        for (key, value) in entries {
            simulated.put_bytes(key.as_bytes(), value.as_bytes());
        }
        simulated
    }

    /// Stores a value as another program may, text or not. Returns the revision.
    pub fn put_bytes(&self, key: &[u8], value: &[u8]) -> u64 {
        self.shared.change(|state, revision, events| {
            state.put(revision, key, value, events);
        })
    }

    /// Everything stored, as text. Invalid text has replacement characters.
    pub fn entries(&self) -> BTreeMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let state = self.shared.state();
        let entries = state.keys.iter();
        entries.map(|(key, stored)| (text(key), text(&stored.value))).collect()
    }

    /// Removes the history up to `revision`, or up to the newest one, as an operator of etcd does with `compact`.
    pub fn compact(&self, revision: u64) {
        self.shared.state().compact(revision);
    }

    fn fault<R: DeserializeOwned>(&self, call: &str, args: &impl Serialize) -> Option<R> {
        self.faults.whole(call, args)
    }

    fn commit_now(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        rules::check(compares, operations)?;
        let mut held = true;
        let mut changed = false;
        let revision = self.shared.change(|state, revision, events| {
            held = compares.iter().all(|compare| state.holds(compare));
            if held {
                for operation in operations {
                    state.apply(revision, operation, events);
                }
            }
            changed = !events.is_empty();
        });
        Ok(Applied {
            held,
            changed,
            revision,
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing called while this is held can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `change` the next revision if it changes anything. Returns the store's revision after it.
    fn change(&self, change: impl FnOnce(&mut State, u64, &mut Vec<Event>)) -> u64 {
        let mut state = self.state();
        let mut events = Vec::new();
        let next = state.revision + 1;
        change(&mut state, next, &mut events);
        if !events.is_empty() {
            state.revision = next;
            state.history.insert(next, events);
            let oldest = next.saturating_sub(HISTORY_REVISIONS_MAX);
            state.compact(oldest);
            self.revisions.send_replace(next);
        }
        state.revision
    }

    fn listing(&self, prefix: &str) -> Listing {
        let state = self.state();
        let from = (Bound::Included(prefix.as_bytes()), Bound::Unbounded);
        let entries = state.keys.range::<[u8], _>(from);
        let under = entries.take_while(|(key, _)| key.starts_with(prefix.as_bytes()));
        Listing {
            revision: state.revision,
            entries: under.map(|(_, stored)| stored.clone()).collect(),
        }
    }

    fn look(&self, prefix: &[u8], after: u64) -> Result<Look, WatchEnd> {
        let state = self.state();
        if after < state.compacted || after > state.revision {
            return Err(WatchEnd::Compacted { after });
        }
        for (&revision, events) in state.history.range(after.saturating_add(1)..) {
            let under = events.iter().filter(|event| event.key().starts_with(prefix));
            let events: Vec<Event> = under.cloned().collect();
            if !events.is_empty() {
                return Ok(Look::Changes(Changes { revision, events }));
            }
        }
        Ok(Look::NothingUpTo(state.revision))
    }
}

impl State {
    fn compact(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        if revision > self.compacted {
            self.compacted = revision;
            self.history = self.history.split_off(&(revision + 1));
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.keys.get(compare.key().as_bytes());
        let found = found.map(|stored| Found {
            mod_revision: stored.mod_revision,
            value: &stored.value,
        });
        rules::holds(compare, found)
    }

    fn apply(&mut self, revision: u64, operation: &Operation, events: &mut Vec<Event>) {
        match operation {
            Operation::Put((key, value)) => self.put(revision, key.as_bytes(), value.as_bytes(), events),
            Operation::Delete(key) => {
                if let Some(stored) = self.keys.remove(key.as_bytes()) {
                    events.push(Event::Deleted(stored.key));
                }
            }
        }
    }

    fn put(&mut self, revision: u64, key: &[u8], value: &[u8], events: &mut Vec<Event>) {
        let before = self.keys.get(key);
        let stored = Stored {
            key: key.to_vec(),
            value: value.to_vec(),
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.map_or(1, |before| before.version + 1),
        };
        events.push(Event::Put(stored.clone()));
        self.keys.insert(stored.key.clone(), stored);
    }
}

impl History for Arc<Shared> {
    fn look<'a>(&'a self, prefix: &'a [u8], after: u64) -> Answer<'a, Result<Look, WatchEnd>> {
        ready(Shared::look(self, prefix, after))
    }
}

fn ready<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn put(key: &str, value: &str) -> Operation {
    Operation::Put((key.to_owned(), value.to_owned()))
}

impl Api for Simulated {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Result<Option<KeyValue>, Error>> {
        let fault = self.fault("kv.get", &json!({ "key": key }));
        ready(fault.unwrap_or_else(|| {
            rules::check_key(key)?;
            let stored = self.shared.state().keys.get(key.as_bytes()).cloned();
            stored.map(Stored::into_text).transpose()
        }))
    }

    fn list_prefix<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<KeyValue>, Error>> {
        let fault = self.fault("kv.list-prefix", &json!({ "prefix": prefix }));
        ready(fault.unwrap_or_else(|| self.shared.listing(prefix).into_texts()))
    }

    fn list_keys<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<String>, Error>> {
        let fault = self.fault("kv.list-keys", &json!({ "prefix": prefix }));
        ready(fault.unwrap_or_else(|| self.shared.listing(prefix).into_keys()))
    }

    fn put<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<u64, Error>> {
        let fault = self.fault("kv.put", &json!({ "key": key, "value": value }));
        ready(fault.unwrap_or_else(|| {
            let applied = self.commit_now(&[], &[put(key, value)])?;
            Ok(applied.revision)
        }))
    }

    fn put_if_not_exists<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<bool, Error>> {
        let fault = self.fault("kv.put-if-not-exists", &json!({ "key": key, "value": value }));
        ready(fault.unwrap_or_else(|| {
            let applied = self.commit_now(&[Compare::Absent(key.to_owned())], &[put(key, value)])?;
            Ok(applied.held)
        }))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, Result<bool, Error>> {
        let fault = self.fault("kv.delete", &json!({ "key": key }));
        ready(fault.unwrap_or_else(|| {
            let applied = self.commit_now(&[], &[Operation::Delete(key.to_owned())])?;
            Ok(applied.changed)
        }))
    }

    fn commit<'a>(&'a self, compares: &'a [Compare], operations: &'a [Operation]) -> Answer<'a, Result<bool, Error>> {
        let args = json!({ "compares": compares, "operations": operations });
        let fault = self.fault("kv.commit", &args);
        ready(fault.unwrap_or_else(|| {
            let applied = self.commit_now(compares, operations)?;
            Ok(applied.held)
        }))
    }

    fn listing<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Listing, Error>> {
        ready(Ok(self.shared.listing(prefix)))
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        let revisions = self.shared.revisions.subscribe();
        Box::new(Cursor::new(Arc::clone(&self.shared), prefix, after, revisions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    #[tokio::test]
    async fn a_fault_answers_and_nothing_happens() {
        let faults = Arc::<Faults>::default();
        let store = Simulated::new(Arc::clone(&faults), [("/a".to_owned(), "1".to_owned())].into());
        faults.add(Fault {
            call: "kv.commit".to_owned(),
            answer: json!({"Err": {"TooManyOperations": 64}}),
            times: Some(1),
            matching: Some(json!({"operations": [{"Delete": "/a"}]})),
        });
        faults.add(Fault {
            call: "kv.put".to_owned(),
            answer: json!({"Err": {"Unavailable": "no leader"}}),
            times: Some(1),
            matching: None,
        });
        let delete = [Operation::Delete("/a".to_owned())];
        assert_eq!(store.commit(&[], &delete).await, Err(Error::TooManyOperations(64)));
        assert_eq!(
            store.put("/a", "2").await,
            Err(Error::Unavailable("no leader".to_owned()))
        );
        assert_eq!(store.entries(), [("/a".to_owned(), "1".to_owned())].into());
        assert_eq!(store.listing("/").await.unwrap().revision, 2);
        assert_eq!(store.commit(&[], &delete).await, Ok(true));
        assert_eq!(store.entries(), BTreeMap::new());
        assert_eq!(faults.take_misfits(), [""; 0]);
    }

    #[tokio::test]
    async fn history_has_an_end() {
        let store = Simulated::default();
        let mut behind = store.watch("/", FIRST_REVISION);
        for _ in 0..HISTORY_REVISIONS_MAX + 1 {
            store.put_bytes(b"/a", b"1");
        }
        let after = FIRST_REVISION;
        assert_eq!(behind.next().await, Err(WatchEnd::Compacted { after }));
        let first = store.watch("/", FIRST_REVISION + 1).next().await.unwrap();
        assert_eq!(first.revision, FIRST_REVISION + 2);
    }
}
