//! From a Service to its key of etcd: `[adapter.toy]`.

use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Serialize};
use trueup_work::objects::Id;

/// `[adapter.toy]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Adapter {
    /// What each key of etcd begins with. Default: `/toy`.
    prefix: String,
}

impl Default for Adapter {
    fn default() -> Self {
        Self {
            prefix: "/toy".to_owned(),
        }
    }
}

impl Adapter {
    /// The key of etcd: `/toy/shop/web`.
    pub(super) fn key(&self, service: &Id) -> String {
        format!("{}/{service}", self.prefix)
    }
}

/// Its value: `80/TCP,443/TCP`. `None` if the Service has no ports.
pub(super) fn value(service: &Service) -> Option<String> {
    let ports = service.spec.as_ref()?.ports.as_ref()?.iter();
    let ports = ports.map(|port| format!("{}/{}", port.port, port.protocol.as_deref().unwrap_or("TCP")));
    let ports: Vec<String> = ports.collect();
    (!ports.is_empty()).then(|| ports.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_value_lists_the_ports_of_a_service() {
        let value = |ports| value(&serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap());
        let ports = json!([{"port": 80}, {"port": 53, "protocol": "UDP"}]);
        assert_eq!(value(ports).as_deref(), Some("80/TCP,53/UDP"));
        assert_eq!(value(json!([])), None);
        assert_eq!(value(json!(null)), None);
    }
}
