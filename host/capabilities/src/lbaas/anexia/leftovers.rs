//! Finds the objects that were created for a tag but do not carry it, and tags them before the next list by that tag.
//!
//! The guest then sees them and decides about them. Where to look:
//!
//! ```text
//! open intents           -> the children of the same parent that equal what was to be created
//! without such knowledge -> everything named like the Service's objects, below its load balancers
//! ```
//!
//! The second case is for objects of other hosts, whose intents are on their disks: once per Service and epoch.

use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::create::Unaccounted;
use super::http::{Call, if_there};
use super::intents::{Entry, Intent};
use super::list::Children;
use super::wire::{self, Family};
use crate::lbaas::{Error, Kind, Object, Parent, referred};

/// The prefix of the tag that assigns a resource to a Service; the Service's uid follows.
pub(super) const SERVICE_TAG_PREFIX: &str = "anxccm-svc-uid=";

/// Whether these tags belong to a resource of another Service than the one that is to carry `wanted`.
pub(super) fn is_foreign(tags: &[String], wanted: &[String]) -> bool {
    tags.iter()
        .any(|tag| tag.starts_with(SERVICE_TAG_PREFIX) && !wanted.contains(tag))
}

/// Identifies the objects of one Service: by their names, and by the load balancers above them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The name of each of its objects equals this or ends with it after a dot.
    pub name_suffix: String,
    /// Objects found by name get the tag of this Service. `None` means that the Service is gone. Then any listed tag
    /// will do, since everything under it is destroyed.
    pub service_uid: Option<String>,
    /// The load balancers that may hold its objects.
    pub load_balancers: BTreeSet<String>,
}

/// The number of remembered Services. Above it, all are forgotten, which costs each one lookup.
const LOOKED_MAX: usize = 1_000_000;

/// How long the lists of a load balancer's children are reused: this host's new objects have intents.
const LISTS_FRESH: Duration = Duration::from_secs(60);

/// The Services that were looked up by name, and the content of the load balancers at that time.
#[derive(Default)]
pub(super) struct Looks {
    looked: Mutex<Looked>,
    /// Of an epoch and a number of doubts.
    lists: tokio::sync::Mutex<((u64, u64), Lists)>,
}

type Lists = BTreeMap<Family, (Instant, Arc<Children>)>;

#[derive(Default)]
struct Looked {
    epoch: u64,
    /// For this epoch, by name suffix.
    done: BTreeSet<String>,
    /// The name suffixes of Services with an object that could not be destroyed because it is referenced.
    doubted: BTreeSet<String>,
    doubts: u64,
}

impl Looks {
    /// Records that an unseen object refers to one of this Service's objects.
    pub(super) fn doubt(&self, name_suffix: &str) {
        let mut looked = self.looked.lock();
        looked.done.remove(name_suffix);
        looked.doubted.insert(name_suffix.to_owned());
        looked.doubts += 1;
    }

    /// Whether a Service must be looked up by name. `is_complete`: this host's intents are complete.
    fn is_due(&self, epoch: u64, is_complete: bool, name_suffix: &str) -> bool {
        let looked = self.of_epoch(epoch);
        looked.doubted.contains(name_suffix) || !(is_complete || looked.done.contains(name_suffix))
    }

    fn note(&self, epoch: u64, name_suffix: &str) {
        let mut looked = self.of_epoch(epoch);
        if looked.done.len() >= LOOKED_MAX {
            looked.done.clear();
        }
        looked.doubted.remove(name_suffix);
        looked.done.insert(name_suffix.to_owned());
    }

    /// Others may have acted before this epoch.
    fn of_epoch(&self, epoch: u64) -> MutexGuard<'_, Looked> {
        let mut looked = self.looked.lock();
        if looked.epoch < epoch {
            looked.epoch = epoch;
            looked.done.clear();
        }
        looked
    }
}

/// An object that lacks a tag.
pub(super) struct Leftover {
    pub(super) object: Object,
    tags: Vec<String>,
    /// `None` if it was found by its name.
    intent: Option<Intent>,
}

/// The result of a lookup.
pub(super) struct Look {
    pub(super) found: Vec<Leftover>,
    /// Objects that will not appear any more.
    late: Vec<Intent>,
    /// The current Service was looked up by name.
    by_name: bool,
}

impl Call {
    /// Adds the missing tags to the objects created for this tag. Objects that can't be tagged are destroyed.
    pub(super) async fn adopt(&self, tag: &str, owned: Option<&Owned>) -> Result<(), Error> {
        if self.fence.epoch() > 0 {
            self.engine.intents.incomplete();
        }
        let look = self.look(tag, owned).await?;
        for Leftover { object, tags, intent } in look.found {
            tracing::info!(
                kind = object.spec.kind().name(),
                identifier = object.identifier,
                name = object.spec.name(),
                "tagging an object that was created without its tags"
            );
            let unaccounted = Unaccounted::new(self, &Family::of(&object.spec).parent, intent);
            match unaccounted.tag_or_destroy(object, &tags).await {
                // The object is gone, or the failure to destroy it was reported: continue with the others.
                Ok(_) | Err(Error::NotFound | Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for intent in look.late {
            self.engine.intents.settle(intent);
        }
        if let Some(owned) = owned.filter(|_| look.by_name) {
            self.engine.looks.note(self.fence.epoch(), &owned.name_suffix);
        }
        Ok(())
    }

    /// Looks for objects that were created for this tag but do not carry it. Changes nothing.
    pub(super) async fn look(&self, tag: &str, owned: Option<&Owned>) -> Result<Look, Error> {
        // What is late must be so before anything is looked up.
        let now = Instant::now();
        let sought = self.engine.intents.of_tag(tag);
        let epoch = self.fence.epoch();
        // A host that runs alone has only one epoch. If others act, this host's intents do not cover their objects.
        let is_complete = epoch == 0 && self.engine.intents.is_complete();
        let owned = owned.filter(|owned| {
            let is_due = || self.engine.looks.is_due(epoch, is_complete, &owned.name_suffix);
            self.engine.adopt_orphans && tag.starts_with(SERVICE_TAG_PREFIX) && is_due()
        });
        let mut look = Look {
            found: Vec::new(),
            late: Vec::new(),
            by_name: owned.is_some_and(|owned| owned.is_current(tag)),
        };
        let named = match owned {
            Some(owned) => self.named(owned).await?,
            None => Vec::new(),
        };
        if sought.is_empty() && named.is_empty() {
            return Ok(look);
        }
        // Skip objects that are already tagged, or were found by an intent.
        let tagged: BTreeSet<String> = self.tagged(tag).await?.into_iter().map(|it| it.identifier).collect();
        let is_tagged = |owner: &Parent| matches!(owner, Parent::Resource(it) if tagged.contains(&it.identifier));
        // Whether the object is below one that is tagged, or sends its traffic there.
        let refers = |object: &Object| referred(&object.spec).iter().any(is_tagged);
        let mut seen = tagged.clone();
        self.look_for_intents(sought, now, &mut seen, &mut look).await?;
        for (kind, identifier) in named {
            if !seen.insert(identifier.clone()) {
                continue;
            }
            let tags = vec![tag.to_owned()];
            let found = self.untagged(kind, &identifier, &tags).await?;
            if let Some(object) = found.filter(|object| look.by_name || refers(object)) {
                let intent = None;
                look.found.push(Leftover { object, tags, intent });
            }
        }
        Ok(look)
    }

    async fn look_for_intents(
        &self,
        sought: Vec<(Intent, Entry)>,
        now: Instant,
        seen: &mut BTreeSet<String>,
        look: &mut Look,
    ) -> Result<(), Error> {
        let mut lists: BTreeMap<Family, Children> = BTreeMap::new();
        for (intent, entry) in sought {
            let is_late = entry.is_late(now);
            let Entry { spec, tags, .. } = entry;
            let family = Family::of(&spec);
            let children = match lists.entry(family.clone()) {
                btree_map::Entry::Occupied(listed) => listed.into_mut(),
                btree_map::Entry::Vacant(place) => place.insert(self.children_if_any(&family).await?),
            };
            let mut found = None;
            let named = children.get(spec.name()).into_iter().flatten();
            for identifier in named.filter(|identifier| !seen.contains(*identifier)) {
                let object = self.untagged(spec.kind(), identifier, &tags).await?;
                found = object.filter(|object| wire::same(&spec, &object.spec));
                if found.is_some() {
                    break;
                }
            }
            if let Some(object) = found {
                seen.insert(object.identifier.clone());
                let intent = Some(intent);
                look.found.push(Leftover { object, tags, intent });
            } else if is_late {
                look.late.push(intent);
            }
        }
        Ok(())
    }

    /// Everything named like this Service's objects, below its load balancers.
    async fn named(&self, owned: &Owned) -> Result<Vec<(Kind, String)>, Error> {
        let mut named = Vec::new();
        for load_balancer in &owned.load_balancers {
            for kind in [Kind::Backend, Kind::Frontend] {
                let children = self.listed(Family::below(kind, load_balancer)).await?;
                named.extend(owned.named(kind, &children));
            }
        }
        let below = named.iter().filter_map(|(kind, id)| Some((kind.child()?, id)));
        let lists = below.map(|(kind, id)| async move {
            Ok::<_, Error>(owned.named(kind, &self.children_if_any(&Family::below(kind, id)).await?))
        });
        let below = try_join_all(lists).await?;
        named.extend(below.into_iter().flatten());
        Ok(named)
    }

    /// A load balancer's children; one list serves the lookups of many Services.
    async fn listed(&self, family: Family) -> Result<Arc<Children>, Error> {
        let mut lists = self.engine.looks.lists.lock().await;
        let of = (self.fence.epoch(), self.engine.looks.looked.lock().doubts);
        if lists.0 != of {
            *lists = (of, Lists::new());
        }
        if let Some((_, children)) = lists.1.get(&family).filter(|(at, _)| at.elapsed() < LISTS_FRESH) {
            return Ok(Arc::clone(children));
        }
        let children = Arc::new(self.children_if_any(&family).await?);
        lists.1.insert(family, (Instant::now(), Arc::clone(&children)));
        Ok(children)
    }

    /// A family's resources; none if the parent is gone.
    async fn children_if_any(&self, family: &Family) -> Result<Children, Error> {
        match self.children_by_name(family).await {
            Err(Error::NotFound | Error::Refused((422, _))) => Ok(Children::new()),
            children => children,
        }
    }

    /// The object, if it lacks one of these tags and belongs to no other Service. Unreadable ones are ignored.
    async fn untagged(&self, kind: Kind, identifier: &str, tags: &[String]) -> Result<Option<Object>, Error> {
        let Some(carried) = self.tags(identifier).await? else {
            return Ok(None);
        };
        if is_foreign(&carried, tags) || tags.iter().all(|tag| carried.contains(tag)) {
            return Ok(None);
        }
        let answer = if_there(self.get(kind.names().path, identifier).await)?;
        Ok(answer.and_then(|answer| wire::object(kind, &answer).ok()))
    }
}

impl Owned {
    /// Whether this is the tag of the current Service, or of one that is gone. A host that still knows an earlier
    /// Service of the same name lists by that Service's tag, too. Then only what is in the way of that Service's
    /// objects gets its tag: with it, the current Service could neither use an object nor destroy it.
    fn is_current(&self, tag: &str) -> bool {
        tag.strip_prefix(SERVICE_TAG_PREFIX)
            .is_some_and(|uid| self.service_uid.as_deref().is_none_or(|own| own == uid))
    }

    /// The children that are named like this Service's objects.
    fn named(&self, kind: Kind, children: &Children) -> Vec<(Kind, String)> {
        let is_ours = |name: &str| {
            name.strip_suffix(&self.name_suffix)
                .is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        let ours = children.iter().filter(|(name, _)| is_ours(name));
        let ours = ours.flat_map(|(_, identifiers)| identifiers);
        ours.map(|identifier| (kind, identifier.clone())).collect()
    }
}
