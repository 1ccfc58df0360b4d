//! The stored texts: writing them, reading them back, applying entries to a checkpoint.
//!
//! Pure. The checkpoint has the format of the AWS VPC CNI's node agent, `vpc-cni-ipam/1`, so that the two can exchange
//! files; entries are this guest's own. Stored text may come from other writers: check all of it.
//!
//! ```text
//! checkpoint -> allocations --+
//! entries --------------------+-> allocations in order, times of unassignment
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trueup_guest::{snapshot, text};

use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::json::{self, Members};
use crate::key::Key;
use crate::memory::Holder;

/// The version of the checkpoint's format.
const VERSION: &str = "vpc-cni-ipam/1";

/// A stored allocation.
pub(crate) fn allocation(key: &Key, address: Ipv4Addr) -> Rc<str> {
    let fields = key.fields();
    let texts = [&fields.network_name, &fields.container_id, &fields.if_name];
    let [network, container, interface] = texts.map(|text| text::quoted(text));
    Rc::from(format!(
        r#"{{"networkName":{network},"containerID":{container},"ifName":{interface},"ipv4":"{address}"}}"#
    ))
}

/// The text of a whole checkpoint, from allocations by address.
pub(crate) fn checkpoint(allocations: &[&str]) -> String {
    let allocations = allocations.join(",");
    format!(r#"{{"version":"{VERSION}","allocations":[{allocations}]}}"#)
}

/// The entry of an assignment or unassignment: `op` is `assign` or `unassign`.
pub(crate) fn entry(op: &str, holder: &Holder, now_ms: u64) -> String {
    let members = holder.stored.trim_matches(['{', '}']);
    format!(r#"{{"op":"{op}",{members},"at":{now_ms}}}"#)
}

/// The entry of addresses that their pods lost by force.
pub(crate) fn forget(addresses: &[Ipv4Addr], now_ms: u64) -> String {
    let addresses = snapshot::write(&addresses);
    format!(r#"{{"op":"forget","ipv4":{addresses},"at":{now_ms}}}"#)
}

/// The entry of addresses that rest, with the times of their unassignment.
pub(crate) fn rest(addresses: &[(Ipv4Addr, u64)]) -> String {
    let rests = addresses.iter().map(|&(ipv4, at)| Rest { ipv4, at });
    let rests = snapshot::write(&rests.collect::<Vec<_>>());
    format!(r#"{{"op":"rest","addresses":{rests}}}"#)
}

/// An address that rests.
#[derive(Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) ipv4: Ipv4Addr,
    /// When it was unassigned.
    pub(crate) at: u64,
}

/// An allocation as another writer states it: the key may lack fields, the text may be no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// of the pod
    pub(crate) key: Key,
    /// the text that should be an address
    pub(crate) ipv4: String,
}

/// The contents of the store, entries applied.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// In the checkpoint's order, then in that of the entries.
    pub(crate) claims: Vec<Claim>,
    /// The time of unassignment in the last entry that names the address.
    pub(crate) unassigned_at_ms: BTreeMap<Ipv4Addr, u64>,
}

/// Reads a checkpoint and applies the entries, oldest first.
///
/// # Errors
/// The first faulty piece and its fault, in the contract's words.
pub(crate) fn read(data: &str, entries: &[String]) -> Result<Stored, String> {
    let mut folding = Folding::default();
    for claim in read_checkpoint(data)? {
        folding.add(claim);
    }
    for (number, entry) in (1_usize..).zip(entries) {
        let malformed = || format!("checkpoint: entry {number} is malformed");
        let members = Members::read(entry).ok_or_else(malformed)?;
        let op: String = members.get("op").ok_or_else(malformed)?;
        let applied = match op.as_str() {
            "assign" => folding.assign(&members),
            "unassign" => folding.unassign(&members),
            "forget" => folding.forget(&members),
            "rest" => folding.rest(&members),
            _ => {
                let op = text::quoted(&op);
                return Err(format!("checkpoint: entry {number} has the unknown op {op}"));
            }
        };
        applied.ok_or_else(malformed)?;
    }
    Ok(Stored {
        claims: folding.claims.into_iter().flatten().collect(),
        unassigned_at_ms: folding.unassigned_at_ms,
    })
}

fn read_checkpoint(data: &str) -> Result<Vec<Claim>, String> {
    if !json::is_json(data) {
        return Err("checkpoint: not JSON".to_owned());
    }
    let members = Members::read(data).ok_or("checkpoint: no version")?;
    let version: String = members.get("version").ok_or("checkpoint: no version")?;
    if version != VERSION {
        let version = text::quoted(&version);
        return Err(format!(
            "checkpoint: unknown version {version}; this guest reads \"{VERSION}\""
        ));
    }
    let allocations: Option<Vec<&RawValue>> = members.get_or_default("allocations");
    let allocations = allocations.ok_or("checkpoint: allocations is not a list")?;
    let claim = |(number, value): (usize, &RawValue)| {
        read_claim(value.get()).ok_or_else(|| format!("checkpoint: allocation {number} is malformed"))
    };
    (1..).zip(allocations).map(claim).collect()
}

fn read_claim(text: &str) -> Option<Claim> {
    let members = Members::read(text)?;
    Some(Claim {
        key: Key::new(IpamKey {
            network_name: members.get_or_default("networkName")?,
            container_id: members.get_or_default("containerID")?,
            if_name: members.get_or_default("ifName")?,
        }),
        ipv4: members.get_or_default("ipv4")?,
    })
}

/// The key and the address of an assignment or unassignment, and its time.
fn read_change(members: &Members<'_>) -> Option<(Key, Ipv4Addr, u64)> {
    let key = Key::new(IpamKey {
        network_name: members.get("networkName")?,
        container_id: members.get("containerID")?,
        if_name: members.get("ifName")?,
    });
    let change = (key, members.get("ipv4")?, members.get("at")?);
    change.0.missing().is_none().then_some(change)
}

/// A checkpoint while entries are applied to it. A claim's number is its place in the order.
#[derive(Default)]
struct Folding {
    /// `None` once an entry has dropped it. The indexes may still hold its number.
    claims: Vec<Option<Claim>>,
    by_key: BTreeMap<Key, Vec<usize>>,
    by_address: BTreeMap<Ipv4Addr, Vec<usize>>,
    unassigned_at_ms: BTreeMap<Ipv4Addr, u64>,
}

/// Each entry by its `op`; `None` if it is malformed.
impl Folding {
    fn assign(&mut self, members: &Members<'_>) -> Option<()> {
        let (key, address, _) = read_change(members)?;
        let numbers = self.by_key.remove(&key);
        self.drop_claims(numbers);
        self.drop_address(address);
        let ipv4 = address.to_string();
        self.add(Claim { key, ipv4 });
        Some(())
    }

    fn unassign(&mut self, members: &Members<'_>) -> Option<()> {
        let (key, address, at) = read_change(members)?;
        for &number in self.by_address.get(&address).into_iter().flatten() {
            if let Some(claim) = self.claims.get_mut(number) {
                claim.take_if(|claim| claim.key == key);
            }
        }
        self.unassigned_at_ms.insert(address, at);
        Some(())
    }

    fn forget(&mut self, members: &Members<'_>) -> Option<()> {
        let (addresses, at): (Vec<Ipv4Addr>, u64) = (members.get("ipv4")?, members.get("at")?);
        for address in addresses {
            self.drop_address(address);
            self.unassigned_at_ms.insert(address, at);
        }
        Some(())
    }

    fn rest(&mut self, members: &Members<'_>) -> Option<()> {
        for rest in members.get::<Vec<&RawValue>>("addresses")? {
            let rest = Members::read(rest.get())?;
            self.unassigned_at_ms.insert(rest.get("ipv4")?, rest.get("at")?);
        }
        Some(())
    }

    fn add(&mut self, claim: Claim) {
        let number = self.claims.len();
        self.by_key.entry(claim.key.clone()).or_default().push(number);
        // Entries name addresses, so they never find a claim with an invalid text.
        if let Ok(address) = claim.ipv4.parse() {
            self.by_address.entry(address).or_default().push(number);
        }
        self.claims.push(Some(claim));
    }

    fn drop_address(&mut self, address: Ipv4Addr) {
        let numbers = self.by_address.remove(&address);
        self.drop_claims(numbers);
    }

    fn drop_claims(&mut self, numbers: Option<Vec<usize>>) {
        for number in numbers.into_iter().flatten() {
            if let Some(claim) = self.claims.get_mut(number) {
                *claim = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_escaped_where_json_requires_it_and_nowhere_else() {
        let key = Key::new(IpamKey {
            network_name: "réseau<1>/".to_owned(),
            container_id: "a\"b\\c".to_owned(),
            if_name: "\u{7f}\t\u{1}\u{1f}\u{8}\u{c}\n\r".to_owned(),
        });
        let expected = concat!(
            r#""networkName":"réseau<1>/","containerID":"a\"b\\c","ifName":""#,
            "\u{7f}",
            r#"\t\u0001\u001f\b\f\n\r","ipv4":"10.0.0.5""#
        );
        let address = Ipv4Addr::new(10, 0, 0, 5);
        assert_eq!(&*allocation(&key, address), format!("{{{expected}}}"));
        let holder = Holder::new(key.clone(), address);
        let data = checkpoint(&[&*holder.stored]);
        assert_eq!(
            data,
            format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{{{expected}}}]}}"#)
        );
        let entries = [("assign", u64::MAX), ("unassign", 7), ("assign", 8)];
        let entries = entries.map(|(op, now_ms)| entry(op, &holder, now_ms));
        let stored = read(&data, &entries).unwrap();
        let ipv4 = "10.0.0.5".to_owned();
        assert_eq!(stored.claims, [Claim { key, ipv4 }]);
        assert_eq!(stored.unassigned_at_ms, BTreeMap::from([(address, 7)]));
    }
}
