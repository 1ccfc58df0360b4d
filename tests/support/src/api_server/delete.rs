//! Deletion of objects: preconditions, finalizers, and dependents.
//!
//! Knows no HTTP. The time is an argument.
//!
//! ```text
//! delete -> preconditions? -> finalizers? -> put (with deletionTimestamp) | gone
//! gone   -> remove -> what it owned, likewise -> its namespace, if that waited for this
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds::{self, Trait};
use super::store::{Key, Store};
use super::write::{Place, Terms, expect_same, seconds};

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletion {
    /// It must still be this object.
    pub uid: Option<String>,
    /// It must still be as it was.
    pub version: Option<String>,
    /// Keeps what it owns.
    pub orphan: bool,
    /// In seconds; 0 is at once.
    pub grace_s: Option<u64>,
}

/// The outcome of a deletion.
#[derive(Clone, Debug)]
pub(super) struct Deleted {
    pub object: Arc<Value>,
    /// It is gone; otherwise it waits for its finalizers.
    pub gone: bool,
}

/// Deletes an object, or marks it as deleted if finalizers hold it.
pub(super) fn delete(
    store: &mut Store,
    place: Place<'_>,
    deletion: &Deletion,
    terms: Terms<'_>,
) -> Result<Deleted, Failure> {
    let key = Key::new(place.kind, place.namespace, place.name);
    let Some(old) = store.get(&key).cloned() else {
        return Err(Failure::not_found(place.kind, place.name));
    };
    expect_same(
        place.kind,
        place.name,
        &old,
        deletion.uid.as_deref(),
        deletion.version.as_deref(),
    )?;
    if terms.dry_run {
        return Ok(Deleted {
            gone: !waits(&old),
            object: old,
        });
    }
    if deletion.orphan {
        store.orphaning.insert(key.clone());
    }
    // The kubelet that ends a Pod is very fast here: the Pod first shows as terminating, and then it is gone.
    let on_node = place.kind.plural == "pods" && !old["spec"]["nodeName"].is_null() && deletion.grace_s != Some(0);
    let is_namespace = place.kind.plural == "namespaces";
    if !waits(&old) && !on_node && !is_namespace {
        let object = gone(store, &key, None, terms.now);
        return Ok(Deleted { object, gone: true });
    }
    let mut object = old;
    if object["metadata"]["deletionTimestamp"].is_null() {
        let mut marked = Value::clone(&object);
        let grace_s = if on_node { deletion.grace_s.unwrap_or(30) } else { 0 };
        marked["metadata"]["deletionTimestamp"] = json!(seconds(terms.now));
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace_s);
        if place.kind.has(Trait::Generation) {
            marked["metadata"]["generation"] = json!(marked["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        if is_namespace {
            marked["status"]["phase"] = json!("Terminating");
        }
        object = store.put(key.clone(), marked);
    }
    if is_namespace {
        empty_namespace(store, place.name, terms);
        return Ok(Deleted { object, gone: false });
    }
    if on_node && !waits(&object) {
        let object = gone(store, &key, None, terms.now);
        return Ok(Deleted { object, gone: true });
    }
    Ok(Deleted { object, gone: false })
}

/// Whether finalizers hold an object.
pub(super) fn waits(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Removes an object, then what it owned, then its namespace if that waited for this.
pub(super) fn gone(store: &mut Store, key: &Key, last: Option<Value>, now: Timestamp) -> Arc<Value> {
    let orphan = store.orphaning.contains(key);
    let Some(object) = store.remove(key, last) else {
        return Arc::new(Value::Null);
    };
    let terms = Terms {
        dry_run: false,
        manager: "",
        now,
    };
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    for owned in if orphan { Vec::new() } else { store.owned_by(uid) } {
        let owners = store
            .get(&owned)
            .map(|object| object["metadata"]["ownerReferences"].clone());
        let only = owners
            .as_ref()
            .and_then(Value::as_array)
            .is_some_and(|owners| owners.len() == 1);
        if only {
            delete_key(store, &owned, terms);
        }
    }
    let namespace = Key::new(kinds::named("namespaces"), "", &key.namespace);
    let ending = store
        .get(&namespace)
        .is_some_and(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null());
    if ending && store.in_namespace(&key.namespace).is_empty() {
        store.remove(&namespace, None);
    }
    object
}

fn empty_namespace(store: &mut Store, name: &str, terms: Terms<'_>) {
    for key in store.in_namespace(name) {
        delete_key(store, &key, terms);
    }
    if store.in_namespace(name).is_empty() {
        store.remove(&Key::new(kinds::named("namespaces"), "", name), None);
    }
}

fn delete_key(store: &mut Store, key: &Key, terms: Terms<'_>) {
    let Some(kind) = store.get(key).and_then(|object| kinds::of_object(object)) else {
        return;
    };
    let place = Place {
        kind,
        namespace: &key.namespace,
        name: &key.name,
        status: false,
    };
    // An object that is already gone needs no deletion, and there are no preconditions, so this can't fail.
    _ = delete(store, place, &Deletion::default(), terms);
}
