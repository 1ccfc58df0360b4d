//! One network endpoint group, and what operations do to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::endpoint::{Endpoint, NegType};
use super::json::{read, timestamp, without_nulls};
use super::operation::Failure;
use super::refusal::Refusal;
use super::target::{self, URL_PREFIX, Zone};

/// The longest name of a NEG (RFC 1035).
const NAME_CHARS_MAX: usize = 63;

/// Endpoints with their numbers, by the key that endpoints must share to clash.
type ByKey<'a> = BTreeMap<(&'a str, Option<u16>), Vec<(u64, &'a Endpoint)>>;

/// The settings of a NEG, as an insertion gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NegSpec {
    pub(super) name: String,
    description: String,
    pub(super) kind: NegType,
    network: Option<String>,
    subnetwork: Option<String>,
    annotations: BTreeMap<String, String>,
}

/// A network endpoint group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Neg {
    pub(super) id: u64,
    pub(super) created_ms: u64,
    #[serde(rename = "wish")]
    pub(super) spec: NegSpec,
    next_endpoint: u64,
    /// In the order of attachment, which is not that of their addresses.
    pub(super) endpoints: BTreeMap<u64, Endpoint>,
}

/// A NEG as a client sends it, as far as it is stored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sent {
    name: Option<String>,
    description: String,
    network_endpoint_type: Option<NegType>,
    network: Option<String>,
    subnetwork: Option<String>,
    annotations: BTreeMap<String, String>,
}

impl NegSpec {
    pub(super) fn read(zone: &Zone, body: &Value) -> Result<Self, Refusal> {
        if !body.is_object() {
            return Err(Refusal::invalid("the body is not a NetworkEndpointGroup"));
        }
        let sent: Sent = read("resource", body)?;
        let name = sent.name.ok_or_else(|| Refusal::required("resource.name"))?;
        if !is_name(&name) {
            let why = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'";
            return Err(Refusal::invalid_field("resource.name", &json!(name), why));
        }
        let kind = sent.network_endpoint_type;
        let url = |field: &str, sent: Option<String>| {
            let malformed = |sent| Refusal::invalid_field(field, &json!(sent), "The URL is malformed.");
            let full = sent.map(|sent| target::full_url(&zone.project, &sent).ok_or_else(|| malformed(sent)));
            full.transpose()
        };
        Ok(Self {
            name,
            description: sent.description,
            kind: kind.ok_or_else(|| Refusal::required("resource.networkEndpointType"))?,
            network: url("resource.network", sent.network)?,
            subnetwork: url("resource.subnetwork", sent.subnetwork)?,
            annotations: sent.annotations,
        })
    }
}

/// RFC 1035: lower-case letters, digits and dashes, a letter first, no dash last.
fn is_name(name: &str) -> bool {
    let may_hold = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME_CHARS_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(may_hold)
}

impl Neg {
    pub(super) fn new(id: u64, created_ms: u64, spec: NegSpec) -> Self {
        Self {
            id,
            created_ms,
            spec,
            next_endpoint: 1,
            endpoints: BTreeMap::new(),
        }
    }

    /// The NEG in answers.
    pub(super) fn json(&self, zone: &Zone) -> Value {
        let spec = &self.spec;
        let default_network = || format!("{URL_PREFIX}projects/{}/global/networks/default", zone.project);
        let annotations = Some(&spec.annotations).filter(|annotations| !annotations.is_empty());
        without_nulls(json!({
            "kind": "compute#networkEndpointGroup",
            "id": self.id.to_string(),
            "creationTimestamp": timestamp(self.created_ms),
            "selfLink": format!("{URL_PREFIX}{}", zone.neg_path(&spec.name)),
            "name": spec.name,
            "description": spec.description,
            "networkEndpointType": spec.kind,
            "size": self.endpoints.len(),
            "zone": format!("{URL_PREFIX}{}", zone.path()),
            "network": spec.network.clone().unwrap_or_else(default_network),
            "subnetwork": spec.subnetwork,
            "annotations": annotations,
        }))
    }

    /// Attaches all, or none if one can't be attached.
    pub(super) fn attach(&mut self, endpoints: &[Endpoint]) -> Result<(), Failure> {
        let mut there = self.by_key();
        let mut new = Vec::new();
        for endpoint in endpoints {
            let same_key = there.entry(endpoint.key()).or_default();
            if same_key.iter().any(|(_, other)| other.is(endpoint)) {
                continue;
            }
            if let Some((_, other)) = same_key.iter().find(|(_, other)| other.shares_address(endpoint)) {
                let endpoint = endpoint.json(false);
                let other = other.json(false);
                let why = format!("can't be attached: {other} has the same VM, port and address");
                let message = format!("The network endpoint {endpoint} {why}");
                return Err(Failure::new(400, "INVALID_USAGE", message));
            }
            same_key.push((0, endpoint));
            new.push(endpoint.clone());
        }
        for endpoint in new {
            self.endpoints.insert(self.next_endpoint, endpoint);
            self.next_endpoint += 1;
        }
        Ok(())
    }

    /// Detaches all, or none if one is missing.
    pub(super) fn detach(&mut self, endpoints: &[Endpoint]) -> Result<(), Failure> {
        let there = self.by_key();
        let mut gone = Vec::new();
        for endpoint in endpoints {
            let same_key = there.get(&endpoint.key()).map(Vec::as_slice).unwrap_or_default();
            let Some((number, _)) = same_key.iter().find(|(_, other)| other.is(endpoint)) else {
                let message = format!("The network endpoint {} was not found", endpoint.json(false));
                return Err(Failure::new(404, "RESOURCE_NOT_FOUND", message));
            };
            gone.push(*number);
        }
        for number in gone {
            self.endpoints.remove(&number);
        }
        Ok(())
    }

    fn by_key(&self) -> ByKey<'_> {
        let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (number, endpoint) in &self.endpoints {
            by_key.entry(endpoint.key()).or_default().push((*number, endpoint));
        }
        by_key
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::read_list;
    use super::*;

    fn zone() -> Zone {
        Zone {
            project: "p".to_owned(),
            zone: "z".to_owned(),
        }
    }

    fn neg() -> Neg {
        let body =
            json!({"name": "n", "networkEndpointType": "GCE_VM_IP_PORT", "subnetwork": "regions/r/subnetworks/s"});
        Neg::new(1, 0, NegSpec::read(&zone(), &body).unwrap())
    }

    fn endpoints(sent: &[Value]) -> Vec<Endpoint> {
        read_list(sent, NegType::VmIpPort).unwrap()
    }

    #[test]
    fn attaching_twice_changes_nothing_however_it_is_spelt() {
        let mut neg = neg();
        neg.attach(&endpoints(&[
            json!({"instance": "v", "ipv6Address": "2001:db8::1", "port": 1}),
        ]))
        .unwrap();
        let url = "https://example.com/zones/z/instances/v";
        let again = json!({"instance": url, "ipv6Address": "2001:0DB8:0:0:0:0:0:1", "port": 1});
        neg.attach(&endpoints(&[again.clone(), again])).unwrap();
        assert_eq!(neg.endpoints.len(), 1);
    }

    #[test]
    fn another_stack_can_be_attached_only_after_the_first_is_gone() {
        let mut neg = neg();
        let single = endpoints(&[json!({"instance": "v", "ipAddress": "10.0.0.1", "port": 1})]);
        let dual = endpoints(&[
            json!({"instance": "w", "ipAddress": "10.0.0.2", "port": 1}),
            json!({"instance": "v", "ipAddress": "10.0.0.1", "ipv6Address": "::1", "port": 1}),
        ]);
        neg.attach(&single).unwrap();
        assert_eq!(neg.attach(&dual).unwrap_err().http_status, 400);
        assert_eq!(neg.endpoints.len(), 1, "nothing is attached where one can't be");
        neg.detach(&single).unwrap();
        neg.attach(&dual).unwrap();
        assert_eq!(neg.endpoints.len(), 2);
        let other_port = json!({"instance": "v", "ipAddress": "10.0.0.1", "port": 2});
        let other_vm = json!({"instance": "x", "ipAddress": "10.0.0.1", "port": 1});
        neg.attach(&endpoints(&[other_port, other_vm])).unwrap();
    }

    #[test]
    fn endpoints_of_one_request_can_clash() {
        let ip = json!({"instance": "v", "ipAddress": "10.0.0.1", "port": 1});
        let dual = json!({"instance": "v", "ipAddress": "10.0.0.1", "ipv6Address": "::1", "port": 1});
        assert_eq!(neg().attach(&endpoints(&[ip, dual])).unwrap_err().code, "INVALID_USAGE");
    }

    #[test]
    fn nothing_is_detached_if_one_is_missing() {
        let mut neg = neg();
        let one = json!({"ipAddress": "10.0.0.1", "port": 1});
        neg.attach(&endpoints(std::slice::from_ref(&one))).unwrap();
        let other = json!({"ipAddress": "10.0.0.2", "port": 1});
        let failure = neg.detach(&endpoints(&[one, other])).unwrap_err();
        assert_eq!(
            (failure.http_status, failure.code.as_str()),
            (404, "RESOURCE_NOT_FOUND")
        );
        assert_eq!(neg.endpoints.len(), 1);
    }

    #[test]
    fn an_insertion_is_checked() {
        for (body, message) in [
            (json!([]), "not a NetworkEndpointGroup"),
            (
                json!({"networkEndpointType": "GCE_VM_IP"}),
                "Required field 'resource.name'",
            ),
            (json!({"name": "n"}), "Required field 'resource.networkEndpointType'"),
            (
                json!({"name": "N", "networkEndpointType": "GCE_VM_IP"}),
                "field 'resource.name': 'N'",
            ),
            (
                json!({"name": "n-", "networkEndpointType": "GCE_VM_IP"}),
                "field 'resource.name'",
            ),
            (
                json!({"name": "n", "networkEndpointType": "SERVERLESS"}),
                "'resource.networkEndpointType': 'SERVERLESS'",
            ),
            (
                json!({"name": "n", "networkEndpointType": "GCE_VM_IP", "network": "x"}),
                "'resource.network': 'x'",
            ),
            (
                json!({"name": "n", "networkEndpointType": "GCE_VM_IP", "network": null}),
                "left out",
            ),
        ] {
            let refusal = NegSpec::read(&zone(), &body).unwrap_err();
            assert!(refusal.message.contains(message), "{body}: {}", refusal.message);
        }
    }
}
