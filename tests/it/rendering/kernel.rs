//! A packet filter that stores the results of transactions, and refuses what the kernel refuses.
//!
//! It knows the commands that trueup sends: tables, chains, sets, maps, rules at the end, elements. In expressions it
//! only looks at the names of chains and sets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use trueup_capabilities::async_trait;
use trueup_capabilities::nftables;

/// The kernel's tables by family and name. Two are equal if their rules are equal in order and their elements in any
/// order.
pub(crate) type Tables = BTreeMap<(String, String), Table>;

/// One table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// The chain as added, and its rules.
    chains: BTreeMap<String, (Value, Vec<Value>)>,
    /// Sets and maps: as added, and the value of each element by its key as JSON; null in a set.
    sets: BTreeMap<String, (Value, BTreeMap<String, Value>)>,
}

/// A packet filter; see the module. Clones share one kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    /// Transactions refused because of their contents, which never happens to a renderer that knows the present state.
    refused: Vec<String>,
}

impl Kernel {
    pub(crate) fn tables(&self) -> Tables {
        self.0.lock().unwrap().tables.clone()
    }

    /// Why transactions were refused because of their contents.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.0.lock().unwrap().refused.clone()
    }
}

#[async_trait]
impl nftables::Api for Kernel {
    async fn apply(&self, ruleset: &str) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        let mut tables = state.tables.clone();
        let applied = transaction(&mut tables, ruleset);
        match &applied {
            Ok(()) => state.tables = tables,
            Err(error) => state.refused.push(error.clone()),
        }
        applied
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

/// `None` if it is refused.
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
            // A chain in use, by name or with rules of its own, is busy.
            (rules.is_empty() && table.dangling().is_none()).then_some(())
        }
        ("add", "set" | "map") => {
            let new = || (object.clone(), BTreeMap::new());
            (table.sets.entry(text("name")?).or_insert_with(new).0 == *object).then_some(())
        }
        ("add", "rule") => {
            table.chains.get_mut(&text("chain")?)?.1.push(object.clone());
            // The names that it uses must already exist.
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
    /// A missing chain or set that something names.
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
