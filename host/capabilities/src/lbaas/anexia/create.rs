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
use tokio::time::sleep;

use super::http::{Call, Failure, Fate, if_there};
use super::intents::Intent;
use super::leftovers::is_foreign;
use super::list::Children;
use super::wire::{self, Family};
use crate::lbaas::{Error, Kind, Object, Spec};
use crate::remote::segment;

/// One entry of a `create`.
#[derive(Clone, Copy)]
struct Entry<'a> {
    call: &'a Call,
    spec: &'a Spec,
    tags: &'a [String],
    /// Objects that an entry has adopted, so that no equal entry adopts them, too. All entries share it.
    taken: &'a Mutex<BTreeSet<String>>,
}

impl Call {
    /// Creates and tags each, in the order of `specs`.
    pub(super) async fn create(&self, specs: &[Spec], tags: &[String]) -> Vec<Result<Object, Error>> {
        let nothing =
            |problem: String| vec![Err(Error::Unavailable(format!("nothing created: {problem}"))); specs.len()];
        if let Some(tag) = tags.iter().find(|tag| segment(tag).is_none()) {
            return nothing(format!("a path can't hold the tag `{tag}`"));
        }
        let siblings = self.siblings(specs).await;
        let intents = match self.engine.intents.begin(specs, tags).await {
            Ok(intents) => intents,
            Err(error) => return nothing(format!("what is about to be created can't be written down: {error}")),
        };
        let taken = &Mutex::default();
        let entries = specs.iter().zip(intents).map(|(spec, intent)| {
            let listed = siblings.get(&Family::of(spec)).map(Result::as_ref).transpose();
            let named = listed.map(|children| children?.get(spec.name()));
            let entry = Entry {
                call: self,
                spec,
                tags,
                taken,
            };
            entry.create(named, intent)
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
}

impl Entry<'_> {
    /// `named`: the existing objects with its name, or why they are unknown.
    async fn create(self, named: Result<Option<&BTreeSet<String>>, &Error>, intent: Intent) -> Result<Object, Error> {
        let Self { call, spec, tags, .. } = self;
        let unaccounted = Unaccounted::new(call, &Family::of(spec).parent, Some(intent));
        let orphan = match named {
            Ok(named) => self.orphan(named).await,
            Err(error) => Err(error.clone()),
        };
        match orphan {
            Ok(None) => {}
            Ok(Some(orphan)) => return unaccounted.tag_or_destroy(orphan, tags).await,
            Err(error) => {
                unaccounted.settle();
                return Err(error);
            }
        }
        match self.post().await {
            Ok((_, Ok(object))) => {
                let object = unaccounted.tag_or_destroy(object, tags).await?;
                if spec.kind().child().is_some() {
                    // All its children are this process's own, until others may act.
                    let epoch = call.fence.epoch();
                    call.engine.created_parents.insert(epoch, &object.identifier);
                }
                Ok(object)
            }
            Ok((identifier, Err(error))) => Err(unaccounted.destroy_untagged(spec.kind(), &identifier, error).await),
            // It may have had its effect without an answer.
            Err(lost) if matches!(lost.fate, Fate::Lost | Fate::TimedOut) => {
                self.recover(unaccounted, lost.error).await
            }
            Err(failure) => {
                // Without effect, unless the Engine had an internal error halfway.
                if failure.fate != Fate::Answered || !matches!(failure.error, Error::Unavailable(_)) {
                    unaccounted.settle();
                }
                Err(failure.error)
            }
        }
    }

    /// Handles a POST without an answer: finds the object that it made, or posts once more.
    async fn recover(self, unaccounted: Unaccounted<'_>, lost: Error) -> Result<Object, Error> {
        let Self { call, spec, tags, .. } = self;
        let family = Family::of(spec);
        if family.parent.is_empty() {
            return Err(lost);
        }
        for pause in call.engine.pauses.tries {
            sleep(pause).await;
            let children = call.children_by_name(&family).await?;
            if let Some(found) = self.orphan(children.get(spec.name())).await? {
                return unaccounted.tag_or_destroy(found, tags).await;
            }
        }
        let (kind, name) = (spec.kind().name(), spec.name());
        tracing::warn!(kind, name, error = ?lost, "creating again: the answer was lost and nothing found");
        // `unaccounted` is never settled from here on: the object of the first POST may still appear.
        let (identifier, object) = self.post().await?;
        let second = Unaccounted::new(call, &family.parent, None);
        match object {
            Ok(object) => second.tag_or_destroy(object, tags).await,
            Err(error) => Err(second.destroy_untagged(spec.kind(), &identifier, error).await),
        }
    }

    /// The identifier of the object that the Engine created, and the object. It exists even if the contract can't
    /// express it.
    async fn post(self) -> Result<(String, Result<Object, Error>), Failure> {
        let Self { call, spec, .. } = self;
        let path = spec.kind().names().path;
        let answer = call.post(path, wire::creation(spec)).await?;
        let Some(identifier) = wire::identifier(&answer) else {
            let error = call.unusable(format!("POST {path}: the answer holds no `identifier`"));
            let fate = Fate::Lost;
            return Err(Failure { error, fate });
        };
        self.taken.lock().insert(identifier.to_owned());
        let object = wire::object(spec.kind(), &answer).map_err(|problem| call.unusable(problem));
        Ok((identifier.to_owned(), object))
    }

    /// The first candidate that equals the spec and belongs to no other Service.
    async fn orphan(self, candidates: Option<&BTreeSet<String>>) -> Result<Option<Object>, Error> {
        let Self { call, spec, .. } = self;
        for identifier in candidates.into_iter().flatten() {
            if self.taken.lock().contains(identifier) {
                continue;
            }
            let Some(answer) = if_there(call.get(spec.kind().names().path, identifier).await)? else {
                continue;
            };
            // An unreadable object can't equal the spec.
            let existing = wire::object(spec.kind(), &answer).ok();
            let Some(existing) = existing.filter(|existing| wire::same(spec, &existing.spec)) else {
                continue;
            };
            let Some(tags) = call.tags(identifier).await? else {
                continue;
            };
            if !is_foreign(&tags, self.tags) && self.taken.lock().insert(identifier.clone()) {
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
}

/// Identifiers have 32 characters, so this is a few MiB. Above it, the smallest are forgotten.
const PARENTS_MAX: usize = 50_000;

/// The parents that this process created itself, so that they can't hold orphans of an earlier run: an epoch, and those
/// of that epoch.
///
/// The process forgets a parent as soon as one of its children is unaccounted for; this costs one list, never an
/// orphan. It forgets all parents when another epoch begins: another host may have acted, and have been killed before
/// it tagged a child.
#[derive(Debug, Default)]
pub(super) struct CreatedParents(Mutex<(u64, BTreeSet<String>)>);

impl CreatedParents {
    /// Records a parent that this process has just created in this epoch.
    pub(super) fn insert(&self, epoch: u64, identifier: &str) {
        let mut known = self.0.lock();
        if known.0 < epoch {
            *known = (epoch, BTreeSet::new());
        }
        if known.0 == epoch {
            known.1.insert(identifier.to_owned());
            if known.1.len() > PARENTS_MAX {
                known.1.pop_first();
            }
        }
    }

    pub(super) fn remove(&self, identifier: &str) {
        self.0.lock().1.remove(identifier);
    }

    /// Whether this process created it in this epoch.
    pub(super) fn contains(&self, epoch: u64, identifier: &str) -> bool {
        let known = self.0.lock();
        known.0 == epoch && known.1.contains(identifier)
    }
}

/// A child's pending creation. If it is dropped unsettled (also when its call is dropped), its parent is forgotten and
/// its intent stays open.
pub(super) struct Unaccounted<'a> {
    call: &'a Call,
    parent: String,
    intent: Option<Intent>,
    is_accounted: bool,
}

impl<'a> Unaccounted<'a> {
    /// `intent` is `None` if that of an earlier request for the same child stays open in any case.
    pub(super) fn new(call: &'a Call, parent: &str, intent: Option<Intent>) -> Self {
        Self {
            call,
            parent: parent.to_owned(),
            intent,
            is_accounted: false,
        }
    }

    /// The child carries its tags, or certainly does not exist.
    fn settle(mut self) {
        self.is_accounted = true;
        if let Some(intent) = self.intent {
            self.call.engine.intents.settle(intent);
        }
    }

    /// Gives the child all tags. A child that can't be tagged must not remain.
    pub(super) async fn tag_or_destroy(self, object: Object, tags: &[String]) -> Result<Object, Error> {
        for tag in tags {
            if let Err(Failure { error, .. }) = self.call.tag(&object.identifier, tag).await {
                return Err(self
                    .destroy_untagged(object.spec.kind(), &object.identifier, error)
                    .await);
            }
        }
        self.settle();
        Ok(object)
    }

    /// Destroys the child, which lacks its tags, and returns the reason.
    async fn destroy_untagged(self, kind: Kind, identifier: &str, reason: Error) -> Error {
        match if_there(self.call.delete(kind.names().path, identifier).await) {
            Ok(_) => self.settle(),
            Err(error) => tracing::error!(
                kind = kind.name(),
                identifier,
                ?reason,
                ?error,
                "left an object without its tags: it could not be destroyed; it is looked for before the next list by its tag",
            ),
        }
        reason
    }
}

impl Drop for Unaccounted<'_> {
    fn drop(&mut self) {
        if !self.is_accounted {
            self.call.engine.created_parents.remove(&self.parent);
            if let Some(intent) = self.intent {
                self.call.engine.intents.leave_open(intent);
            }
        }
    }
}
