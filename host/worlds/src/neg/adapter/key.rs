//! The key of this world: a port of a Service.

use std::fmt;
use std::str::FromStr;

use trueup_work::objects::Id as ServiceName;

use super::annotation;

/// A port of a Service. It has one instance, and one NEG for each zone and subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// The Service's namespace.
    pub(crate) namespace: String,
    /// The Service's name.
    pub(crate) name: String,
    /// The number of the Service's port.
    pub(crate) port: u16,
}

impl fmt::Display for Key {
    /// `shop/web/80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.name, self.port)
    }
}

impl FromStr for Key {
    type Err = String;

    /// Parses that text.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let key = match parts.as_slice() {
            [namespace, name, port] if !namespace.is_empty() && !name.is_empty() => {
                annotation::port_number(port).map(|port| Self {
                    namespace: (*namespace).to_owned(),
                    name: (*name).to_owned(),
                    port,
                })
            }
            _ => None,
        };
        key.ok_or_else(|| format!("key `{text}`: must be NAMESPACE/SERVICE/PORT, such as `shop/web/80`"))
    }
}

impl Key {
    /// A port of a Service.
    pub(super) fn of(service: &ServiceName, port: u16) -> Self {
        Self {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            port,
        }
    }

    pub(super) fn service(&self) -> ServiceName {
        ServiceName {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}
