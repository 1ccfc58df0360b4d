//! The name of a Kubernetes object.

use std::fmt;
use std::str::FromStr;

use trueup_sources::{Kind, ObjectRef};

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
    pub fn of_kind(&self, kind: Kind) -> ObjectRef {
        ObjectRef::new(kind, &*self.namespace, &*self.name)
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
        let namespace = reference.namespace.clone();
        let name = reference.name.clone();
        Self { namespace, name }
    }
}
