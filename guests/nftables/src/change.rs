//! The commands that turn the observed contents of a table into the desired ones, and the statements of their rules.
//!
//! Pure. Leaves out what stays the same. Removes elements before the chains that they lead to, and adds chains before
//! the elements that will lead to them.

use std::fmt::Display;
use std::rc::Rc;

use crate::ruleset::{Balance, Chain, Content, Elements, Family, Key, Map, Verdict};
use crate::transaction::{POD_SUBNETS, Table};

/// One family's change: the objects of the commands, each list in the order of writing.
#[derive(Debug)]
pub(crate) struct Change<'c> {
    /// The table's family.
    pub(crate) family: Family,
    /// True if the transaction first creates the table anew.
    pub(crate) with_base: bool,
    gone_elements: Vec<(Map, Vec<(Key, &'c Verdict)>)>,
    new_chains: Vec<&'c str>,
    flushed: Vec<&'c str>,
    filled: Vec<(&'c str, &'c Chain)>,
    new_elements: Vec<(Map, Vec<(Key, &'c Verdict)>)>,
    gone_chains: Vec<&'c str>,
}

impl<'c> Change<'c> {
    /// From the observed to the desired contents. `with_base`: the table is first created anew.
    pub(crate) fn between(family: Family, with_base: bool, before: &'c Content, after: &'c Content) -> Self {
        let (mut new_chains, mut flushed, mut filled) = (Vec::new(), Vec::new(), Vec::new());
        for (name, chain) in &after.chains {
            match before.chains.get(name) {
                None => new_chains.push(&**name),
                Some(old) if old != chain => flushed.push(&**name),
                Some(_) => continue,
            }
            filled.push((&**name, chain));
        }
        let gone = before.chains.keys().filter(|name| !after.chains.contains_key(*name));
        let gone_chains: Vec<&str> = gone.map(|name| &**name).collect();
        // Their rules may lead to other removed chains.
        flushed.extend(&gone_chains);
        flushed.sort_unstable();
        Self {
            family,
            with_base,
            gone_elements: only_in(&before.elements, &after.elements),
            new_chains,
            flushed,
            filled,
            new_elements: only_in(&after.elements, &before.elements),
            gone_chains,
        }
    }

    /// True if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        let elements = self.gone_elements.len() + self.new_elements.len();
        // What is filled is new or flushed, and what is gone is flushed.
        !self.with_base && elements + self.new_chains.len() + self.flushed.len() == 0
    }

    /// Writes the commands.
    pub(crate) fn write(&self, table: &mut Table<'_>) {
        let named = |name: &str| format!(r#""name":"{name}""#);
        for (map, elements) in &self.gone_elements {
            table.elements("delete", map.name(), elements);
        }
        for name in &self.new_chains {
            table.command("add", "chain", named(name));
        }
        for name in &self.flushed {
            table.command("flush", "chain", named(name));
        }
        for (name, content) in &self.filled {
            rules(table, name, content);
        }
        for (map, elements) in &self.new_elements {
            table.elements("add", map.name(), elements);
        }
        for name in &self.gone_chains {
            table.command("delete", "chain", named(name));
        }
    }
}

/// By map, what one side has and the other lacks, or has with another verdict.
fn only_in<'c>(one: &'c Elements, other: &Elements) -> Vec<(Map, Vec<(Key, &'c Verdict)>)> {
    let mut maps: Vec<(Map, Vec<(Key, &Verdict)>)> = Vec::new();
    for ((map, key), verdict) in one {
        if other.get(&(*map, *key)) == Some(verdict) {
            continue;
        }
        match maps.last_mut() {
            Some((last, elements)) if last == map => elements.push((*key, verdict)),
            _ => maps.push((*map, vec![(*key, verdict)])),
        }
    }
    maps
}

/// Writes the rules of a chain.
fn rules(table: &mut Table<'_>, name: &str, chain: &Chain) {
    let (saddr, set_mark) = (saddr(table.family), set_mark(table.mark));
    match chain {
        Chain::Endpoint(protocol, address, port) => {
            // From the endpoint to itself: it would answer itself past this host.
            table.rule(name, format_args!("{},{set_mark}", is(&saddr, address)), None);
            let dnat = format_args!(r#"{{"dnat":{{"addr":"{address}","port":{port}}}}}"#);
            table.rule(name, format_args!("{},{dnat}", is(L4PROTO, protocol)), None);
        }
        Chain::All { comment, balance } => table.rule(name, choose(table.family, balance), Some(comment)),
        Chain::ClusterWide { comment, all } => {
            table.rule(name, format_args!("{set_mark},{}", goto(all)), Some(comment));
        }
        Chain::NodeLocal { comment, all, local } => {
            let from_pod = is(&saddr, format_args!("@{POD_SUBNETS}"));
            let from_here = is(SOURCE_TYPE, "local");
            let to_all = goto(all);
            table.rule(name, format_args!("{from_pod},{to_all}"), Some(comment));
            table.rule(name, format_args!("{from_here},{set_mark},{to_all}"), None);
            table.rule(name, choose(table.family, local), None);
        }
    }
}

// The statements of rules in nft's JSON (libnftables-json(5)). All forms were tested with nft 1.0.6. Names of chains
// hold nothing that JSON would escape.

/// Keeps a client's endpoint the same on all nodes and after every restart: the bytes of `true`.
const HASH_SEED: u32 = 0x7472_7565;

/// The packet's transport protocol.
pub(crate) const L4PROTO: &str = r#"{"meta":{"key":"l4proto"}}"#;

/// The type of the packet's source address: `local` for an address of this host.
pub(crate) const SOURCE_TYPE: &str = r#"{"fib":{"result":"type","flags":["saddr"]}}"#;

/// The packet's source address.
pub(crate) fn saddr(family: Family) -> String {
    let family = family.name();
    format!(r#"{{"payload":{{"protocol":"{family}","field":"saddr"}}}}"#)
}

/// Continues if this field of the packet has that value.
pub(crate) fn is(left: &str, right: impl Display) -> String {
    format!(r#"{{"match":{{"op":"==","left":{left},"right":"{right}"}}}}"#)
}

/// Sets this bit of the packet's mark.
pub(crate) fn set_mark(bit: u32) -> String {
    let mark = r#"{"meta":{"key":"mark"}}"#;
    format!(r#"{{"mangle":{{"key":{mark},"value":{{"|":[{mark},{bit}]}}}}}}"#)
}

/// Continues in this chain.
pub(crate) fn goto(target: &str) -> String {
    format!(r#"{{"goto":{{"target":"{target}"}}}}"#)
}

/// Leads to one of the endpoints.
pub(crate) fn choose(family: Family, balance: &Balance) -> String {
    match balance.to.as_slice() {
        [] => return r#"{"drop":null}"#.to_owned(),
        [target] => return goto(target),
        _ => {}
    }
    let modulus = balance.to.len();
    let key = if balance.by_client {
        let client = saddr(family);
        format!(r#"{{"jhash":{{"mod":{modulus},"expr":{client},"seed":{HASH_SEED},"offset":0}}}}"#)
    } else {
        format!(r#"{{"numgen":{{"mode":"random","mod":{modulus},"offset":0}}}}"#)
    };
    let one = |(number, target): (usize, &Rc<str>)| format!("[{number},{}]", goto(target));
    let to = balance.to.iter().enumerate().map(one).collect::<Vec<_>>().join(",");
    format!(r#"{{"vmap":{{"key":{key},"data":{{"set":[{to}]}}}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_that_of_the_specification() {
        assert_eq!(HASH_SEED, 1_953_658_213);
    }
}
