//! The scenario file format: from text to [`Scenario`]s, and their types.
//!
//! An unknown key anywhere is an error that names the key and its place. [`simulated`] checks the parts of each
//! capability.

use std::collections::BTreeMap;
use std::iter;

use serde_json::{Map, Value, json};
use trueup_capabilities::faults::Fault;
use trueup_capabilities::meter::Limits;
use trueup_sources::yaml::{self, FieldError, Node};

use crate::document::{self, ParseError};
use crate::simulated::{self, Check, Parts};
use crate::written::{Asked, Ending, Written, WrittenFault, WrittenStep};

/// Reads the scenarios of one file, YAML or JSON: one, or a list of them.
///
/// # Errors
/// The first invalid part, with its line.
pub fn parse(file: &str) -> Result<Vec<Scenario>, ParseError> {
    let root = document::parse(file)?;
    let scenarios: Vec<Scenario> = match &root.value {
        yaml::Value::List(items) => {
            let read = (0..).zip(items);
            let read = read.map(|(index, item)| scenario(item).map_err(|error| error.within(format!("[{index}]"))));
            read.collect::<Result<_, FieldError>>()?
        }
        yaml::Value::Map(_) => vec![scenario(&root)?],
        _ => return Err(FieldError::of(&root, "must be a scenario or a list of them").into()),
    };
    let mut lines = BTreeMap::new();
    for scenario in &scenarios {
        if let Some(first) = lines.insert(&scenario.name, scenario.line) {
            return Err(ParseError {
                line: Some(scenario.line),
                message: format!(
                    "name: was {:?}, must differ from the one on line {first}",
                    scenario.name
                ),
            });
        }
    }
    Ok(scenarios)
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
    let written: Written = yaml::read(node)?;
    for (key, text) in [("name", &written.name), ("guest", &written.guest)] {
        if text.is_empty() {
            return Err(wrong(node, key, "was \"\", must not be empty"));
        }
    }
    match (&written.expect_init_error, &written.steps) {
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
    let steps = node.entry("steps").map(|steps| {
        let written = written.steps.into_iter().flatten();
        let read = (0..).zip(written.zip(steps.items()));
        let read = read
            .map(|(index, (written, node))| step(written, node).map_err(|error| error.within(format!("[{index}]"))));
        read.collect::<Result<_, FieldError>>()
    });
    let steps = steps.transpose().map_err(|error| error.within("steps".to_owned()))?;
    Ok(Scenario {
        line: node.line,
        name: written.name,
        guest: written.guest,
        config: Value::Object(written.config),
        expect_init_error: written.expect_init_error,
        given: node.entry("given").map(given).transpose()?.unwrap_or_default(),
        limits: limits(written.limits).map_err(|error| wrong(node, "limits", error.to_string()))?,
        steps: steps.unwrap_or_default(),
    })
}

fn given(node: &Node) -> Result<Given, FieldError> {
    const NOW_MS: &str = "now_ms";
    let known = simulated::given().chain(iter::once((NOW_MS, simulated::fits::<u64> as Check)));
    let mut parts = parts(node, "given", known)?;
    let now_ms = parts.remove(NOW_MS).and_then(|now| now.as_u64());
    Ok(Given {
        now_ms: now_ms.unwrap_or_default(),
        parts,
    })
}

/// Limits in place of the default ones.
fn limits(given: Map<String, Value>) -> serde_json::Result<Limits> {
    let mut all = json!(Limits::default());
    if let Value::Object(all) = &mut all {
        all.extend(given);
    }
    serde_json::from_value(all)
}

/// The parts of `given` or `expect_state` that are present. They may contain `${name}`, so they stay values.
fn parts(node: &Node, key: &str, known: impl Iterator<Item = (&'static str, Check)>) -> Result<Parts, FieldError> {
    let known: BTreeMap<&'static str, Check> = known.collect();
    let part = |entry: &yaml::Entry| {
        let Some((key, check)) = known.get_key_value(entry.key.as_str()) else {
            let known: Vec<&str> = known.keys().copied().collect();
            return Err(FieldError::unknown(entry, &known));
        };
        check(&entry.value).map_err(|error| error.within(entry.key.clone()))?;
        Ok((*key, entry.value.to_json()))
    };
    let parts = node.entries().iter().map(part).collect::<Result<_, _>>();
    parts.map_err(|error: FieldError| error.within(key.to_owned()))
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

fn step(mut written: WrittenStep, node: &Node) -> Result<Step, FieldError> {
    refuse_nulls(node, &["expect", "failure"])?;
    let asked = node.entry("expect_calls").map_or(&[][..], Node::items);
    for (index, asked) in asked.iter().enumerate() {
        refuse_nulls(asked, &[]).map_err(|error| error.within(format!("expect_calls[{index}]")))?;
    }
    let kind = kind(node)?;
    // No kind of step may have both.
    let timers = written.expect_timers.take().map(|timers| json!(timers));
    let expect = written.expect.take().or(timers);
    let expect_calls = written.expect_calls.take();
    // The key of this kind is there, and its value is not null.
    let action = match kind {
        "call" => call(written, node, expect.is_some())?,
        "advance_ms" => Action::Advance(written.advance_ms.unwrap_or_default()),
        "fault" => {
            let fault = written.fault.ok_or("is missing").and_then(fault);
            Action::Fault(fault.map_err(|message| wrong(node, kind, message))?)
        }
        "clear_faults" if written.clear_faults == Some(true) => Action::ClearFaults,
        "clear_faults" => return Err(wrong(node, kind, "was false, must be true")),
        "operation_done" => Action::OperationDone {
            operation: written.operation_done.unwrap_or_default(),
            failure: written.failure,
        },
        "restart" => Action::Restart {
            carry_state: written.restart.unwrap_or_default().carry_state,
        },
        _ => {
            let expected = node.entry(kind).map(|state| parts(state, kind, simulated::expected()));
            Action::ExpectState(expected.transpose()?.unwrap_or_default())
        }
    };
    Ok(Step {
        line: node.line,
        action,
        expect,
        expect_calls,
    })
}

fn call(written: WrittenStep, node: &Node, has_expect: bool) -> Result<Action, FieldError> {
    if written.expect_ending.is_some() && (has_expect || !written.save.is_empty()) {
        let message = "must not be there beside `expect` or `save`: a call that ends so has no answer";
        return Err(wrong(node, "expect_ending", message));
    }
    let mut pointers = written.save.iter();
    if let Some((name, pointer)) = pointers.find(|(_, it)| !it.is_empty() && !it.starts_with('/')) {
        let message = format!("{name}: was {pointer:?}, must be a JSON pointer: \"\" or \"/...\"");
        return Err(wrong(node, "save", message));
    }
    Ok(Action::Call {
        export: written.call.unwrap_or_default(),
        args: Value::Object(written.args.unwrap_or_default()),
        expect_ending: written.expect_ending,
        save: written.save,
    })
}

fn fault(given: WrittenFault) -> Result<Fault, &'static str> {
    let answer = match (given.error, given.answer) {
        (Some(error), None) => json!({ "Err": error }),
        (None, Some(answer)) => answer,
        (None, None) => return Err("`error` is missing (or `answer`)"),
        (Some(_), Some(_)) => return Err("has both `error` and `answer`; there may be one"),
    };
    if given.times == Some(0) {
        return Err("`times` was 0, must be at least 1, or null for ever");
    }
    Ok(Fault {
        call: given.call,
        answer,
        times: given.times,
        matching: given.matching,
    })
}

/// One scenario, fully checked, except for what only a run can show.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The line on which it begins.
    pub line: u64,
    /// Unique in its file.
    pub name: String,
    /// `NAME` or `NAME@VERSION`.
    pub guest: String,
    /// An object, for `lifecycle.init`.
    pub config: Value,
    /// Text that the error of `init` must contain. In this case there are no steps.
    pub expect_init_error: Option<String>,
    /// The initial world.
    pub given: Given,
    /// The limits of its instances.
    pub limits: Limits,
    /// In order.
    pub steps: Vec<Step>,
}

/// The initial world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The time of the clock.
    pub now_ms: u64,
    /// Its other parts, by the key of the capability.
    pub(crate) parts: Parts,
}

/// One step and its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// In its file.
    pub line: u64,
    /// Its action.
    pub action: Action,
    /// The answer; where the clock moves, `[id, result]` of each timer that fired.
    pub expect: Option<Value>,
    /// The expected questions, in order.
    pub expect_calls: Option<Vec<Asked>>,
}

/// What a step does. Values may contain `${name}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Calls an export.
    Call {
        /// `interface.function` in WIT spelling.
        export: String,
        /// By parameter name.
        args: Value,
        /// How it must end without an answer.
        expect_ending: Option<Ending>,
        /// Maps a name to a JSON pointer into the answer.
        save: BTreeMap<String, String>,
    },
    /// Moves the clock by milliseconds.
    Advance(u64),
    /// Adds a fault.
    Fault(Fault),
    /// Removes all faults.
    ClearFaults,
    /// Ends an operation of a capability.
    OperationDone {
        /// Its number.
        operation: u64,
        /// Why it failed.
        failure: Option<String>,
    },
    /// Starts a new instance.
    Restart {
        /// Whether the new instance restores the old one's snapshot.
        carry_state: bool,
    },
    /// Compares the world: its parts by the key of the capability. Missing parts are not compared.
    ExpectState(Parts),
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
