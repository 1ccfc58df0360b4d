//! The id of a Kubernetes object, stored once and shared by the indexes that use it.

use std::cmp::Ordering;
use std::rc::Rc;

use serde::{Deserialize, Serialize, Serializer};
use trueup_guest::words;

use crate::bindings::trueup::kube::types::ObjectId;
use crate::bindings::trueup::service::types::ContivService;

/// Ordered by namespace, then name, by their bytes. As JSON the list of the two, which serde reads as a record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ObjectId")]
pub(crate) struct Id(Rc<ObjectId>);

impl Id {
    /// The smallest id; no object in Kubernetes has it.
    pub(crate) fn least() -> Self {
        Self::from(ObjectId {
            namespace: String::new(),
            name: String::new(),
        })
    }

    /// The contract's form.
    pub(crate) fn object(&self) -> &ObjectId {
        &self.0
    }
}

impl From<ObjectId> for Id {
    fn from(id: ObjectId) -> Self {
        Self(Rc::new(id))
    }
}

/// The service with its id, for a map.
pub(crate) fn by_id(service: ContivService) -> (Id, ContivService) {
    (Id::from(service.id.clone()), service)
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.0.namespace, &self.0.name).serialize(serializer)
    }
}

impl Ord for Id {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        crate::counting::count(&crate::counting::COMPARISONS);
        words::compare(&self.0.namespace, &other.0.namespace).then_with(|| words::compare(&self.0.name, &other.0.name))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
