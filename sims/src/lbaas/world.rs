//! The objects of a simulated Engine, and what changes them.
//!
//! Pure: time is an argument, and nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kinds::{Field, Kind, Shape, StateId};

/// A resource of any kind. Its fields are those of its kind; references are identifiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) identifier: String,
    pub(super) fields: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) tags: BTreeSet<String>,
    #[serde(default = "deployed")]
    pub(super) state: StateId,
    /// When the state settles, in milliseconds since 1970; absent once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settles_at_ms: Option<u64>,
}

fn deployed() -> StateId {
    StateId::Deployed
}

impl Object {
    pub(super) fn name(&self) -> &str {
        self.fields.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The object's own path.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.kind.about().path, self.identifier)
    }

    /// The identifiers that it refers to, with their kind.
    fn references(&self) -> impl Iterator<Item = (Kind, &Value)> {
        let fields = self.kind.about().fields.iter();
        fields.filter_map(|Field(name, shape, _)| match shape {
            Shape::Reference(kind) => Some((*kind, self.fields.get(*name)?)),
            _ => None,
        })
    }
}

/// The state of a simulated Engine.
#[derive(Default)]
pub(super) struct World {
    seed: u64,
    /// By identifier.
    pub(super) objects: BTreeMap<String, Object>,
    /// Every tag that was ever used, with its own identifier.
    pub(super) tags: BTreeMap<String, String>,
    /// The objects with each tag. An index: clients ask for a tag far more often than they change one.
    tagged: BTreeMap<String, BTreeSet<String>>,
    identifiers_drawn: u64,
    /// The objects that are still settling, earliest first.
    settling: BTreeSet<(u64, String)>,
}

/// A world as JSON: in the state file, and over HTTP for tests.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dump {
    pub(super) load_balancers: Vec<Object>,
    /// By kind, then identifier.
    pub(super) objects: Vec<Object>,
    #[serde(default)]
    pub(super) tags: BTreeMap<String, String>,
    /// How many identifiers were drawn, so that none is drawn twice.
    #[serde(default)]
    pub(super) identifiers_drawn: u64,
}

impl World {
    /// The world that the dump describes.
    pub(super) fn from_dump(seed: u64, dump: Dump) -> Self {
        let mut world = Self {
            seed,
            tags: dump.tags,
            identifiers_drawn: dump.identifiers_drawn,
            ..Self::default()
        };
        for object in dump.load_balancers.into_iter().chain(dump.objects) {
            world.put(object);
        }
        for tag in world.tagged.keys().cloned().collect::<Vec<_>>() {
            world.name_tag(&tag);
        }
        world
    }

    pub(super) fn dump(&self) -> Dump {
        let mut objects: Vec<Object> = self.objects.values().cloned().collect();
        // A stable sort keeps the order of identifiers within a kind.
        objects.sort_by_key(|object| object.kind);
        let (load_balancers, objects) = objects
            .into_iter()
            .partition(|object| object.kind == Kind::LoadBalancer);
        Dump {
            load_balancers,
            objects,
            tags: self.tags.clone(),
            identifiers_drawn: self.identifiers_drawn,
        }
    }

    /// 32 lower-case hexadecimal digits that no object has or had.
    pub(super) fn draw_identifier(&mut self) -> String {
        /// A ChaCha word is 32 bits, an identifier 128.
        const WORDS_PER_IDENTIFIER: u128 = 4;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        loop {
            random.set_word_pos(u128::from(self.identifiers_drawn) * WORDS_PER_IDENTIFIER);
            self.identifiers_drawn += 1;
            let identifier = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
            // A loaded state may come from another run.
            if !self.objects.contains_key(&identifier) {
                return identifier;
            }
        }
    }

    /// An object of this kind.
    pub(super) fn get(&self, kind: Kind, identifier: &str) -> Option<&Object> {
        self.objects.get(identifier).filter(|object| object.kind == kind)
    }

    /// All objects with this tag, by identifier. The cost does not depend on the other objects.
    pub(super) fn tagged(&self, tag: &str) -> impl Iterator<Item = &Object> {
        let identifiers = self.tagged.get(tag).into_iter().flatten();
        identifiers.filter_map(|identifier| self.objects.get(identifier))
    }

    /// Whether another object refers to this one.
    pub(super) fn is_referred_to(&self, object: &Object) -> bool {
        // No object refers to these: most destructions need no walk through all objects.
        if matches!(object.kind, Kind::Bind | Kind::Server) {
            return false;
        }
        let is_it = |(kind, value): (Kind, &Value)| kind == object.kind && *value == object.identifier;
        self.objects.values().any(|other| other.references().any(is_it))
    }

    /// The objects that are due to settle, earliest first.
    pub(super) fn due(&self, now_ms: u64) -> impl Iterator<Item = &Object> {
        let due = self.settling.iter().take_while(move |(at_ms, _)| *at_ms <= now_ms);
        due.filter_map(|(_, identifier)| self.objects.get(identifier))
    }

    /// Gives a tag that was never used an identifier.
    fn name_tag(&mut self, tag: &str) {
        if !self.tags.contains_key(tag) {
            let identifier = self.draw_identifier();
            self.tags.insert(tag.to_owned(), identifier);
        }
    }

    /// Adds a tag to an object, if that exists. A tag that was never used gets an identifier.
    pub(super) fn tag(&mut self, identifier: &str, tag: &str) {
        self.name_tag(tag);
        self.retag(identifier, |tags| tags.insert(tag.to_owned()));
    }

    pub(super) fn untag(&mut self, identifier: &str, tag: &str) {
        self.retag(identifier, |tags| tags.remove(tag));
    }

    fn retag(&mut self, identifier: &str, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        if let Some(mut object) = self.objects.get(identifier).cloned() {
            change(&mut object.tags);
            self.put(object);
        }
    }

    pub(super) fn destroy(&mut self, identifier: &str) {
        let Some(gone) = self.objects.remove(identifier) else {
            return;
        };
        for tag in &gone.tags {
            if let Some(tagged) = self.tagged.get_mut(tag) {
                tagged.remove(identifier);
                if tagged.is_empty() {
                    self.tagged.remove(tag);
                }
            }
        }
        if let Some(at_ms) = gone.settles_at_ms {
            self.settling.remove(&(at_ms, gone.identifier));
        }
    }

    /// Creates an object, or replaces the one with its identifier.
    pub(super) fn put(&mut self, object: Object) {
        self.destroy(&object.identifier);
        let settling = object.settles_at_ms.map(|at_ms| (at_ms, object.identifier.clone()));
        for tag in &object.tags {
            let tagged = self.tagged.entry(tag.clone()).or_default();
            tagged.insert(object.identifier.clone());
        }
        self.objects.insert(object.identifier.clone(), object);
        self.settling.extend(settling);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(identifier: &str, tags: &[&str]) -> Object {
        Object {
            kind: Kind::Backend,
            identifier: identifier.to_owned(),
            fields: BTreeMap::new(),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            state: StateId::Deployed,
            settles_at_ms: None,
        }
    }

    #[test]
    fn the_index_of_tags_agrees_with_a_walk_through_all_objects() {
        type Change = fn(&mut World);
        let changes: [Change; 10] = [
            |world| world.put(object("c", &[])),
            |world| world.put(object("a", &["web"])),
            |world| world.put(object("b", &["web", "api"])),
            |world| world.tag("c", "web"),
            |world| world.tag("c", "web"),
            |world| world.untag("a", "web"),
            |world| world.put(object("b", &["api"])),
            |world| world.tag("b", "web"),
            |world| world.destroy("c"),
            |world| world.destroy("b"),
        ];
        let mut world = World::from_dump(1, Dump::default());
        let mut most = 0;
        for (number, change) in changes.into_iter().enumerate() {
            change(&mut world);
            for tag in ["web", "api", "none"] {
                let walked: Vec<&Object> = world
                    .objects
                    .values()
                    .filter(|object| object.tags.contains(tag))
                    .collect();
                assert_eq!(
                    world.tagged(tag).collect::<Vec<_>>(),
                    walked,
                    "{tag} after change {number}"
                );
                most = walked.len().max(most);
            }
        }
        assert_eq!((most, world.tagged.len()), (3, 0));
    }
}
