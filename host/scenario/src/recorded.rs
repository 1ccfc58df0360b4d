//! A recording as a scenario: recorded answers become faults, calls become steps that expect the recorded result and
//! the recorded questions.
//!
//! The clock does not move: each of its answers is a fault too, so no timer fires by itself. What a simulation can't
//! answer by a fault (timers) it answers itself. So run the scenario before you trust it.
//!
//! ```text
//! header -> guest, config      snapshot -> lifecycle.restore      question -> fault      call, result -> step
//! ```

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use trueup_capabilities::meter::Limits;
use trueup_journal::{Ask, Call, Ending, Event, Segment};

use crate::compare;
use crate::simulated;
use crate::stage::Asked;

/// A scenario as its file holds it.
#[derive(Debug, Serialize)]
pub struct Written {
    name: String,
    about: String,
    guest: String,
    config: Value,
    /// Those that are not the default ones.
    #[serde(skip_serializing_if = "Map::is_empty")]
    limits: Map<String, Value>,
    given: BTreeMap<&'static str, u64>,
    steps: Vec<WrittenStep>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum WrittenStep {
    Fault {
        fault: WrittenFault,
    },
    ClearFaults {
        clear_faults: bool,
    },
    Restart {
        restart: BTreeMap<&'static str, bool>,
    },
    Call {
        call: String,
        args: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        expect: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expect_ending: Option<BTreeMap<&'static str, String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expect_calls: Option<Vec<Asked>>,
    },
}

#[derive(Debug, Serialize)]
struct WrittenFault {
    call: String,
    answer: Value,
    #[serde(skip_serializing_if = "is_one")]
    times: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(times: &u64) -> bool {
    *times == 1
}

/// Why a recording is no scenario; one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoScenario(String);

/// The scenario of a recording, under this name. What the recording does not hold to its end is left out.
///
/// # Errors
/// What a scenario can't express.
pub fn of_recording(name: &str, segment: &Segment) -> Result<Written, NoScenario> {
    let header = &segment.header;
    let mut steps = Steps {
        steps: Vec::new(),
        asks: Vec::new(),
        call: None,
    };
    let mut now_ms = None;
    for entry in &segment.entries {
        if valid_through(segment).is_some_and(|last| entry.n > last) {
            break;
        }
        match &entry.event {
            Event::Call(call) => {
                if now_ms.is_none() {
                    now_ms = Some(call.at_ms);
                    steps.start(header.snapshot.as_deref())?;
                }
                steps.call = Some(call);
            }
            Event::Ask(ask) => steps.asks.push(ask),
            // The host made it anew, or another one in its place.
            Event::Ending(Ending::Cancelled(_)) => break,
            Event::Ending(ending) => match ending.parts() {
                (_, Ok(result)) => steps.ended(Some(value(result)?), None)?,
                (kind, Err(text)) => steps.ended(None, Some((kind, text)))?,
            },
            Event::Header(_) | Event::RolledBack(_) => {}
        }
    }
    if !steps.steps.iter().any(|step| matches!(step, WrittenStep::Call { .. })) {
        return Err(NoScenario("it holds no call that ended".to_owned()));
    }
    Ok(Written {
        name: name.to_owned(),
        about: format!(
            "Recorded from entry {}; the answers are the recorded ones.",
            segment.first
        ),
        guest: format!("{}@{}", header.guest, header.version),
        config: value(&header.settings)?,
        limits: limits(&header.limits)?,
        given: BTreeMap::from([("now_ms", now_ms.unwrap_or_default())]),
        steps: steps.steps,
    })
}

/// The limits of a recording, without those that a scenario has by default or does not know.
fn limits(recorded: &RawValue) -> Result<Map<String, Value>, NoScenario> {
    let (Value::Object(mut limits), default) = (value(recorded)?, json!(Limits::default())) else {
        return Ok(Map::new());
    };
    limits.retain(|key, limit| default.get(key).is_some_and(|default| default != limit));
    Ok(limits)
}

/// The last entry that counts, if the recording was rolled back.
fn valid_through(segment: &Segment) -> Option<u64> {
    match &segment.entries.last()?.event {
        Event::RolledBack(last) => Some(*last),
        _ => None,
    }
}

/// The steps so far, and the call that has not ended yet.
struct Steps<'s> {
    steps: Vec<WrittenStep>,
    asks: Vec<&'s Ask>,
    call: Option<&'s Call>,
}

impl Steps<'_> {
    /// The questions of `init` and `restore` need their answers before, so the instance starts once more.
    fn start(&mut self, snapshot: Option<&str>) -> Result<(), NoScenario> {
        if !self.asks.is_empty() {
            self.answers()?;
            let restart = BTreeMap::from([("carry_state", false)]);
            self.steps.push(WrittenStep::Restart { restart });
        }
        if let Some(snapshot) = snapshot {
            self.steps.push(WrittenStep::Call {
                call: "lifecycle.restore".to_owned(),
                args: json!({ "snapshot": snapshot }),
                expect: Some(json!({ "Ok": null })),
                expect_ending: None,
                expect_calls: None,
            });
        }
        self.asks.clear();
        Ok(())
    }

    /// The call returned this, or ended without a result: in this way, with this text.
    fn ended(&mut self, result: Option<Value>, ending: Option<(&'static str, &str)>) -> Result<(), NoScenario> {
        let Some(call) = self.call.take() else { return Ok(()) };
        let leaves_one = self.answers()?;
        let listed = self.asks.drain(..).filter(|ask| compare::is_listed(&ask.name));
        let listed = listed.map(|ask| {
            Ok(Asked {
                call: ask.name.clone(),
                args: value(&ask.args)?,
            })
        });
        let expect_calls = listed.collect::<Result<_, NoScenario>>()?;
        self.steps.push(WrittenStep::Call {
            call: call.name.clone(),
            args: value(&call.args)?,
            expect: result,
            expect_ending: ending.map(|(kind, text)| BTreeMap::from([(kind, text.to_owned())])),
            expect_calls: Some(expect_calls),
        });
        if leaves_one {
            self.steps.push(WrittenStep::ClearFaults { clear_faults: true });
        }
        Ok(())
    }

    /// The answers of the call as faults. Returns whether one of them may be left over: a fault on an empty list
    /// answers nothing.
    fn answers(&mut self) -> Result<bool, NoScenario> {
        let imports = simulated::imports();
        let mut faults: Vec<WrittenFault> = Vec::new();
        let mut leaves_one = false;
        for ask in self.asks.iter().filter(|ask| imports.contains(&ask.name.as_str())) {
            let Some(answer) = &ask.answer else { continue };
            let answer = value(answer)?;
            leaves_one |= answer.as_array().is_some_and(Vec::is_empty);
            // Faults of one import answer in their order, whatever comes between them.
            match faults.iter_mut().rfind(|fault| fault.call == ask.name) {
                Some(last) if last.answer == answer => last.times += 1,
                _ => faults.push(WrittenFault {
                    call: ask.name.clone(),
                    answer,
                    times: 1,
                }),
            }
        }
        let steps = faults.into_iter().map(|fault| WrittenStep::Fault { fault });
        self.steps.extend(steps);
        Ok(leaves_one)
    }
}

fn value(text: &RawValue) -> Result<Value, NoScenario> {
    serde_json::from_str(text.get()).map_err(|error| NoScenario(format!("a recorded value is no JSON: {error}")))
}
