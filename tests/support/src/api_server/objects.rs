//! Objects without HTTP: what a test itself makes, changes, reads and deletes.
//!
//! By the same rules as over HTTP; nothing of it is in the log of requests.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{self, Deletion};
use super::failure::Failure;
use super::store::Key;
use super::write::{self, Patch, Place, Terms};
use super::{ApiServer, TEST, events, kinds};

/// Objects, without HTTP.
impl ApiServer {
    /// Creates an object. Its status, if it has one, is kept.
    ///
    /// # Errors
    ///
    /// What a client would be told.
    pub fn create(&self, object: Value) -> Result<Value, Failure> {
        let kind = kind_of(&object)?;
        let (namespace, name) = place_of(&object, kind);
        let status = object["status"].clone();
        self.shared.write(TEST, |store| {
            let created = write::create(store, kind, &namespace, object, terms())?;
            if status.is_null() || !kind.has(kinds::Trait::Status) {
                return Ok(events::shown(kind, &created.object));
            }
            let name = created.object["metadata"]["name"].as_str().unwrap_or(&name).to_owned();
            let place = Place {
                kind,
                namespace: &namespace,
                name: &name,
                status: true,
            };
            let changed = write::patch(store, place, Patch::Merge(json!({ "status": status })), terms())?;
            Ok(events::shown(kind, &changed.object))
        })
    }

    /// Creates an object, or merges it into the one that is there (RFC 7386: maps are merged, lists replaced, null removes);
    /// status too. A `resourceVersion` in it is a condition.
    ///
    /// # Errors
    ///
    /// What a client would be told.
    pub fn apply(&self, object: Value) -> Result<Value, Failure> {
        let kind = kind_of(&object)?;
        let (namespace, name) = place_of(&object, kind);
        if self.shared.store().get(&Key::new(kind, &namespace, &name)).is_none() {
            return self.create(object);
        }
        let place = |status| Place {
            kind,
            namespace: &namespace,
            name: &name,
            status,
        };
        let status = object["status"].clone();
        self.shared.write(TEST, |store| {
            let mut done = write::patch(store, place(false), Patch::Merge(object), terms())?;
            if !status.is_null() && kind.has(kinds::Trait::Status) {
                done = write::patch(store, place(true), Patch::Merge(json!({ "status": status })), terms())?;
            }
            Ok(events::shown(kind, &done.object))
        })
    }

    /// An object of a resource such as `services`; the namespace of what has none is empty.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = Key::new(kinds::named(resource), namespace, name);
        self.shared.store().get(&key).map(|object| Value::clone(object))
    }

    /// All objects of a resource, by namespace and name.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        let store = self.shared.store();
        store
            .list(kinds::named(resource), None)
            .map(|(_, object)| Value::clone(object))
            .collect()
    }

    /// Deletes an object, as `kubectl delete` does without waiting. True if it is gone, false if finalizers hold it.
    ///
    /// # Errors
    ///
    /// What a client would be told.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<bool, Failure> {
        let place = Place {
            kind: kinds::named(resource),
            namespace,
            name,
            status: false,
        };
        let deleted = self.shared.write(TEST, |store| {
            delete::delete(store, place, &Deletion::default(), terms())
        })?;
        Ok(deleted.gone)
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.shared.store().version()
    }
}

fn terms() -> Terms<'static> {
    Terms {
        dry_run: false,
        manager: TEST,
        now: Timestamp::now(),
    }
}

fn kind_of(object: &Value) -> Result<&'static kinds::Kind, Failure> {
    kinds::of_object(object).ok_or_else(|| {
        Failure::bad_request(format!(
            "no kind is called {} in {}",
            object["kind"], object["apiVersion"]
        ))
    })
}

/// Namespace and name; who is in no namespace, but should be, is in `default`.
fn place_of(object: &Value, kind: &kinds::Kind) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let namespace = text("namespace");
    let namespace = if kind.namespaced && namespace.is_empty() {
        "default".to_owned()
    } else {
        namespace
    };
    (namespace, text("name"))
}
