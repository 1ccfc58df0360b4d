//! Applies entries to data if they are those of the IPAM guest: the format `vpc-cni-ipam/1`.
//!
//! Pure code of the host; guests share no crate with it. It serves operators who inspect a store, and stores without
//! entries. How a guest interprets its store is up to the guest.
//!
//! ```text
//! data, entries -> allocations in order -> entries applied one by one -> the list, and the data that says the same
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use trueup_base::address::canonical;

use super::Saved;

const VERSION: &str = "vpc-cni-ipam/1";

/// Identifies a pod's interface: any text, compared bytewise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The container network.
    pub network_name: String,
    /// The pod's sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface in it.
    pub if_name: String,
}

/// Assigns an address to its holder.
#[derive(Debug, Clone, Serialize)]
pub struct Allocation {
    /// The holder.
    #[serde(flatten)]
    pub key: Key,
    /// The address as stored; it may be invalid.
    pub ipv4: String,
    /// The stored JSON with all its fields.
    #[serde(skip)]
    raw: Box<RawValue>,
}

impl Allocation {
    fn new(key: Key, ipv4: String) -> Result<Self, serde_json::Error> {
        #[derive(Serialize)]
        struct Stored<'a> {
            #[serde(flatten)]
            key: &'a Key,
            ipv4: &'a str,
        }
        let raw = serde_json::value::to_raw_value(&Stored { key: &key, ipv4: &ipv4 })?;
        Ok(Self { key, ipv4, raw })
    }
}

/// The allocations that result from data and entries, in order: first those of the data, then the assigned ones.
///
/// # Errors
/// The part that is not understood, in the guest's terms.
pub fn allocations(saved: &Saved) -> Result<Vec<Allocation>, String> {
    let mut folded = Folded::default();
    for allocation in parse_data(&saved.data)? {
        folded.add(allocation);
    }
    for (number, entry) in (1..).zip(&saved.entries) {
        folded.apply(number, entry)?;
    }
    Ok(folded.slots.into_iter().flatten().collect())
}

/// The data that is equivalent to data and entries together. Without entries, the unchanged data.
///
/// # Errors
/// As `allocations`.
pub fn data(saved: &Saved) -> Result<String, String> {
    if saved.entries.is_empty() {
        return Ok(saved.data.clone());
    }
    let mut all = allocations(saved)?;
    let keys: BTreeSet<&Key> = all.iter().map(|allocation| &allocation.key).collect();
    let addresses: BTreeSet<&str> = all.iter().map(|allocation| allocation.ipv4.as_str()).collect();
    // Of two that contradict each other the first counts, so their order must be kept.
    if keys.len() == all.len() && addresses.len() == all.len() {
        all.sort_by_key(|allocation| {
            canonical(&allocation.ipv4).map_or((true, None), |address| (false, Some(address)))
        });
    }
    let list: Vec<&str> = all.iter().map(|allocation| allocation.raw.get()).collect();
    Ok(format!(
        r#"{{"version":"{VERSION}","allocations":[{}]}}"#,
        list.join(",")
    ))
}

fn parse_data(data: &str) -> Result<Vec<Allocation>, String> {
    #[derive(Deserialize)]
    struct Stored<'a> {
        #[serde(borrow)]
        allocations: Option<Vec<&'a RawValue>>,
    }
    let value: Value = serde_json::from_str(data).map_err(|_| "checkpoint: not JSON")?;
    let version = value.get("version").and_then(Value::as_str);
    let version = version.ok_or("checkpoint: no version")?;
    if version != VERSION {
        let version = Value::from(version);
        return Err(format!(
            "checkpoint: unknown version {version}; this host reads \"{VERSION}\""
        ));
    }
    let stored: Stored<'_> = serde_json::from_str(data).map_err(|_| "checkpoint: allocations is not a list")?;
    let all = stored.allocations.unwrap_or_default();
    let numbered = (1..).zip(all);
    numbered
        .map(|(number, raw)| {
            parse_allocation(raw).ok_or_else(|| format!("checkpoint: allocation {number} is malformed"))
        })
        .collect()
}

fn parse_allocation(raw: &RawValue) -> Option<Allocation> {
    let object: Map<String, Value> = serde_json::from_str(raw.get()).ok()?;
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    };
    Some(Allocation {
        key: Key {
            network_name: text("networkName")?,
            container_id: text("containerID")?,
            if_name: text("ifName")?,
        },
        ipv4: text("ipv4")?,
        raw: raw.to_owned(),
    })
}

/// Allocations in order, indexed by key and by address.
#[derive(Default)]
struct Folded {
    slots: Vec<Option<Allocation>>,
    by_key: BTreeMap<Key, BTreeSet<usize>>,
    by_address: BTreeMap<String, BTreeSet<usize>>,
}

impl Folded {
    fn add(&mut self, allocation: Allocation) {
        let slot = self.slots.len();
        self.by_key.entry(allocation.key.clone()).or_default().insert(slot);
        self.by_address.entry(allocation.ipv4.clone()).or_default().insert(slot);
        self.slots.push(Some(allocation));
    }

    fn drop_slots(&mut self, slots: BTreeSet<usize>) {
        for slot in slots {
            let Some(allocation) = self.slots.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            if let Some(others) = self.by_key.get_mut(&allocation.key) {
                others.remove(&slot);
            }
            if let Some(others) = self.by_address.get_mut(&allocation.ipv4) {
                others.remove(&slot);
            }
        }
    }

    fn of_key(&self, key: &Key) -> BTreeSet<usize> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    fn of_address(&self, address: &str) -> BTreeSet<usize> {
        self.by_address.get(address).cloned().unwrap_or_default()
    }

    fn apply(&mut self, number: u64, entry: &str) -> Result<(), String> {
        let malformed = || format!("checkpoint: entry {number} is malformed");
        let entry: Map<String, Value> = serde_json::from_str(entry).map_err(|_| malformed())?;
        match entry.get("op").and_then(Value::as_str).ok_or_else(malformed)? {
            "assign" => {
                let (key, address) = parse_change(&entry).ok_or_else(malformed)?;
                self.drop_slots(self.of_key(&key));
                self.drop_slots(self.of_address(&address));
                self.add(Allocation::new(key, address).map_err(|_| malformed())?);
            }
            "unassign" => {
                let (key, address) = parse_change(&entry).ok_or_else(malformed)?;
                let both = &self.of_key(&key) & &self.of_address(&address);
                self.drop_slots(both);
            }
            "forget" => {
                let list = parse_time(&entry).and_then(|()| entry.get("ipv4")?.as_array());
                for address in list.ok_or_else(malformed)? {
                    let address = address.as_str().filter(|text| canonical(text).is_some());
                    self.drop_slots(self.of_address(address.ok_or_else(malformed)?));
                }
            }
            "rest" => {
                let list = entry.get("addresses").and_then(Value::as_array).ok_or_else(malformed)?;
                let is_right = |rest: &Value| {
                    let rest = rest.as_object();
                    rest.is_some_and(|rest| parse_time(rest).is_some() && parse_address(rest).is_some())
                };
                if !list.iter().all(is_right) {
                    return Err(malformed());
                }
            }
            other => {
                let other = Value::from(other);
                return Err(format!("checkpoint: entry {number} has the unknown op {other}"));
            }
        }
        Ok(())
    }
}

fn parse_change(entry: &Map<String, Value>) -> Option<(Key, String)> {
    parse_time(entry)?;
    let text = |name: &str| {
        let text = entry.get(name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let key = Key {
        network_name: text("networkName")?,
        container_id: text("containerID")?,
        if_name: text("ifName")?,
    };
    Some((key, parse_address(entry)?))
}

fn parse_time(entry: &Map<String, Value>) -> Option<()> {
    entry.get("at")?.as_u64().map(|_| ())
}

fn parse_address(entry: &Map<String, Value>) -> Option<String> {
    let text = entry.get("ipv4")?.as_str()?;
    canonical(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(data: &str, entries: &[&str]) -> Saved {
        Saved {
            data: data.to_owned(),
            entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
        }
    }

    fn row(container: &str, ipv4: &str) -> String {
        format!(r#"{{"networkName":"net","containerID":"{container}","ifName":"eth0","ipv4":"{ipv4}"}}"#)
    }

    fn change(op: &str, container: &str, ipv4: &str) -> String {
        format!(
            r#"{{"op":"{op}","networkName":"net","containerID":"{container}","ifName":"eth0","ipv4":"{ipv4}","at":7}}"#
        )
    }

    fn checkpoint(rows: &[String]) -> String {
        format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{}]}}"#, rows.join(","))
    }

    fn check(rows: &[String], entries: &[String], expected: &[String]) {
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        assert_eq!(data(&saved(&checkpoint(rows), &entries)), Ok(checkpoint(expected)));
    }

    #[test]
    fn entries_are_applied_one_after_the_other() {
        let old = [row("c1", "10.0.0.1"), row("c2", "10.0.0.2")];
        check(
            &old,
            &[change("assign", "c3", "10.0.0.3")],
            &[row("c1", "10.0.0.1"), row("c2", "10.0.0.2"), row("c3", "10.0.0.3")],
        );
        check(&old, &[change("unassign", "c1", "10.0.0.1")], &[row("c2", "10.0.0.2")]);
        // Both the key and the address must match.
        check(&old, &[change("unassign", "c1", "10.0.0.2")], &old);
        let forget = r#"{"op":"forget","ipv4":["10.0.0.1","10.0.0.9"],"at":1}"#.to_owned();
        check(&old, &[forget], &[row("c2", "10.0.0.2")]);
        let rest = r#"{"op":"rest","addresses":[{"ipv4":"10.0.0.1","at":1}]}"#.to_owned();
        check(&old, &[rest], &old);
        let again = change("assign", "c1", "10.0.0.2");
        check(&old, &[again.clone(), again], &[row("c1", "10.0.0.2")]);
    }

    #[test]
    fn addresses_ascend_as_numbers_and_what_else_is_stored_of_them_stays() {
        let rich = r#"{"networkName":"net","containerID":"c1","ifName":"eth0","ipv4":"10.0.0.10","allocationTimestamp":1692000000000000000,"metadata":{"k8sPodName":"web-0"}}"#.to_owned();
        let six = r#"{"networkName":"net","containerID":"c6","ifName":"eth0","ipv6":"fd00::1"}"#.to_owned();
        check(
            &[six.clone(), rich.clone()],
            &[change("assign", "c2", "10.0.0.9")],
            &[row("c2", "10.0.0.9"), rich, six],
        );
    }

    #[test]
    fn of_two_that_contradict_each_other_the_first_stays_the_first() {
        let old = [row("c1", "10.0.0.9"), row("c1", "10.0.0.1")];
        let rest = r#"{"op":"rest","addresses":[]}"#.to_owned();
        check(&old, &[rest], &old);
    }

    #[test]
    fn data_without_entries_is_not_judged() {
        assert_eq!(data(&saved("anything", &[])), Ok("anything".to_owned()));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let refused = |data: &str, entries: &[&str]| allocations(&saved(data, entries)).unwrap_err();
        assert_eq!(refused("", &[]), "checkpoint: not JSON");
        assert_eq!(refused("[]", &[]), "checkpoint: no version");
        assert_eq!(
            refused(r#"{"version":"x"}"#, &[]),
            r#"checkpoint: unknown version "x"; this host reads "vpc-cni-ipam/1""#
        );
        let list = |list: &str| format!(r#"{{"version":"vpc-cni-ipam/1","allocations":{list}}}"#);
        assert_eq!(refused(&list("7"), &[]), "checkpoint: allocations is not a list");
        assert_eq!(
            refused(&list(r#"[{},{"ipv4":7}]"#), &[]),
            "checkpoint: allocation 2 is malformed"
        );
        let empty = list("null");
        assert!(allocations(&saved(&empty, &[])).unwrap().is_empty());
        for entry in [
            "7",
            "{}",
            r#"{"op":7}"#,
            r#"{"op":"forget","ipv4":["10.0.0.01"],"at":1}"#,
            r#"{"op":"forget","ipv4":["10.0.0.1"],"at":-1}"#,
            r#"{"op":"rest","addresses":[{"ipv4":"10.0.0.1"}]}"#,
            &change("assign", "", "10.0.0.1"),
        ] {
            assert_eq!(refused(&empty, &[entry]), "checkpoint: entry 1 is malformed", "{entry}");
        }
        assert_eq!(
            refused(&empty, &[r#"{"op":"rest","addresses":[]}"#, r#"{"op":"move"}"#]),
            r#"checkpoint: entry 2 has the unknown op "move""#
        );
    }
}
