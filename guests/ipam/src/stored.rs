//! The stored texts: writing them, reading them back, applying entries to a checkpoint.
//!
//! Pure. The checkpoint has the format of the AWS VPC CNI's node agent, `vpc-cni-ipam/1`, so that the two can exchange
//! files; entries are this guest's own. Stored text may come from other writers: check all of it.
//!
//! ```text
//! checkpoint -> allocations --+
//! entries ----> changes ------+-> allocations in order, times of unassignment
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::value::RawValue;
use trueup_guest::text;

use crate::address::Address;
use crate::bindings::exports::trueup::ipam::datastore::IpamKey;
use crate::json::{self, Members};
use crate::key::Key;
use crate::memory::Holder;

/// The version of the checkpoint's format.
const VERSION: &str = "vpc-cni-ipam/1";

/// The members of a stored allocation, without braces.
pub(crate) fn members(key: &Key, address: Address) -> String {
    /// As long as everything but the texts can be.
    const NAMES: &str = r#""networkName":"","containerID":"","ifName":"","ipv4":"255.255.255.255""#;
    let fields = key.fields();
    let length = fields.network_name.len() + fields.container_id.len() + fields.if_name.len();
    let mut out = String::with_capacity(NAMES.len() + length);
    out.push_str(r#""networkName":"#);
    json::push_text(&mut out, &fields.network_name);
    out.push_str(r#","containerID":"#);
    json::push_text(&mut out, &fields.container_id);
    out.push_str(r#","ifName":"#);
    json::push_text(&mut out, &fields.if_name);
    // Writing into a String can't fail, here and below.
    let _ = write!(out, r#","ipv4":"{address}""#);
    out
}

/// The text of a whole checkpoint: the members of each allocation by address, `count` of them, `length` bytes in all.
pub(crate) fn checkpoint<'m>(members: impl Iterator<Item = &'m str>, count: usize, length: usize) -> String {
    let head = format!(r#"{{"version":"{VERSION}","allocations":["#);
    let (brackets, braces, commas) = ("]}".len(), "{}".len() * count, count.saturating_sub(1));
    let mut out = String::with_capacity(head.len() + length + brackets + braces + commas);
    out.push_str(&head);
    for (index, members) in members.enumerate() {
        out.push_str(if index == 0 { "{" } else { ",{" });
        out.push_str(members);
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// The entry of an assignment.
pub(crate) fn assign(holder: &Holder, now_ms: u64) -> String {
    let members = &holder.stored;
    format!(r#"{{"op":"assign",{members},"at":{now_ms}}}"#)
}

/// The entry of an unassignment.
pub(crate) fn unassign(holder: &Holder, now_ms: u64) -> String {
    let members = &holder.stored;
    format!(r#"{{"op":"unassign",{members},"at":{now_ms}}}"#)
}

/// The entry of addresses that their pods lost by force.
pub(crate) fn forget(addresses: &[Address], now_ms: u64) -> String {
    let mut out = String::from(r#"{"op":"forget","ipv4":"#);
    json::push_list(&mut out, addresses, |out, address| {
        let _ = write!(out, r#""{address}""#);
    });
    let _ = write!(out, r#","at":{now_ms}}}"#);
    out
}

/// The entry of addresses that rest, with the times of their unassignment.
pub(crate) fn rest(addresses: &[(Address, u64)]) -> String {
    let mut out = String::from(r#"{"op":"rest","addresses":"#);
    json::push_list(&mut out, addresses, |out, (address, time)| {
        let _ = write!(out, r#"{{"ipv4":"{address}","at":{time}}}"#);
    });
    out.push('}');
    out
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
    pub(crate) unassigned_at_ms: BTreeMap<Address, u64>,
}

/// Reads a checkpoint and applies the entries, oldest first.
///
/// # Errors
/// The first faulty piece and its fault, in the contract's words.
pub(crate) fn read(data: &str, entries: &[String]) -> Result<Stored, String> {
    let mut folding = Folding::of(read_checkpoint(data)?);
    for (number, entry) in (1_usize..).zip(entries) {
        let change = read_entry(entry).map_err(|fault| match fault {
            Fault::Malformed => format!("checkpoint: entry {number} is malformed"),
            Fault::UnknownOp(op) => format!("checkpoint: entry {number} has the unknown op {}", text::quoted(&op)),
        })?;
        folding.apply(change);
    }
    Ok(folding.done())
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
    let allocations: Vec<&RawValue> = members
        .get_or_default("allocations")
        .ok_or("checkpoint: allocations is not a list")?;
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

/// The meaning of one entry.
enum Change {
    Assign(Key, Address),
    Unassign(Key, Address, u64),
    Forget(Vec<Address>, u64),
    Rest(Vec<(Address, u64)>),
}

/// The fault of an entry.
enum Fault {
    Malformed,
    UnknownOp(String),
}

fn read_entry(entry: &str) -> Result<Change, Fault> {
    let members = Members::read(entry).ok_or(Fault::Malformed)?;
    let op: String = members.get("op").ok_or(Fault::Malformed)?;
    let change = match op.as_str() {
        "assign" => read_change(&members).map(|(key, address, _)| Change::Assign(key, address)),
        "unassign" => read_change(&members).map(|(key, address, at)| Change::Unassign(key, address, at)),
        "forget" => read_forget(&members),
        "rest" => read_rest(&members),
        _ => return Err(Fault::UnknownOp(op)),
    };
    change.ok_or(Fault::Malformed)
}

fn read_change(members: &Members<'_>) -> Option<(Key, Address, u64)> {
    let key = Key::new(IpamKey {
        network_name: members.get("networkName")?,
        container_id: members.get("containerID")?,
        if_name: members.get("ifName")?,
    });
    let change = (key, members.get("ipv4")?, members.get("at")?);
    change.0.missing().is_none().then_some(change)
}

fn read_forget(members: &Members<'_>) -> Option<Change> {
    Some(Change::Forget(members.get("ipv4")?, members.get("at")?))
}

fn read_rest(members: &Members<'_>) -> Option<Change> {
    let rest = |value: &RawValue| {
        let members = Members::read(value.get())?;
        Some((members.get("ipv4")?, members.get("at")?))
    };
    let rests: Vec<&RawValue> = members.get("addresses")?;
    Some(Change::Rest(rests.into_iter().map(rest).collect::<Option<_>>()?))
}

/// A checkpoint while entries are applied to it. A claim's number is its place in the order.
struct Folding {
    claims: Vec<Option<Claim>>,
    by_key: BTreeSet<(Key, usize)>,
    by_address: BTreeSet<(Address, Key, usize)>,
    unassigned_at_ms: BTreeMap<Address, u64>,
}

impl Folding {
    fn of(claims: Vec<Claim>) -> Self {
        let mut folding = Self {
            claims: Vec::with_capacity(claims.len()),
            by_key: BTreeSet::new(),
            by_address: BTreeSet::new(),
            unassigned_at_ms: BTreeMap::new(),
        };
        for claim in claims {
            folding.add(claim);
        }
        folding
    }

    fn add(&mut self, claim: Claim) {
        let number = self.claims.len();
        self.by_key.insert((claim.key.clone(), number));
        // Entries name addresses, so they never find a claim with an invalid text.
        if let Some(address) = Address::parse(&claim.ipv4) {
            self.by_address.insert((address, claim.key.clone(), number));
        }
        self.claims.push(Some(claim));
    }

    fn drop_claims(&mut self, numbers: Vec<usize>) {
        for number in numbers {
            let Some(claim) = self.claims.get_mut(number).and_then(Option::take) else {
                continue;
            };
            if let Some(address) = Address::parse(&claim.ipv4) {
                self.by_address.remove(&(address, claim.key.clone(), number));
            }
            self.by_key.remove(&(claim.key, number));
        }
    }

    fn of_key(&self, key: &Key) -> Vec<usize> {
        let all = (key.clone(), usize::MIN)..=(key.clone(), usize::MAX);
        self.by_key.range(all).map(|&(_, number)| number).collect()
    }

    fn of_address(&self, address: Address) -> Vec<usize> {
        // The key with only empty fields sorts first.
        let nothing = Key::new(IpamKey {
            network_name: String::new(),
            container_id: String::new(),
            if_name: String::new(),
        });
        let from = self.by_address.range((address, nothing, usize::MIN)..);
        let same = from.take_while(|(other, _, _)| *other == address);
        same.map(|&(_, _, number)| number).collect()
    }

    fn of_both(&self, address: Address, key: &Key) -> Vec<usize> {
        let all = (address, key.clone(), usize::MIN)..=(address, key.clone(), usize::MAX);
        self.by_address.range(all).map(|&(_, _, number)| number).collect()
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Assign(key, address) => {
                self.drop_claims(self.of_key(&key));
                self.drop_claims(self.of_address(address));
                let ipv4 = address.to_string();
                self.add(Claim { key, ipv4 });
            }
            Change::Unassign(key, address, at) => {
                self.drop_claims(self.of_both(address, &key));
                self.unassigned_at_ms.insert(address, at);
            }
            Change::Forget(addresses, at) => {
                for address in addresses {
                    self.drop_claims(self.of_address(address));
                    self.unassigned_at_ms.insert(address, at);
                }
            }
            Change::Rest(rests) => self.unassigned_at_ms.extend(rests),
        }
    }

    fn done(self) -> Stored {
        Stored {
            claims: self.claims.into_iter().flatten().collect(),
            unassigned_at_ms: self.unassigned_at_ms,
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
        let address = Address::parse("10.0.0.5").unwrap();
        assert_eq!(members(&key, address), expected);
        let holder = Holder::new(key.clone(), address);
        let data = checkpoint([&*holder.stored].into_iter(), 1, holder.stored.len());
        assert_eq!(
            data,
            format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{{{expected}}}]}}"#)
        );
        let entries = [assign(&holder, u64::MAX), unassign(&holder, 7), assign(&holder, 8)];
        let stored = read(&data, &entries).unwrap();
        let ipv4 = "10.0.0.5".to_owned();
        assert_eq!(stored.claims, [Claim { key, ipv4 }]);
        assert_eq!(stored.unassigned_at_ms, BTreeMap::from([(address, 7)]));
    }
}
