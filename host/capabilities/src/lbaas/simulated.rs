//! An Engine in memory: scenarios, plans and benchmarks reconcile against it.
//!
//! It keeps the rules that guests can see (identifiers, states over time, refusals, tags) and no HTTP, which is the
//! simulated Engine's job. One operation costs O(log n) of all objects; a list costs what it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trueup_base::clock::Clock;

use super::{Api, Error, Kind, Object, ObjectRef, Parent, Spec, State, referred};
use crate::faults::Faults;
use async_trait::async_trait;

/// One resource, as in scenarios and dumps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Unique among the resources of its kind.
    pub identifier: String,
    /// Its current state.
    pub state: State,
    /// Its tags.
    pub tags: BTreeSet<String>,
    /// Its specification.
    pub spec: Spec,
}

impl Resource {
    /// An object with these tags.
    pub(super) fn of(object: Object, tags: BTreeSet<String>) -> Self {
        Self {
            identifier: object.identifier,
            state: object.state,
            tags,
            spec: object.spec,
        }
    }
}

/// An Engine in memory.
pub struct Simulated {
    clock: Arc<dyn Clock>,
    faults: Arc<Faults>,
    settle_ms: u64,
    store: Mutex<Store>,
}

impl Simulated {
    /// An Engine without any load balancer or resource. Changes settle after `settle_ms` of `clock`; `faults` answer
    /// for elements of lists first.
    pub fn new(clock: Arc<dyn Clock>, faults: Arc<Faults>, settle_ms: u64) -> Self {
        Self {
            clock,
            faults,
            settle_ms,
            store: Mutex::default(),
        }
    }

    /// Adds a load balancer, or changes its state.
    pub fn put_load_balancer(&self, identifier: String, state: State) {
        self.store.lock().load_balancers.insert(identifier, state);
    }

    /// Adds a resource as it is, or replaces the one with that kind and identifier. Its state remains until it is
    /// reset; what it refers to need not exist.
    pub fn put(&self, resource: Resource) {
        self.store.lock().insert(resource, None);
    }

    /// Takes over a real list for `tag`: adds new resources with that tag, and adds the tag to existing ones.
    pub fn fill(&self, tag: &str, listed: &[Object]) {
        let store = &mut *self.store.lock();
        for object in listed {
            let key = object.reference();
            if let Some(stored) = store.objects.get_mut(&key) {
                stored.resource.tags.insert(tag.to_owned());
                store.by_tag.entry(tag.to_owned()).or_default().insert(key);
            } else {
                store.insert(Resource::of(object.clone(), [tag.to_owned()].into()), None);
            }
        }
    }

    /// The current resources, by kind then identifier.
    pub fn resources(&self) -> Vec<Resource> {
        let now_ms = self.clock.now_ms();
        let resource = |stored: &Stored| Resource {
            state: stored.state_at(now_ms),
            ..stored.resource.clone()
        };
        self.store.lock().objects.values().map(resource).collect()
    }

    /// The state of a change made now, and until when: `until_settled`, or `Ok` if settling takes no time.
    fn applied(&self, until_settled: State, now_ms: u64) -> (State, Option<u64>) {
        match self.settle_ms {
            0 => (State::Ok, None),
            settle_ms => (until_settled, Some(now_ms.saturating_add(settle_ms))),
        }
    }

    /// Handles the entries of a changing list in order. After an entry that returns `RateLimited`, the rest returns the
    /// same, without effect.
    fn change<E: Serialize, T: DeserializeOwned>(
        &self,
        call: &str,
        entries: &[E],
        mut act: impl FnMut(&mut Store, &E) -> Result<T, Error>,
    ) -> Vec<Result<T, Error>> {
        let mut turn = self.faults.turn(call);
        if let Some(answer) = turn.list(entries) {
            return answer;
        }
        let mut store = self.store.lock();
        let mut limited = None;
        let answers = entries.iter().map(|entry| {
            if let Some(error) = &limited {
                return Err(Error::clone(error));
            }
            let answer = turn.entry(entry).unwrap_or_else(|| act(&mut store, entry));
            if let Err(error @ Error::RateLimited(_)) = &answer {
                limited = Some(error.clone());
            }
            answer
        });
        answers.collect()
    }
}

#[async_trait]
impl Api for Simulated {
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        let state = self.store.lock().load_balancers.get(identifier).copied();
        state.ok_or(Error::NotFound)
    }

    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        Ok(self.store.lock().tagged(tag, self.clock.now_ms()))
    }

    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        let mut turn = self.faults.turn("api.get");
        if let Some(answer) = turn.list(refs) {
            return answer;
        }
        let now_ms = self.clock.now_ms();
        let store = self.store.lock();
        let mut look = |reference| {
            let stored = || store.objects.get(reference).ok_or(Error::NotFound);
            turn.entry(reference).unwrap_or_else(|| Ok(stored()?.object(now_ms)))
        };
        refs.iter().map(&mut look).collect()
    }

    async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        let now_ms = self.clock.now_ms();
        self.change("api.create", specs, |store, spec| {
            let is_there = |owner: &Parent| match owner {
                Parent::LoadBalancer(identifier) => store.load_balancers.contains_key(identifier),
                Parent::Resource(resource) => store.objects.contains_key(resource),
            };
            if !referred(spec).iter().all(is_there) {
                return Err(Error::Refused((422, "unknown reference".to_owned())));
            }
            let (state, settled_at_ms) = self.applied(State::Pending, now_ms);
            let object = Object {
                identifier: store.new_identifier(spec.kind()),
                state,
                spec: spec.clone(),
            };
            let resource = Resource::of(object.clone(), tags.iter().cloned().collect());
            store.insert(resource, settled_at_ms);
            Ok(object)
        })
    }

    async fn reset(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        let now_ms = self.clock.now_ms();
        self.change("api.reset", refs, |store, reference| {
            let stored = store.objects.get_mut(reference).ok_or(Error::NotFound)?;
            (stored.resource.state, stored.settled_at_ms) = self.applied(State::Updating, now_ms);
            Ok(())
        })
    }

    async fn destroy(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        self.change("api.destroy", refs, |store, reference| {
            if !store.objects.contains_key(reference) {
                return Err(Error::NotFound);
            }
            if store.referrers.contains_key(reference) {
                return Err(Error::Refused((409, "in use".to_owned())));
            }
            store.remove(reference);
            Ok(())
        })
    }
}

/// The resource that `spec` refers to beside its load balancer; a frontend may have no backend.
fn parent(spec: &Spec) -> Option<ObjectRef> {
    referred(spec).into_iter().find_map(|owner| match owner {
        Parent::Resource(resource) => Some(resource),
        Parent::LoadBalancer(_) => None,
    })
}

#[derive(Debug)]
struct Stored {
    resource: Resource,
    /// When `state` turns to `Ok`; `None` if it does not change.
    settled_at_ms: Option<u64>,
}

impl Stored {
    fn state_at(&self, now_ms: u64) -> State {
        match self.settled_at_ms {
            Some(settled_at_ms) if settled_at_ms <= now_ms => State::Ok,
            _ => self.resource.state,
        }
    }

    fn object(&self, now_ms: u64) -> Object {
        Object {
            identifier: self.resource.identifier.clone(),
            state: self.state_at(now_ms),
            spec: self.resource.spec.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct Store {
    load_balancers: BTreeMap<String, State>,
    objects: BTreeMap<ObjectRef, Stored>,
    /// The number of references to each object; no entry for 0. Includes referenced objects that do not exist.
    referrers: BTreeMap<ObjectRef, usize>,
    by_tag: BTreeMap<String, BTreeSet<ObjectRef>>,
    /// The last number used, by kind. It never decreases.
    numbers: BTreeMap<Kind, u64>,
}

impl Store {
    fn insert(&mut self, resource: Resource, settled_at_ms: Option<u64>) {
        let key = ObjectRef::new(resource.spec.kind(), &resource.identifier);
        self.remove(&key);
        if let Some(parent) = parent(&resource.spec) {
            *self.referrers.entry(parent).or_default() += 1;
        }
        for tag in &resource.tags {
            self.by_tag.entry(tag.clone()).or_default().insert(key.clone());
        }
        let stored = Stored {
            resource,
            settled_at_ms,
        };
        self.objects.insert(key, stored);
    }

    fn remove(&mut self, key: &ObjectRef) {
        let Some(Stored { resource, .. }) = self.objects.remove(key) else {
            return;
        };
        if let Some(parent) = parent(&resource.spec) {
            let left = self.referrers.remove(&parent).unwrap_or_default().saturating_sub(1);
            if left > 0 {
                self.referrers.insert(parent, left);
            }
        }
        for tag in &resource.tags {
            if let Some(keys) = self.by_tag.get_mut(tag) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_tag.remove(tag);
                }
            }
        }
    }

    fn tagged(&self, tag: &str, now_ms: u64) -> Vec<Object> {
        let Some(keys) = self.by_tag.get(tag) else {
            return Vec::new();
        };
        let mut tagged = Vec::with_capacity(keys.len());
        // Both ascend, and objects with the same tag are mostly adjacent: the next object is usually the next key's.
        let mut objects = self.objects.range::<ObjectRef, _>(..);
        for key in keys {
            let next = objects.next().filter(|(found, _)| *found == key);
            let found = next.or_else(|| {
                objects = self.objects.range(key..);
                objects.next().filter(|(found, _)| *found == key)
            });
            tagged.extend(found.map(|(_, stored)| stored.object(now_ms)));
        }
        tagged
    }

    /// `KIND-N`, with the next N whose identifier no resource of any kind has.
    fn new_identifier(&mut self, kind: Kind) -> String {
        loop {
            let number = self.numbers.entry(kind).or_default();
            *number += 1;
            let identifier = format!("{}-{number}", kind.name());
            let is_used = |kind| self.objects.contains_key(&ObjectRef::new(kind, &identifier));
            if !Kind::ALL.into_iter().any(is_used) {
                return identifier;
            }
        }
    }
}

#[cfg(test)]
#[path = "simulated_tests.rs"]
mod tests;
