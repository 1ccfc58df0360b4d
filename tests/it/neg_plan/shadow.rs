//! A candidate in shadow beside the guest `neg`, started in the middle of a migration. If it decides the same, it
//! equals the active version in everything, timers included; if it would move more at a time, it differs exactly there.

use std::fs;
use std::sync::LazyLock;

use serde_json::Value;

use super::FEW;
use super::cluster::{Cluster, Stack};
use super::compute::{Compute, Does};
use super::forgetful;
use super::misbehaving::guests::Source;
use super::renumbered::renumbered;
use super::stage::{OPERATION_MS, Stage};
use support::trueup;

/// Would move half of all endpoints at a time.
static HALF: LazyLock<Vec<u8>> = LazyLock::new(|| {
    forgetful::build(&Source {
        name: "neg",
        version: "half",
        features: &["moves-a-half"],
        world: "trueup:neg/neg-syncer@0.1.0",
    })
});

/// A file of the site, for an operator's command.
fn put(stage: &Stage, name: &str, bytes: &[u8]) -> String {
    let file = stage.site.path(name);
    fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The comparison, once nothing is pending.
fn settled(stage: &mut Stage) -> Value {
    let mut status = Value::Null;
    stage.wait_until("the comparison", |stage| {
        let status_of = ["shadow", "status", "neg", "--output", "json"];
        status = stage.site.guest(&status_of).exits(0).json();
        status["waiting"] == 0
    });
    status
}

fn numbers<const N: usize>(status: &Value, fields: [&str; N]) -> [u64; N] {
    fields.map(|field| status[field].as_u64().unwrap())
}

/// All endpoints are there; then one is detached, and the candidate starts.
fn moving_with(candidate: impl FnOnce(&Stage) -> String) -> (Stage, String) {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let candidate = candidate(&stage);
    stage.start();
    stage.comes_true();
    stage.hold();
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    stage.in_flight(Does::Detach);
    stage.site.guest(&["shadow", "start", "neg", &candidate]).exits(0);
    stage.let_go();
    stage.comes_true();
    (stage, candidate)
}

#[test]
fn an_equal_candidate_stays_equal_from_mid_move_to_the_end() {
    let (mut stage, _) = moving_with(|stage| put(stage, "neg-1.1.wasm", &renumbered("neg", "1", "1.1")));
    let status = settled(&mut stage);
    let [same, different, unrecorded, skipped] = numbers(&status, ["same", "different", "unrecorded", "skipped"]);
    assert_eq!((different, unrecorded, skipped), (0, 0, 0), "{status}");
    // From each of five more steps: two ends, a timer, and looks.
    assert!(same > 15, "{status}");
    // Also over a restart of the instance, back to single-stack.
    stage.change(|cluster| cluster.set_stack(Stack::Single));
    stage.comes_true();
    let status = settled(&mut stage);
    assert_eq!(
        numbers(&status, ["different", "unrecorded", "skipped"]),
        [0, 0, 0],
        "{status}"
    );
    stage.terminate();
    stage.replays(None);
}

#[test]
fn a_candidate_with_larger_moves_differs_there_and_the_gate_refuses_it() {
    let (mut stage, candidate) = moving_with(|stage| put(stage, "neg-half.wasm", &HALF));
    let status = settled(&mut stage);
    let [same, different, unrecorded, skipped] = numbers(&status, ["same", "different", "unrecorded", "skipped"]);
    assert_eq!((unrecorded, skipped), (0, 0), "{status}");
    // In two zones two are left to move; with one left, either version moves it.
    assert_eq!(different, 2, "{status}");
    assert!(same > 10, "{status}");
    let kept = status["last"].as_array().unwrap();
    assert_eq!(kept.len(), 2);
    for difference in kept {
        assert_eq!(difference["key"], "shop/web/80");
        assert!(
            difference["what"].as_str().unwrap().contains("`api.detach`"),
            "{difference}"
        );
        // The stored recording shows it again, and contains what the active version did.
        let file = difference["file"].as_str().unwrap();
        let shown = trueup(["replay", file, "--guest", &candidate, "--output", "json"])
            .exits(3)
            .json();
        assert_eq!(shown[0]["n"], difference["n"], "{shown}");
        trueup(["replay", file]).exits(0);
    }
    let ran = stage.site.guest(&["swap", "neg", &candidate]).exits(1);
    assert!(ran.stderr.contains(" is refused at gate: "), "{ran}");
    let plan = stage.site.plan().exits(0);
    assert_eq!(plan.last_line(), "1 neg: 0 to create, 0 to destroy, 0 failed");
    stage.terminate();
}
