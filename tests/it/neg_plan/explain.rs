//! The actions on a NEG, their causes, and its state: `trueup explain` and `trueup status`.

use std::ffi::OsStr;

use serde_json::{Value, json};

use super::FEW;
use super::cluster::{Cluster, Stack};
use super::compute::{Compute, Does};
use super::stage::{OPERATION_MS, Stage};
use support::{Ran, trueup};

fn asked(stage: &Stage, command: &str, words: &[&str]) -> Ran {
    let site = stage.site.folder().as_os_str();
    let words = words.iter().map(OsStr::new);
    trueup(
        [OsStr::new(command)]
            .into_iter()
            .chain(words)
            .chain([OsStr::new("--config"), site]),
    )
}

/// All writes of the last jobs, in order.
fn writes(explanation: &Value) -> Vec<Value> {
    let jobs = explanation["jobs"].as_array().unwrap();
    let calls = jobs.iter().flat_map(|job| job["calls"].as_array().unwrap());
    let writes = calls.filter_map(|call| call["told"]["writes"].as_array());
    writes.flatten().cloned().collect()
}

#[test]
fn what_was_written_is_told_with_its_endpoints_and_how_it_ended() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    stage.site.run_once().exits(0);
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    let fault = json!({"path": "*/detachNetworkEndpoints", "fail_next": 1});
    stage.compute.fault(&fault);
    stage.site.run_once().exits(0);

    let explained = asked(
        &stage,
        "explain",
        &["shop/web/80", "--last", "1000", "--output", "json"],
    )
    .exits(0);
    let writes = writes(&explained.json());
    let made = writes.iter().filter(|write| write["action"] == "create").count();
    assert_eq!(made, 3, "{explained}");
    let operations = stage.compute.changes();
    let told: Vec<(u64, bool)> = writes
        .iter()
        .filter(|write| write["action"] != "create")
        .map(|write| {
            let operation = &write["operation"];
            let failed = operation["ended"]["failure"].is_string();
            (operation["number"].as_u64().unwrap(), failed)
        })
        .collect();
    let done: Vec<(u64, bool)> = operations.iter().map(|it| (it.id, it.failure.is_some())).collect();
    assert_eq!(told, done, "{explained}");
    assert_eq!(told.iter().filter(|(_, failed)| *failed).count(), 1);
    let first = writes.iter().find(|write| write["action"] == "attach").unwrap();
    let endpoints = first["operation"]["endpoints"].as_array().unwrap();
    assert_eq!(
        endpoints[0],
        json!({"ip": "10.0.0.0", "ipv6": "", "port": "8080", "node": "vm-0"})
    );

    let text = asked(&stage, "explain", &["shop/web/80", "--last", "1000"]).exits(0);
    let failed = operations.iter().find(|it| it.failure.is_some()).unwrap();
    let (number, why) = (failed.id, failed.failure.as_deref().unwrap());
    let line = format!(
        "    - detach   web  in europe-west3-a: 1 endpoint: 10.0.0.0:8080 (vm-0); operation {number} failed: {why}"
    );
    assert!(text.stdout.contains(&line), "{line}\n{text}");
    for line in [
        "    + neg      web  in europe-west3-a, subnet default\n",
        "    + attach   web  in europe-west3-a: 2 endpoints: 10.0.0.0:8080 (vm-0), 10.0.0.1:8080 (vm-0); operation ",
        "    - detach   web  in europe-west3-a: 1 endpoint: 10.0.0.0:8080 (vm-0); operation ",
        " ended well, told in #",
        "      ~ europe-west3-a/default: \"10.0.0.0:8080 (vm-0)\" -> \"10.0.0.0+[fd00::]:8080 (vm-0)\"\n",
        "    * a timer was due that the guest had set\n",
        " endpoints to be attached, ",
    ] {
        assert!(text.stdout.contains(line), "{line}\n{text}");
    }
}

#[test]
fn a_move_that_hangs_shows_on_what_and_one_that_waits_until_when() {
    let (mut stage, operation) = Stage::detaching(600_000);
    let status = asked(&stage, "status", &["--keys"]).exits(0);
    let line =
        format!("in flight shop/web/80: operation {operation} detaches 1 endpoint at europe-west3-a/default, for ");
    assert!(status.stdout.contains(&line), "{status}");
    let hangs = "6 of 6 endpoints to move, detaching at europe-west3-a/default, goes on when that has ended\n";
    assert!(
        status.stdout.contains(&format!("migrates  shop/web/80: {hangs}")),
        "{status}"
    );
    let row = status.line("shop/web/80 ");
    assert!(row.ends_with(hangs.trim()), "{status}");
    let shown = asked(&stage, "status", &["--output", "json"]).exits(0).json()["negs"]["in_flight"][0].take();
    let fields = ["key", "operation", "action", "at", "endpoints"].map(|field| shown[field].clone());
    let expected = json!(["shop/web/80", operation, "detach", "europe-west3-a/default", 1]);
    assert_eq!(json!(fields), expected, "{shown}");

    stage.compute.end_operations();
    stage.in_flight(Does::Attach);
    stage.compute.end_operations();
    stage.wait_until("the wait", |stage| {
        let status = asked(stage, "status", &[]).exits(0);
        !status.stdout.contains("in flight shop")
            && status
                .stdout
                .contains("migrates  shop/web/80: 5 of 6 endpoints to move, goes on in ")
    });
    stage.kill();
}
