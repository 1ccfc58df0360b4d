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

use super::annotation::{ANNOTATION, Asked, Exposed};
use super::endpoints::{self, Flaw};
use super::index::{Index, Touched};
use super::{Desired, Facts, Key, Locations, ZONE_LABEL, made_name, name_in_subnet};
use crate::claims::Claims;
use crate::notes::Notes;

/// Everything that NEGs depend on, and the request of each key.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    settings: Settings,
    /// The contents of the source, to find out what changed.
    objects: Objects,
    index: Index,
    /// The past and present locations of Nodes, including those in the configuration. The caller stores them when there
    /// are more.
    pub(crate) locations: Locations,
    claims: Claims<Key>,
    /// The names of each key: one for each subnet.
    names: BTreeMap<Key, BTreeSet<String>>,
    notes: Notes,
    /// Objects that are missing from the source while a look is incomplete: they are kept.
    held: BTreeSet<ObjectRef>,
    pub(crate) completeness: Completeness,
    /// Whether a look was complete. From then on there is a desired state.
    was_complete: bool,
}

impl Targets {
    /// Nothing is known yet. `locations`: those that [`Targets`] had when the previous process ended.
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

    /// Applies a look at the source. `has_keys`: there is something to lose.
    ///
    /// Objects that disappear while `complete` is false are kept until it is true. A source without any object,
    /// although there is something to lose, is treated as unavailable: see [`Completeness`].
    ///
    /// If the request of a Service changed, the desired state of every other known key of it may have changed too, even
    /// of one that it named long ago; and that of every key if the look completed.
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
        let shown = self.index.nodes.len() - self.held.iter().filter(is_node).count();
        let (objects, nodes) = (has_keys.then_some(objects), has_keys.then_some(shown));
        let missing = self.completeness.end_look(complete, objects, nodes);
        let is_missed = complete && missing.nodes;
        let complete = self.completeness.is_complete();
        if complete {
            for reference in std::mem::take(&mut self.held) {
                let touched = self.index.remove(&reference);
                looked.take(&reference, touched);
            }
        }
        let mut affected = std::mem::take(&mut looked.touched.keys);
        self.claim(&mut affected);
        let notes = self.look_at_notes(looked.touched);
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

    /// Sets the objects that exist and cannot be read. Returns the keys that this affects, except keys of Services that
    /// were never read, which may or may not be gone now ([`Targets::is_gone`]).
    pub(crate) fn take_in_unreadable(&mut self, unreadable: &Arc<BTreeSet<ObjectRef>>) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        for reference in &self.completeness.take_in_unreadable(unreadable) {
            match reference.kind {
                Kind::Service => keys.extend(self.index.keys_of(&ServiceName::from(reference))),
                Kind::EndpointSlice => keys.extend(self.index.keys_in(&reference.namespace)),
                Kind::Node => keys.extend(self.index.keys_on(&reference.name)),
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
            Asked::Broken { text, .. } => Some(Err(text.clone())),
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
        let Some(Facts { zone, subnet, .. }) = self.index.nodes.get(&reference.name) else {
            return;
        };
        let mut is_new = false;
        for (name, all) in [(zone, &mut self.locations.zones), (subnet, &mut self.locations.subnets)] {
            is_new |= name.as_ref().is_some_and(|name| all.insert(name.clone()));
        }
        if is_new {
            let mut touched = Touched::default();
            touched.keys.extend(self.index.keys());
            looked.take(reference, touched);
        }
    }

    /// Changed keys may have different names, so other keys may lose or gain names.
    fn claim(&mut self, keys: &mut BTreeSet<Key>) {
        let mut concerned = BTreeSet::new();
        for key in &*keys {
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
                (None, Some(Asked::Broken { .. })) if before.is_empty() => self.claims.held_by(key),
                (None, Some(Asked::Broken { .. })) => before.clone(),
                (None, _) => BTreeSet::new(),
            };
            concerned.extend(self.claims.change(key, created, &before, &now));
            if !now.is_empty() {
                self.names.insert(key.clone(), now);
            }
        }
        keys.extend(concerned);
        if self.was_complete || self.completeness.is_complete() {
            self.claims.settle();
        }
    }

    fn look_at_notes(&mut self, touched: Touched) -> Vec<String> {
        let touched = match self.was_complete {
            true => touched,
            false if self.completeness.is_complete() => self.index.everything(),
            // What is missing may not have been read yet.
            false => return Vec::new(),
        };
        let mut new = Vec::new();
        for node in touched.nodes {
            let note = note_of_node(&node, &self.index, &self.settings);
            let notes: BTreeSet<String> = note.into_iter().collect();
            let node = ObjectRef::new(Kind::Node, "", node);
            new.extend(self.notes.set(&node, notes.into()));
        }
        for service in touched.services {
            let notes = notes_of_service(&service, &self.index);
            let service = service.of_kind(Kind::Service);
            new.extend(self.notes.set(&service, notes.into()));
        }
        new
    }

    /// The name of the NEG in each subnet.
    fn neg_names(&self, key: &Key, exposed: &Exposed) -> impl Iterator<Item = (&str, String)> {
        let made = || made_name(&self.settings.cluster, key);
        let name = exposed.name.clone().unwrap_or_else(made);
        self.locations.subnets.iter().map(move |subnet| {
            let name = match self.settings.subnet.as_ref() == Some(subnet) {
                true => name.clone(),
                false => name_in_subnet(&name, subnet),
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
        let slices = self.index.slices(&key.service).map(|(_, slice)| slice.as_ref());
        let names = names.into_iter().map(|(subnet, name)| (subnet.to_owned(), name.into()));
        let settings = [
            (NEG_NAMES.to_owned(), Value::Object(names.collect())),
            (ZONES.to_owned(), json!(self.locations.zones)),
        ];
        Ok(Desired {
            settings: Map::from_iter(settings),
            target: endpoints::placed(slices, &exposed.port_name, |node| self.index.nodes.get(node)),
            is_gone: false,
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
            match self.seen.last_mut() {
                Some((last, keys)) if last == reference => keys.extend(touched.keys.iter().cloned()),
                _ => self.seen.push((reference.clone(), touched.keys.clone())),
            }
        }
        self.touched.extend(touched);
    }
}

/// The note of a Node with endpoints that should be in a NEG.
fn note_of_node(node: &str, index: &Index, settings: &Settings) -> Option<String> {
    let is_exposed = |service: &ServiceName| matches!(index.asked(service), Some(Asked::Exposed(_)));
    index.services_on(node).find(|service| is_exposed(service))?;
    let (what, until) = match index.nodes.get(node) {
        None => ("is not known".to_owned(), "it is"),
        Some(Facts { zone: None, .. }) => (format!("has no label `{ZONE_LABEL}`"), "it has"),
        Some(Facts { subnet: None, .. }) => {
            let label = settings.subnet_label.as_deref().unwrap_or_default();
            let until = "it has, or [adapter.neg] names a `subnet`";
            (format!("has no label `{label}`"), until)
        }
        Some(_) => return None,
    };
    Some(format!(
        "node `{node}` {what}: endpoints on it are in no NEG until {until}"
    ))
}

fn notes_of_service(service: &ServiceName, index: &Index) -> BTreeSet<String> {
    match index.asked(service) {
        // If it has a port, the error of that port already says so.
        Some(Asked::Broken { text, ports }) if ports.is_empty() => [text.clone()].into(),
        None | Some(Asked::Broken { .. }) => BTreeSet::new(),
        Some(Asked::IngressAlone) => [format!(
            "service `{service}`: annotation `{ANNOTATION}` asks for NEGs of an Ingress, which are not made here: name \
             ports in `exposed_ports`"
        )]
        .into(),
        Some(Asked::Exposed(_)) => {
            let notes = index.slices(service).flat_map(|(name, slice)| {
                let flaws = endpoints::flaws(slice).into_iter();
                flaws.map(move |(flaw, (first, count))| note_of_slice(service, name, flaw, first, count))
            });
            notes.collect()
        }
    }
}

fn note_of_slice(service: &ServiceName, slice: &str, flaw: Flaw, first: &str, count: usize) -> String {
    let why = match flaw {
        Flaw::NoNode => "no `nodeName`, so that it is not known in which zone: in no NEG until there is one",
        Flaw::NoAddress => "no address that a NEG takes, IPv4 or IPv6: in no NEG until there is one",
    };
    let who = match count {
        1 => format!("endpoint `{}` has", first.escape_debug()),
        _ => format!("endpoint `{}` and {} more have", first.escape_debug(), count - 1),
    };
    format!("service `{service}`: EndpointSlice `{slice}`: {who} {why}")
}
