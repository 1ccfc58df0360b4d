//! nft's tables in memory, with faults and a transcript: for native tests.
//!
//! Stricter than the kernel: a transaction with an unnecessary command, or one that the kernel would refuse, fails the
//! test at once.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use trueup_guest::testing::{Simulated, Transcript};

use crate::renderer::World;

/// Tables by family and name.
pub(crate) type Tables = BTreeMap<(String, String), Table>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// By name: the chain as added, and its rules in order.
    pub(crate) chains: BTreeMap<String, (Value, Vec<Value>)>,
    /// Sets and maps by name: as added, with their elements by key.
    pub(crate) sets: BTreeMap<String, (Value, BTreeMap<String, Value>)>,
}

/// The guest's world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) tables: Tables,
    /// The next answers, each an error.
    pub(crate) faults: VecDeque<String>,
    /// The transactions, including those that a fault refused.
    pub(crate) asked: Vec<String>,
    pub(crate) record: Transcript,
}

impl World for Simulation {
    fn apply(&mut self, ruleset: &str) -> Result<(), String> {
        self.asked.push(ruleset.to_owned());
        match self.faults.pop_front() {
            Some(error) => Err(error),
            None => {
                apply(&mut self.tables, ruleset);
                Ok(())
            }
        }
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}

impl Simulation {
    /// The transactions since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked)
    }
}

/// Runs one transaction.
pub(crate) fn apply(tables: &mut Tables, ruleset: &str) {
    let before = tables.clone();
    let ruleset: Value = serde_json::from_str(ruleset).unwrap();
    let (metainfo, commands) = ruleset["nftables"].as_array().unwrap().split_first().unwrap();
    assert_eq!(metainfo.to_string(), r#"{"metainfo":{"json_schema_version":1}}"#);
    assert!(!commands.is_empty(), "a transaction with nothing to do");
    let mut flushed = Vec::new();
    for command in commands {
        run(tables, command, &mut flushed);
    }
    for (place, name) in flushed {
        let rules = |tables: &Tables| Some(tables.get(&place)?.chains.get(&name)?.1.clone());
        let (old, new) = (rules(&before), rules(tables));
        assert_ne!(old, new, "`{name}` was flushed and is as before");
    }
}

fn run(tables: &mut Tables, command: &Value, flushed: &mut Vec<((String, String), String)>) {
    let (verb, object) = one(command);
    let (kind, content) = one(object);
    let text = |member: &str| content[member].as_str().unwrap().to_owned();
    if kind == "table" {
        let place = (text("family"), text("name"));
        match verb {
            "add" => drop(tables.entry(place).or_default()),
            _ => drop(tables.remove(&place).unwrap()),
        }
        return;
    }
    let place = (text("family"), text("table"));
    let table = tables.get_mut(&place).unwrap();
    match (verb, kind) {
        ("add", "set" | "map") => {
            let old = table.sets.insert(text("name"), (content.clone(), BTreeMap::new()));
            assert_eq!(old, None, "{command}");
        }
        ("add", "chain") => {
            let old = table.chains.insert(text("name"), (content.clone(), Vec::new()));
            assert_eq!(old, None, "{command}");
        }
        ("flush", "chain") => {
            let (_, rules) = table.chains.get_mut(&text("name")).unwrap();
            assert!(!rules.is_empty(), "{command}");
            rules.clear();
            flushed.push((place, text("name")));
        }
        ("delete", "chain") => {
            let (_, rules) = table.chains.remove(&text("name")).unwrap();
            assert!(rules.is_empty(), "{command}");
            table.check_references();
        }
        ("add", "rule") => {
            let (_, rules) = table.chains.get_mut(&text("chain")).unwrap();
            rules.push(content.clone());
            table.check_references();
        }
        ("add" | "delete", "element") => {
            let (_, elements) = table.sets.get_mut(&text("name")).unwrap();
            for element in content["elem"].as_array().unwrap() {
                let key = element.get(0).unwrap_or(element).to_string();
                match verb {
                    "add" => assert_eq!(elements.insert(key, element.clone()), None, "{command}"),
                    _ => assert_eq!(elements.remove(&key).as_ref(), Some(element), "{command}"),
                }
            }
            table.check_references();
        }
        _ => panic!("{command}"),
    }
}

/// The name and the value of an object's only member.
fn one(object: &Value) -> (&str, &Value) {
    let members = object.as_object().unwrap();
    assert_eq!(members.len(), 1, "{object}");
    let (name, value) = members.iter().next().unwrap();
    (name, value)
}

impl Table {
    /// Checks that the targets of all rules and elements exist.
    fn check_references(&self) {
        let rules = self.chains.values().flat_map(|(_, rules)| rules);
        let elements = self.sets.values().flat_map(|(_, elements)| elements.values());
        for value in rules.chain(elements) {
            self.check(value);
        }
    }

    fn check(&self, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(target) = members.get("target") {
                    let target = target.as_str().unwrap();
                    assert!(self.chains.contains_key(target), "no chain `{target}`");
                }
                members.values().for_each(|value| self.check(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.check(value)),
            Value::String(text) => {
                if let Some(set) = text.strip_prefix('@') {
                    assert!(self.sets.contains_key(set), "no set `{set}`");
                }
            }
            _ => {}
        }
    }
}
