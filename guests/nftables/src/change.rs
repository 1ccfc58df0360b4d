//! The commands that turn the observed contents of a table into the desired ones.
//!
//! Pure. Leaves out what stays the same. Removes elements before the chains that they lead to, and adds chains before
//! the elements that will lead to them.

use std::io::Write;

use crate::ruleset::{Balance, Chain, Choice, Content, Elements, Key, Map, Verdict};
use crate::schema::{Command, Elements as Written, Expression, Object, Statement, Table};
use crate::transaction::Writer;

/// Keeps a client's endpoint the same on all nodes and after every restart: the bytes of `true`.
const HASH_SEED: u32 = 0x7472_7565;

/// `@pod-subnets`, as a rule looks it up.
const IN_POD_SUBNETS: &str = "@pod-subnets";

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
    pub(crate) fn write<W: Write>(&self, out: &mut Writer<W>, of: Table<'_>, mark: u32) {
        let chain = |name| Object::Chain { of, name };
        for (map, elements) in &self.gone_elements {
            out.command(&Command::Delete(element(of, *map, elements)));
        }
        for name in &self.new_chains {
            out.command(&Command::Add(chain(name)));
        }
        for name in &self.flushed {
            out.command(&Command::Flush(chain(name)));
        }
        for (name, content) in &self.filled {
            rules(out, of, name, content, mark);
        }
        for (map, elements) in &self.new_elements {
            out.command(&Command::Add(element(of, *map, elements)));
        }
        for name in &self.gone_chains {
            out.command(&Command::Delete(chain(name)));
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

fn element<'t>(of: Table<'t>, map: Map, elements: &'t [(Key, &'t Verdict)]) -> Object<'t> {
    Object::Element {
        of,
        name: map.name(),
        elem: Written::Verdicts(elements),
    }
}

/// Writes the rules of a chain.
fn rules<W: Write>(out: &mut Writer<W>, of: Table<'_>, name: &str, chain: &Chain, mark: u32) {
    let family = of.family;
    match chain {
        Chain::Endpoint {
            protocol,
            address,
            port,
        } => {
            // From the endpoint to itself: it would answer itself past this host.
            let hairpin = Statement::is(Expression::saddr(family), Expression::address(*address));
            out.rule(of, name, &[hairpin, Statement::set_mark(mark)], None);
            let dnat = Statement::Dnat {
                addr: Expression::address(*address),
                port: *port,
            };
            let protocol = Statement::is(Expression::l4proto(), Expression::Protocol(*protocol));
            out.rule(of, name, &[protocol, dnat], None);
        }
        Chain::All { comment, balance } => out.rule(of, name, &[choose(of, balance)], Some(comment)),
        Chain::ClusterWide { comment, all } => {
            let to_all = Statement::Goto { target: all };
            out.rule(of, name, &[Statement::set_mark(mark), to_all], Some(comment));
        }
        Chain::NodeLocal { comment, all, local } => {
            let from_pod = Statement::is(Expression::saddr(family), Expression::word(IN_POD_SUBNETS));
            out.rule(of, name, &[from_pod, Statement::Goto { target: all }], Some(comment));
            let source = Expression::Fib {
                result: "type",
                flags: ["saddr"],
            };
            let from_here = Statement::is(source, Expression::word("local"));
            let to_all = Statement::Goto { target: all };
            out.rule(of, name, &[from_here, Statement::set_mark(mark), to_all], None);
            out.rule(of, name, &[choose(of, local)], None);
        }
    }
}

/// Leads to one of the endpoints.
fn choose<'t>(of: Table<'t>, balance: &'t Balance) -> Statement<'t> {
    let modulus = balance.to.len();
    match balance.to.as_slice() {
        [] => return Statement::Drop(()),
        [target] => return Statement::Goto { target },
        _ => {}
    }
    let key = match balance.choice {
        Choice::Random => Expression::Numgen {
            mode: "random",
            modulus,
            offset: 0,
        },
        Choice::ByClient => Expression::Jhash {
            modulus,
            expr: Box::new(Expression::saddr(of.family)),
            seed: HASH_SEED,
            offset: 0,
        },
    };
    let to = balance.to.iter().map(|target| Statement::Goto { target });
    Statement::Vmap {
        key,
        data: Expression::Set(to.enumerate().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::POD_SUBNETS;

    #[test]
    fn the_seed_is_that_of_the_specification() {
        assert_eq!(HASH_SEED, 1_953_658_213);
        assert_eq!(IN_POD_SUBNETS, format!("@{POD_SUBNETS}"));
    }
}
