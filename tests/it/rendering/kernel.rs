//! A packet filter that keeps what transactions make of it, and refuses what the kernel refuses.
//!
//! It knows the commands that trueup sends: tables, chains, sets, maps, rules at the end, elements. It does not look into
//! expressions but for the chains and sets that they name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use trueup_runtime::capabilities::Answer;
use trueup_runtime::capabilities::nftables;

/// What is in the kernel: by family and name of the table. Two are equal where rules are alike in order and elements alike in
/// any.
pub(crate) type Tables = BTreeMap<(String, String), Table>;

/// One table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// The chain as it was added, and its rules.
    chains: BTreeMap<String, (Value, Vec<Value>)>,
    /// Sets and maps: as they were added, and by key as JSON the element's value; null in a set.
    sets: BTreeMap<String, (Value, BTreeMap<String, Value>)>,
}

/// See the module. Clones are the same kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    /// What was refused for what it is, which never happens to a renderer that knows what is there.
    refused: Vec<String>,
}

impl Kernel {
    pub(crate) fn tables(&self) -> Tables {
        self.0.lock().unwrap().tables.clone()
    }

    /// Why transactions were refused for what they are.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.0.lock().unwrap().refused.clone()
    }
}

impl nftables::Api for Kernel {
    fn apply<'a>(&'a self, ruleset: &'a str) -> Answer<'a, Result<(), String>> {
        let mut state = self.0.lock().unwrap();
        let mut tables = state.tables.clone();
        let applied = transaction(&mut tables, ruleset);
        match &applied {
            Ok(()) => state.tables = tables,
            Err(error) => state.refused.push(error.clone()),
        }
        Box::pin(std::future::ready(applied))
    }
}

fn transaction(tables: &mut Tables, ruleset: &str) -> Result<(), String> {
    let ruleset: Value = serde_json::from_str(ruleset).map_err(|error| error.to_string())?;
    let commands = ruleset["nftables"].as_array().ok_or("no commands")?;
    for command in commands {
        apply(tables, command).ok_or_else(|| format!("the kernel refuses {command}"))?;
    }
    let dangling = tables.values().find_map(Table::dangling);
    dangling.map_or(Ok(()), |name| Err(format!("`{name}` is used, and is not there")))
}

/// None: refused.
fn apply(tables: &mut Tables, command: &Value) -> Option<()> {
    let (verb, objects) = command.as_object()?.iter().next()?;
    if verb == "metainfo" {
        return Some(());
    }
    let (kind, object) = objects.as_object()?.iter().next()?;
    let text = |field: &str| Some(object[field].as_str()?.to_owned());
    let family = text("family")?;
    if kind == "table" {
        let at = (family, text("name")?);
        match verb.as_str() {
            "add" => _ = tables.entry(at).or_default(),
            "delete" => _ = tables.remove(&at)?,
            _ => return None,
        }
        return Some(());
    }
    let table = tables.get_mut(&(family, text("table")?))?;
    match (verb.as_str(), kind.as_str()) {
        ("add", "chain") => {
            let new = || (object.clone(), Vec::new());
            (table.chains.entry(text("name")?).or_insert_with(new).0 == *object).then_some(())
        }
        ("flush", "chain") => {
            table.chains.get_mut(&text("name")?)?.1.clear();
            Some(())
        }
        ("delete", "chain") => {
            let (_, rules) = table.chains.remove(&text("name")?)?;
            // In use where it is: a chain that anything names, or that has rules, is busy.
            (rules.is_empty() && table.dangling().is_none()).then_some(())
        }
        ("add", "set" | "map") => {
            let new = || (object.clone(), BTreeMap::new());
            (table.sets.entry(text("name")?).or_insert_with(new).0 == *object).then_some(())
        }
        ("add", "rule") => {
            table.chains.get_mut(&text("chain")?)?.1.push(object.clone());
            // What it names has to be there already.
            table.dangling().is_none().then_some(())
        }
        ("add" | "delete", "element") => {
            let (_, held) = table.sets.get_mut(&text("name")?)?;
            for element in object["elem"].as_array()? {
                let (key, value) = match element.as_array().map(Vec::as_slice) {
                    Some([key, value]) => (key.to_string(), value.clone()),
                    Some(_) => return None,
                    None => (element.to_string(), Value::Null),
                };
                if verb == "delete" {
                    held.remove(&key)?;
                } else if *held.entry(key).or_insert_with(|| value.clone()) != value {
                    return None;
                }
            }
            table.dangling().is_none().then_some(())
        }
        _ => None,
    }
}

impl Table {
    /// A chain or set that something names and that is not there.
    fn dangling(&self) -> Option<String> {
        let rules = self.chains.values().flat_map(|(_, rules)| rules);
        let elements = self.sets.values().flat_map(|(_, elements)| elements.values());
        rules.chain(elements).find_map(|value| self.missing(value))
    }

    fn missing(&self, value: &Value) -> Option<String> {
        match value {
            Value::Object(fields) => fields.iter().find_map(|(name, value)| {
                let target = value["target"].as_str().filter(|_| name == "goto" || name == "jump");
                let is_missing = |target: &&str| !self.chains.contains_key(*target);
                let chain = target.filter(is_missing).map(str::to_owned);
                chain.or_else(|| self.missing(value))
            }),
            Value::Array(values) => values.iter().find_map(|value| self.missing(value)),
            Value::String(text) => {
                let set = text.strip_prefix('@')?;
                (!self.sets.contains_key(set)).then(|| text.clone())
            }
            _ => None,
        }
    }
}

#[test]
fn a_transaction_is_whole_or_nothing() {
    let kernel = Kernel::default();
    let apply = |commands: &str| {
        let ruleset = format!("{{\"nftables\":[{{\"metainfo\":{{\"json_schema_version\":1}}}},{commands}]}}");
        let answer = nftables::Api::apply(&kernel, &ruleset);
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(answer)
    };
    let chain = |verb: &str, name: &str| {
        format!("{{\"{verb}\":{{\"chain\":{{\"family\":\"ip\",\"table\":\"t\",\"name\":\"{name}\"}}}}}}")
    };
    let rule = |chain: &str, target: &str| {
        format!(
            "{{\"add\":{{\"rule\":{{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"{chain}\",\
             \"expr\":[{{\"goto\":{{\"target\":\"{target}\"}}}}]}}}}}}"
        )
    };
    let table = "{\"add\":{\"table\":{\"family\":\"ip\",\"name\":\"t\"}}}".to_owned();
    apply(&[table, chain("add", "a"), chain("add", "b"), rule("a", "b")].join(",")).unwrap();
    let before = kernel.tables();
    for refused in [
        chain("delete", "b"),
        chain("delete", "a"),
        rule("a", "c"),
        [chain("flush", "a"), chain("delete", "a"), chain("delete", "c")].join(","),
    ] {
        apply(&refused).unwrap_err();
        assert_eq!(kernel.tables(), before, "{refused}");
    }
    apply(&[chain("flush", "a"), chain("delete", "b"), chain("delete", "a")].join(",")).unwrap();
    assert_ne!(kernel.tables(), before);
    assert_eq!(kernel.refused().len(), 4);
}
