use serde_json::json;

use super::*;

/// A job of a key that created an object, with one cause.
fn job(cause: &Value) -> Explained {
    let mut cause = cause.clone();
    cause["at_ms"] = json!(1);
    let job = json!({
        "format": 1, "key": "shop/web/80", "causes": [cause], "began_ms": 1, "took_ms": 1, "decisions": [],
        "came": {"end": "true"}, "effects": {"created": 1, "destroyed": 0},
    });
    Explained {
        job: serde_json::from_value(job).unwrap(),
        origin: None,
        guest_before: None,
        settings_changed: None,
        calls: Vec::new(),
    }
}

#[test]
fn a_correction_is_that_of_others_only_if_no_earlier_job_left_it_undone() {
    let mut of = job(&json!({"why": "resync"}));
    let accuses = |of: &Explained| {
        job_text(of, "neg", None)
            .iter()
            .any(|line| line.contains("others had changed"))
    };
    assert!(accuses(&of));
    // A NEG's failures are not in the queue's count, so `failures_before` is 0.
    of.origin = Some(Origin {
        began_ms: 1,
        decisions: Vec::new(),
        causes: job(&json!({"why": "reloaded"})).job.causes,
        more_causes: 0,
    });
    assert!(!accuses(&of));
}

#[test]
fn each_object_that_waits_for_an_approval_says_so_in_a_few_words() {
    let write = |error: &str| Write {
        n: 1,
        action: Action::Destroy,
        kind: "server".to_owned(),
        name: "a".to_owned(),
        details: String::new(),
        error: Some(json!({ "AccessDenied": error }).to_string()),
        operation: None,
    };
    let waits = format!("destroying 22 of 29 objects is more than 10: {WAITS}; type: trueup approve");
    assert!(write_text(&write(&waits)).ends_with("  not done: waits for an approval"));
    assert!(write_text(&write("no")).ends_with("  not done: AccessDenied: no"));
}

#[test]
fn the_text_of_a_trap_is_printed_once() {
    let trap = "guest `lbaas@2` trapped in `reconcile`: unreachable";
    let mut of = job(&json!({"why": "retry", "failures": 1, "error": trap}));
    let made = json!({
        "id": "lbaas/shop/web#7", "n": 7, "call": "reconciliation.reconcile", "guest": "lbaas", "version": "2",
        "digest": "sha256:x", "began_ms": 1, "took_ms": 1, "asked": 0, "error": trap,
    });
    of.job.decisions = vec![serde_json::from_value(made).unwrap()];
    of.job.came = JobResult::Fault { error: trap.to_owned() };
    of.calls = vec![ReportedCall {
        decision: "lbaas/shop/web#7".to_owned(),
        report: None,
        missing: None,
    }];
    let held = json!({
        "instance": "shop/web", "error": trap, "failures": 5, "at_ms": 1, "digest": "", "input": "", "journal": "",
    });
    let lines = text(
        &Explanation {
            guest: "lbaas".to_owned(),
            key: "shop/web".to_owned(),
            set_aside: serde_json::from_value(held).unwrap(),
            now: None,
            jobs: vec![of],
            kept: 1,
            unread: 0,
        },
        None,
        None,
    );
    let with = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((with(trap), with(AS_ABOVE)), (1, 3), "{lines:#?}");
}

/// The last lines of an explanation with one job, and with what the host does now, which began at 1 ms.
fn with_now(job: Explained, now: Value) -> String {
    let now: KeyShown = serde_json::from_value(now).unwrap();
    let explanation = Explanation {
        now: Now::of(&now, &[]),
        jobs: vec![job],
        ..Explanation::default()
    };
    text(&explanation, None, Some(1)).split_off(3).join("\n")
}

fn key(state: &str, since_ms: u64) -> Value {
    json!({
        "guest": "nat44", "key": "node-a", "state": state, "since_ms": since_ms, "error": "etcd: refused", "failures": 5,
        "next_try_in_ms": 13_000, "created": 0, "destroyed": 0, "in_service": [], "decisions": 5, "recent": [],
    })
}

#[test]
fn a_key_that_failed_says_how_often_since_when_and_when_it_is_tried_again() {
    let done = job(&json!({"why": "start"}));
    let said = "  true: 1 created, 0 destroyed\n! failed 5 times since 1970-01-01T00:00:00.007Z, next try in 13 s: ";
    assert_eq!(with_now(done, key("failed", 7)), format!("{said}etcd: refused"));
    let mut failed = job(&json!({"why": "start"}));
    let error = "etcd: refused".to_owned();
    failed.job.came = JobResult::Failed { error };
    assert!(with_now(failed, key("failed", 7)).ends_with(", next try in 13 s: as above"));
}

#[test]
fn a_call_without_an_ending_runs_or_its_host_ended() {
    let mut open = job(&json!({"why": "start"}));
    open.job.came = JobResult::Open;
    let failing = "! failed 5 times since 1970-01-01T00:00:00.001Z, ";
    for state in ["running", "queued"] {
        let said = with_now(open.clone(), key(state, 1));
        assert!(
            said.starts_with("  still runs since 1970-01-01T00:00:00.001Z\n"),
            "{said}"
        );
        assert!(said.contains(failing) && !said.contains("a job runs"), "{said}");
    }
    let (older, mut newer) = (open.clone(), job(&json!({"why": "start"})));
    newer.job.began_ms += 1;
    let jobs = vec![older, newer];
    let both = text(
        &Explanation {
            jobs,
            ..Explanation::default()
        },
        None,
        Some(1),
    )
    .join("\n");
    assert!(
        both.contains("  its end is not recorded: ") && !both.contains("still runs"),
        "{both}"
    );
    let said = with_now(open.clone(), key("failed", 1));
    assert!(
        said.starts_with("  its end is not recorded: the host's log says why\n"),
        "{said}"
    );
    open.job.began_ms = 0;
    let said = with_now(open, key("running", 1));
    assert!(
        said.starts_with("  its host ended inside it: the next start runs it again\n"),
        "{said}"
    );
    assert!(
        said.ends_with("\n! a job runs now: it is shown here when it has ended"),
        "{said}"
    );
}

#[test]
fn a_reload_is_followed_by_the_settings_that_it_changed() {
    let mut of = job(&json!({"why": "reloaded"}));
    let changed = json!({"fields": [{"path": "settings.servers_max", "new": 2}]});
    of.settings_changed = serde_json::from_value(changed).unwrap();
    of.job.causes.push(job(&json!({"why": "start"})).job.causes.remove(0));
    let expected = [
        "    * the configuration was reloaded",
        "        + settings.servers_max: 2",
        "    * the host started",
    ];
    assert_eq!(job_text(&of, "lbaas", None)[2..5], expected);
}
