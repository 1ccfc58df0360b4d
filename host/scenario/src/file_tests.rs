//! Every scenario of the project parses, and every invalid one yields an error with place and reason.

use std::path::Path;

use super::*;

#[test]
fn a_scenario_is_read_with_all_that_it_may_say() {
    let text = r#"
name: all of it
about: one line
guest: lbaas@2
config: {max_rounds: 2}
given:
  now_ms: 7
  lbaas:
    load_balancers: {lb-1: Ok}
    objects:
      - {identifier: s-1, state: Failed, tags: [b, a], spec: {Server: {name: s, backend: b, ip: 10.0.0.1, port: 80, check: enabled}}}
    settle_ms: 5
  etcd: {/a: "1"}
  neg: {negs: [{name: web, zone: z1, subnet: s1, endpoints: [{ip: 10.0.0.1, ipv6: "", port: "80", node: n1}]}]}
steps:
  - {call: lifecycle.snapshot, save: {it: "", part: /a/0}}
  - {call: kv.get, args: {key: a}, expect: null, expect_calls: [{call: kv.get}]}
  - {advance_ms: 10, expect_timers: [[1, true]], expect_calls: []}
  - {fault: {call: kv.get, error: Down}}
  - {fault: {call: kv.get, answer: [1], times: null, match: {key: a}}}
  - {clear_faults: true}
  - {operation_done: 3, failure: quota, expect: false}
  - {restart: {carry_state: true}}
  - {expect_state: {metrics: {"m{a=\"b\"}": 5.0}, lbaas: {objects: []}, neg: {negs: []}}}
"#;
    let scenario = parse(text).unwrap().remove(0);
    assert_eq!(
        (scenario.line, scenario.name.as_str(), scenario.guest.as_str()),
        (2, "all of it", "lbaas@2")
    );
    assert_eq!(json!(scenario.config), json!({"max_rounds": 2}));
    let given = json!({
        "now_ms": 7,
        "etcd": {"/a": "1"},
        "lbaas": {
            "load_balancers": {"lb-1": "Ok"},
            "objects": [{"identifier": "s-1", "state": "Failed", "tags": ["b", "a"],
                "spec": {"Server": {"name": "s", "backend": "b", "ip": "10.0.0.1", "port": 80, "check": "enabled"}}}],
            "settle_ms": 5,
        },
        "neg": {"negs": [{"name": "web", "zone": "z1", "subnet": "s1",
            "endpoints": [{"ip": "10.0.0.1", "ipv6": "", "port": "80", "node": "n1"}]}]},
    });
    assert_eq!(json!(scenario.given), given);
    let mut steps = scenario.steps.unwrap();
    assert_eq!(steps[2].line, 18);
    for step in &mut steps {
        step.line = 0;
    }
    let object = |value: Value| value.as_object().cloned();
    let call = |export: &str, args, expect, expect_calls, save: &[(&str, &str)]| {
        let save = save.iter();
        Step {
            call: Some(export.into()),
            args,
            expect,
            expect_calls,
            save: save
                .map(|(name, pointer)| ((*name).to_owned(), (*pointer).to_owned()))
                .collect(),
            ..Step::default()
        }
    };
    let fault = |error, answer, times, matching| Step {
        fault: Some(WrittenFault {
            call: "kv.get".into(),
            error,
            answer,
            times,
            matching,
        }),
        ..Step::default()
    };
    let asked = vec![Asked {
        call: "kv.get".to_owned(),
        args: Map::new(),
    }];
    let expected = [
        call("lifecycle.snapshot", None, None, None, &[("it", ""), ("part", "/a/0")]),
        call(
            "kv.get",
            object(json!({"key": "a"})),
            Some(Value::Null),
            Some(asked),
            &[],
        ),
        Step {
            advance_ms: Some(10),
            expect_timers: Some(vec![(1, json!(true))]),
            expect_calls: Some(vec![]),
            ..Step::default()
        },
        fault(Some(json!("Down")), None, Some(1), None),
        fault(None, Some(json!([1])), None, Some(json!({"key": "a"}))),
        Step {
            clear_faults: Some(true),
            ..Step::default()
        },
        Step {
            operation_done: Some(3),
            failure: Some("quota".into()),
            expect: Some(json!(false)),
            ..Step::default()
        },
        Step {
            restart: Some(Restart { carry_state: true }),
            ..Step::default()
        },
        Step {
            expect_state: object(json!({
                "metrics": {"m{a=\"b\"}": 5.0},
                "lbaas": {"objects": []},
                "neg": {"negs": []},
            })),
            ..Step::default()
        },
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_neg_is_given_once() {
    let given = |zone: &str| {
        format!(
            "name: a\nguest: neg\nsteps: []\ngiven:\n  neg:\n    negs:\n\
             \x20   - {{name: n, zone: z1, subnet: s, endpoints: []}}\n\
             \x20   - {{name: n, zone: {zone}, subnet: t, endpoints: []}}\n"
        )
    };
    parse(&given("z2")).unwrap();
    let error = parse(&given("z1")).unwrap_err();
    assert_eq!(error.line, Some(8));
    assert_eq!(
        error.to_string(),
        "given.neg.negs: NEG \"n\" in zone \"z1\" is there already, on line 7"
    );
}

#[test]
fn one_scenario_or_a_list_of_them_in_yaml_or_json() {
    let one = r#"{"name": "a", "guest": "g", "steps": []}"#;
    assert_eq!(parse(one).unwrap().len(), 1);
    let two = "- {name: a, guest: g, steps: []}\n- {name: b, guest: g, config: {x: 0}, expect_init_error: x}\n";
    assert_eq!(parse(two).unwrap().len(), 2);
    assert_eq!(parse("[]").unwrap().len(), 0);
}

#[test]
fn aliases_stand_for_what_they_name() {
    let text = "name: a\nguest: g\nsteps:\n- {call: a.b, args: {x: &d [1, 2]}}\n- {call: a.b, args: {x: *d}}\n";
    let steps = parse(text).unwrap().remove(0).steps.unwrap();
    assert_eq!((&steps[0].call, &steps[0].args), (&steps[1].call, &steps[1].args));
}

/// Reads `steps: [STEP]` and returns the error.
fn step_error(step: &str) -> String {
    error_of(&format!("name: a\nguest: g\nsteps:\n- {step}\n"))
}

fn error_of(text: &str) -> String {
    let error = parse(text).expect_err(text);
    format!("{}: {error}", error.line.unwrap_or_default())
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_what_may_be_there() {
    let steps = [
        (
            "{call: a.b, arg: {}}",
            "4: steps[0].arg: unknown field; did you mean `args`?",
        ),
        (
            "{advance_ms: 1, expect: 1}",
            "4: steps[0].expect: unknown field; did you mean `expect_calls`?",
        ),
        (
            "{fault: {call: a.b, error: x, time: 1}}",
            "4: steps[0].fault.time: unknown field; did you mean `times`?",
        ),
        (
            "{restart: {carry: true}}",
            "4: steps[0].restart.carry: unknown field (known: carry_state)",
        ),
        (
            "{call: a.b, expect_calls: [{call: c.d, arg: {}}]}",
            "4: steps[0].expect_calls[0].arg: unknown field; did you mean `args`?",
        ),
        (
            "{expect_state: {lbaas: {load_balancers: {}}}}",
            "4: steps[0].expect_state.lbaas.load_balancers: unknown field (known: objects)",
        ),
        (
            "{expect_state: {neg: {negs: [{name: n, zones: z}]}}}",
            "4: steps[0].expect_state.neg.negs[0].zones: unknown field; did you mean `zone`?",
        ),
        (
            "{expect_state: {checkpoint: {data: x, lines: []}}}",
            "4: steps[0].expect_state.checkpoint.lines: unknown field (known: data, entries)",
        ),
    ];
    for (step, message) in steps {
        assert_eq!(step_error(step), message);
    }
    assert_eq!(
        step_error("{expect_state: {metric: {}}}"),
        "4: steps[0].expect_state.metric: unknown field; did you mean `metrics`?"
    );
    assert_eq!(
        error_of("name: a\nguests: g\nsteps: []\n"),
        "2: guests: unknown field; did you mean `guest`?"
    );
    let given = |given: &str| error_of(&format!("- name: a\n  guest: g\n  steps: []\n  given:\n    {given}\n"));
    assert_eq!(
        given("lbass: {}"),
        "5: [0].given.lbass: unknown field; did you mean `lbaas`?"
    );
    assert_eq!(
        given("simulated: {}"),
        "5: [0].given.simulated: unknown field (known: checkpoint, etcd, lbaas, neg, now_ms, sandboxes)"
    );
    assert_eq!(
        given("lbaas: {object: []}"),
        "5: [0].given.lbaas.object: unknown field; did you mean `objects`?"
    );
    assert_eq!(
        given("sandboxes: [{id: a, ip: b, namespace: c, name: d, uid: e}]"),
        "5: [0].given.sandboxes[0].uid: unknown field; did you mean `id`?"
    );
    let server = "{name: s, backend: b, ip: 10.0.0.1, port: 80, check: enabled, weight: 1}";
    assert_eq!(
        given(&format!(
            "lbaas:\n      objects:\n      - {{identifier: s, state: Ok, tags: [],\n         spec: {{Server: {server}}}}}"
        )),
        "8: [0].given.lbaas.objects[0].spec.Server.weight: unknown field (known: name, backend, ip, port, check)"
    );
}

#[test]
fn a_step_does_one_thing() {
    assert_eq!(
        step_error("{expect: 1}"),
        "4: steps[0]: says nothing to do; there must be one of `call`, `advance_ms`, `fault`, `clear_faults`, `operation_done`, `restart`, `expect_state`"
    );
    assert_eq!(
        step_error("{call: a.b, restart: {}}"),
        "4: steps[0]: does both `call` and `restart`; these are two steps"
    );
    assert_eq!(
        step_error("text"),
        "4: steps[0]: invalid type: string \"text\", expected an object"
    );
}

#[test]
fn values_of_the_wrong_kind_are_named() {
    for key in ["args", "expect_calls", "expect_ending"] {
        assert_eq!(
            step_error(&format!("{{call: a.b, {key}: }}")),
            format!("4: steps[0].{key}: was null, must have a value")
        );
    }
    assert_eq!(
        step_error("{call: a.b, expect_calls: [{call: kv.get, args: }]}"),
        "4: steps[0].expect_calls[0].args: was null, must have a value"
    );
    assert_eq!(
        error_of("name: a\nguest: g\nsteps: []\nlimits:\n"),
        "4: limits: was null, must have a value"
    );
    let steps = [
        (
            "{call: reconcile}",
            "steps[0].call: was \"reconcile\", must be `interface.function`",
        ),
        (
            "{call: a.b, args: [1]}",
            "steps[0].args: invalid type: sequence, expected a map",
        ),
        (
            "{call: a.b, save: {x: Ok}}",
            "steps[0].save: x: was \"Ok\", must be a JSON pointer: \"\" or \"/...\"",
        ),
        (
            "{advance_ms: -1}",
            "steps[0].advance_ms: invalid value: integer `-1`, expected u64",
        ),
        (
            "{advance_ms: soon}",
            "steps[0].advance_ms: invalid type: string \"soon\", expected u64",
        ),
        (
            "{advance_ms: 1, expect_timers: [1]}",
            "steps[0].expect_timers[0]: invalid type: integer `1`, expected a tuple of size 2",
        ),
        (
            "{advance_ms: 1, expect_timers: [[1]]}",
            "steps[0].expect_timers[0]: invalid length 1, expected a tuple of size 2",
        ),
        (
            "{fault: {call: a.b}}",
            "steps[0].fault: `error` is missing (or `answer`)",
        ),
        ("{fault: {error: x}}", "steps[0].fault: missing field `call`"),
        (
            "{fault: {call: a.b, error: x, answer: y}}",
            "steps[0].fault: has both `error` and `answer`; there may be one",
        ),
        (
            "{fault: {call: a.b, error: x, times: 0}}",
            "steps[0].fault: `times` was 0, must be at least 1, or null for ever",
        ),
        (
            "{clear_faults: false}",
            "steps[0].clear_faults: was false, must be true",
        ),
        (
            "{restart: {carry_state: 1}}",
            "steps[0].restart.carry_state: invalid type: integer `1`, expected a boolean",
        ),
        (
            "{operation_done: 1, failure: 2}",
            "steps[0].failure: invalid type: integer `2`, expected a string",
        ),
        (
            "{expect_state: {metrics: {m: x}}}",
            "steps[0].expect_state.metrics.m: invalid type: string \"x\", expected f64",
        ),
        (
            "{expect_state: {etcd: {/a: 1}}}",
            "steps[0].expect_state.etcd./a: invalid type: integer `1`, expected a string",
        ),
    ];
    for (step, message) in steps {
        assert_eq!(step_error(step), format!("4: {message}"));
    }
}

#[test]
fn what_a_scenario_must_have_is_asked_for() {
    assert_eq!(error_of("guest: g\nsteps: []\n"), "1: missing field `name`");
    assert_eq!(
        error_of("name: ''\nguest: g\nsteps: []\n"),
        "1: name: was \"\", must not be empty"
    );
    assert_eq!(error_of("name: a\nsteps: []\n"), "1: missing field `guest`");
    assert_eq!(
        error_of("name: a\nguest: g\n"),
        "1: `steps` is missing (or `expect_init_error`)"
    );
    assert_eq!(
        error_of("name: a\nguest: g\nexpect_init_error: x\nsteps: []\n"),
        "4: steps: must not be there beside `expect_init_error`: an instance that did not start takes no step"
    );
    assert_eq!(error_of("text\n"), "1: must be a scenario or a list of them");
    let message = error_of("- {name: a, guest: g, steps: []}\n- {name: a, guest: g, steps: []}\n");
    assert_eq!(message, "2: name: was \"a\", must differ from the one on line 1");
    let message = error_of("name: a\nguest: g\nsteps: []\ngiven: {lbaas: {load_balancers: {lb-1: Good}}}\n");
    assert!(
        message.starts_with("4: given.lbaas.load_balancers.lb-1: unknown variant `Good`, expected one of "),
        "{message}"
    );
}

#[test]
fn every_scenario_of_the_project_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let (files, errors) = crate::find::read(&[folder]);
    assert!(
        errors.is_empty(),
        "{}",
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    );
    assert!(files.iter().map(|file| file.scenarios.len()).sum::<usize>() > 40);
}

#[test]
fn values_are_those_of_json() {
    let text = "a: [1, -2, 0.5, 5.0, yes, n, true, ~, null, \"7\", 0x10]\n\
                80: \"adv_check\"\n\
                10.0.0.5: 10.0.0.6\n\
                '': {x: 18446744073709551615}\n";
    let expected = json!({
        "a": [1, -2, 0.5, 5.0, "yes", "n", true, null, null, "7", 16],
        "80": "adv_check",
        "10.0.0.5": "10.0.0.6",
        "": {"x": u64::MAX},
    });
    assert_eq!(tree(text).unwrap().to_json(), expected);
}

#[test]
fn json_is_read_as_the_yaml_that_it_is() {
    let value = json!({"a": [1, {"b": null, "c": "\u{1f600} \"\\/\n\t:"}], "d": {}, "e": [], "f": -1.5});
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    assert_eq!(tree(&pretty).unwrap().to_json(), value);
    assert_eq!(tree(&value.to_string()).unwrap().to_json(), value);
    assert_eq!(tree(&pretty.replace("  ", "\t")).unwrap().to_json(), value);
    assert_eq!(
        tree(r#"{"a":"\ud83d\ude00\/"}"#).unwrap().to_json(),
        json!({"a": "\u{1f600}/"})
    );
}

#[test]
fn every_node_knows_its_line() {
    let node = tree("a: 1\nb:\n  - &x {c: 2}\n  - *x\n").unwrap();
    let yaml::Value::Map(entries) = &node.value else {
        panic!("{node:?}")
    };
    assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [1, 2]);
    let yaml::Value::List(items) = &entries[1].value.value else {
        panic!("{node:?}")
    };
    assert_eq!(items.iter().map(|item| item.line).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn what_is_no_document_is_an_error_on_its_line() {
    let line = |text| tree(text).unwrap_err().line;
    assert_eq!(line("a: 1\nb: [1\n"), Some(2));
    assert_eq!(line("a: 1\na: 2\n"), Some(2));
    assert_eq!(line("a: *missing\n"), Some(1));
}
