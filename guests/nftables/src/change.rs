//! The commands that turn the observed contents of a table into the desired ones.
//!
//! Pure. Leaves out what stays the same. Removes elements before the chains that they lead to, and adds chains before
//! the elements that will lead to them.

use crate::base::POD_SUBNETS;
use crate::ruleset::{Chain, Content, Elements, Key, Map, Verdict};
use crate::statements::{L4PROTO, SOURCE_TYPE, choose, goto, is, saddr, set_mark};
use crate::transaction::Table;

/// The objects of the commands, each list in the order of writing.
#[derive(Debug, Default)]
pub(crate) struct Change<'c> {
    gone_elements: Vec<(Map, Vec<(Key, &'c Verdict)>)>,
    new_chains: Vec<&'c str>,
    flushed: Vec<&'c str>,
    filled: Vec<(&'c str, &'c Chain)>,
    new_elements: Vec<(Map, Vec<(Key, &'c Verdict)>)>,
    gone_chains: Vec<&'c str>,
}

impl<'c> Change<'c> {
    /// From the observed to the desired contents.
    pub(crate) fn between(before: &'c Content, after: &'c Content) -> Self {
        let mut change = Self {
            gone_elements: only_in(&before.elements, &after.elements),
            new_elements: only_in(&after.elements, &before.elements),
            ..Self::default()
        };
        for (name, chain) in &after.chains {
            match before.chains.get(name) {
                None => change.new_chains.push(name),
                Some(old) if old != chain => change.flushed.push(name),
                Some(_) => continue,
            }
            change.filled.push((name, chain));
        }
        let gone = before.chains.keys().filter(|name| !after.chains.contains_key(*name));
        change.gone_chains = gone.map(|name| &**name).collect();
        // Their rules may lead to other removed chains.
        change.flushed.extend(&change.gone_chains);
        change.flushed.sort_unstable();
        change
    }

    /// True if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.gone_elements.is_empty()
            && self.filled.is_empty()
            && self.flushed.is_empty()
            && self.new_elements.is_empty()
            && self.gone_chains.is_empty()
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
        Chain::Endpoint {
            protocol,
            address,
            port,
        } => {
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
