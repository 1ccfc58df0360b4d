//! Objects without HTTP: a test creates, changes, reads and deletes them directly.
//!
//! Follows the same rules as HTTP; the log of requests does not show it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{self, Deletion};
use super::failure::Failure;
use super::store::Key;
use super::write::{self, Patch, Place, Terms};
use super::{ApiServer, TEST, events, kinds};

/// Objects, without HTTP.
impl ApiServer {
    /// Creates an object, with its status if it has one.
    ///
    /// # Errors
    ///
    /// The error that a client would get.
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

    /// Creates an object, or merges it into the existing one (RFC 7386: maps are merged, lists replaced, null removes),
    /// with its status. A `resourceVersion` in it is a condition.
    ///
    /// # Errors
    ///
    /// The error that a client would get.
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

    /// An object of a resource such as `services`. The namespace is empty for kinds without one.
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

    /// Deletes an object, like `kubectl delete` without waiting. True if it is gone, false if finalizers hold it.
    ///
    /// # Errors
    ///
    /// The error that a client would get.
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

/// Namespace and name. The namespace of a namespaced kind is `default` if the object names none.
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
