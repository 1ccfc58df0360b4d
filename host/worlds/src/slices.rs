//! Shared by the adapters: the slices of each Service.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use trueup_work::objects::Id;

/// The Kubernetes label of an EndpointSlice that names its Service.
pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The Service that a slice belongs to. `None` if its label names none.
pub(crate) fn service_of(id: &Id, slice: &EndpointSlice) -> Option<Id> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_LABEL)?;
    (!name.is_empty()).then(|| Id {
        namespace: id.namespace.clone(),
        name: name.clone(),
    })
}

/// The slices of each Service. The Service itself may not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slices<S> {
    /// By name.
    of: BTreeMap<Id, BTreeMap<String, S>>,
    /// The Service of each slice.
    service_of: BTreeMap<Id, Id>,
}

impl<S> Slices<S> {
    /// The number of slices.
    pub(crate) fn len(&self) -> usize {
        self.service_of.len()
    }

    /// The Service of a slice. `None` if there is no such slice.
    pub(crate) fn service_of(&self, slice: &Id) -> Option<&Id> {
        self.service_of.get(slice)
    }

    /// The slices of a Service by name. `None` if it has none.
    pub(crate) fn of(&self, service: &Id) -> Option<&BTreeMap<String, S>> {
        self.of.get(service)
    }

    /// The slices of all Services that have any, by id.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Id, &BTreeMap<String, S>)> {
        self.of.iter()
    }

    /// Adds a slice that is not there.
    pub(crate) fn insert(&mut self, id: Id, service: Id, slice: S) {
        let slices = self.of.entry(service.clone()).or_default();
        slices.insert(id.name.clone(), slice);
        self.service_of.insert(id, service);
    }

    /// Removes a slice. Returns it with its Service.
    pub(crate) fn remove(&mut self, id: &Id) -> Option<(Id, S)> {
        let service = self.service_of.remove(id)?;
        let slices = self.of.get_mut(&service)?;
        let slice = slices.remove(&id.name);
        if slices.is_empty() {
            self.of.remove(&service);
        }
        Some((service, slice?))
    }
}

/// Builders of the adapters' tests.
#[cfg(test)]
pub(crate) mod testing {
    use serde_json::{Value, json};
    use trueup_sources::{Change, Object};

    /// Applies a JSON merge patch: null removes.
    pub(crate) fn merge(into: &mut Value, patch: Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    if value.is_null() {
                        into.remove(&key);
                    } else {
                        merge(into.entry(key).or_insert_with(|| json!({})), value);
                    }
                }
            }
            (into, patch) => *into = patch,
        }
    }

    /// The object is new or changed.
    pub(crate) fn is(object: Object) -> Change {
        Change {
            reference: object.reference(),
            now: Some(object),
        }
    }

    /// The object is gone.
    pub(crate) fn gone(object: &Object) -> Change {
        Change {
            reference: object.reference(),
            now: None,
        }
    }
}
