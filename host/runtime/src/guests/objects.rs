//! Shared by the adapters: the name of a Kubernetes object, and the slices of each Service.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use trueup_sources::{Kind, ObjectRef};

/// The Kubernetes label of an EndpointSlice that names its Service.
pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// An object by namespace and name. In order, the objects of a namespace are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Id {
    /// The object of this kind with this name.
    pub(crate) fn of_kind(&self, kind: Kind) -> ObjectRef {
        ObjectRef {
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for Id {
    /// `shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for Id {
    type Err = String;

    /// Parses that text.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!(
                "was `{}`, must be NAMESPACE/NAME, such as `shop/web-0`",
                text.escape_debug()
            )),
        }
    }
}

impl From<&ObjectRef> for Id {
    fn from(reference: &ObjectRef) -> Self {
        Self {
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        }
    }
}

/// The Service that a slice belongs to. `None` if its label names none.
pub(crate) fn service_of(id: &Id, slice: &EndpointSlice) -> Option<Id> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_LABEL)?;
    (!name.is_empty()).then(|| Id {
        namespace: id.namespace.clone(),
        name: name.clone(),
    })
}

/// The slices of each Service. The Service itself may not exist.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slices<S> {
    /// By name.
    of: BTreeMap<Id, BTreeMap<String, S>>,
    /// The Service of each slice.
    service_of: BTreeMap<Id, Id>,
}

impl<S> Default for Slices<S> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            service_of: BTreeMap::new(),
        }
    }
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
