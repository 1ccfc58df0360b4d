//! Creates resources so that none remains untagged.
//!
//! Each entry is one POST and one tagging per tag. A failure in between leaves an object that no list by tag shows:
//!
//! ```text
//! an earlier run's orphan   -> found among its parent's children before the POST, and adopted
//! the POST's answer is lost -> searched among its parent's children, and adopted; else posted once more
//! a tagging fails           -> destroyed; if that fails too, its intent stays open
//! the host is killed        -> the intent, which is on disk, stays open
//! ```
//!
//! The objects of open intents are searched before the next list by their tag (`leftovers`).

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::sleep;

use super::created::Unaccounted;
use super::http::{Call, Failure, Fate, if_there};
use super::intents::Intent;
use super::list::Children;
use super::owned::is_foreign;
use super::path::Family;
use super::wire;
use crate::lbaas::{Error, Kind, Object, Spec};
use crate::remote::segment;

/// The shared state of the entries of one `create`.
struct Batch<'a> {
    tags: &'a [String],
    /// Objects that an entry has adopted, so that no equal entry adopts them, too.
    taken: Mutex<BTreeSet<String>>,
}

impl Batch<'_> {
    /// Whether the object was still free.
    fn take(&self, identifier: &str) -> bool {
        self.taken.lock().insert(identifier.to_owned())
    }
}

impl Call {
    /// Creates and tags each, in the order of `specs`.
    pub(super) async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        if let Some(tag) = tags.iter().find(|tag| segment(tag).is_none()) {
            let problem = format!("nothing created: a path can't hold the tag `{tag}`");
            return specs.iter().map(|_| Err(Error::Unavailable(problem.clone()))).collect();
        }
        let siblings = self.siblings(specs).await;
        let intents = match self.engine.intents.begin(specs, tags).await {
            Ok(intents) => intents,
            Err(error) => {
                let problem = format!("nothing created: what is about to be created can't be written down: {error}");
                return specs.iter().map(|_| Err(Error::Unavailable(problem.clone()))).collect();
            }
        };
        let taken = Mutex::default();
        let batch = Batch { tags, taken };
        let entries = specs.iter().zip(intents).map(|(spec, intent)| {
            let candidates = match siblings.get(&Family::of(spec)) {
                Some(Ok(children)) => Ok(children.get(spec.name()).cloned().unwrap_or_default()),
                Some(Err(error)) => Err(error.clone()),
                None => Ok(BTreeSet::new()),
            };
            self.create_one(spec, &batch, candidates, intent)
        });
        join_all(entries).await
    }

    /// The children of every parent that may hold orphans of an earlier run, or why they are unknown.
    async fn siblings(&self, specs: &[Spec]) -> BTreeMap<Family, Result<Children, Error>> {
        if !self.engine.adopt_orphans {
            return BTreeMap::new();
        }
        let (engine, epoch) = (&self.engine, self.fence.epoch());
        // Without a parent there is nothing to list; the Engine refuses the creation.
        let may_hold =
            |family: &Family| !family.parent.is_empty() && !engine.created_parents.contains(epoch, &family.parent);
        let families: BTreeSet<Family> = specs.iter().map(Family::of).filter(may_hold).collect();
        let lists = families.into_iter().map(|family| async move {
            let children = self.children_by_name(&family).await;
            (family, children)
        });
        join_all(lists).await.into_iter().collect()
    }

    async fn create_one(
        &self,
        spec: &Spec,
        batch: &Batch<'_>,
        candidates: Result<BTreeSet<String>, Error>,
        intent: Intent,
    ) -> Result<Object, Error> {
        let unaccounted = Unaccounted::new(&self.engine, &Family::of(spec).parent, Some(intent));
        let orphan = match candidates {
            Ok(candidates) => self.orphan_of(spec, batch, &candidates).await,
            Err(error) => Err(error),
        };
        match orphan {
            Ok(None) => {}
            Ok(Some(orphan)) => return self.tag_or_destroy(orphan, batch.tags, unaccounted).await,
            Err(error) => {
                unaccounted.settle();
                return Err(error);
            }
        }
        match self.post_spec(spec, batch).await {
            Ok(Posted::Whole(object)) => {
                let object = self.tag_or_destroy(object, batch.tags, unaccounted).await?;
                self.note_parent(&object);
                Ok(object)
            }
            Ok(Posted::Unreadable { identifier, error }) => {
                self.destroy_untagged(spec.kind(), &identifier, &error, unaccounted)
                    .await;
                Err(error)
            }
            Err(lost) if lost.is_lost() => self.recover(spec, batch, unaccounted, lost.error).await,
            Err(failure) => {
                if failure.is_without_effect() {
                    unaccounted.settle();
                }
                Err(failure.error)
            }
        }
    }

    /// Handles a POST without an answer: finds the object that it made, or posts once more.
    async fn recover(
        &self,
        spec: &Spec,
        batch: &Batch<'_>,
        unaccounted: Unaccounted,
        lost: Error,
    ) -> Result<Object, Error> {
        let family = Family::of(spec);
        if family.parent.is_empty() {
            return Err(lost);
        }
        for pause in self.engine.pauses.tries {
            sleep(pause).await;
            let mut children = self.children_by_name(&family).await?;
            let candidates = children.remove(spec.name()).unwrap_or_default();
            if let Some(found) = self.orphan_of(spec, batch, &candidates).await? {
                return self.tag_or_destroy(found, batch.tags, unaccounted).await;
            }
        }
        let (kind, name) = (spec.kind().name(), spec.name());
        tracing::warn!(kind, name, error = ?lost, "creating again: the answer was lost and nothing found");
        // `unaccounted` is never settled from here on: the object of the first POST may still appear.
        match self.post_spec(spec, batch).await? {
            Posted::Whole(object) => {
                let second = Unaccounted::new(&self.engine, &family.parent, None);
                self.tag_or_destroy(object, batch.tags, second).await
            }
            Posted::Unreadable { identifier, error } => {
                self.destroy_untagged(spec.kind(), &identifier, &error, unaccounted)
                    .await;
                Err(error)
            }
        }
    }

    async fn post_spec(&self, spec: &Spec, batch: &Batch<'_>) -> Result<Posted, Failure> {
        let answer: Value = self.post(spec.kind().names().path, wire::creation(spec)).await?;
        let Some(identifier) = wire::identifier(&answer) else {
            let problem = format!("POST {}: the answer holds no `identifier`", spec.kind().names().path);
            return Err(Failure {
                error: self.unusable(problem),
                fate: Fate::Lost,
            });
        };
        batch.take(identifier);
        Ok(match wire::object(spec.kind(), &answer) {
            Ok(object) => Posted::Whole(object),
            Err(problem) => Posted::Unreadable {
                identifier: identifier.to_owned(),
                error: self.unusable(problem),
            },
        })
    }

    /// The first candidate that equals the spec and belongs to no other Service.
    async fn orphan_of(
        &self,
        spec: &Spec,
        batch: &Batch<'_>,
        candidates: &BTreeSet<String>,
    ) -> Result<Option<Object>, Error> {
        for identifier in candidates {
            if batch.taken.lock().contains(identifier) {
                continue;
            }
            let Some(answer) = if_there(self.get(spec.kind().names().path, identifier).await)? else {
                continue;
            };
            // An unreadable object can't equal the spec.
            let Ok(existing) = wire::object(spec.kind(), &answer) else {
                continue;
            };
            if !wire::same(spec, &existing.spec) {
                continue;
            }
            let Some(tags) = self.tags(identifier).await? else {
                continue;
            };
            if !is_foreign(&tags, batch.tags) && batch.take(identifier) {
                let (kind, name) = (spec.kind().name(), spec.name());
                tracing::info!(
                    kind,
                    identifier,
                    name,
                    "adopting an object that was created without its tags"
                );
                return Ok(Some(existing));
            }
        }
        Ok(None)
    }

    /// Gives an object all tags. An object that can't be tagged must not remain.
    pub(super) async fn tag_or_destroy(
        &self,
        object: Object,
        tags: &[String],
        unaccounted: Unaccounted,
    ) -> Result<Object, Error> {
        for tag in tags {
            if let Err(failure) = self.tag(&object.identifier, tag).await {
                self.destroy_untagged(object.spec.kind(), &object.identifier, &failure.error, unaccounted)
                    .await;
                return Err(failure.error);
            }
        }
        unaccounted.settle();
        Ok(object)
    }

    async fn destroy_untagged(&self, kind: Kind, identifier: &str, reason: &Error, unaccounted: Unaccounted) {
        match if_there(self.delete(kind.names().path, identifier).await) {
            Ok(_) => unaccounted.settle(),
            Err(error) => tracing::error!(
                kind = kind.name(),
                identifier,
                ?reason,
                ?error,
                "left an object without its tags: it could not be destroyed; it is looked for before the next list by its tag",
            ),
        }
    }

    /// All children of a parent that this process has just created are its own, until others may act.
    fn note_parent(&self, object: &Object) {
        if matches!(object.spec.kind(), Kind::Backend | Kind::Frontend) {
            self.engine
                .created_parents
                .insert(self.fence.epoch(), &object.identifier);
        }
    }
}

/// A POST that the Engine answered with success.
enum Posted {
    Whole(Object),
    /// The object exists, but the contract can't express it.
    Unreadable {
        identifier: String,
        error: Error,
    },
}
