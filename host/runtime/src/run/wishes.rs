//! What should be, for each key, as the source says it now: objects through the adapter, with what one look at the
//! source can't show.
//!
//! Two things are kept beyond the objects. Servers are remembered over restarts, and stand in for Nodes that can't be
//! read yet: a broken file must not take every Service's servers away. And each UID has one owner: two Services with one
//! UID would take each other's objects for their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::files;
use crate::decisions::{Input, Seen};
use crate::guests::lbaas::adapter::{self, Key, Servers, Settings};
use crate::guests::lbaas::{Desired, Target};
use crate::sources::{Change, Kind, Object, Objects};

/// The name of the file in the state folder that holds the servers of the last complete look.
const SERVERS_FILE: &str = "servers.json";

pub(crate) struct Wishes {
    settings: Settings,
    file: PathBuf,
    objects: Objects,
    /// What load balancers may send traffic to now.
    servers: Servers,
    /// Of the last complete look before this process.
    remembered: Vec<Target>,
    /// Whether a look of this process was complete: from then on nothing stands in for what is not read.
    was_complete: bool,
    /// Whether the last look was: an object that is not there is gone.
    complete: bool,
    /// By UID, the Services that carry it.
    owners: BTreeMap<String, BTreeSet<Key>>,
}

/// What a look at the source changed.
pub(crate) struct Changed {
    /// Keys whose wish may be another one.
    pub(crate) affected: BTreeSet<Key>,
    /// Which changes concern whom: those that concern nobody are left out.
    pub(crate) seen: Vec<Seen>,
    /// Nodes that should be servers and can't be, that were not said yet.
    pub(crate) notes: Vec<String>,
    /// The source holds no object at all, and there is something to lose.
    pub(crate) is_empty: bool,
    /// The look is complete and the one before was not: what is missing is gone.
    pub(crate) completed: bool,
}

impl Wishes {
    /// Nothing is wished for yet. Reads the servers that `state_dir` remembers.
    ///
    /// # Errors
    /// Where they can't be read, with the file's name.
    pub(crate) fn new(settings: Settings, state_dir: &Path) -> io::Result<Self> {
        let file = state_dir.join(SERVERS_FILE);
        let named = |error: &dyn std::fmt::Display| io::Error::other(format!("reading {}: {error}", file.display()));
        let remembered = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| named(&error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(named(&error)),
        };
        Ok(Self {
            settings,
            file,
            objects: Objects::default(),
            servers: Servers::default(),
            remembered,
            was_complete: false,
            complete: false,
            owners: BTreeMap::new(),
        })
    }

    /// Takes in a look at the source. `has_keys`: there are objects to lose.
    ///
    /// A source without a single object, where there was something to lose, is taken for one that is not there (a volume
    /// that is not mounted, a checkout that failed), not for a wish.
    pub(crate) fn take_in(&mut self, changes: &[Change], complete: bool, has_keys: bool) -> Changed {
        let mut affected = BTreeSet::new();
        let mut seen = Vec::new();
        for change in changes {
            let mut keys = adapter::affected(change, &self.objects);
            let before = self.objects.apply(change);
            keys.extend(self.move_uid(change, before.as_ref()));
            if !keys.is_empty() {
                affected.extend(keys.iter().cloned());
                let input = Input::of(change, before.as_ref());
                seen.push(Seen { input, keys });
            }
        }
        let is_empty = self.objects.is_empty() && has_keys;
        let complete = complete && !is_empty;
        let completed = complete && !self.complete;
        self.complete = complete;
        let was = self.servers.clone();
        let is_node = |change: &Change| change.reference.kind == Kind::Node;
        if changes.iter().any(is_node) || (complete && !self.was_complete) {
            self.was_complete |= complete;
            self.servers = adapter::servers(&self.objects);
            self.stand_in();
        }
        if self.servers.targets != was.targets {
            affected.extend(self.keys());
        }
        let new_notes = self.servers.notes.iter().filter(|note| !was.notes.contains(note));
        let mut notes: Vec<String> = new_notes.cloned().collect();
        let has_services = self.objects.services().next().is_some();
        let looked_at_nodes = !was.targets.is_empty() || changes.iter().any(is_node) || completed;
        if self.servers.targets.is_empty() && has_services && looked_at_nodes {
            notes.push("no Node is ready and open to load balancers: Services are left without servers".to_owned());
        }
        Changed {
            affected,
            seen,
            notes,
            completed,
            is_empty,
        }
    }

    /// Remembers the servers of a complete look for the next process.
    ///
    /// # Errors
    /// Where they can't be written.
    pub(crate) fn remember(&mut self) -> io::Result<()> {
        if self.complete && self.remembered != self.servers.targets {
            files::replace_json(&self.file, &self.servers.targets)?;
            self.remembered.clone_from(&self.servers.targets);
        }
        Ok(())
    }

    /// Until everything could be read once, servers whose Nodes are not there are those of the last time.
    fn stand_in(&mut self) {
        if self.was_complete {
            return;
        }
        let read: BTreeSet<&str> = self
            .objects
            .nodes()
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        let missing = self
            .remembered
            .iter()
            .filter(|target| !read.contains(target.name.as_str()))
            .cloned();
        let missing: Vec<Target> = missing.collect();
        self.servers.targets.extend(missing);
        self.servers.targets.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A Service's UID has other owners now; answers those that this concerns.
    fn move_uid(&mut self, change: &Change, before: Option<&Object>) -> BTreeSet<Key> {
        if change.reference.kind != Kind::Service {
            return BTreeSet::new();
        }
        let uid = |object: &Object| object.metadata().uid.clone();
        let (was, now) = (before.and_then(uid), change.now.as_ref().and_then(uid));
        if was == now {
            return BTreeSet::new();
        }
        let key = Key::from(&change.reference);
        let mut concerned = BTreeSet::new();
        if let Some(was) = was
            && let Some(owners) = self.owners.get_mut(&was)
        {
            owners.remove(&key);
            concerned.extend(owners.iter().cloned());
        }
        if let Some(now) = now {
            let owners = self.owners.entry(now).or_default();
            concerned.extend(owners.iter().cloned());
            owners.insert(key);
        }
        self.owners.retain(|_, owners| !owners.is_empty());
        concerned
    }

    /// The key whose objects carry `uid`; none where no Service has it.
    pub(crate) fn owner(&self, uid: &str) -> Option<&Key> {
        self.owners.get(uid)?.first()
    }

    /// What should be for one key, or why that can't be said; none where there is no such Service for load balancers.
    pub(crate) fn wish(&self, key: &Key) -> Option<Result<Desired, String>> {
        let desired = match adapter::wish(&self.objects, key, &self.servers, &self.settings)? {
            Ok(desired) => desired,
            Err(error) => return Some(Err(error.to_string())),
        };
        match self.owner(&desired.service_uid) {
            Some(owner) if owner != key => {
                let uid = &desired.service_uid;
                Some(Err(format!(
                    "service `{key}`: metadata.uid {uid} is that of service `{owner}`: remove it, or give it one of its own"
                )))
            }
            _ => Some(Ok(desired)),
        }
    }

    /// Every key that is wished for, whether or not that can be.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        adapter::wishes(&self.objects, &self.servers, &self.settings)
            .into_keys()
            .collect()
    }

    /// Whether an object that is not there is gone.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, Service};
    use serde_json::json;

    use super::*;

    fn settings() -> Settings {
        let settings = json!({"cluster": "c1", "load_balancers": ["lb-1"], "addresses": ["192.0.2.1"]});
        serde_json::from_value(settings).unwrap()
    }

    fn service(name: &str, uid: &str) -> Object {
        let service: Service = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "uid": uid},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        }))
        .unwrap();
        Object::Service(Arc::new(service))
    }

    fn node(name: &str) -> Object {
        let node: Node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        Object::Node(Arc::new(node))
    }

    fn put(object: Object) -> Change {
        Change {
            reference: object.reference(),
            now: Some(object),
        }
    }

    fn remove(object: &Object) -> Change {
        Change {
            reference: object.reference(),
            now: None,
        }
    }

    fn key(name: &str) -> Key {
        Key {
            namespace: "default".into(),
            name: name.into(),
        }
    }

    fn servers(wishes: &Wishes, name: &str) -> Vec<String> {
        wishes
            .wish(&key(name))
            .unwrap()
            .unwrap()
            .servers
            .into_iter()
            .map(|server| server.name)
            .collect()
    }

    #[test]
    fn servers_of_nodes_that_cannot_be_read_stand_in_until_everything_can() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Wishes::new(settings(), folder.path()).unwrap();
        first.take_in(
            &[put(node("n1")), put(node("n2")), put(service("web", "u1"))],
            true,
            true,
        );
        first.remember().unwrap();
        assert_eq!(servers(&first, "web"), ["n1", "n2"]);

        let mut next = Wishes::new(settings(), folder.path()).unwrap();
        next.take_in(&[put(node("n2")), put(service("web", "u1"))], false, true);
        assert_eq!(
            servers(&next, "web"),
            ["n1", "n2"],
            "n1 may be in the file that can't be read"
        );
        next.remember().unwrap();
        let changed = next.take_in(&[], true, true);
        assert_eq!(servers(&next, "web"), ["n2"], "it is in none");
        assert!(changed.completed && changed.affected.contains(&key("web")));

        let changed = next.take_in(&[remove(&node("n2"))], false, true);
        assert_eq!(
            servers(&next, "web"),
            Vec::<String>::new(),
            "what a source says is gone is gone"
        );
        assert!(changed.affected.contains(&key("web")));
    }

    #[test]
    fn a_uid_has_one_owner_and_goes_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut wishes = Wishes::new(settings(), folder.path()).unwrap();
        wishes.take_in(&[put(service("web", "u1")), put(service("web2", "u1"))], true, true);
        assert!(wishes.wish(&key("web")).unwrap().is_ok());
        let error = wishes.wish(&key("web2")).unwrap().unwrap_err();
        assert!(
            error.contains("service `default/web2`") && error.contains("service `default/web`"),
            "{error}"
        );

        let changed = wishes.take_in(&[remove(&service("web", "u1"))], true, true);
        assert!(changed.affected.contains(&key("web2")));
        assert!(wishes.wish(&key("web2")).unwrap().is_ok());
        assert_eq!(wishes.owner("u1"), Some(&key("web2")));
    }

    #[test]
    fn a_source_that_is_empty_takes_nothing_away_and_nodes_that_are_missing_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let mut wishes = Wishes::new(settings(), folder.path()).unwrap();
        let looked = wishes.take_in(&[], true, true);
        assert!(looked.is_empty && !looked.completed && !wishes.is_complete());
        let looked = wishes.take_in(&[put(service("web", "u1"))], true, true);
        assert!(
            !looked.is_empty && looked.completed && looked.notes.len() == 1,
            "{:?}",
            looked.notes
        );
        let looked = wishes.take_in(&[put(node("n1"))], true, true);
        assert_eq!(looked.notes, Vec::<String>::new());
        let looked = wishes.take_in(&[remove(&node("n1"))], true, true);
        assert_eq!(looked.notes.len(), 1, "{:?}", looked.notes);

        let mut new = Wishes::new(settings(), folder.path()).unwrap();
        assert!(new.take_in(&[], true, false).completed, "there is nothing to lose");
    }
}
