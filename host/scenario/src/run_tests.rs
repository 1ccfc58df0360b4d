//! Runs of scenarios against a small guest.
//!
//! The guest `echo` keeps a counter, asks the simulated Engine, schedules timers, and returns what a step tells it to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use trueup_capabilities::async_trait;
use trueup_capabilities::lbaas::{Kind, ObjectRef};
use trueup_capabilities::metrics::{Line, Origin};
use trueup_capabilities::neg::{Endpoint, NegRef, RequestId};
use trueup_engine::CallError;

use super::*;
use crate::file::Asked;
use crate::find::ScenarioFile;
use crate::{Summary, parse, run_files};

struct Echoes;

struct Echo {
    world: World,
    counter: u64,
    asked: Vec<Asked>,
    timers: BTreeSet<(u64, u64)>,
    last_timer: u64,
}

#[async_trait]
impl Stage for Echoes {
    async fn load(&self, guest: &str) -> Result<(), String> {
        if guest == "echo" {
            Ok(())
        } else {
            Err("there is `echo` alone".to_owned())
        }
    }

    async fn start(
        &self,
        scenario: &Scenario,
        world: &World,
        snapshot: Option<&str>,
    ) -> Result<Box<dyn Actor>, StartError> {
        if let Some(refusal) = scenario.config.get("refuse") {
            return Err(StartError::Settings {
                guest: "echo".to_owned(),
                error: refusal.to_string(),
            });
        }
        let counter = match snapshot {
            None => 0,
            Some(text) => text.parse().map_err(|_| StartError::Snapshot {
                guest: "echo".to_owned(),
                error: format!("{text:?} is no number"),
            })?,
        };
        let (asked, timers) = (Vec::new(), BTreeSet::new());
        Ok(Box::new(Echo {
            world: world.clone(),
            counter,
            asked,
            timers,
            last_timer: 0,
        }) as Box<dyn Actor>)
    }
}

#[async_trait]
impl Actor for Echo {
    async fn call(&mut self, export: &str, args: &Value) -> Result<Value, InvokeError> {
        let number = |name: &str| args.get(name).and_then(Value::as_u64).unwrap_or_default();
        match export {
            "lifecycle.snapshot" => Ok(json!(self.counter.to_string())),
            "echo.say" => Ok(args.clone()),
            "echo.trap" => Err(CallError::Trap("unreachable executed".to_owned()).into()),
            "echo.count" => {
                self.counter += 1;
                let origin = Origin::Guest {
                    guest: "echo",
                    instance: "i",
                };
                let metrics = &self.world.backends.metrics;
                metrics.take(origin, "echo_total", &[], Line::CounterAdd(1));
                Ok(json!(self.counter))
            }
            "echo.now" => Ok(json!(self.world.backends.clock.now_ms())),
            "echo.sleep" => {
                self.world.backends.clock.sleep_ms(number("ms")).await;
                Ok(Value::Null)
            }
            "echo.random" => Ok(json!(self.world.backends.random.next_u64())),
            "echo.look" => {
                let refs = [ObjectRef {
                    kind: Kind::Backend,
                    identifier: "b-1".into(),
                }];
                self.asked.push(Asked {
                    call: "clock.now-ms".into(),
                    args: serde_json::Map::new(),
                });
                self.asked.push(Asked {
                    call: "api.get".into(),
                    args: serde_json::Map::from_iter([("refs".to_owned(), json!(refs))]),
                });
                Ok(json!(self.world.backends.lbaas.as_ref().unwrap().get(&refs).await))
            }
            "echo.attach" => {
                let neg = NegRef {
                    name: "web".into(),
                    zone: "z1".into(),
                };
                let endpoint = Endpoint {
                    ip: args["ip"].as_str().unwrap_or_default().to_owned(),
                    ipv6: String::new(),
                    port: "80".into(),
                    node: "n1".into(),
                };
                // A real host looks for a fault before it asks the backend.
                let asked = json!({ "neg": neg, "endpoints": [endpoint] });
                if let Some(fault) = self.world.faults.whole::<Value>("api.attach", &asked) {
                    return Ok(fault);
                }
                let request = RequestId(uuid::Uuid::from_u128(1));
                let negs = self.world.backends.neg.as_ref().unwrap();
                Ok(json!(negs.change(true, &neg, &[endpoint], request).await))
            }
            "syncer.on-operation" => Ok(args.clone()),
            "echo.schedule" => {
                self.last_timer += 1;
                self.timers
                    .insert((self.world.clock.now_ms() + number("ms"), self.last_timer));
                Ok(json!(self.last_timer))
            }
            "timer-events.on-timer" => {
                // Timer 1 schedules another one 5 ms later.
                if number("timer") == 1 {
                    self.last_timer += 1;
                    self.timers.insert((self.world.clock.now_ms() + 5, self.last_timer));
                }
                Ok(json!(number("timer") != 2))
            }
            other => Err(InvokeError::Misuse(format!("no export `{other}`"))),
        }
    }

    fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    fn take_due(&mut self, now_ms: u64) -> Option<(u64, u64)> {
        let first = *self.timers.first()?;
        (first.0 <= now_ms && self.timers.remove(&first)).then_some(first)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Runs a scenario with these lines and returns the text of its failure. Empty if it passed.
fn failure_of(lines: &str) -> String {
    let scenario = parse(&format!("name: a\nguest: echo\n{lines}")).unwrap().remove(0);
    let failures = block_on(run(&Echoes, &scenario));
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    failures.join("\n")
}

#[track_caller]
fn passes(lines: &str) {
    assert_eq!(failure_of(lines), "");
}

#[track_caller]
fn fails(lines: &str, with: &str) {
    let failure = failure_of(lines);
    assert!(failure.contains(with), "{failure:?} does not contain {with:?}");
}

#[test]
fn answers_are_compared_path_by_path() {
    passes("steps: [{call: echo.say, args: {a: [1, {b: 2.0}]}, expect: {a: [1.0, {b: 2}]}}]");
    passes("steps: [{call: echo.say, args: {a: 1}}]");
    fails(
        "steps:\n- {call: echo.count, expect: 1}\n- {call: echo.say, args: {a: [1, {b: 2}]}, expect: {a: [1, {b: 3}]}}",
        "step 2 (line 5), call echo.say\n    the answer differs:\n      a[1].b: expected 3, was 2",
    );
    fails(
        "steps: [{call: echo.sleep, expect: {Ok: null}}]",
        "the whole value: expected {\"Ok\":null}, was null",
    );
}

#[test]
fn every_step_that_fails_is_told_until_one_leaves_nothing_to_go_on_with() {
    let count = |expect: u64| format!("- {{call: echo.count, expect: {expect}}}\n");
    let lines = format!(
        "steps:\n{}{}{}- {{call: echo.count, save: {{x: /none}}}}\n{}",
        count(7),
        count(2),
        count(8),
        count(9)
    );
    let failure = failure_of(&lines);
    let steps: Vec<&str> = failure.lines().filter(|line| line.starts_with("  step ")).collect();
    assert_eq!(
        steps,
        [
            "  step 1 (line 4), call echo.count",
            "  step 3 (line 6), call echo.count",
            "  step 4 (line 7), call echo.count"
        ],
        "{failure}"
    );
    let failure = failure_of("steps:\n- {call: echo.trap}\n- {call: echo.count, expect: 9}\n");
    assert_eq!(failure.matches("  step ").count(), 1, "{failure}");
}

#[test]
fn a_trap_fails_even_where_nothing_is_expected() {
    fails(
        "steps: [{call: echo.trap}]",
        "step 1 (line 3), call echo.trap\n    echo.trap: unreachable executed",
    );
}

#[test]
fn a_step_can_expect_how_a_call_ends_and_only_a_restart_goes_on() {
    passes(
        "steps:\n- {call: echo.trap, expect_ending: {trap: unreachable}, expect_calls: []}\n- restart: {}\n- {call: echo.count}",
    );
    fails(
        "steps: [{call: echo.trap, expect_ending: {memory: unreachable}}]",
        "the ending of echo.trap differs:\n      expected memory with \"unreachable\" in it\n      \
         was      trap \"unreachable executed\"",
    );
    fails(
        "steps: [{call: echo.count, expect_ending: {trap: ''}}]",
        "expected trap with \"\" in it\n      was      answer 1",
    );
    fails(
        "steps:\n- {call: echo.trap, expect_ending: {trap: ''}}\n- {call: echo.count}",
        "step 2 (line 5), call echo.count\n    there is no instance: it ended, or its start was to fail; \
         `restart` starts another",
    );
}

#[test]
fn what_was_asked_is_compared_without_the_means() {
    let look = "given: {lbaas: {objects: []}}\nsteps:\n- {call: echo.look, expect_calls:";
    passes(&format!(
        "{look} [{{call: api.get, args: {{refs: [{{kind: Backend, identifier: b-1}}]}}}}]}}"
    ));
    fails(
        &format!("{look} []}}"),
        "call 1 of the step differs (expected 0, were 1)",
    );
    fails(
        &format!("{look} [{{call: api.get, args: {{refs: [{{kind: Backend, identifier: b-2}}]}}}}]}}"),
        "call 1 of the step, api.get, differs (expected 1, were 1):\n      \
         args.refs[0].identifier: expected \"b-2\", was \"b-1\"",
    );
    // Questions of a step without `expect_calls` do not count for the next one.
    passes("steps: [{call: echo.look}, {call: echo.count, expect_calls: []}]");
}

#[test]
fn what_is_saved_stands_in_later_strings() {
    passes(
        "steps:\n\
         - {call: echo.say, args: {a: [x, {b: 7}]}, save: {text: /a/0, object: /a/1}}\n\
         - {call: echo.say, args: {v: '<${text}|${object}|${none}|${text}>'}, expect: {v: '<x|{\"b\":7}|${none}|x>'}}\n\
         - {call: echo.say, args: {v: 'x'}, expect: {v: '${text}'}}\n",
    );
    fails(
        "steps: [{call: echo.say, args: {a: 1}, save: {b: /b}}]",
        "save `b`: there is nothing at \"/b\" of {\"a\":1}",
    );
}

#[test]
fn timers_fire_in_order_at_their_own_time() {
    passes(
        "given: {now_ms: 100}\n\
         steps:\n\
         - {call: echo.schedule, args: {ms: 10}, expect: 1}\n\
         - {call: echo.schedule, args: {ms: 5}, expect: 2}\n\
         - {advance_ms: 4, expect_timers: []}\n\
         - {advance_ms: 11, expect_timers: [[2, false], [1, true], [3, true]], expect_calls: []}\n\
         - {call: echo.now, expect: 115}\n",
    );
    fails(
        "steps: [{call: echo.schedule, args: {ms: 1}}, {advance_ms: 1, expect_timers: []}]",
        "step 2 (line 3), advance_ms 1\n    the list of timers differs:\n",
    );
}

#[test]
fn sleeps_move_the_clock_and_chance_is_none() {
    passes("steps: [{call: echo.sleep, args: {ms: 30}}, {call: echo.now, expect: 30}, {call: echo.random, expect: 0}]");
}

#[test]
fn faults_answer_and_can_be_cleared() {
    passes(
        "steps:\n\
         - {fault: {call: random.next-u64, answer: 7, times: null}}\n\
         - {fault: {call: clock.sleep-ms, answer: null}}\n\
         - {fault: {call: clock.now-ms, answer: 3}}\n\
         - {fault: {call: api.get, error: {RateLimited: 5}, match: {identifier: b-1}}}\n\
         - {call: echo.random, expect: 7}\n\
         - {call: echo.random, expect: 7}\n\
         - {call: echo.sleep, args: {ms: 9}}\n\
         - {call: echo.now, expect: 3}\n\
         - {call: echo.now, expect: 0}\n\
         - {call: echo.look, expect: [{Err: {RateLimited: 5}}]}\n\
         - {call: echo.look, expect: [{Err: NotFound}]}\n\
         - {clear_faults: true}\n\
         - {call: echo.random, expect: 0}\n",
    );
}

#[test]
fn a_fault_that_can_not_answer_fails_the_scenario() {
    fails(
        "steps: [{fault: {call: api.get, error: Nope}}, {call: echo.look}]",
        "step 2 (line 3), call echo.look\n    fault on `api.get`: {\"Err\":\"Nope\"} is no answer of it: ",
    );
    fails(
        "steps: [{fault: {call: api.crate, error: NotFound}}]",
        "`api.crate` is no import that this build simulates; these are api.attach, ",
    );
}

#[test]
fn a_restart_starts_anew_or_carries_the_state() {
    passes(
        "steps:\n\
         - {call: echo.count, expect: 1}\n\
         - {call: echo.schedule, args: {ms: 1}, expect: 1}\n\
         - {restart: {carry_state: true}}\n\
         - {advance_ms: 10, expect_timers: []}\n\
         - {call: echo.schedule, args: {ms: 1}, expect: 1}\n\
         - {call: echo.count, expect: 2}\n\
         - {restart: {carry_state: false}}\n\
         - {call: echo.count, expect: 1}\n\
         - {expect_state: {metrics: {echo_total: 3}}}\n",
    );
}

#[test]
fn the_error_of_init_is_looked_into() {
    passes("config: {refuse: 'x: was 1'}\nexpect_init_error: was 1");
    fails(
        "config: {refuse: x}\nexpect_init_error: y",
        "the error of init differs:\n      expected \"y\" in it\n      was      \"\\\"x\\\"\"",
    );
    fails("expect_init_error: y", "init took the config, but was to refuse it");
    fails(
        "config: {refuse: x}\nsteps: []",
        "line 1, at the start\n    init refused the config: \"x\"",
    );
}

#[test]
fn the_state_is_compared_in_its_own_order() {
    let given = "given:\n  lbaas:\n    load_balancers: {lb: Ok}\n    objects:\n    - &s {identifier: s, state: Ok, tags: [b, a], spec: {Server: {name: s, backend: b, ip: i, port: 1, check: c}}}\n    - &b {identifier: z, state: Failed, tags: [], spec: {Backend: {name: b, load_balancer: lb, mode: Tcp, health_check: h}}}\n";
    passes(&format!(
        "{given}steps: [{{expect_state: {{lbaas: {{objects: [*s, *b]}}}}}}]"
    ));
    fails(
        &format!("{given}steps: [{{expect_state: {{lbaas: {{objects: [*s]}}}}}}]"),
        "lbaas.objects differs:\n      the whole value: expected 1 element, was 2 elements",
    );
}

#[test]
fn what_is_stored_is_compared() {
    let given = "given: {checkpoint: {data: '{\"a\":1}', entries: [e]}}\n";
    passes(&format!(
        "{given}steps: [{{expect_state: {{checkpoint: {{data: '{{\"a\": 1}}', entries: [e]}}}}}}]"
    ));
    fails(
        &format!("{given}steps: [{{expect_state: {{checkpoint: null}}}}]"),
        "checkpoint differs:",
    );
    passes("given: {checkpoint: null}\nsteps: [{expect_state: {checkpoint: null}}]");
}

#[test]
fn a_metric_that_was_never_touched_is_missing() {
    passes("steps: [{call: echo.count}, {expect_state: {metrics: {echo_total: 1}}}]");
    fails(
        "steps: [{expect_state: {metrics: {echo_total: 0}}}]",
        "metrics differs:\n      echo_total: expected 0, was nothing",
    );
}

#[test]
fn what_is_stored_in_etcd_is_compared_whole() {
    passes("given: {etcd: {/a: '1'}}\nsteps: [{expect_state: {etcd: {/a: '1'}}}]");
    fails(
        "given: {etcd: {/a: '1', /b: x}}\nsteps: [{expect_state: {etcd: {/a: '2'}}}]",
        "etcd differs:",
    );
}

const WEB: &str = "{name: web, zone: z1, subnet: s1, endpoints: [{ip: 10.0.0.9, ipv6: '', port: '80', node: n1}]}";
const BOTH: &str = "{name: web, zone: z1, subnet: s1, endpoints: [{ip: 10.0.0.10, ipv6: '', port: '80', node: n1}, \
                    {ip: 10.0.0.9, ipv6: '', port: '80', node: n1}]}";

#[test]
fn an_operation_takes_effect_when_a_step_ends_it_and_notifies_the_guest() {
    let state = |negs: &str| format!("{{expect_state: {{neg: {{negs: [{negs}]}}}}}}");
    let (before, after) = (state(WEB), state(BOTH));
    passes(&format!(
        "given: {{neg: {{negs: [{WEB}]}}}}\n\
         steps:\n\
         - {{call: echo.attach, args: {{ip: 10.0.0.10}}, expect: {{Ok: 1}}}}\n\
         - {{call: echo.attach, args: {{ip: 10.0.0.11}}, expect: {{Ok: 2}}}}\n\
         - {{restart: {{carry_state: false}}}}\n\
         - {before}\n\
         - {{operation_done: 2, failure: quota, expect: {{operation: 2, failure: quota}}}}\n\
         - {before}\n\
         - {{operation_done: 1, expect: {{operation: 1, failure: null}}, expect_calls: []}}\n\
         - {after}\n\
         - {{operation_done: 1, expect: {{operation: 1, failure: null}}}}\n\
         - {{operation_done: 9, failure: x, expect: {{operation: 9, failure: x}}}}\n\
         - {after}\n"
    ));
    fails(
        &format!("given: {{neg: {{negs: [{WEB}]}}}}\nsteps: [{after}]"),
        "neg.negs differs:\n      [0].endpoints: expected 2 elements, was 1 element",
    );
    passes("steps: [{expect_state: {neg: {negs: []}}}]");
}

#[test]
fn a_faulted_attachment_uses_up_no_number() {
    passes(&format!(
        "given: {{neg: {{negs: [{WEB}]}}}}\n\
         steps:\n\
         - {{fault: {{call: api.attach, error: Unauthorized, match: {{neg: {{zone: z1}}}}}}}}\n\
         - {{call: echo.attach, args: {{ip: 10.0.0.10}}, expect: {{Err: Unauthorized}}}}\n\
         - {{call: echo.attach, args: {{ip: 10.0.0.10}}, expect: {{Ok: 1}}}}\n"
    ));
}

fn run_texts(files: &[(&str, &str)]) -> (Summary, Vec<String>) {
    let files = files
        .iter()
        .map(|(path, text)| ScenarioFile {
            path: PathBuf::from(path),
            scenarios: parse(text).unwrap(),
        })
        .collect();
    let mut reported = Vec::new();
    let summary = block_on(run_files(Arc::new(Echoes), files, Vec::new(), |outcome| {
        reported.push(outcome.to_string())
    }));
    (summary, reported)
}

#[test]
fn outcomes_come_in_the_order_of_the_files() {
    let many: String = (0..50)
        .map(|n| format!("- {{name: n{n}, guest: echo, steps: [{{call: echo.count, expect: 1}}]}}\n"))
        .collect();
    let (summary, reported) = run_texts(&[
        ("a.yaml", &many),
        ("b.yaml", "{name: x, guest: echo, steps: [{call: echo.trap}]}"),
    ]);
    let expected: Vec<String> = (0..50).map(|n| format!("ok  a.yaml: n{n} (")).collect();
    let is_reported = |(reported, expected): (&String, &String)| reported.starts_with(expected);
    assert!(reported.iter().zip(&expected).all(is_reported), "{reported:?}");
    assert!(reported[50].starts_with("FAILED  b.yaml: x ("), "{reported:?}");
    assert_eq!((summary.passed, summary.failed, summary.exit_code()), (50, 1, 1));
}

#[test]
fn a_guest_that_can_not_be_loaded_is_an_error_of_the_run() {
    let (summary, reported) = run_texts(&[(
        "a.yaml",
        "- {name: a, guest: other, steps: []}\n- {name: b, guest: echo, steps: []}\n",
    )]);
    assert!(
        reported.len() == 1 && reported[0].starts_with("ok  a.yaml: b ("),
        "{reported:?}"
    );
    assert_eq!(
        summary.errors,
        ["a.yaml:1: guest `other` could not be loaded: there is `echo` alone"]
    );
    assert_eq!(summary.exit_code(), 2);
}
