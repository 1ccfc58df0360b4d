//! The desired state of NEGs for each key, according to the current source.
//!
//! Fail-safe: until the first complete look there is no desired state. While something cannot be read, a missing object
//! does not count as deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use trueup_config::{NEG_NAMES, NegAdapter as Settings, ZONES};
use trueup_sources::{Change, Completeness, Kind, ObjectRef, Objects, Source};
use trueup_work::decisions::{ChangedNodes, ChangedObject, Input};
use trueup_work::keyed::SourceChanges;
use trueup_work::objects::Id as ServiceName;

use super::annotation::{Asked, Exposed};
use super::desired::{Desired, Locations};
use super::endpoints::placed;
use super::index::{Index, Touched};
use super::key::Key;
use super::names::{made_name, name_in_subnet};
use super::node::Facts;
use super::notes::{self, Subject};
use crate::claims::Claims;
use crate::notes::Notes;

/// Everything that NEGs depend on, and the request of each key.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    settings: Settings,
    /// The contents of the source, to find out what changed.
    objects: Objects,
    index: Index,
    locations: Locations,
    claims: Claims<Key>,
    /// The names of each key: one for each subnet.
    names: BTreeMap<Key, BTreeSet<String>>,
    notes: Notes<Subject>,
    /// Objects that are missing from the source while a look is incomplete: they are kept.
    held: BTreeSet<ObjectRef>,
    completeness: Completeness,
    /// Whether a look was complete. From then on there is a desired state.
    was_complete: bool,
}

impl Targets {
    /// Nothing is known yet. `locations`: the value that [`Targets::locations`] had when the previous process ended.
    /// `held`: the names of the NEGs that keys had then.
    pub(crate) fn new(
        settings: &Settings,
        source: &Source,
        mut locations: Locations,
        held: impl IntoIterator<Item = (String, Key)>,
    ) -> Self {
        locations.zones.extend(settings.zones.iter().cloned());
        locations.subnets.extend(settings.subnet.iter().cloned());
        Self {
            settings: settings.clone(),
            objects: Objects::default(),
            index: Index::default(),
            locations,
            claims: Claims::new(held),
            names: BTreeMap::new(),
            notes: Notes::default(),
            held: BTreeSet::new(),
            completeness: Completeness::of(source),
            was_complete: false,
        }
    }

    /// The past and present locations of Nodes, including those in the configuration. The caller stores them when there
    /// are more.
    pub(crate) fn locations(&self) -> &Locations {
        &self.locations
    }

    /// Applies a look at the source. `has_keys`: there is something to lose.
    ///
    /// Objects that disappear while `complete` is false are kept until it is true. A source without any object,
    /// although there is something to lose, is treated as unavailable: see [`Completeness`].
    ///
    /// If the request of a Service changed, the desired state of every other known key of it may have changed too, even
    /// of one that it named long ago; and that of every key if [`Targets::completed`].
    pub(crate) fn take_in(&mut self, changes: &[Change], complete: bool, has_keys: bool) -> SourceChanges<Key> {
        let mut looked = Looked::default();
        for change in changes {
            let reference = &change.reference;
            self.completeness.see(change);
            let before = self.objects.apply(change);
            let input = Input::of(change, before.as_ref());
            looked.inputs.insert(reference.clone(), input);
            match &change.now {
                Some(object) => {
                    self.held.remove(reference);
                    let touched = self.index.put(reference, object, &self.settings);
                    self.see_location(reference, &mut looked);
                    looked.take(reference, touched);
                }
                None if self.index.has(reference) => _ = self.held.insert(reference.clone()),
                None => {}
            }
        }
        let objects = self.index.len() - self.held.len();
        let is_node = |reference: &&ObjectRef| reference.kind == Kind::Node;
        let nodes = self.index.node_count();
        let shown = nodes - self.held.iter().filter(is_node).count();
        let (objects, nodes) = (has_keys.then_some(objects), has_keys.then_some(shown));
        let missing = self.completeness.end_look(complete, objects, nodes);
        let is_missed = complete && missing.nodes;
        let complete = self.is_complete();
        if complete {
            for reference in std::mem::take(&mut self.held) {
                let touched = self.index.remove(&reference);
                looked.take(&reference, touched);
            }
        }
        self.claim(&mut looked);
        let notes = self.look_at_notes(looked.touched);
        let mut affected = looked.keys;
        if complete && !self.was_complete {
            self.was_complete = true;
            affected.extend(self.index.keys());
        }
        if !self.was_complete {
            affected.clear();
        }
        let seen = looked.seen.into_iter().filter_map(|(reference, keys)| {
            let input = looked.inputs.remove(&reference)?;
            let keys = keys.into_iter().collect();
            Some(ChangedObject { input, keys })
        });
        SourceChanges {
            affected,
            held: Vec::new(),
            seen: seen.collect(),
            nodes: ChangedNodes::default(),
            notes,
            is_empty: missing.all,
            no_nodes: is_missed,
            complete,
            objects: self.objects.counts(),
        }
    }

    /// Whether the last look was complete and the one before was not: missing objects are gone.
    pub(crate) fn completed(&self) -> bool {
        self.completeness.completed()
    }

    /// Sets the objects that exist and cannot be read. Returns the keys that this affects, except keys of Services that
    /// were never read, which may or may not be gone now ([`Targets::is_gone`]).
    pub(crate) fn take_in_unreadable(&mut self, unreadable: &Arc<BTreeSet<ObjectRef>>) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        for reference in &self.completeness.take_in_unreadable(unreadable) {
            match reference.kind {
                Kind::Service => keys.extend(self.index.keys_of(&ServiceName::from(reference))),
                Kind::EndpointSlice => keys.extend(self.index.keys_in(&reference.namespace)),
                Kind::Node => {
                    let services = self.index.services_on(&reference.name);
                    keys.extend(services.flat_map(|service| self.index.keys_of(service)));
                }
                Kind::Pod => {}
            }
        }
        keys
    }

    /// The desired state of a key, or why it is invalid: then nothing changes, and one line says how to fix it. `None`
    /// if no source object requests the key; if [`Targets::is_gone`] also holds, its NEGs must be emptied.
    pub(crate) fn desired(&self, key: &Key) -> Option<Result<Desired, String>> {
        if !self.was_complete {
            return None;
        }
        match self.index.asked(&key.service)? {
            Asked::Broken(broken) => Some(Err(broken.text.clone())),
            Asked::IngressAlone => None,
            Asked::Exposed(ports) => {
                let exposed = ports.get(&key.port)?;
                Some(self.hidden(&key.service).map_or_else(|| self.made(key, exposed), Err))
            }
        }
    }

    /// Whether a key without a request is gone: everything was read, and it would be visible if it existed.
    pub(crate) fn is_gone(&self, key: &Key) -> bool {
        self.completeness.is_gone(&key.service.of_kind(Kind::Service)) && self.desired(key).is_none()
    }

    /// Every requested key, valid or not.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let keys = self.index.keys();
        keys.filter(|_| self.was_complete).collect()
    }

    /// Whether a missing object is gone.
    pub(crate) fn is_complete(&self) -> bool {
        self.completeness.is_complete()
    }

    /// The owner of a NEG's name. `None` if no key requests it. If another key now owns the NEGs of a deleted key, they
    /// are not to be emptied: the owner corrects them.
    pub(crate) fn owner(&self, neg: &str) -> Option<&Key> {
        self.claims.owner(neg)
    }

    /// Each NEG's name with its owner.
    #[cfg(test)]
    pub(crate) fn held(&self) -> Vec<(String, Key)> {
        let names = self.names.values().flatten();
        names
            .filter_map(|name| Some((name.clone(), self.owner(name)?.clone())))
            .collect()
    }

    /// The current notes, reported or not.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.all()
    }

    /// A Node reveals where NEGs may be. A new location affects every key.
    fn see_location(&mut self, reference: &ObjectRef, looked: &mut Looked) {
        if reference.kind != Kind::Node {
            return;
        }
        let Some(Facts { zone, subnet, .. }) = self.index.node(&reference.name) else {
            return;
        };
        let mut is_new = false;
        for (name, all) in [(zone, &mut self.locations.zones), (subnet, &mut self.locations.subnets)] {
            is_new |= name.as_ref().is_some_and(|name| all.insert(name.clone()));
        }
        if is_new {
            let keys = self.index.keys().collect();
            let touched = Touched {
                keys,
                ..Touched::default()
            };
            looked.take(reference, touched);
        }
    }

    /// Changed keys may have different names, so other keys may lose or gain names.
    fn claim(&mut self, looked: &mut Looked) {
        let mut concerned = BTreeSet::new();
        for key in &looked.keys {
            let before = self.names.remove(key).unwrap_or_default();
            let asked = self.index.asked(&key.service);
            let exposed = match asked {
                Some(Asked::Exposed(ports)) => ports.get(&key.port),
                _ => None,
            };
            let created = exposed.and_then(|exposed| exposed.created.as_ref());
            let now: BTreeSet<String> = match (exposed, asked) {
                (Some(exposed), _) => self.neg_names(key, exposed).map(|(_, name)| name).collect(),
                // Nothing of it changes until its annotation is corrected, so no other key gets what it has.
                (None, Some(Asked::Broken(_))) if before.is_empty() => self.claims.held_by(key),
                (None, Some(Asked::Broken(_))) => before.clone(),
                (None, _) => BTreeSet::new(),
            };
            concerned.extend(self.claims.change(key, created, &before, &now));
            if !now.is_empty() {
                self.names.insert(key.clone(), now);
            }
        }
        looked.keys.extend(concerned);
        if self.was_complete || self.is_complete() {
            self.claims.settle();
        }
    }

    fn look_at_notes(&mut self, touched: Touched) -> Vec<String> {
        if !self.is_complete() && !self.was_complete {
            // What is missing may not have been read yet.
            return Vec::new();
        }
        let touched = match self.was_complete {
            true => touched,
            false => self.index.everything(),
        };
        let notes = notes::of(touched, &self.index, &self.settings);
        notes
            .flat_map(|(subject, now)| self.notes.set(&subject, now.into()))
            .collect()
    }

    /// The name of the NEG in each subnet.
    fn neg_names(&self, key: &Key, exposed: &Exposed) -> impl Iterator<Item = (&str, String)> {
        let made = || made_name(&self.settings.cluster, key);
        let name = exposed.name.clone().unwrap_or_else(made);
        self.locations.subnets.iter().map(move |subnet| {
            let is_default = self.settings.subnet.as_ref() == Some(subnet);
            let name = if is_default {
                name.clone()
            } else {
                name_in_subnet(&name, subnet)
            };
            (subnet.as_str(), name)
        })
    }

    fn made(&self, key: &Key, exposed: &Exposed) -> Result<Desired, String> {
        let names: BTreeMap<&str, String> = self.neg_names(key, exposed).collect();
        for name in names.values() {
            if let Some(owner) = self.owner(name).filter(|owner| *owner != key) {
                return Err(format!(
                    "service `{}`: port {}: NEG `{name}` is that of port {} of service `{}`: give it another name",
                    key.service, key.port, owner.port, owner.service,
                ));
            }
        }
        let location = |node: &str| self.index.node(node)?.location();
        let names = names.into_iter().map(|(subnet, name)| (subnet.to_owned(), name.into()));
        let settings = [
            (NEG_NAMES.to_owned(), Value::Object(names.collect())),
            (ZONES.to_owned(), json!(self.locations.zones)),
        ];
        Ok(Desired {
            settings: Map::from_iter(settings),
            target: placed(self.index.slices(&key.service), &exposed.port_name, location),
        })
    }

    /// Why the endpoints of a Service are unknown: an object cannot be read and never was. If it were ignored, the load
    /// balancer would lose its endpoints.
    fn hidden(&self, service: &ServiceName) -> Option<String> {
        let hides = |reference: &&ObjectRef| {
            !self.index.has(reference)
                && match reference.kind {
                    Kind::EndpointSlice => reference.namespace == service.namespace,
                    Kind::Node => self.index.is_on(service, &reference.name),
                    Kind::Service | Kind::Pod => false,
                }
        };
        let hidden = self.completeness.unreadable().iter().find(hides)?;
        Some(format!(
            "service `{service}`: {hidden} can't be read, so that it is not known which endpoints there are: repair it"
        ))
    }
}

/// What applying changes collects.
#[derive(Default)]
struct Looked {
    keys: BTreeSet<Key>,
    touched: Touched,
    /// Which objects affect which keys. Objects without affected keys are left out, except Services whose request
    /// changed.
    seen: Vec<(ObjectRef, BTreeSet<Key>)>,
    inputs: BTreeMap<ObjectRef, Input>,
}

impl Looked {
    fn take(&mut self, reference: &ObjectRef, touched: Touched) {
        let asks_else = reference.kind == Kind::Service && !touched.services.is_empty();
        if asks_else || !touched.keys.is_empty() {
            self.keys.extend(touched.keys.iter().cloned());
            match self.seen.last_mut() {
                Some((last, keys)) if last == reference => keys.extend(touched.keys.iter().cloned()),
                _ => self.seen.push((reference.clone(), touched.keys.clone())),
            }
        }
        self.touched.extend(touched);
    }
}
