//! The known objects of the cluster, and the pending changes of each subscriber.
//!
//! Watches add what they receive, and subscribers take what changed. Changes are merged by object: an object that
//! changes a thousand times before a subscriber takes it is one change. This module sends no requests; `watch.rs` does.
//!
//! ```text
//! watch (one a kind and namespace) -> Known --- pending by subscriber ---> Batch
//! ```
//!
//! *Bounded*: an object is stored once, and a pending change takes the space of its name. If more than [`PENDING_MAX`]
//! changes are pending for a subscriber that could take them, watches wait for it ([`Store::room`]); the API server
//! keeps what they have not read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::decode::Read;
use super::settings::WatchStatus;
use crate::object::{Batch, Change, Kind, Location, Object, ObjectRef, Problem};

/// The maximum number of pending objects per subscriber before watches wait for it. A name takes some hundred bytes; a
/// cluster of 5,000 Nodes has at most 150,000 Pods.
pub(super) const PENDING_MAX: usize = 500_000;

/// How many unreadable objects are named. The others are counted.
const PROBLEMS_MAX: usize = 100;

/// The scope of a watch: the objects of a kind, in one namespace or in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) kind: Kind,
    /// `None`: the whole cluster.
    pub(super) namespace: Option<String>,
}

/// The known state, shared by watches, subscribers and writers.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    /// Notified when a subscriber took something.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    scopes: BTreeMap<Scope, Known>,
    /// From all scopes.
    unreadable: Arc<BTreeSet<ObjectRef>>,
    subscribers: BTreeMap<u64, Subscriber>,
    next_subscriber: u64,
}

/// The known objects of one watch.
#[derive(Debug, Default)]
struct Known {
    objects: BTreeMap<ObjectRef, Object>,
    /// Why each of these is unreadable.
    unreadable: BTreeMap<ObjectRef, String>,
    /// Whether the kind is required.
    is_needed: bool,
    /// Without what [`Store::statuses`] adds: its kind, its namespace, and how many objects there are.
    status: WatchStatus,
}

#[derive(Debug, Default)]
struct Subscriber {
    pending: BTreeSet<ObjectRef>,
    /// Whether the unreadable objects or missing scopes changed. True until it has received a batch.
    news: bool,
    /// The problems it has received.
    problems: Vec<Problem>,
    wake: Arc<Notify>,
}

impl Store {
    /// A store without any objects. Subscribers receive nothing before all of `needed` were listed.
    pub(super) fn new(scopes: impl IntoIterator<Item = Scope>, needed: &[Kind]) -> Arc<Self> {
        let known = |kind| Known {
            is_needed: needed.contains(&kind),
            ..Known::default()
        };
        let scopes = scopes.into_iter().map(|scope| (scope.clone(), known(scope.kind)));
        let state = State {
            scopes: scopes.collect(),
            ..State::default()
        };
        Arc::new(Self {
            state: Mutex::new(state),
            taken: Notify::new(),
        })
    }

    /// Waits until every subscriber has room for more changes. A subscriber that takes nothing stops all watches: drop
    /// it when it is unused. Before the first batch is available, this does not wait: the first batch could otherwise
    /// never become available.
    pub(super) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.state.lock().has_room() {
                return;
            }
            taken.await;
        }
    }

    /// Adds an object that is new or changed.
    pub(super) fn put(&self, scope: &Scope, read: Read) {
        let reference = read.reference.clone();
        self.change(scope, &reference, |known| known.put(read));
    }

    /// Removes an object.
    pub(super) fn remove(&self, scope: &Scope, reference: &ObjectRef) {
        self.change(scope, reference, |known| known.remove(reference));
    }

    fn change(&self, scope: &Scope, reference: &ObjectRef, change: impl FnOnce(&mut Known) -> Effect) {
        let mut state = self.state.lock();
        if let Some(effect) = state.scopes.get_mut(scope).map(change) {
            state.after(reference, effect);
        }
    }

    /// Applies a complete list: missing objects are removed. Only differences become changes.
    pub(super) fn replace(&self, scope: &Scope, list: Vec<Read>) {
        let mut state = self.state.lock();
        let Some(known) = state.scopes.get_mut(scope) else {
            return;
        };
        let listed: BTreeSet<ObjectRef> = list.iter().map(|read| read.reference.clone()).collect();
        let all = known.objects.keys().chain(known.unreadable.keys());
        let gone: Vec<ObjectRef> = all.filter(|reference| !listed.contains(reference)).cloned().collect();
        let put = list.into_iter().map(|read| (read.reference.clone(), known.put(read)));
        let mut effects: Vec<_> = put.collect();
        let mut remove = |reference: ObjectRef| (reference.clone(), known.remove(&reference));
        effects.extend(gone.into_iter().map(&mut remove));
        let was_missing = known.missing().is_some();
        known.status.synced = true;
        if was_missing {
            state.news();
        }
        for (reference, effect) in effects {
            state.mark(&reference, effect);
        }
        // Wake even without differences: the last missing scope makes the first batch available.
        state.wake();
    }

    /// Applies the result of our own write to the version `before` of a Service. Changes to our finalizer and the
    /// status are not passed to subscribers; other changes, such as those of a webhook, are. If the watch has already
    /// delivered another version, that one stays: it may be newer.
    pub(super) fn wrote(&self, before: Option<&str>, service: Arc<Service>) {
        let object = Object::Service(service);
        let reference = object.reference();
        let mut state = self.state.lock();
        let Some(scope) = state.scope_of(&reference) else {
            return;
        };
        let known = state.scopes.get_mut(&scope);
        if let Some(was) = known.and_then(|known| known.objects.get_mut(&reference))
            && was.metadata().uid == object.metadata().uid
            && was.metadata().resource_version.as_deref() == before
        {
            let is_same_spec =
                matches!((&*was, &object), (Object::Service(was), Object::Service(now)) if was.spec == now.spec);
            // Our own writes change finalizers and the status of a Service.
            let is_same_but_written = is_same_spec && is_same_metadata(was.metadata(), object.metadata());
            let effect = Effect {
                changed: !is_same_but_written,
                unreadable: false,
            };
            *was = object;
            state.after(&reference, effect);
        }
    }

    /// The known version of a Service.
    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        let reference = ObjectRef::new(Kind::Service, namespace, name);
        let state = self.state.lock();
        let scope = state.scope_of(&reference)?;
        match state.scopes.get(&scope)?.objects.get(&reference)? {
            Object::Service(service) => Some(Arc::clone(service)),
            _ => None,
        }
    }

    /// Whether every required kind was listed at least once.
    pub(super) fn is_synced(&self) -> bool {
        self.state.lock().is_synced()
    }

    /// Changes the status of one watch.
    pub(super) fn note(&self, scope: &Scope, change: impl FnOnce(&mut WatchStatus)) {
        let mut state = self.state.lock();
        let Some(known) = state.scopes.get_mut(scope) else {
            return;
        };
        let before = known.missing().map(str::to_owned);
        change(&mut known.status);
        if known.missing() != before.as_deref() {
            state.news();
        }
    }

    /// The status of each watch.
    pub(super) fn statuses(&self) -> Vec<WatchStatus> {
        let state = self.state.lock();
        let statuses = state.scopes.iter().map(|(scope, known)| WatchStatus {
            kind: scope.kind.name(),
            namespace: scope.namespace.clone(),
            objects: known.objects.len(),
            unreadable: known.unreadable.len(),
            ..known.status.clone()
        });
        statuses.collect()
    }

    /// A new subscriber, for which everything is pending.
    pub(super) fn subscribe(&self) -> (u64, Arc<Notify>) {
        let mut state = self.state.lock();
        let wake = Arc::new(Notify::new());
        let pending = state.scopes.values().flat_map(|known| known.objects.keys()).cloned();
        let subscriber = Subscriber {
            pending: pending.collect(),
            news: true,
            wake: Arc::clone(&wake),
            ..Subscriber::default()
        };
        let number = state.next_subscriber;
        state.next_subscriber += 1;
        state.subscribers.insert(number, subscriber);
        wake.notify_one();
        (number, wake)
    }

    /// Removes a subscriber.
    pub(super) fn unsubscribe(&self, number: u64) {
        self.state.lock().subscribers.remove(&number);
        self.taken.notify_waiters();
    }

    /// The pending changes of a subscriber. `None` if there are none, or before the required lists are complete.
    pub(super) fn take(&self, number: u64) -> Option<Batch> {
        let batch = self.state.lock().take(number);
        if batch.is_some() {
            self.taken.notify_waiters();
        }
        batch
    }
}

/// The effect of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    /// Whether the object changed.
    changed: bool,
    /// Whether the set of unreadable objects, or a reason, changed.
    unreadable: bool,
}

impl Known {
    /// Why none of this scope is known, if its kind is not required.
    fn missing(&self) -> Option<&str> {
        let is_missing = !self.status.synced && !self.is_needed;
        self.status.last_error.as_deref().filter(|_| is_missing)
    }

    fn put(&mut self, Read { reference, object, .. }: Read) -> Effect {
        match object {
            Ok(object) => {
                let unreadable = self.unreadable.remove(&reference).is_some();
                let was = self.objects.insert(reference, object.clone());
                // An object that is readable again is processed again, whatever version was known.
                let changed = unreadable || !was.is_some_and(|was| is_same_but_version(&was, &object));
                Effect { changed, unreadable }
            }
            // Its last known version stays.
            Err(reason) => {
                let before = self.unreadable.insert(reference, reason.clone());
                Effect {
                    changed: false,
                    unreadable: before != Some(reason),
                }
            }
        }
    }

    fn remove(&mut self, reference: &ObjectRef) -> Effect {
        let was_known = self.objects.remove(reference).is_some();
        let unreadable = self.unreadable.remove(reference).is_some();
        // The deletion of an object that was never readable counts too: a subscriber may wait for it.
        let changed = was_known || unreadable;
        Effect { changed, unreadable }
    }
}

/// Whether both are the same for readers.
fn is_same_but_version(was: &Object, now: &Object) -> bool {
    is_same_metadata(was.metadata(), now.metadata())
        && was.metadata().finalizers == now.metadata().finalizers
        && match (was, now) {
            (Object::EndpointSlice(was), Object::EndpointSlice(now)) => {
                was.address_type == now.address_type && was.endpoints == now.endpoints && was.ports == now.ports
            }
            (Object::Node(was), Object::Node(now)) => was.spec == now.spec && was.status == now.status,
            (Object::Pod(was), Object::Pod(now)) => was.spec == now.spec && was.status == now.status,
            (Object::Service(was), Object::Service(now)) => was.spec == now.spec && was.status == now.status,
            _ => false,
        }
}

/// Whether both are the same except for finalizers and the fields that every write changes.
fn is_same_metadata(was: &ObjectMeta, now: &ObjectMeta) -> bool {
    // The fields that differ most often come first, so that most comparisons are short.
    was.deletion_timestamp == now.deletion_timestamp
        && was.uid == now.uid
        && was.labels == now.labels
        && was.annotations == now.annotations
}

impl State {
    fn has_room(&self) -> bool {
        let is_full = |subscriber: &Subscriber| subscriber.pending.len() >= PENDING_MAX;
        !self.is_synced() || !self.subscribers.values().any(is_full)
    }

    fn is_synced(&self) -> bool {
        let mut all = self.scopes.values();
        all.all(|known| known.status.synced || !known.is_needed)
    }

    fn scope_of(&self, reference: &ObjectRef) -> Option<Scope> {
        let kind = reference.kind;
        let scopes = [None, Some(reference.namespace.clone())].map(|namespace| Scope { kind, namespace });
        scopes.into_iter().find(|scope| self.scopes.contains_key(scope))
    }

    fn after(&mut self, reference: &ObjectRef, effect: Effect) {
        self.mark(reference, effect);
        if effect.changed || effect.unreadable {
            self.wake();
        }
    }

    fn mark(&mut self, reference: &ObjectRef, effect: Effect) {
        if effect.unreadable {
            let is_in = |known: &Known| known.unreadable.contains_key(reference);
            let set = Arc::make_mut(&mut self.unreadable);
            match self.scopes.values().any(is_in) {
                true => set.insert(reference.clone()),
                false => set.remove(reference),
            };
        }
        for subscriber in self.subscribers.values_mut() {
            if effect.changed {
                subscriber.pending.insert(reference.clone());
            }
            subscriber.news |= effect.unreadable;
        }
    }

    /// Every subscriber must receive the problems again.
    fn news(&mut self) {
        for subscriber in self.subscribers.values_mut() {
            subscriber.news = true;
        }
        self.wake();
    }

    fn wake(&self) {
        for subscriber in self.subscribers.values() {
            subscriber.wake.notify_one();
        }
    }

    fn take(&mut self, number: u64) -> Option<Batch> {
        if !self.is_synced() {
            return None;
        }
        let subscriber = self.subscribers.get_mut(&number)?;
        if subscriber.pending.is_empty() && !subscriber.news {
            return None;
        }
        let pending = std::mem::take(&mut subscriber.pending);
        let has_news = std::mem::replace(&mut subscriber.news, false);
        let before = std::mem::take(&mut subscriber.problems);
        let problems = if has_news { self.problems() } else { before.clone() };
        let is_new = |problem: &&Problem| !before.contains(problem);
        let new_problems = problems.iter().filter(is_new).cloned().collect();
        if let Some(subscriber) = self.subscribers.get_mut(&number) {
            subscriber.problems.clone_from(&problems);
        }
        let change = |reference: ObjectRef| {
            let scope = self.scope_of(&reference);
            let known = scope.and_then(|scope| self.scopes.get(&scope));
            let now = known.and_then(|known| known.objects.get(&reference)).cloned();
            Change { reference, now }
        };
        let (mut changes, gone): (Vec<Change>, Vec<Change>) =
            pending.into_iter().map(change).partition(|change| change.now.is_some());
        changes.extend(gone);
        Some(Batch {
            changes,
            problems,
            new_problems,
            complete: true,
            unreadable: Arc::clone(&self.unreadable),
        })
    }

    fn problems(&self) -> Vec<Problem> {
        let problem = |at, reason| Problem {
            at,
            reason,
            hides_objects: false,
        };
        let missing = self.scopes.values().filter_map(Known::missing);
        let missing = missing.map(|cause| problem(Location::Cluster, format!("{cause}; going on without them")));
        let unreadable = self.scopes.values().flat_map(|known| &known.unreadable);
        let unreadable = unreadable.take(PROBLEMS_MAX).map(|(reference, reason)| {
            let reason = format!("can't be read: {reason}; what was known of it stays");
            problem(Location::Object(reference.clone()), reason)
        });
        let more = self.unreadable.len().saturating_sub(PROBLEMS_MAX);
        let more = (more > 0).then(|| problem(Location::Cluster, format!("{more} more objects can't be read")));
        missing.chain(unreadable).chain(more).collect()
    }
}

#[cfg(test)]
mod tests;
