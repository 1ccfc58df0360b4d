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
        calls: Vec::new(),
    }
}

#[test]
fn a_correction_is_that_of_others_only_if_no_earlier_job_left_it_undone() {
    let mut of = job(&json!({"why": "resync"}));
    let accuses = |of: &Explained| {
        job_text(of, "neg")
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
    );
    let with = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((with(trap), with(AS_ABOVE)), (1, 3), "{lines:#?}");
}
