//! The key of this world: a port of a Service.

use std::fmt;
use std::str::FromStr;

use trueup_work::objects::Id as ServiceName;

use super::annotation;

/// A port of a Service. It has one instance, and one NEG for each zone and subnet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The Service.
    pub(crate) service: ServiceName,
    /// The number of the Service's port.
    pub(crate) port: u16,
}

impl fmt::Display for Key {
    /// `shop/web/80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.port)
    }
}

impl FromStr for Key {
    type Err = String;

    /// Parses that text.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = |(service, port): (&str, &str)| {
            Some(Self {
                service: service.parse().ok()?,
                port: annotation::port_number(port)?,
            })
        };
        let key = text.rsplit_once('/').and_then(read);
        key.ok_or_else(|| format!("key `{text}`: must be NAMESPACE/SERVICE/PORT, such as `shop/web/80`"))
    }
}

impl Key {
    /// The key of this port of a Service.
    pub(super) fn of(service: &ServiceName, port: u16) -> Self {
        Self {
            service: service.clone(),
            port,
        }
    }
}
