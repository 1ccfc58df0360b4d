//! What the IPAM guest has stored: which key holds which address, in its format `vpc-cni-ipam/1`.
//!
//! Pure code of the host; guests share no crate with it. It serves operators who inspect a store, and stores without
//! entries. How a guest interprets its store is up to the guest.
//!
//! ```text
//! data, entries -> allocations in order -> entries applied one by one -> the list, and the data that says the same
//! ```

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use trueup_base::address::canonical;
use trueup_capabilities::checkpoint::Saved;

const VERSION: &str = "vpc-cni-ipam/1";

/// Identifies a pod's interface: any text, compared bytewise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The stored JSON with all its fields; `None` if an entry assigned it.
    #[serde(skip)]
    raw: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Change {
    #[serde(flatten)]
    key: Key,
    ipv4: Ipv4Addr,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Entry {
    Assign(Change),
    Unassign(Change),
    Forget {
        ipv4: Vec<Ipv4Addr>,
    },
    /// When addresses were unassigned.
    Rest,
}

/// The allocations that result from data and entries, in order: first those of the data, then the assigned ones.
///
/// # Errors
/// The part that is not understood, in the guest's terms.
pub fn allocations(saved: &Saved) -> Result<Vec<Allocation>, String> {
    let mut all = parse_data(&saved.data)?;
    for (number, entry) in (1..).zip(&saved.entries) {
        let entry = serde_json::from_str(entry).map_err(|error| format!("checkpoint: entry {number}: {error}"))?;
        match entry {
            Entry::Assign(Change { key, ipv4 }) => {
                let ipv4 = ipv4.to_string();
                all.retain(|old| old.key != key && old.ipv4 != ipv4);
                let raw = None;
                all.push(Allocation { key, ipv4, raw });
            }
            Entry::Unassign(Change { key, ipv4 }) => {
                let ipv4 = ipv4.to_string();
                all.retain(|old| old.key != key || old.ipv4 != ipv4);
            }
            Entry::Forget { ipv4 } => {
                let forgotten: BTreeSet<String> = ipv4.iter().map(ToString::to_string).collect();
                all.retain(|old| !forgotten.contains(&old.ipv4));
            }
            Entry::Rest => {}
        }
    }
    Ok(all)
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
    let stored = |allocation: &Allocation| match &allocation.raw {
        Some(raw) => Ok(raw.get().to_owned()),
        None => serde_json::to_string(allocation).map_err(|error| error.to_string()),
    };
    let list: Vec<String> = all.iter().map(stored).collect::<Result<_, _>>()?;
    Ok(format!(
        r#"{{"version":"{VERSION}","allocations":[{}]}}"#,
        list.join(",")
    ))
}

fn parse_data(data: &str) -> Result<Vec<Allocation>, String> {
    #[derive(Deserialize)]
    struct Stored<'a> {
        version: String,
        #[serde(borrow)]
        allocations: Option<Vec<&'a RawValue>>,
    }
    let stored = serde_json::from_str(data).map_err(|error| format!("checkpoint: {error}"))?;
    let Stored { version, allocations } = stored;
    if version != VERSION {
        return Err(format!(
            "checkpoint: unknown version {version:?}; this host reads {VERSION:?}"
        ));
    }
    let numbered = (1..).zip(allocations.unwrap_or_default());
    let parsed = numbered.map(|(number, raw)| {
        parse_allocation(raw).ok_or_else(|| format!("checkpoint: allocation {number} is malformed"))
    });
    parsed.collect()
}

/// A text that is absent or null counts as empty.
fn parse_allocation(raw: &RawValue) -> Option<Allocation> {
    let object: Value = serde_json::from_str(raw.get()).ok().filter(Value::is_object)?;
    let text = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Some(String::new()),
        Some(text) => text.as_str().map(str::to_owned),
    };
    Some(Allocation {
        key: Key {
            network_name: text("networkName")?,
            container_id: text("containerID")?,
            if_name: text("ifName")?,
        },
        ipv4: text("ipv4")?,
        raw: Some(raw.to_owned()),
    })
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
    fn the_allocations_of_data_and_entries_are_shown_in_order() {
        let stored = saved(
            &checkpoint(&[row("c1", "10.0.0.5")]),
            &[&change("assign", "c2", "10.0.0.4")],
        );
        let shown = serde_json::to_string(&allocations(&stored).unwrap()).unwrap();
        assert_eq!(shown, format!("[{},{}]", row("c1", "10.0.0.5"), row("c2", "10.0.0.4")));
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
        assert!(refused("", &[]).starts_with("checkpoint: EOF"));
        assert!(refused("{}", &[]).starts_with("checkpoint: missing field `version`"));
        assert_eq!(
            refused(r#"{"version":"x"}"#, &[]),
            r#"checkpoint: unknown version "x"; this host reads "vpc-cni-ipam/1""#
        );
        let list = |list: &str| format!(r#"{{"version":"vpc-cni-ipam/1","allocations":{list}}}"#);
        assert!(refused(&list("7"), &[]).starts_with("checkpoint: invalid type: integer `7`"));
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
        ] {
            let why = refused(&empty, &[entry]);
            assert!(why.starts_with("checkpoint: entry 1: "), "{entry}: {why}");
        }
        let why = refused(&empty, &[r#"{"op":"rest","addresses":[]}"#, r#"{"op":"move"}"#]);
        assert!(why.starts_with("checkpoint: entry 2: unknown variant `move`"), "{why}");
    }
}
