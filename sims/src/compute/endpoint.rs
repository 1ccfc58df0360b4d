//! Endpoints as requests and answers hold them.
//!
//! Two are the same if VM, addresses and port are, however these are spelt.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::json::without_nulls;
use super::refusal::Refusal;

/// The most endpoints that one request attaches or detaches (limit of the API).
pub(super) const ENDPOINTS_PER_REQUEST_MAX: usize = 500;

/// What kind of endpoints a NEG holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum NegType {
    #[serde(rename = "GCE_VM_IP_PORT")]
    VmIpPort,
    #[serde(rename = "GCE_VM_IP")]
    VmIp,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Endpoint {
    /// The VM's name; empty if none was given.
    pub(super) instance: String,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) ipv6: Option<Ipv6Addr>,
    pub(super) port: Option<u16>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// An endpoint as a client sends it. `null` is not a value, and a field of another kind of NEG is unknown.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Sent {
    instance: String,
    #[serde(deserialize_with = "address")]
    ip_address: Option<Ipv4Addr>,
    #[serde(deserialize_with = "address")]
    ipv6_address: Option<Ipv6Addr>,
    #[serde(deserialize_with = "port")]
    port: Option<u16>,
    annotations: BTreeMap<String, String>,
}

impl Endpoint {
    /// Whether both are the same endpoint, whatever their annotations.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.instance, self.ip, self.ipv6, self.port) == (&other.instance, other.ip, other.ipv6, other.port)
    }

    /// Whether they share an address. A NEG can't hold two that do, and have the same key, but differ.
    pub(super) fn shares_address(&self, other: &Self) -> bool {
        (self.ip.is_some() && self.ip == other.ip) || (self.ipv6.is_some() && self.ipv6 == other.ipv6)
    }

    /// What endpoints must share to clash.
    pub(super) fn key(&self) -> (&str, Option<u16>) {
        (&self.instance, self.port)
    }

    /// The endpoint in answers and messages. With `long`, IPv6 addresses have four digits in every group: one of their
    /// valid spellings.
    pub(super) fn json(&self, long: bool) -> Value {
        let ipv6 = |ipv6: Ipv6Addr| match long {
            true => ipv6.segments().map(|group| format!("{group:04X}")).join(":"),
            false => ipv6.to_string(),
        };
        let annotations = Some(&self.annotations).filter(|annotations| !annotations.is_empty());
        without_nulls(json!({
            "instance": Some(&self.instance).filter(|name| !name.is_empty()),
            "ipAddress": self.ip,
            "ipv6Address": self.ipv6.map(ipv6),
            "port": self.port,
            "annotations": annotations,
        }))
    }
}

/// The endpoints of a request to attach or detach.
pub(super) fn read_all(body: &Value, kind: NegType) -> Result<Vec<Endpoint>, Refusal> {
    let sent = match body.get("networkEndpoints") {
        Some(Value::Array(sent)) if !sent.is_empty() => sent,
        // An empty list is invalid too.
        Some(Value::Array(_)) | None => {
            return Err(Refusal::invalid("Required field 'networkEndpoints' not specified"));
        }
        Some(_) => return Err(Refusal::invalid_value("networkEndpoints", "not a list")),
    };
    let count = sent.len();
    if count > ENDPOINTS_PER_REQUEST_MAX {
        let why = format!("{count} endpoints, the limit is {ENDPOINTS_PER_REQUEST_MAX}");
        return Err(Refusal::invalid_value("networkEndpoints", why));
    }
    read_list(sent, kind)
}

pub(super) fn read_list(sent: &[Value], kind: NegType) -> Result<Vec<Endpoint>, Refusal> {
    let read = |(index, sent)| read(index, sent, kind);
    sent.iter().enumerate().map(read).collect()
}

/// One endpoint of a list.
fn read(index: usize, sent: &Value, kind: NegType) -> Result<Endpoint, Refusal> {
    let whole = format!("networkEndpoints[{index}]");
    let sent: Sent = super::json::read(&whole, sent)?;
    if sent.ip_address.is_none() && sent.ipv6_address.is_none() {
        let why = "it has neither 'ipAddress' nor 'ipv6Address'";
        return Err(Refusal::invalid_value(&whole, why));
    }
    let place = format!("{whole}.port");
    match (kind, sent.port) {
        (NegType::VmIp, Some(port)) => {
            let why = "A GCE_VM_IP group has no ports.";
            return Err(Refusal::invalid_field(&place, &json!(port), why));
        }
        (NegType::VmIpPort, None) => return Err(Refusal::invalid_value(&place, "a GCE_VM_IP_PORT group needs one")),
        _ => {}
    }
    Ok(Endpoint {
        instance: sent.instance.rsplit('/').next().unwrap_or_default().to_owned(),
        ip: sent.ip_address,
        ipv6: sent.ipv6_address,
        port: sent.port,
        annotations: sent.annotations,
    })
}

fn port<'de, D: Deserializer<'de>>(sent: D) -> Result<Option<u16>, D::Error> {
    let number = u16::deserialize(sent).ok().filter(|number| *number > 0);
    let wrong = || D::Error::custom("It must be a whole number from 1 to 65535.");
    number.map(Some).ok_or_else(wrong)
}

/// Empty text is no address.
fn address<'de, D, A>(sent: D) -> Result<Option<A>, D::Error>
where
    D: Deserializer<'de>,
    A: FromStr<Err: Display>,
{
    let text = String::deserialize(sent)?;
    let address = (!text.is_empty()).then(|| text.parse());
    address.transpose().map_err(D::Error::custom)
}
