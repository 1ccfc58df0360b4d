//! The Engine of a plan: real reads fill a simulation, and the simulation takes every write.
//!
//! This type guarantees that a plan changes nothing: it gets a [`Reads`], which cannot write.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use trueup_base::clock::VirtualClock;

use super::simulated::{Resource, Simulated};
use super::{Api, Error, Object, ObjectRef, Spec, State};
use crate::faults::Faults;
use async_trait::async_trait;

/// The half of an Engine that changes nothing.
#[derive(Clone)]
pub struct Reads(Arc<dyn Api>);

impl Reads {
    /// The reads of a real Engine.
    pub fn of(engine: Arc<dyn Api>) -> Self {
        Self(engine)
    }

    /// As [`Api::load_balancer`].
    pub async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        self.0.load_balancer(identifier).await
    }

    /// As [`Api::list_tagged`].
    pub async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        self.0.list_tagged(tag).await
    }

    /// As [`Api::leftovers`].
    pub async fn leftovers(&self, tag: &str) -> Result<Vec<Object>, Error> {
        self.0.leftovers(tag).await
    }

    /// As [`Api::get`].
    pub async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        self.0.get(refs).await
    }
}

/// The world of a plan: the state at its first read, and how it would develop.
pub struct Planned {
    real: Reads,
    simulated: Simulated,
    seen: Mutex<Seen>,
}

/// What was read from the real Engine and is simulated from then on.
#[derive(Default)]
struct Seen {
    load_balancers: BTreeSet<String>,
    tags: BTreeSet<String>,
    resources: BTreeSet<ObjectRef>,
    /// Objects that were listed by a tag that they do not carry.
    leftovers: Vec<Object>,
}

impl Planned {
    /// A plan that has read nothing yet. Its creations are settled at once.
    pub fn new(real: Reads, clock: Arc<VirtualClock>) -> Self {
        Self {
            real,
            simulated: Simulated::new(clock, Arc::new(Faults::default()), 0),
            seen: Mutex::default(),
        }
    }

    /// Objects that lack the tag by which they are listed: a real run tags them first.
    pub fn leftovers(&self) -> Vec<Object> {
        self.seen.lock().leftovers.clone()
    }

    fn see(&self, object: &Object) -> bool {
        self.seen.lock().resources.insert(object.reference())
    }

    /// Reads referenced objects that were not seen yet.
    async fn read(&self, refs: &[ObjectRef]) -> Result<(), Error> {
        let unseen: Vec<ObjectRef> = {
            let seen = self.seen.lock();
            let is_new = |reference: &&ObjectRef| !seen.resources.contains(*reference);
            refs.iter().filter(is_new).cloned().collect()
        };
        if unseen.is_empty() {
            return Ok(());
        }
        for answer in self.real.get(&unseen).await {
            match answer {
                Ok(object) if self.see(&object) => {
                    self.simulated.put(Resource::of(settled(object), BTreeSet::new()));
                }
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The object as it is once the Engine has applied it. A plan that waited would wait in vain: what it read does not
/// change.
fn settled(object: Object) -> Object {
    let state = match object.state {
        State::Pending | State::Updating => State::Ok,
        state @ (State::Ok | State::Failed) => state,
    };
    Object { state, ..object }
}

#[async_trait]
impl Api for Planned {
    async fn load_balancer(&self, identifier: &str) -> Result<State, Error> {
        if !self.seen.lock().load_balancers.contains(identifier) {
            let state = self.real.load_balancer(identifier).await?;
            self.simulated.put_load_balancer(identifier.to_owned(), state);
            self.seen.lock().load_balancers.insert(identifier.to_owned());
        }
        self.simulated.load_balancer(identifier).await
    }

    async fn list_tagged(&self, tag: &str) -> Result<Vec<Object>, Error> {
        if !self.seen.lock().tags.contains(tag) {
            let mut listed = self.real.list_tagged(tag).await?;
            let leftovers = self.real.leftovers(tag).await?;
            listed.extend(leftovers.iter().cloned());
            self.seen.lock().leftovers.extend(leftovers);
            // An object that the plan has destroyed must not come back with a second tag's list.
            let mut there = Vec::with_capacity(listed.len());
            for object in listed {
                if self.see(&object) || matches!(*self.simulated.get(&[object.reference()]).await, [Ok(_)]) {
                    there.push(settled(object));
                }
            }
            self.simulated.fill(tag, &there);
            self.seen.lock().tags.insert(tag.to_owned());
        }
        self.simulated.list_tagged(tag).await
    }

    async fn get(&self, refs: &[ObjectRef]) -> Vec<Result<Object, Error>> {
        match self.read(refs).await {
            Ok(()) => self.simulated.get(refs).await,
            Err(error) => vec![Err(error); refs.len()],
        }
    }

    async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        let answers = self.simulated.create(specs, tags).await;
        // Objects that the plan itself created can't be read from the Engine.
        let made = answers.iter().flatten().map(Object::reference);
        self.seen.lock().resources.extend(made);
        answers
    }

    async fn reset(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        match self.read(refs).await {
            Ok(()) => self.simulated.reset(refs).await,
            Err(error) => vec![Err(error); refs.len()],
        }
    }

    async fn destroy(&self, refs: &[ObjectRef]) -> Vec<Result<(), Error>> {
        match self.read(refs).await {
            Ok(()) => self.simulated.destroy(refs).await,
            Err(error) => vec![Err(error); refs.len()],
        }
    }
}

#[cfg(test)]
#[path = "planned_tests.rs"]
mod tests;
