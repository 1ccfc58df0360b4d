//! Creation and change of objects, by the rules for all kinds.
//!
//! Knows no HTTP. The time is an argument.
//!
//! ```text
//! create ---------------------------------------------> admit -> put
//! replace, patch -> versions agree? -> keep identity -> admit -> put | remove (deleted, last finalizer gone)
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{gone, waits};
use super::failure::{Cause, Failure};
use super::kinds::{self, Kind, Trait};
use super::store::{Key, Store};
use super::{admit, events, patch};

/// Which object, or its status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub kind: &'static Kind,
    /// Empty for kinds without a namespace.
    pub namespace: &'a str,
    pub name: &'a str,
    /// True if the request is about the status alone.
    pub status: bool,
}

/// The options of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    /// Return the result without a change.
    pub dry_run: bool,
    /// The manager of a server-side apply.
    pub manager: &'a str,
    /// The time for timestamps.
    pub now: Timestamp,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The new object, in the form of its stored kind.
    pub object: Arc<Value>,
    /// True if it did not exist before.
    pub created: bool,
}

/// A patch and its kind.
#[derive(Clone, Debug)]
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// Creates an object in a namespace.
pub(super) fn create(
    store: &mut Store,
    kind: &'static Kind,
    namespace: &str,
    body: Value,
    terms: Terms<'_>,
) -> Result<Written, Failure> {
    let mut object = read(kind, namespace, body)?;
    let meta = &mut object["metadata"];
    if meta["resourceVersion"]
        .as_str()
        .is_some_and(|version| !version.is_empty())
    {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let uid = store.next_uid();
    if meta["name"].as_str().is_none_or(str::is_empty)
        && let Some(prefix) = meta["generateName"].as_str()
    {
        meta["name"] = json!(format!("{prefix}{}", &uid[uid.len() - 5..]));
    }
    let name = meta["name"].as_str().unwrap_or_default().to_owned();
    if let Some(failure) = namespace_fault(store, kind, namespace, &name) {
        return Err(failure);
    }
    let key = Key::new(kind, namespace, &name);
    if store.get(&key).is_some() {
        return Err(Failure::already_exists(kind, &name));
    }
    if let Some(fields) = meta.as_object_mut() {
        for server_owned in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
            "generation",
        ] {
            fields.remove(server_owned);
        }
    }
    meta["uid"] = json!(uid);
    meta["creationTimestamp"] = json!(seconds(terms.now));
    if kind.has(Trait::Generation) {
        meta["generation"] = json!(1);
    }
    admit::new_event(kind, &object)?;
    let mut object = events::kept(kind, object);
    admit::object(store, kind.stored(), &mut object, None)?;
    let object = typed(kind.stored(), object)?;
    let object = if terms.dry_run {
        Arc::new(object)
    } else {
        store.put(key, object)
    };
    Ok(Written { object, created: true })
}

/// Replaces an object, or its status.
pub(super) fn replace(store: &mut Store, place: Place<'_>, body: Value, terms: Terms<'_>) -> Result<Written, Failure> {
    let key = Key::new(place.kind, place.namespace, place.name);
    let mut body = read(place.kind, place.namespace, body)?;
    let named = body["metadata"]["name"].as_str().unwrap_or_default();
    if named != place.name {
        let message = format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            place.name
        );
        return Err(Failure::bad_request(message));
    }
    let Some(old) = store.get(&key).cloned() else {
        if place.kind.has(Trait::CreatedByPut) && !place.status {
            body["metadata"]["resourceVersion"] = Value::Null;
            return create(store, place.kind, place.namespace, body, terms);
        }
        return Err(Failure::not_found(place.kind, place.name));
    };
    let unconditional = body["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty);
    if unconditional && place.kind.has(Trait::Conditional) {
        let cause = Cause::invalid(
            "metadata.resourceVersion",
            &json!(""),
            "must be specified for an update",
        );
        return Err(Failure::invalid(place.kind, place.name, &[cause]));
    }
    finish(store, place, key, &old, events::kept(place.kind, body), terms)
}

/// Patches an object, or its status. A server-side apply of a missing object creates it.
pub(super) fn patch(store: &mut Store, place: Place<'_>, patch: Patch, terms: Terms<'_>) -> Result<Written, Failure> {
    let key = Key::new(place.kind, place.namespace, place.name);
    let manager = (
        key.clone(),
        format!("{}{}", terms.manager, if place.status { "/status" } else { "" }),
    );
    let Some(old) = store.get(&key).cloned() else {
        let Patch::Apply(mut wanted) = patch else {
            return Err(Failure::not_found(place.kind, place.name));
        };
        if place.status {
            return Err(Failure::not_found(place.kind, place.name));
        }
        wanted["metadata"]["name"] = json!(place.name);
        let written = create(store, place.kind, place.namespace, wanted.clone(), terms)?;
        if !terms.dry_run {
            store.applied.insert(manager, wanted);
        }
        return Ok(written);
    };
    let mut new = events::shown(place.kind, &old);
    let patched = match &patch {
        Patch::Json(patch) => patch::json(&mut new, patch),
        Patch::Merge(patch) => {
            patch::merge(&mut new, patch);
            Ok(())
        }
        Patch::Strategic(patch) => patch::strategic(&mut new, patch),
        Patch::Apply(wanted) => patch::apply(&mut new, store.applied.get(&manager), wanted),
    };
    patched.map_err(Failure::unprocessable)?;
    let new = events::kept(place.kind, read(place.kind, place.namespace, new)?);
    let written = finish(store, place, key, &old, new, terms)?;
    if let Patch::Apply(wanted) = patch
        && !terms.dry_run
    {
        store.applied.insert(manager, wanted);
    }
    Ok(written)
}

/// The last steps of every change of an object.
fn finish(
    store: &mut Store,
    place: Place<'_>,
    key: Key,
    old: &Arc<Value>,
    mut new: Value,
    terms: Terms<'_>,
) -> Result<Written, Failure> {
    let (kind, name) = (place.kind.stored(), place.name);
    expect_same(
        place.kind,
        name,
        old,
        new["metadata"]["uid"].as_str(),
        new["metadata"]["resourceVersion"].as_str(),
    )?;
    for server_owned in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        new["metadata"][server_owned] = old["metadata"][server_owned].clone();
    }
    if place.status {
        let mut with_status = Value::clone(old);
        with_status["status"] = new["status"].take();
        new = with_status;
        admit::status(kind, &new)?;
    } else {
        if kind.has(Trait::Status) {
            new["status"] = old["status"].clone();
        }
        expect_no_new_finalizers(kind, name, old, &new)?;
        admit::object(store, kind, &mut new, Some(old))?;
    }
    let mut new = typed(kind, new)?;
    if **old == new {
        return Ok(Written {
            object: Arc::clone(old),
            created: false,
        });
    }
    if kind.has(Trait::Generation) && !place.status && !is_same_besides_metadata(old, &new) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
    }
    let ended = !new["metadata"]["deletionTimestamp"].is_null() && !waits(&new);
    let object = if terms.dry_run {
        Arc::new(new)
    } else if ended {
        gone(store, &key, Some(new), terms.now)
    } else {
        store.put(key, new)
    };
    Ok(Written { object, created: false })
}

/// Parses a received object: of the right kind and namespace, with the kind's fields.
fn read(kind: &Kind, namespace: &str, mut object: Value) -> Result<Value, Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request(
            "the object provided is unrecognized (must be of type Object)",
        ));
    }
    for (field, wanted) in [("apiVersion", kind.api_version()), ("kind", kind.kind.to_owned())] {
        match object[field].as_str().filter(|given| !given.is_empty()) {
            None => object[field] = json!(wanted),
            Some(given) if given == wanted => {}
            Some(given) => {
                let what = if field == "kind" { "kind" } else { "API version" };
                let message = format!("the {what} in the data ({given}) does not match the expected {what} ({wanted})");
                return Err(Failure::bad_request(message));
            }
        }
    }
    let mut object = typed(kind, object)?;
    let meta = &mut object["metadata"];
    if kind.namespaced && meta["namespace"].as_str().is_none_or(str::is_empty) {
        meta["namespace"] = json!(namespace);
    }
    if meta["namespace"].as_str().unwrap_or_default() != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    if let Some(fields) = meta.as_object_mut() {
        fields.remove("managedFields");
    }
    Ok(object)
}

fn typed(kind: &Kind, object: Value) -> Result<Value, Failure> {
    (kind.typed)(object).map_err(|error| {
        let (version, name) = (kind.version, kind.kind);
        Failure::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
        ))
    })
}

fn namespace_fault(store: &Store, kind: &Kind, namespace: &str, name: &str) -> Option<Failure> {
    if !kind.namespaced {
        return None;
    }
    let namespaces = kinds::named("namespaces");
    let Some(found) = store.get(&Key::new(namespaces, "", namespace)) else {
        return Some(Failure::not_found(namespaces, namespace));
    };
    let ending = !found["metadata"]["deletionTimestamp"].is_null();
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    ending.then(|| Failure::forbidden(kind, name, &why))
}

pub(super) fn expect_same(
    kind: &Kind,
    name: &str,
    old: &Value,
    uid: Option<&str>,
    version: Option<&str>,
) -> Result<(), Failure> {
    let is = |field: &str| old["metadata"][field].as_str().unwrap_or_default();
    if let Some(uid) = uid.filter(|uid| !uid.is_empty() && *uid != is("uid")) {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            is("uid")
        );
        return Err(Failure::conflict_because(kind, name, &why));
    }
    if version.is_some_and(|version| !version.is_empty() && version != is("resourceVersion")) {
        return Err(Failure::conflict(kind, name));
    }
    Ok(())
}

fn expect_no_new_finalizers(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Failure> {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let of = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = of(old);
    let added: Vec<String> = of(new)
        .iter()
        .filter(|finalizer| !before.contains(finalizer))
        .map(Value::to_string)
        .collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
    let cause = Cause::forbidden(
        "metadata.finalizers",
        &format!("{why} []string{{{}}}", added.join(", ")),
    );
    Err(Failure::invalid(kind, name, &[cause]))
}

fn is_same_besides_metadata(old: &Value, new: &Value) -> bool {
    let besides = |object: &Value| {
        let mut object = object.clone();
        object["metadata"] = json!({ "labels": object["metadata"]["labels"] });
        object["status"] = Value::Null;
        object
    };
    let (mut old, mut new) = (besides(old), besides(new));
    // Only the labels of an EndpointSlice are part of its contents.
    if old["kind"] != "EndpointSlice" {
        (old["metadata"], new["metadata"]) = (Value::Null, Value::Null);
    }
    old == new
}

/// A time in the form of `metav1.Time`.
pub(super) fn seconds(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
