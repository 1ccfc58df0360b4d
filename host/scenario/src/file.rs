//! The scenario file format: from text to [`Scenario`]s.
//!
//! An unknown key anywhere is an error that names the key, the place and the valid keys. [`simulated`] reads the parts
//! of each capability.

use std::collections::BTreeMap;
use std::iter;

use serde_json::{Value, json};
use trueup_capabilities::faults::Fault;
use trueup_capabilities::meter::Limits;
use trueup_sources::yaml::{self, Entry, Node};

use crate::document::{self, ParseError};
use crate::fields::{Fields, count, entries, error, items, join, list, name, object, text, truth, was};
use crate::model::{Action, ENDINGS, Ending, Given, Scenario, Step};
use crate::simulated::{self, Parts, Reader};

/// Reads the scenarios of one file, YAML or JSON: one, or a list of them.
///
/// # Errors
/// The first invalid part, with its line.
pub fn parse(file: &str) -> Result<Vec<Scenario>, ParseError> {
    let root = document::parse(file)?;
    let scenarios: Vec<Scenario> = match &root.value {
        yaml::Value::List(_) => items(&root, "")?
            .iter()
            .map(|(place, node)| scenario(node, place))
            .collect::<Result<_, _>>()?,
        yaml::Value::Map(_) => vec![scenario(&root, "")?],
        _ => return Err(was(&root, "", "a scenario or a list of them")),
    };
    let mut lines = BTreeMap::new();
    for scenario in &scenarios {
        if let Some(first) = lines.insert(&scenario.name, scenario.line) {
            let message = format!(
                "`name`: was {:?}, must differ from the one on line {first}",
                scenario.name
            );
            return Err(ParseError::at(scenario.line, message));
        }
    }
    Ok(scenarios)
}

fn scenario(node: &Node, place: &str) -> Result<Scenario, ParseError> {
    let keys = [
        "name",
        "about",
        "guest",
        "config",
        "expect_init_error",
        "given",
        "limits",
        "steps",
    ];
    let fields = Fields::of(node, place, &keys)?;
    let expect_init_error = fields.read("expect_init_error", name)?;
    match (&expect_init_error, fields.get("steps")) {
        (Some(_), Some(steps)) => {
            let message = "must not be there beside `expect_init_error`: an instance that did not start takes no step";
            return Err(error(steps, &fields.place("steps"), message));
        }
        (None, None) => return Err(error(node, place, "`steps` is missing (or `expect_init_error`)")),
        _ => {}
    }
    Ok(Scenario {
        line: node.line,
        name: name(fields.required("name")?, &fields.place("name"))?,
        about: fields.read("about", text)?,
        guest: name(fields.required("guest")?, &fields.place("guest"))?,
        config: fields.read("config", object)?.unwrap_or_else(|| json!({})),
        expect_init_error,
        given: fields.read("given", given)?.unwrap_or_default(),
        limits: fields.read("limits", limits)?.unwrap_or_default(),
        steps: fields
            .read("steps", |node, place| list(node, place, step))?
            .unwrap_or_default(),
    })
}

fn given(node: &Node, place: &str) -> Result<Given, ParseError> {
    let keys: Vec<&str> = iter::once("now_ms")
        .chain(simulated::given().map(|(key, _)| key))
        .collect();
    let fields = Fields::of(node, place, &keys)?;
    Ok(Given {
        now_ms: fields.read("now_ms", count)?.unwrap_or_default(),
        parts: parts(&fields, simulated::given())?,
    })
}

/// Limits in place of the default ones.
fn limits(node: &Node, place: &str) -> Result<Limits, ParseError> {
    let mut all = json!(Limits::default());
    let known: Vec<String> = all
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys().cloned())
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let fields = Fields::of(node, place, &known)?;
    for key in known {
        if let (Some(given), Some(limit)) = (fields.read(key, count)?, all.get_mut(key)) {
            *limit = given.into();
        }
    }
    serde_json::from_value(all).map_err(|cause| error(node, place, format!("{} does not fit: {cause}", node.to_json())))
}

/// The parts of `given` or `expect_state` that are present. They may contain `${name}`, so they stay values.
fn parts(fields: &Fields<'_>, readers: impl Iterator<Item = (&'static str, Reader)>) -> Result<Parts, ParseError> {
    let read = readers.filter_map(|(key, read)| Some((key, fields.read(key, read).transpose()?)));
    read.map(|(key, part)| Ok((key, part?))).collect()
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

fn step(node: &Node, place: &str) -> Result<Step, ParseError> {
    let entries = entries(node, place)?;
    let is_there = |key: &str| entries.iter().any(|entry| entry.key == key);
    let mut said = STEPS.iter().filter(|(key, _)| is_there(key));
    let Some((kind, beside)) = said.next() else {
        let kinds = STEPS.map(|(key, _)| format!("`{key}`")).join(", ");
        let message = format!("says nothing to do; there must be one of {kinds}");
        return Err(error(node, place, message));
    };
    if let Some((second, _)) = said.next() {
        let message = format!("does both `{kind}` and `{second}`; these are two steps");
        return Err(error(node, place, message));
    }
    let keys: Vec<&str> = iter::once(kind).chain(*beside).copied().collect();
    let fields = Fields::of(node, place, &keys)?;
    let what = fields.required(kind)?;
    let place = fields.place(kind);
    let expect_calls = fields.read("expect_calls", |node, place| list(node, place, expected_call))?;
    let expect = fields.value("expect");
    let action = match *kind {
        "call" => Action::Call {
            export: function(what, &place)?,
            args: fields.read("args", object)?.unwrap_or_else(|| json!({})),
            expect,
            expect_ending: expected_ending(&fields)?,
            expect_calls,
            save: fields.read("save", save)?.unwrap_or_default(),
        },
        "advance_ms" => Action::Advance {
            duration_ms: count(what, &place)?,
            expect_timers: fields.read("expect_timers", |node, place| list(node, place, timer))?,
            expect_calls,
        },
        "fault" => Action::Fault(fault(what, &place)?),
        "clear_faults" if truth(what, &place)? => Action::ClearFaults,
        "clear_faults" => return Err(error(what, &place, "was false, must be true")),
        "operation_done" => Action::OperationDone {
            operation: count(what, &place)?,
            failure: fields.read("failure", optional_text)?.flatten(),
            expect,
            expect_calls,
        },
        "restart" => {
            let restart = Fields::of(what, &place, &["carry_state"])?;
            Action::Restart {
                carry_state: restart.read("carry_state", truth)?.unwrap_or_default(),
            }
        }
        _ => Action::ExpectState(expected_state(what, &place)?),
    };
    Ok(Step {
        line: node.line,
        action,
    })
}

/// Only where nothing is expected of an answer.
fn expected_ending(fields: &Fields<'_>) -> Result<Option<Ending>, ParseError> {
    let beside = fields.get("expect").or(fields.get("save"));
    if let (Some(node), Some(_)) = (fields.get("expect_ending"), beside) {
        let message = "must not be there beside `expect` or `save`: a call that ends so has no answer";
        return Err(error(node, &fields.place("expect_ending"), message));
    }
    fields.read("expect_ending", ending)
}

/// `{trap: TEXT}`, as in a recording.
fn ending(node: &Node, place: &str) -> Result<Ending, ParseError> {
    let fields = Fields::of(node, place, &ENDINGS)?;
    let mut given = ENDINGS.iter().filter_map(|kind| Some((*kind, fields.get(kind)?)));
    let (Some((kind, what)), None) = (given.next(), given.next()) else {
        let kinds = ENDINGS.map(|kind| format!("`{kind}`")).join(", ");
        return Err(error(node, place, format!("must have one of {kinds}")));
    };
    Ok(Ending {
        kind,
        text: text(what, &fields.place(kind))?,
    })
}

/// `interface.function`.
fn function(node: &Node, place: &str) -> Result<String, ParseError> {
    let text = text(node, place)?;
    match text.split_once('.') {
        Some((interface, function)) if !interface.is_empty() && !function.is_empty() => Ok(text),
        _ => Err(error(
            node,
            place,
            format!("was {text:?}, must be `interface.function`"),
        )),
    }
}

fn optional_text(node: &Node, place: &str) -> Result<Option<String>, ParseError> {
    if node.value == yaml::Value::Null {
        Ok(None)
    } else {
        text(node, place).map(Some)
    }
}

fn expected_call(node: &Node, place: &str) -> Result<Value, ParseError> {
    let fields = Fields::of(node, place, &["call", "args"])?;
    let call = function(fields.required("call")?, &fields.place("call"))?;
    let args = fields.read("args", object)?.unwrap_or_else(|| json!({}));
    Ok(json!({ "call": call, "args": args }))
}

fn save(node: &Node, place: &str) -> Result<BTreeMap<String, String>, ParseError> {
    let read = |entry: &Entry| {
        let place = join(place, &entry.key);
        let pointer = text(&entry.value, &place)?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            let message = format!("was {pointer:?}, must be a JSON pointer: \"\" or \"/...\"");
            return Err(error(&entry.value, &place, message));
        }
        Ok((entry.key.clone(), pointer))
    };
    entries(node, place)?.iter().map(read).collect()
}

fn timer(node: &Node, place: &str) -> Result<Value, ParseError> {
    match items(node, place)?.as_slice() {
        [(id_place, id), (_, _)] => count(id, id_place).map(|_| node.to_json()),
        other => Err(error(
            node,
            place,
            format!("has {} items, must be `[id, result]`", other.len()),
        )),
    }
}

fn fault(node: &Node, place: &str) -> Result<Fault, ParseError> {
    let fields = Fields::of(node, place, &["call", "error", "answer", "times", "match"])?;
    let answer = match (fields.value("error"), fields.value("answer")) {
        (Some(error), None) => json!({ "Err": error }),
        (None, Some(answer)) => answer,
        (None, None) => return Err(error(node, place, "`error` is missing (or `answer`)")),
        (Some(_), Some(_)) => return Err(error(node, place, "has both `error` and `answer`; there may be one")),
    };
    let times = match fields.get("times") {
        None => Some(1),
        Some(node) if node.value == yaml::Value::Null => None,
        Some(node) => match count(node, &fields.place("times"))? {
            0 => {
                let message = "was 0, must be at least 1, or null for ever";
                return Err(error(node, &fields.place("times"), message));
            }
            times => Some(times),
        },
    };
    let call = function(fields.required("call")?, &fields.place("call"))?;
    Ok(Fault {
        call,
        answer,
        times,
        matching: fields.value("match"),
    })
}

fn expected_state(node: &Node, place: &str) -> Result<Parts, ParseError> {
    let keys: Vec<&str> = simulated::expected().map(|(key, _)| key).collect();
    parts(&Fields::of(node, place, &keys)?, simulated::expected())
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
