//! A recording as a scenario: recorded answers become faults, calls become steps that expect the recorded result and
//! the recorded questions.
//!
//! The clock does not move: each of its answers is a fault too, so no timer fires by itself. What a simulation can't
//! answer by a fault (timers) it answers itself. So run the scenario before you trust it.
//!
//! ```text
//! header -> guest, config      snapshot -> lifecycle.restore      question -> fault      call, result -> step
//! ```

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use trueup_capabilities::meter::Limits;
use trueup_journal::{Ask, Call, Ending, Event, Segment};

use crate::compare;
use crate::file::{Asked, Ending as Expected, NOW_MS, Restart, Scenario, Step, WrittenFault};
use crate::simulated;

/// The scenario of a recording, under this name. What the recording does not hold to its end is left out.
///
/// # Errors
/// What a scenario can't express, on one line.
pub fn of_recording(name: &str, segment: &Segment) -> Result<Scenario, String> {
    let header = &segment.header;
    let mut steps = Steps {
        steps: Vec::new(),
        asks: Vec::new(),
        call: None,
    };
    let mut now_ms = None;
    // The last entry that counts, if the recording was rolled back.
    let last = match segment.entries.last().map(|entry| &entry.event) {
        Some(Event::RolledBack(last)) => *last,
        _ => u64::MAX,
    };
    for entry in segment.entries.iter().take_while(|entry| entry.n <= last) {
        match &entry.event {
            Event::Call(call) => {
                if now_ms.is_none() {
                    now_ms = Some(call.at_ms);
                    steps.start(header.snapshot.as_deref())?;
                }
                steps.call = Some(call);
            }
            Event::Ask(ask) => steps.asks.push(ask),
            Event::Ending(ending) => match ending {
                Ending::Result(result) => steps.ended(Some(value(result)?), None)?,
                Ending::Trap(text) => steps.ended(None, Some(Expected::Trap(text.clone())))?,
                Ending::Deadline(text) => steps.ended(None, Some(Expected::Deadline(text.clone())))?,
                Ending::Memory(text) => steps.ended(None, Some(Expected::Memory(text.clone())))?,
                // The host made it anew, or another one in its place.
                Ending::Cancelled(_) => break,
            },
            Event::Header(_) | Event::RolledBack(_) => {}
        }
    }
    if !steps.steps.iter().any(|step| step.call.is_some()) {
        return Err("it holds no call that ended".to_owned());
    }
    Ok(Scenario {
        name: name.to_owned(),
        about: Some(format!(
            "Recorded from entry {}; the answers are the recorded ones.",
            segment.first
        )),
        guest: format!("{}@{}", header.guest, header.version),
        config: value(&header.settings)?,
        limits: limits(&header.limits)?,
        given: Map::from_iter([(NOW_MS.to_owned(), now_ms.unwrap_or_default().into())]),
        steps: Some(steps.steps),
        ..Scenario::default()
    })
}

/// The limits of a recording, without those that a scenario has by default or does not know.
fn limits(recorded: &RawValue) -> Result<Map<String, Value>, String> {
    let mut limits: Map<String, Value> = value(recorded)?;
    let default = json!(Limits::default());
    limits.retain(|key, limit| default.get(key).is_some_and(|default| default != limit));
    Ok(limits)
}

/// The steps so far, and the call that has not ended yet.
struct Steps<'s> {
    steps: Vec<Step>,
    asks: Vec<&'s Ask>,
    call: Option<&'s Call>,
}

impl Steps<'_> {
    /// The questions of `init` and `restore` need their answers before, so the instance starts once more.
    fn start(&mut self, snapshot: Option<&str>) -> Result<(), String> {
        if !self.asks.is_empty() {
            self.answers()?;
            self.steps.push(Step {
                restart: Some(Restart::default()),
                ..Step::default()
            });
        }
        if let Some(snapshot) = snapshot {
            self.steps.push(Step {
                call: Some("lifecycle.restore".to_owned()),
                args: Some(Map::from_iter([("snapshot".to_owned(), snapshot.into())])),
                expect: Some(json!({ "Ok": null })),
                ..Step::default()
            });
        }
        self.asks.clear();
        Ok(())
    }

    /// The call returned this, or ended without a result in this way.
    fn ended(&mut self, result: Option<Value>, ending: Option<Expected>) -> Result<(), String> {
        let Some(call) = self.call.take() else { return Ok(()) };
        let leaves_one = self.answers()?;
        let listed = self.asks.drain(..).filter(|ask| compare::is_listed(&ask.name));
        let listed = listed.map(|ask| {
            Ok(Asked {
                call: ask.name.clone(),
                args: value(&ask.args)?,
            })
        });
        let expect_calls = listed.collect::<Result<_, String>>()?;
        self.steps.push(Step {
            call: Some(call.name.clone()),
            args: Some(value(&call.args)?),
            expect: result,
            expect_ending: ending,
            expect_calls: Some(expect_calls),
            ..Step::default()
        });
        if leaves_one {
            self.steps.push(Step {
                clear_faults: Some(true),
                ..Step::default()
            });
        }
        Ok(())
    }

    /// The answers of the call as faults. Returns whether one of them may be left over: a fault on an empty list
    /// answers nothing.
    fn answers(&mut self) -> Result<bool, String> {
        let imports = simulated::imports();
        let mut faults: Vec<WrittenFault> = Vec::new();
        let mut leaves_one = false;
        for ask in self.asks.iter().filter(|ask| imports.contains(&ask.name.as_str())) {
            let Some(answer) = &ask.answer else { continue };
            let answer: Value = value(answer)?;
            leaves_one |= answer.as_array().is_some_and(Vec::is_empty);
            // Faults of one import answer in their order, whatever comes between them.
            match faults.iter_mut().rfind(|fault| fault.call == ask.name) {
                Some(last) if last.answer.as_ref() == Some(&answer) => last.times = last.times.map(|times| times + 1),
                _ => faults.push(WrittenFault {
                    call: ask.name.clone(),
                    error: None,
                    answer: Some(answer),
                    times: Some(1),
                    matching: None,
                }),
            }
        }
        let steps = faults.into_iter().map(|fault| Step {
            fault: Some(fault),
            ..Step::default()
        });
        self.steps.extend(steps);
        Ok(leaves_one)
    }
}

fn value<T: DeserializeOwned>(text: &RawValue) -> Result<T, String> {
    serde_json::from_str(text.get()).map_err(|error| format!("a recorded value is no JSON: {error}"))
}
