//! The texts of the store, of the runtime and of errors, read and written in plain ways of their own.

use serde_json::Value;

use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::bindings::trueup::checkpoint::store::{Error as StoreError, Saved};

/// An address's number, if its text is canonical.
pub(in crate::tests) fn number(text: &str) -> Option<u32> {
    let parts: Vec<&str> = text.split('.').collect();
    let mut number = 0;
    for part in &parts {
        let canonical = part.bytes().all(|b| b.is_ascii_digit()) && (part.len() == 1 || !part.starts_with('0'));
        let value: u32 = part.parse().ok().filter(|&value| canonical && value <= 255)?;
        number = (number << 8) | value;
        if parts.len() != 4 {
            return None;
        }
    }
    Some(number)
}

pub(super) fn text(ip: u32) -> String {
    let [a, b, c, d] = ip.to_be_bytes();
    format!("{a}.{b}.{c}.{d}")
}

pub(super) fn missing(key: &IpamKey) -> Option<&'static str> {
    if key.network_name.is_empty() {
        Some("network-name")
    } else if key.container_id.is_empty() {
        Some("container-id")
    } else if key.if_name.is_empty() {
        Some("if-name")
    } else {
        None
    }
}

pub(super) fn migrated(container_id: &str) -> IpamKey {
    IpamKey {
        network_name: "_migrated-from-cri".to_owned(),
        container_id: container_id.to_owned(),
        if_name: "unknown".to_owned(),
    }
}

pub(super) fn members(key: &IpamKey) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    format!(
        "\"networkName\":{},\"containerID\":{},\"ifName\":{}",
        quoted(&key.network_name),
        quoted(&key.container_id),
        quoted(&key.if_name)
    )
}

pub(super) fn error_text(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(text) => format!("unavailable: {text}"),
        StoreError::Corrupt(text) => format!("corrupt: {text}"),
        StoreError::AccessDenied(text) => format!("access-denied: {text}"),
    }
}

/// What is stored, read back: claims in order, and the last time of each address named by an entry.
pub(in crate::tests) type ReadBack = (Vec<(IpamKey, String)>, Vec<(u32, u64)>);

/// Reads what is stored.
pub(in crate::tests) fn read_back(saved: &Saved) -> Result<ReadBack, String> {
    let value: Value = serde_json::from_str(&saved.data).map_err(|_| "checkpoint: not JSON")?;
    let version = value["version"].as_str().ok_or("checkpoint: no version")?;
    if version != "vpc-cni-ipam/1" {
        return Err(format!(
            "checkpoint: unknown version \"{version}\"; this guest reads \"vpc-cni-ipam/1\""
        ));
    }
    let none = vec![];
    let list = match &value["allocations"] {
        Value::Null => &none,
        Value::Array(list) => list,
        _ => return Err("checkpoint: allocations is not a list".to_owned()),
    };
    let mut claims = Vec::new();
    for (index, element) in list.iter().enumerate() {
        let malformed = || format!("checkpoint: allocation {} is malformed", index + 1);
        let field = |name: &str| match &element[name] {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => Err(malformed()),
        };
        if !element.is_object() {
            return Err(malformed());
        }
        let key = IpamKey {
            network_name: field("networkName")?,
            container_id: field("containerID")?,
            if_name: field("ifName")?,
        };
        claims.push((key, field("ipv4")?));
    }
    let mut times: Vec<(u32, u64)> = Vec::new();
    for (index, entry) in saved.entries.iter().enumerate() {
        let malformed = || format!("checkpoint: entry {} is malformed", index + 1);
        let entry: Value = serde_json::from_str(entry).map_err(|_| malformed())?;
        let field = |name: &str| entry[name].as_str().map(str::to_owned).ok_or_else(malformed);
        let at = || entry["at"].as_u64().ok_or_else(malformed);
        let op = field("op")?;
        let mut name = |ip: u32, at: u64| {
            times.retain(|(other, _)| *other != ip);
            times.push((ip, at));
        };
        match op.as_str() {
            "assign" | "unassign" => {
                let key = IpamKey {
                    network_name: field("networkName")?,
                    container_id: field("containerID")?,
                    if_name: field("ifName")?,
                };
                let ipv4 = field("ipv4")?;
                let ip = number(&ipv4).ok_or_else(malformed)?;
                let at = at()?;
                if missing(&key).is_some() {
                    return Err(malformed());
                }
                if op == "assign" {
                    claims.retain(|(other, text)| *other != key && *text != ipv4);
                    claims.push((key, ipv4));
                } else {
                    claims.retain(|(other, text)| *other != key || *text != ipv4);
                    name(ip, at);
                }
            }
            "forget" => {
                let at = at()?;
                for address in entry["ipv4"].as_array().ok_or_else(malformed)? {
                    let ip = address.as_str().and_then(number).ok_or_else(malformed)?;
                    claims.retain(|(_, claimed)| number(claimed) != Some(ip));
                    name(ip, at);
                }
            }
            "rest" => {
                for rest in entry["addresses"].as_array().ok_or_else(malformed)? {
                    let ip = rest["ipv4"].as_str().and_then(number).ok_or_else(malformed)?;
                    name(ip, rest["at"].as_u64().ok_or_else(malformed)?);
                }
            }
            _ => return Err(format!("checkpoint: entry {} has the unknown op \"{op}\"", index + 1)),
        }
    }
    Ok((claims, times))
}
