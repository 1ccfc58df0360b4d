//! Runs one scenario: a fresh world, an instance, then the steps, until one leaves nothing to go on with.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trueup_base::clock::Clock;
use trueup_capabilities::faults::Fault;
use trueup_instance::dispatch::InvokeError;
use trueup_instance::{StartError, with_causes};

use crate::compare;
use crate::file::{Ending, Scenario, Step, WrittenFault};
use crate::report::{Failure, Problem};
use crate::simulated;
use crate::stage::{Actor, Stage, World};

/// The maximum number of timers in one step. A guest whose every timer schedules another one for now would never end.
/// One timer a millisecond for a minute stays below it.
const TIMERS_PER_STEP_MAX: usize = 100_000;

/// The problems of a step. `Err`: the instance, or what a later step refers to, is missing after it.
type Stepped = Result<Vec<Problem>, Vec<Problem>>;

/// Runs a scenario to its end, or to a step that leaves nothing to go on with. Returns the steps that failed.
pub(crate) async fn run(stage: &dyn Stage, scenario: &Scenario) -> Vec<Failure> {
    let at_start = |problems| {
        vec![Failure {
            step: None,
            line: scenario.line,
            doing: "at the start".to_owned(),
            problems,
        }]
    };
    let world = match World::new(&scenario.given) {
        Ok(world) => world,
        Err(error) => return at_start(said(format!("given: {error}"))),
    };
    let mut run = Run {
        stage,
        scenario,
        world,
        actor: None,
        saved: BTreeMap::new(),
    };
    if let Err(problems) = run.start(None).await {
        return at_start(problems);
    }
    let mut failures = Vec::new();
    for (index, step) in scenario.steps.iter().flatten().enumerate() {
        let stepped = run.step(step).await;
        let goes_on = stepped.is_ok();
        let mut problems = stepped.unwrap_or_else(|problems| problems);
        problems.extend(run.world.faults.take_misfits().into_iter().flat_map(said));
        if !problems.is_empty() {
            failures.push(Failure {
                step: Some(index + 1),
                line: step.line,
                doing: doing(step),
                problems,
            });
        }
        if !goes_on {
            break;
        }
    }
    failures
}

fn said(message: impl Into<String>) -> Vec<Problem> {
    vec![Problem::new(message.into(), Vec::new())]
}

fn doing(step: &Step) -> String {
    if let Some(export) = &step.call {
        format!("call {export}")
    } else if let Some(duration_ms) = step.advance_ms {
        format!("advance_ms {duration_ms}")
    } else if let Some(fault) = &step.fault {
        format!("fault on {}", fault.call)
    } else if let Some(operation) = step.operation_done {
        format!("operation_done {operation}")
    } else if let Some(restart) = step.restart {
        format!("restart, carry_state {}", restart.carry_state)
    } else if step.expect_state.is_some() {
        "expect_state".to_owned()
    } else {
        "clear_faults".to_owned()
    }
}

struct Run<'a> {
    stage: &'a dyn Stage,
    scenario: &'a Scenario,
    world: World,
    /// `None` before the start, and if `init` was expected to fail.
    actor: Option<Box<dyn Actor>>,
    saved: BTreeMap<String, Value>,
}

impl Run<'_> {
    /// Starts a new instance with the scenario's settings and, if there is a snapshot, the old state.
    async fn start(&mut self, snapshot: Option<&str>) -> Result<(), Vec<Problem>> {
        // The old instance and its timers end before the new one starts.
        self.actor = None;
        let started = self.stage.start(self.scenario, &self.world, snapshot).await;
        match (&self.scenario.expect_init_error, started) {
            (None, Ok(mut actor)) => {
                // Questions of a start belong to no step.
                actor.take_asked();
                self.actor = Some(actor);
                Ok(())
            }
            (Some(wanted), Err(StartError::Settings { error, .. })) if error.contains(wanted) => Ok(()),
            (Some(wanted), Err(StartError::Settings { error, .. })) => Err(said(format!(
                "the error of init differs:\n  expected {wanted:?} in it\n  was      {error:?}"
            ))),
            (Some(wanted), Ok(_)) => Err(said(format!(
                "init took the config, but was to refuse it with {wanted:?} in its error"
            ))),
            (_, Err(error)) => Err(said(match error {
                StartError::Settings { error, .. } => format!("init refused the config: {error}"),
                StartError::Snapshot { error, .. } => format!("restore refused the old instance's snapshot: {error}"),
                StartError::Call(error) => with_causes(error),
            })),
        }
    }

    async fn step(&mut self, step: &Step) -> Stepped {
        let answer = if let Some(export) = &step.call {
            let args = self.filled(&Value::Object(step.args.clone().unwrap_or_default()));
            if let Some(ending) = &step.expect_ending {
                return self.ends(export, &args, ending, step).await;
            }
            self.call(export, &args).await?
        } else if let Some(duration_ms) = step.advance_ms {
            self.advance(duration_ms).await?
        } else if let Some(operation) = step.operation_done {
            let failure = step.failure.as_deref().map(|text| self.filled_text(text));
            self.end_operation(operation, failure).await?
        } else if let Some(fault) = &step.fault {
            return Ok(self.fault(fault));
        } else if let Some(restart) = step.restart {
            return self.restart(restart.carry_state).await.map(|()| Vec::new());
        } else if let Some(expected) = &step.expect_state {
            let filled = expected.iter().map(|(key, part)| (key.clone(), self.filled(part)));
            return Ok(self.world.simulations.compare(filled.collect()));
        } else {
            self.world.faults.clear();
            return Ok(Vec::new());
        };
        let mut problems = self.shown(step, &answer);
        let missing = self.save(&step.save, &answer);
        if !missing.is_empty() {
            problems.extend(missing);
            return Err(problems);
        }
        Ok(problems)
    }

    async fn call(&mut self, export: &str, args: &Value) -> Result<Value, Vec<Problem>> {
        let ended = self.actor()?.call(export, args).await;
        ended.map_err(|error| said(format!("{export}: {}", with_causes(error))))
    }

    fn actor(&mut self) -> Result<&mut Box<dyn Actor>, Vec<Problem>> {
        let none = || said("there is no instance: it ended, or its start was to fail; `restart` starts another");
        self.actor.as_mut().ok_or_else(none)
    }

    /// The call must end in this way. Only a restart goes on after it.
    async fn ends(&mut self, export: &str, args: &Value, wanted: &Ending, step: &Step) -> Stepped {
        let (kind, text) = wanted.parts();
        let was = match self.actor()?.call(export, args).await {
            Err(error) => {
                let ending = match &error {
                    InvokeError::Call(error) => error.ending(),
                    InvokeError::Misuse(_) => None,
                };
                let was = ending.map_or("error", |ending| ending.parts().0);
                let why = with_causes(error);
                if was == kind && why.contains(text) {
                    let problems = self.shown(step, &Value::Null);
                    self.actor = None;
                    return Ok(problems);
                }
                format!("{was} {why:?}")
            }
            Ok(answer) => format!("answer {answer}"),
        };
        let expected = format!("expected {kind} with {text:?} in it");
        let message = format!("the ending of {export} differs:\n  {expected}\n  was      {was}");
        Err(said(message))
    }

    /// Compares the answer and the questions of a step. Takes the questions in any case.
    fn shown(&mut self, step: &Step, answer: &Value) -> Vec<Problem> {
        let (what, place) = match step.advance_ms {
            Some(_) => ("the list of timers", "expect_timers"),
            None => ("the answer", "expect"),
        };
        // No kind of step may have both.
        let timers = step.expect_timers.as_ref().map(|timers| json!(timers));
        let expected = step.expect.clone().or(timers);
        let asked = self.actor.as_mut().map(|actor| actor.take_asked()).unwrap_or_default();
        let listed = asked.iter().filter(|asked| compare::is_listed(&asked.call));
        let asked: Vec<Value> = listed.map(|asked| json!(asked)).collect();
        let answer = expected.and_then(|expected| {
            let problem = compare::values(what, &self.filled(&expected), answer)?;
            Some(problem.observing(place, answer.clone()))
        });
        let calls = step.expect_calls.as_ref().and_then(|expected| {
            let expected: Vec<Value> = expected.iter().map(|call| self.filled(&json!(call))).collect();
            compare::calls(&expected, &asked)
        });
        answer.into_iter().chain(calls).collect()
    }

    fn save(&mut self, save: &BTreeMap<String, String>, answer: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, pointer) in save {
            match answer.pointer(pointer) {
                Some(value) => {
                    self.saved.insert(name.clone(), value.clone());
                }
                None => problems.extend(said(format!(
                    "save `{name}`: there is nothing at {pointer:?} of {answer}"
                ))),
            }
        }
        problems
    }

    /// Moves the clock to each due timer, fires it, and then moves to the end. If a guest slept past the end, the clock
    /// stays there.
    async fn advance(&mut self, duration_ms: u64) -> Result<Value, Vec<Problem>> {
        let until_ms = self.world.clock.now_ms().saturating_add(duration_ms);
        let mut fired = Vec::new();
        while let Some((due_ms, timer)) = self.actor.as_mut().and_then(|actor| actor.take_due(until_ms)) {
            if fired.len() == TIMERS_PER_STEP_MAX {
                return Err(said(format!(
                    "{TIMERS_PER_STEP_MAX} timers fired and there is one more; does each schedule the next for now?"
                )));
            }
            self.move_clock_to(due_ms);
            let result = self.call("timer-events.on-timer", &json!({ "timer": timer })).await?;
            fired.push(json!([timer, result]));
        }
        self.move_clock_to(until_ms);
        Ok(Value::Array(fired))
    }

    fn move_clock_to(&self, ms: u64) {
        if ms > self.world.clock.now_ms() {
            self.world.clock.set_ms(ms);
        }
    }

    fn fault(&self, fault: &WrittenFault) -> Vec<Problem> {
        let imports = simulated::imports();
        if !imports.contains(&fault.call.as_str()) {
            let call = &fault.call;
            let imports = imports.join(", ");
            return said(format!(
                "`{call}` is no import that this build simulates; these are {imports}"
            ));
        }
        let answer = fault.answer.clone();
        self.world.faults.add(Fault {
            call: fault.call.clone(),
            answer: self.filled(&answer.unwrap_or_else(|| json!({ "Err": fault.error }))),
            times: fault.times,
            matching: fault.matching.as_ref().map(|matching| self.filled(matching)),
        });
        Vec::new()
    }

    /// Ends an operation and notifies the guest. The guest is notified even if the operation never started or has
    /// already ended: a host that crashed before recording its notification does the same.
    async fn end_operation(&mut self, operation: u64, failure: Option<String>) -> Result<Value, Vec<Problem>> {
        let export = self.world.simulations.end_operation(operation, failure.is_none());
        let export = export.ok_or_else(|| said("no simulated capability has operations"))?;
        let args = json!({ "operation": operation, "failure": failure });
        self.call(export, &args).await
    }

    async fn restart(&mut self, carry_state: bool) -> Result<(), Vec<Problem>> {
        if !carry_state {
            return self.start(None).await;
        }
        match self.call("lifecycle.snapshot", &json!({})).await? {
            Value::String(snapshot) => self.start(Some(&snapshot)).await,
            other => Err(said(format!("lifecycle.snapshot answered {other}, which is no text"))),
        }
    }

    /// The value with every `${name}` in its strings replaced by the saved value: text unchanged, anything else as
    /// JSON. An unknown name remains as it is.
    fn filled(&self, value: &Value) -> Value {
        if self.saved.is_empty() {
            return value.clone();
        }
        match value {
            Value::String(text) => Value::String(self.filled_text(text)),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.filled(value)))
                .collect(),
            other => other.clone(),
        }
    }

    /// A single pass from left to right: inserted text is not expanded again.
    fn filled_text(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let named = after.split_once('}');
            let saved = named.and_then(|(name, after)| Some((self.saved.get(name)?, after)));
            match saved {
                Some((Value::String(text), _)) => filled.push_str(text),
                Some((value, _)) => filled.push_str(&value.to_string()),
                None => filled.push_str("${"),
            }
            rest = saved.map_or(after, |(_, after)| after);
        }
        filled + rest
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
