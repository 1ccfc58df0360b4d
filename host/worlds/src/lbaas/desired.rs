//! The desired state of each key, as the source says it now: objects through the adapter, plus what a single look at
//! the source can't show.
//!
//! Two things are kept beyond the objects. Servers are remembered over restarts, and replace Nodes that can't be read
//! yet: a broken file must not remove every Service's servers. And each UID has one owner: two Services with one UID
//! would each take the other's objects for their own.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use trueup_capabilities::lbaas::anexia::Owned;
use trueup_sources::{Change, Completeness, Kind, Missing, Object, ObjectRef, Objects, Source};
use trueup_work::decisions::{ChangedNodes, ChangedObject, Input};
use trueup_work::files;
use trueup_work::keyed::SourceChanges;

use super::known::{self, KnownKeys, Locations};
use crate::claims::Claims;
use crate::lbaas::adapter::{self, Key, Servers, Settings};
use crate::lbaas::guest::{Desired, Target};

/// The file in the state folder that holds the servers of the last complete look.
const SERVERS_FILE: &str = "servers.json";

/// Every Service, and what load balancers should do for it.
pub(crate) struct DesiredState {
    pub(super) settings: Settings,
    file: PathBuf,
    objects: Objects,
    /// The servers that load balancers may send traffic to now.
    servers: Servers,
    /// The servers of the last complete look before this process.
    remembered: Vec<Target>,
    /// Whether a look of this process was complete. From then on, remembered servers no longer replace missing Nodes.
    was_complete: bool,
    pub(super) completeness: Completeness,
    /// The Services that carry each UID.
    owners: Claims<Key>,
    /// The servers differ from those in the file.
    unsaved: bool,
    /// The servers are never written: this is a plan.
    is_unwritten: bool,
}

impl DesiredState {
    /// Starts without desired state. Reads the servers that `state_dir` remembers. `known`: the keys whose objects
    /// carry a UID keep it. A plan remembers nothing for the next process.
    ///
    /// # Errors
    /// If they can't be read. The error names the file, and what to do.
    pub(crate) fn new(
        settings: Settings,
        source: &Source,
        state_dir: &Path,
        known: &KnownKeys,
        plans: bool,
    ) -> io::Result<Self> {
        let file = state_dir.join(SERVERS_FILE);
        let remembered = files::read_json(&file).map_err(|error| {
            let next = "remove it: the servers of manifests that can't be read now go";
            io::Error::other(format!("{error}; {next}"))
        })?;
        Ok(Self {
            settings,
            file,
            objects: Objects::default(),
            servers: Servers::default(),
            remembered: remembered.unwrap_or_default(),
            was_complete: false,
            completeness: Completeness::of(source),
            owners: Claims::new(known::owned_uids(known)),
            unsaved: false,
            is_unwritten: plans,
        })
    }

    /// Takes in which objects exist but can't be read. Returns the keys for which that changed.
    pub(crate) fn take_in_unreadable(&mut self, unreadable: &Arc<BTreeSet<ObjectRef>>) -> BTreeSet<Key> {
        let differ = self.completeness.take_in_unreadable(unreadable).into_iter();
        let services = differ.filter(|reference| reference.kind == Kind::Service);
        services.map(|reference| Key::from(&reference)).collect()
    }

    /// Takes in a look at the source. `has_keys`: there are objects to lose.
    ///
    /// A source without a single object, or without a Node, counts as unavailable if there is something to lose: see
    /// [`Completeness`]. (A cluster without any Node and Service is another one than that of the keys, or a restored
    /// one; and a Service with our finalizer can't be missed.)
    ///
    /// The cost of one changed Service does not depend on how many there are.
    pub(crate) fn take_in(&mut self, changes: &[Change], complete: bool, has_keys: bool) -> SourceChanges<Key> {
        let mut affected = BTreeSet::new();
        let (mut seen, mut nodes) = (Vec::new(), ChangedNodes::default());
        let mut is_about_servers = false;
        for change in changes {
            self.completeness.see(change);
            // Until everything was read once, a Node that appears replaces the remembered one.
            let is_new = !self.was_complete && change.reference.kind == Kind::Node;
            let concerns_servers = adapter::concerns_servers(change, &self.objects);
            is_about_servers |= is_new || concerns_servers;
            let mut keys = Vec::new();
            if adapter::affects_key(change, &self.objects) {
                keys.push(Key::from(&change.reference));
            }
            if matches!(&change.now, Some(Object::Service(service)) if self.is_left_over(service)) {
                keys.push(Key::from(&change.reference));
            }
            let before = self.objects.apply(change);
            keys.extend(self.move_uid(change, before.as_ref()));
            if concerns_servers {
                nodes.see(change, before.as_ref());
            }
            if !keys.is_empty() {
                affected.extend(keys.iter().cloned());
                let input = Input::of(change, before.as_ref());
                seen.push(ChangedObject { input, keys });
            }
        }
        let objects = has_keys.then_some(self.objects.len());
        let shown_nodes = (!self.remembered.is_empty()).then(|| self.objects.count(Kind::Node));
        let Missing { all, nodes: no_nodes } = self.completeness.end_look(complete, objects, shown_nodes);
        let is_missed = complete && no_nodes;
        let complete = self.completeness.is_complete();
        let had_targets = !self.servers.targets.is_empty();
        let mut notes = Vec::new();
        if is_about_servers || self.completeness.completed() || (no_nodes && !had_targets) {
            self.was_complete |= complete;
            let was = std::mem::replace(&mut self.servers, adapter::servers(&self.objects));
            self.add_remembered_servers(no_nodes);
            if self.servers.targets == was.targets {
                nodes = ChangedNodes::default();
            } else {
                affected.extend(adapter::ours(&self.objects));
            }
            let new_notes = self.servers.notes.iter().filter(|note| !was.notes.contains(note));
            notes.extend(new_notes.cloned());
            self.unsaved = true;
        }
        if self.was_complete {
            self.owners.settle();
        }
        let has_services = self.objects.services().next().is_some();
        let looked_at_nodes = had_targets || is_about_servers || self.completeness.completed();
        if self.servers.targets.is_empty() && has_services && looked_at_nodes {
            notes.push("no Node is ready and open to load balancers: Services are left without servers".to_owned());
        }
        SourceChanges {
            affected,
            held: Vec::new(),
            seen,
            nodes,
            notes,
            is_empty: all,
            no_nodes: is_missed,
            complete,
            objects: self.objects.counts(),
        }
    }

    /// Whether a Service is no longer ours while its objects may exist.
    fn is_left_over(&self, service: &Service) -> bool {
        self.completeness.is_cluster() && adapter::is_claimed(service) && !adapter::is_ours(service)
    }

    /// The Services that this host no longer manages, but whose finalizer says that their objects may exist.
    pub(crate) fn left_over(&self) -> BTreeSet<Key> {
        let left_over = self
            .objects
            .services()
            .filter(|(_, service)| self.is_left_over(service));
        left_over.map(|(reference, _)| Key::from(reference)).collect()
    }

    /// Where objects of a key may exist: where this host is known to have created some, and, for a Service that it no
    /// longer manages, where the finalizer says so. The latter holds even if this host never saw the Service.
    pub(crate) fn locations(&self, known: &KnownKeys, key: &Key) -> Locations {
        let mut locations = known::locations(known, key);
        if let Some(uid) = self.left_over_uid(key) {
            let on = locations.entry(uid).or_default();
            on.extend(self.settings.load_balancers.iter().cloned());
        }
        locations
    }

    /// The UID of a Service that this host no longer manages, but whose finalizer says that its objects may exist.
    fn left_over_uid(&self, key: &Key) -> Option<String> {
        let service = self.objects.service(&key.namespace, &key.name)?;
        service.metadata.uid.clone().filter(|_| self.is_left_over(service))
    }

    /// The UIDs of the source's Services.
    pub(crate) fn uids(&self) -> impl Iterator<Item = String> {
        let services = self.objects.services();
        services.map(|(reference, service)| adapter::uid(&Key::from(reference), service, &self.settings))
    }

    /// How to find the objects of a key at the Engine: by name, where they should be and where some were created.
    pub(crate) fn owned(&self, key: &Key, locations: &Locations) -> Owned {
        let load_balancers = self.settings.load_balancers.iter().chain(locations.values().flatten());
        let desired = self.desired(key).and_then(Result::ok);
        let uid = desired.map(|desired| desired.service_uid);
        Owned {
            name_suffix: adapter::name_suffix(key, &self.settings),
            service_uid: uid.or_else(|| self.left_over_uid(key)),
            load_balancers: load_balancers.cloned().collect(),
        }
    }

    /// Whether a key that is not desired is gone: everything was read, and the source would show it if it existed.
    pub(crate) fn is_gone(&self, key: &Key) -> bool {
        self.completeness.is_gone(&key.of_kind(Kind::Service))
    }

    /// Remembers the servers of a complete look for the next process.
    ///
    /// # Errors
    /// If they can't be written.
    pub(crate) fn remember(&mut self) -> io::Result<()> {
        if !self.completeness.is_complete() || !self.unsaved || self.is_unwritten {
            return Ok(());
        }
        if self.remembered != self.servers.targets {
            files::replace_json(&self.file, &self.servers.targets)?;
            self.remembered.clone_from(&self.servers.targets);
        }
        self.unsaved = false;
        Ok(())
    }

    /// Until everything could be read once, and while there is no Node at all, remembered servers replace missing
    /// Nodes.
    fn add_remembered_servers(&mut self, no_nodes: bool) {
        if self.was_complete && !no_nodes {
            return;
        }
        let nodes = self.objects.nodes();
        let read: BTreeSet<&String> = nodes.filter_map(|node| node.metadata.name.as_ref()).collect();
        let missing = self.remembered.iter().filter(|target| !read.contains(&target.name));
        self.servers.targets.extend(missing.cloned());
        self.servers.targets.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Moves a Service's UID to its new owners. Returns the other keys that this affects.
    fn move_uid(&mut self, change: &Change, before: Option<&Object>) -> BTreeSet<Key> {
        if change.reference.kind != Kind::Service {
            return BTreeSet::new();
        }
        let uid = |object: &Object| object.metadata().uid.clone();
        let (was, now) = (before.and_then(uid), change.now.as_ref().and_then(uid));
        let key = Key::from(&change.reference);
        // Only a copy in manifests has the UID of another Service, and manifests do not say when it was created.
        self.owners
            .change(&key, None, &was.into_iter().collect(), &now.into_iter().collect())
    }

    /// The key whose objects carry `uid`. `None` if no Service has it.
    pub(crate) fn owner(&self, uid: &str) -> Option<&Key> {
        self.owners.owner(uid)
    }

    /// The desired state of one key, or why it can't be computed. `None` if there is no such Service for load
    /// balancers.
    pub(crate) fn desired(&self, key: &Key) -> Option<Result<Desired, String>> {
        let desired = adapter::desired(&self.objects, key, &self.servers, &self.settings)?;
        Some(desired.and_then(|desired| match self.owner(&desired.service_uid) {
            Some(owner) if owner != key => {
                let uid = &desired.service_uid;
                Err(format!(
                    "service `{key}`: metadata.uid {uid} is that of service `{owner}`: remove it, or give it one of its own"
                ))
            }
            _ => Ok(desired),
        }))
    }

    /// Every key that is desired, whether or not its desired state is possible.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        adapter::ours(&self.objects).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Service};
    use serde_json::json;

    use super::*;

    fn settings() -> Settings {
        let settings =
            json!({"cluster": "c1", "load_balancers": ["lb-1"], "addresses": ["192.0.2.1"], "backoff_steps": 30});
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

    fn none(folder: &Path) -> KnownKeys {
        KnownKeys::load(&folder.join("no keys")).unwrap()
    }

    fn servers(state: &DesiredState, name: &str) -> Vec<String> {
        state
            .desired(&key(name))
            .unwrap()
            .unwrap()
            .servers
            .into_iter()
            .map(|server| server.name)
            .collect()
    }

    fn of_files(folder: &Path) -> DesiredState {
        DesiredState::new(
            settings(),
            &Source::Manifests(folder.to_owned()),
            folder,
            &none(folder),
            false,
        )
        .unwrap()
    }

    #[test]
    fn servers_of_nodes_that_cannot_be_read_stand_in_until_everything_can() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = of_files(folder.path());
        first.take_in(
            &[put(node("n1")), put(node("n2")), put(service("web", "u1"))],
            true,
            true,
        );
        first.remember().unwrap();
        assert_eq!(servers(&first, "web"), ["n1", "n2"]);

        let mut next = of_files(folder.path());
        next.take_in(&[put(node("n2")), put(service("web", "u1"))], false, true);
        assert_eq!(
            servers(&next, "web"),
            ["n1", "n2"],
            "n1 may be in the file that can't be read"
        );
        next.remember().unwrap();
        let changed = next.take_in(&[], true, true);
        assert_eq!(servers(&next, "web"), ["n2"], "it is in none");
        assert!(next.completeness.completed() && changed.affected.contains(&key("web")));

        let changed = next.take_in(&[put(node("n3")), remove(&node("n2"))], false, true);
        assert_eq!(servers(&next, "web"), ["n3"], "what a source says is gone is gone");
        assert!(changed.affected.contains(&key("web")));
    }

    #[test]
    fn a_uid_has_one_owner_and_goes_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = of_files(folder.path());
        state.take_in(&[put(service("web", "u1")), put(service("web2", "u1"))], true, true);
        assert!(state.desired(&key("web")).unwrap().is_ok());
        let error = state.desired(&key("web2")).unwrap().unwrap_err();
        assert!(
            error.contains("service `default/web2`") && error.contains("service `default/web`"),
            "{error}"
        );

        let changed = state.take_in(&[remove(&service("web", "u1"))], true, true);
        assert!(changed.affected.contains(&key("web2")));
        assert!(state.desired(&key("web2")).unwrap().is_ok());
        assert_eq!(state.owner("u1"), Some(&key("web2")));
    }

    #[test]
    fn an_empty_source_removes_nothing_and_missing_nodes_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = of_files(folder.path());
        let looked = state.take_in(&[], true, true);
        assert!(looked.is_empty && !state.completeness.completed() && !state.completeness.is_complete());
        let looked = state.take_in(&[put(service("web", "u1"))], true, true);
        assert!(
            !looked.is_empty && state.completeness.completed() && looked.notes.len() == 1,
            "{:?}",
            looked.notes
        );
        let looked = state.take_in(&[put(node("n1"))], true, true);
        assert_eq!(looked.notes, Vec::<String>::new());
        let looked = state.take_in(&[remove(&node("n1"))], true, true);
        assert_eq!(looked.notes.len(), 1, "{:?}", looked.notes);

        let mut new = of_files(folder.path());
        new.take_in(&[], true, false);
        assert!(new.completeness.completed(), "there is nothing to lose");
    }

    fn in_cluster(folder: &Path, namespaces: &[&str]) -> DesiredState {
        let source = Source::Kubernetes(trueup_sources::kubernetes::Settings {
            namespaces: namespaces.iter().map(|&namespace| namespace.to_owned()).collect(),
            ..Default::default()
        });
        DesiredState::new(settings(), &source, folder, &none(folder), false).unwrap()
    }

    /// A Service with our finalizer that is no longer a load balancer.
    fn left_over(name: &str, uid: &str) -> Object {
        let Object::Service(service) = service(name, uid) else {
            panic!()
        };
        let mut service = (*service).clone();
        service.metadata.finalizers = Some(vec!["example.com/other".to_owned(), adapter::FINALIZER.to_owned()]);
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
        Object::Service(Arc::new(service))
    }

    #[test]
    fn a_finalizer_says_where_objects_may_be_to_a_new_host() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownKeys::load(folder.path()).unwrap();
        let mut state = in_cluster(folder.path(), &[]);
        let looked = state.take_in(&[put(left_over("web", "u1")), put(service("api", "u2"))], true, false);
        assert_eq!(looked.affected, [key("web"), key("api")].into());
        assert_eq!(state.left_over(), [key("web")].into());
        let locations = state.locations(&known, &key("web"));
        assert_eq!(locations, [("u1".to_owned(), ["lb-1".to_owned()].into())].into());
        assert!(state.desired(&key("web")).is_none() && state.is_gone(&key("web")));
        assert_eq!(state.locations(&known, &key("api")), Locations::new());

        let mut from_files = of_files(folder.path());
        let looked = from_files.take_in(&[put(left_over("web", "u1"))], true, false);
        assert!(looked.affected.is_empty(), "a file's finalizers mean nothing");
    }

    #[test]
    fn a_cluster_empty_at_the_start_removes_nothing_and_an_emptied_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = in_cluster(folder.path(), &[]);
        let looked = state.take_in(&[], true, true);
        assert!(looked.is_empty && !state.is_gone(&key("web")));
        let looked = state.take_in(&[put(service("web", "u1"))], true, true);
        assert!(!looked.is_empty && state.completeness.completed());
        let looked = state.take_in(&[remove(&service("web", "u1"))], true, true);
        assert!(!looked.is_empty && state.is_gone(&key("web")), "somebody watched it go");
    }

    #[test]
    fn what_is_not_looked_at_or_can_not_be_read_is_not_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = in_cluster(folder.path(), &["default"]);
        state.take_in(&[put(node("n1"))], true, true);
        let elsewhere = Key {
            namespace: "other".into(),
            name: "web".into(),
        };
        assert!(
            state.is_gone(&key("web")) && !state.is_gone(&elsewhere) && !state.completeness.shows(&elsewhere.namespace)
        );

        let unreadable = Arc::new([key("web").of_kind(Kind::Service)].into());
        assert_eq!(state.take_in_unreadable(&unreadable), [key("web")].into());
        assert!(!state.is_gone(&key("web")) && state.is_gone(&key("api")));
        assert_eq!(state.take_in_unreadable(&unreadable), BTreeSet::new());
        assert_eq!(state.take_in_unreadable(&Arc::default()), [key("web")].into());
        assert!(state.is_gone(&key("web")));
    }

    #[test]
    fn a_node_that_only_says_that_it_lives_and_a_pod_concern_no_service() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = in_cluster(folder.path(), &[]);
        state.take_in(&[put(node("n1")), put(service("web", "u1"))], true, false);
        state.remember().unwrap();
        let Object::Node(beaten) = node("n1") else { panic!() };
        let mut beaten = (*beaten).clone();
        beaten.metadata.resource_version = Some("2".to_owned());
        let pod = k8s_openapi::api::core::v1::Pod::default();
        let changes = [put(Object::Node(Arc::new(beaten))), put(Object::Pod(Arc::new(pod)))];
        assert!(state.take_in(&changes, true, false).affected.is_empty());
        assert!(!state.unsaved, "nothing to write down");
        let looked = state.take_in(&[put(node("n2"))], true, false);
        assert_eq!(looked.affected, [key("web")].into());
    }

    #[test]
    fn servers_stay_while_there_is_no_node_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = of_files(folder.path());
        state.take_in(&[put(node("n1")), put(service("web", "u1"))], true, false);
        state.remember().unwrap();
        let servers = |state: &DesiredState| state.desired(&key("web")).unwrap().unwrap().servers.len();
        let looked = state.take_in(&[remove(&node("n1"))], true, true);
        assert!(looked.no_nodes && !looked.is_empty && !state.completeness.is_complete());
        assert_eq!((servers(&state), looked.affected), (1, BTreeSet::new()));

        let mut next = of_files(folder.path());
        assert!(next.take_in(&[put(service("web", "u1"))], true, true).no_nodes);
        assert_eq!(servers(&next), 1, "at the start as well");
        let looked = next.take_in(&[put(node("n2"))], true, true);
        assert!(!looked.no_nodes && next.completeness.completed());
        assert_eq!(next.desired(&key("web")).unwrap().unwrap().servers[0].name, "n2");

        let mut watched = in_cluster(folder.path(), &[]);
        watched.take_in(&[put(node("n1")), put(service("web", "u1"))], true, true);
        assert!(
            !watched.take_in(&[remove(&node("n1"))], true, true).no_nodes,
            "it was watched as it went"
        );
    }
}
