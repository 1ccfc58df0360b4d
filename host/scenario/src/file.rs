//! The scenario file format: [`Scenario`]s as a file holds them, from text and checked. `recorded.rs` writes some.
//!
//! An unknown key anywhere is an error that names the key and its place. [`simulated`] checks the parts of each
//! capability.

use std::collections::BTreeMap;
use std::iter;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use trueup_capabilities::meter::Limits;
use trueup_sources::yaml::{self, FieldError, Node};

use crate::simulated::{self, Check};

/// Reads the scenarios of one file, YAML or JSON: one, or a list of them.
///
/// # Errors
/// The first invalid part, with its line.
pub fn parse(file: &str) -> Result<Vec<Scenario>, FieldError> {
    let root = tree(file)?;
    let scenarios: Vec<Scenario> = match &root.value {
        yaml::Value::List(items) => {
            let read = (0..).zip(items);
            let read = read.map(|(index, item)| scenario(item).map_err(|error| error.within(format!("[{index}]"))));
            read.collect::<Result<_, FieldError>>()?
        }
        yaml::Value::Map(_) => vec![scenario(&root)?],
        _ => return Err(FieldError::of(&root, "must be a scenario or a list of them")),
    };
    let mut lines = BTreeMap::new();
    for (scenario, node) in scenarios.iter().zip(root.items()) {
        if let Some(first) = lines.insert(&scenario.name, scenario.line) {
            let message = format!("was {:?}, must differ from the one on line {first}", scenario.name);
            return Err(FieldError::of(node, message).within("name".to_owned()));
        }
    }
    Ok(scenarios)
}

/// Reads a document, YAML or JSON, as a tree with line numbers. JSON is read as YAML.
pub(crate) fn tree(text: &str) -> Result<Node, FieldError> {
    let mut options = serde_saphyr::options! {
        // `yes`, `no`, `on` and `n` are names in a scenario, not booleans.
        strict_booleans: true,
        with_snippet: false,
    };
    if let Some(budget) = &mut options.budget {
        // One `desired` with a hundred references is normal in a scenario, not an attack. The limits on nodes and on
        // replayed events still bound the expansion of aliases.
        budget.enforce_alias_anchor_ratio = false;
        // The largest scenarios of this project have 12,000 nodes; no file written by hand has more than this.
        budget.max_nodes = 2_000_000;
        budget.max_events = 4_000_000;
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The message repeats the position after its first line, and the line already precedes it.
        let message = error.without_snippet().to_string();
        let mut wrong = FieldError::custom(message.lines().next().unwrap_or_default());
        wrong.line = error.location().map(|location| location.line());
        wrong
    })
}

/// An error about the value of a key, or about the object if the key is missing.
fn wrong(node: &Node, key: &str, message: impl Into<String>) -> FieldError {
    FieldError::of(node.entry(key).unwrap_or(node), message).within(key.to_owned())
}

/// A key without a value is a mistake: read as if it were not there, it would check nothing.
fn refuse_nulls(node: &Node, may_be_null: &[&str]) -> Result<(), FieldError> {
    let is_null = |entry: &&yaml::Entry| entry.value.value == yaml::Value::Null;
    let mut nulls = node.entries().iter().filter(is_null);
    match nulls.find(|entry| !may_be_null.contains(&entry.key.as_str())) {
        None => Ok(()),
        Some(entry) => Err(wrong(node, &entry.key, "was null, must have a value")),
    }
}

fn scenario(node: &Node) -> Result<Scenario, FieldError> {
    refuse_nulls(node, &[])?;
    let mut scenario: Scenario = yaml::read(node)?;
    scenario.line = node.line;
    for (key, text) in [("name", &scenario.name), ("guest", &scenario.guest)] {
        if text.is_empty() {
            return Err(wrong(node, key, "was \"\", must not be empty"));
        }
    }
    match (&scenario.expect_init_error, &scenario.steps) {
        (Some(error), _) if error.is_empty() => {
            return Err(wrong(node, "expect_init_error", "was \"\", must not be empty"));
        }
        (Some(_), Some(_)) => {
            let message = "must not be there beside `expect_init_error`: an instance that did not start takes no step";
            return Err(wrong(node, "steps", message));
        }
        (None, None) => return Err(FieldError::of(node, "`steps` is missing (or `expect_init_error`)")),
        _ => {}
    }
    let nodes = node.entry("steps").map_or(&[][..], Node::items);
    for (index, (step, node)) in scenario.steps.iter_mut().flatten().zip(nodes).enumerate() {
        step.line = node.line;
        check(step, node).map_err(|error| error.within(format!("[{index}]")).within("steps".to_owned()))?;
    }
    if let Some(given) = node.entry("given") {
        let now_ms = (NOW_MS, simulated::fits::<u64> as Check);
        check_parts(given, "given", simulated::given().chain(iter::once(now_ms)))?;
    }
    limits(&scenario.limits).map_err(|error| wrong(node, "limits", error.to_string()))?;
    Ok(scenario)
}

/// The part of `given` that is the time of the clock.
pub(crate) const NOW_MS: &str = "now_ms";

/// Limits in place of the default ones.
pub(crate) fn limits(given: &Map<String, Value>) -> serde_json::Result<Limits> {
    let mut all = json!(Limits::default());
    if let Value::Object(all) = &mut all {
        all.extend(given.clone());
    }
    serde_json::from_value(all)
}

/// Checks the parts of `given` or `expect_state` that are present. They may contain `${name}`, so they stay values.
fn check_parts(node: &Node, key: &str, known: impl Iterator<Item = (&'static str, Check)>) -> Result<(), FieldError> {
    let known: BTreeMap<&str, Check> = known.collect();
    let mut parts = node.entries().iter();
    let checked = parts.try_for_each(|entry| {
        let Some(check) = known.get(entry.key.as_str()) else {
            let known: Vec<&str> = known.keys().copied().collect();
            return Err(FieldError::unknown(entry, &known));
        };
        check(&entry.value).map_err(|error| error.within(entry.key.clone()))
    });
    checked.map_err(|error| error.within(key.to_owned()))
}

/// The key that selects what a step does, and the keys that may accompany it.
const STEPS: [(&str, &[&str]); 7] = [
    ("call", &["args", "expect", "expect_calls", "expect_ending", "save"]),
    ("advance_ms", &["expect_timers", "expect_calls"]),
    ("fault", &[]),
    ("clear_faults", &[]),
    ("operation_done", &["failure", "expect", "expect_calls"]),
    ("restart", &[]),
    ("expect_state", &[]),
];

/// What a step does: the key that selects it. No other key may be there than those that accompany it.
fn kind(node: &Node) -> Result<&'static str, FieldError> {
    let mut said = STEPS.iter().filter(|(key, _)| node.entry(key).is_some());
    let Some((kind, beside)) = said.next() else {
        let kinds = STEPS.map(|(key, _)| format!("`{key}`")).join(", ");
        let message = format!("says nothing to do; there must be one of {kinds}");
        return Err(FieldError::of(node, message));
    };
    if let Some((second, _)) = said.next() {
        let message = format!("does both `{kind}` and `{second}`; these are two steps");
        return Err(FieldError::of(node, message));
    }
    let keys: Vec<&str> = iter::once(kind).chain(*beside).copied().collect();
    match node.entries().iter().find(|entry| !keys.contains(&entry.key.as_str())) {
        None => Ok(*kind),
        Some(other) => Err(FieldError::unknown(other, &keys)),
    }
}

fn check(step: &Step, node: &Node) -> Result<(), FieldError> {
    refuse_nulls(node, &["expect", "failure"])?;
    let asked = node.entry("expect_calls").map_or(&[][..], Node::items);
    for (index, asked) in asked.iter().enumerate() {
        refuse_nulls(asked, &[]).map_err(|error| error.within(format!("expect_calls[{index}]")))?;
    }
    let kind = kind(node)?;
    let mistake = match kind {
        "call" => return check_call(step, node),
        "expect_state" => {
            let mut states = node.entry(kind).into_iter();
            return states.try_for_each(|state| check_parts(state, kind, simulated::expected()));
        }
        "fault" => step.fault.as_ref().and_then(WrittenFault::mistake),
        "clear_faults" if step.clear_faults == Some(false) => Some("was false, must be true"),
        _ => None,
    };
    mistake.map_or(Ok(()), |mistake| Err(wrong(node, kind, mistake)))
}

fn check_call(step: &Step, node: &Node) -> Result<(), FieldError> {
    if step.expect_ending.is_some() && (step.expect.is_some() || !step.save.is_empty()) {
        let message = "must not be there beside `expect` or `save`: a call that ends so has no answer";
        return Err(wrong(node, "expect_ending", message));
    }
    let mut pointers = step.save.iter();
    if let Some((name, pointer)) = pointers.find(|(_, it)| !it.is_empty() && !it.starts_with('/')) {
        let message = format!("{name}: was {pointer:?}, must be a JSON pointer: \"\" or \"/...\"");
        return Err(wrong(node, "save", message));
    }
    Ok(())
}

/// One scenario, as its file holds it. One that was read is fully checked, except for what only a run can show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Scenario {
    /// The line on which it begins.
    #[serde(skip)]
    pub line: u64,
    /// Unique in its file.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    /// `NAME` or `NAME@VERSION`.
    pub guest: String,
    /// For `lifecycle.init`.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    /// Text that the error of `init` must contain. In this case there are no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_init_error: Option<String>,
    /// Those that are not the default ones.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) limits: Map<String, Value>,
    /// The initial world: the time of the clock, and its other parts by the key of the capability.
    #[serde(default)]
    pub(crate) given: Map<String, Value>,
    /// `None` only beside `expect_init_error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<Step>>,
}

/// One step: the key of what it does, and the keys that may be beside it. Values may contain `${name}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Step {
    /// In its file.
    #[serde(skip)]
    pub line: u64,
    /// Calls this export, `interface.function` in WIT spelling.
    #[serde(default, deserialize_with = "function", skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    /// By parameter name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Map<String, Value>>,
    /// Moves the clock by milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advance_ms: Option<u64>,
    /// Adds a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<WrittenFault>,
    /// Removes all faults. Only `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clear_faults: Option<bool>,
    /// Ends the operation of a capability with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation_done: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Starts a new instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restart: Option<Restart>,
    /// Compares the world: its parts by the key of the capability. Missing parts are not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_state: Option<Map<String, Value>>,
    /// The answer.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) expect: Option<Value>,
    /// How the call must end without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_ending: Option<Ending>,
    /// `[id, result]` of each timer that fired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_timers: Option<Vec<(u64, Value)>>,
    /// The expected questions, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expect_calls: Option<Vec<Asked>>,
    /// Maps a name to a JSON pointer into the answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) save: BTreeMap<String, String>,
}

/// A question that an instance asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Asked {
    /// `interface.function` in WIT spelling.
    #[serde(deserialize_with = "function")]
    pub call: String,
    /// By parameter name.
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// How a call ends without an answer, in the words of a recording, and what its text must contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The guest trapped.
    Trap(String),
    /// It met a limit of time.
    Deadline(String),
    /// It met the limit of its memory.
    Memory(String),
}

impl Ending {
    /// Its name in a recording, and the text.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Trap(text) => ("trap", text),
            Self::Deadline(text) => ("deadline", text),
            Self::Memory(text) => ("memory", text),
        }
    }
}

/// A fault to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct WrittenFault {
    #[serde(deserialize_with = "function")]
    pub(crate) call: String,
    /// An answer is either an error or another value.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Value>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
    /// `None`, which is null in a file: for ever.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub(crate) times: Option<u64>,
    #[serde(rename = "match")]
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(crate) matching: Option<Value>,
}

impl WrittenFault {
    /// What is wrong with it, if something is.
    fn mistake(&self) -> Option<&'static str> {
        match (&self.error, &self.answer) {
            (None, None) => Some("`error` is missing (or `answer`)"),
            (Some(_), Some(_)) => Some("has both `error` and `answer`; there may be one"),
            _ if self.times == Some(0) => Some("`times` was 0, must be at least 1, or null for ever"),
            _ => None,
        }
    }
}

/// A new start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Restart {
    /// Whether the new instance restores the old one's snapshot.
    #[serde(default)]
    pub(crate) carry_state: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "as serde calls it")]
fn once() -> Option<u64> {
    Some(1)
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn is_once(times: &Option<u64>) -> bool {
    *times == once()
}

/// A value that is there, even if it is null.
fn present<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(given).map(Some)
}

/// `interface.function` in WIT spelling.
fn function<'de, D: Deserializer<'de>, T: From<String>>(given: D) -> Result<T, D::Error> {
    let text = String::deserialize(given)?;
    match text.split_once('.') {
        Some((interface, function)) if !interface.is_empty() && !function.is_empty() => Ok(text.into()),
        _ => Err(D::Error::custom(format_args!(
            "was {text:?}, must be `interface.function`"
        ))),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
