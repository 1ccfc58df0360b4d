//! `trueup plan` announces exactly what a run then does, and does nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::FEW;
use super::cluster::{Cluster, Stack, ZONES};
use super::compute::{Compute, Does, Endpoint, Operation};
use super::stage::{OPERATION_MS, Stage, WAIT_MS};
use support::{self, TOKEN, files_under, ran};

/// Longer than the whole test.
const LONG_MS: u64 = 600_000;

/// The JSON output of `plan`, with this exit code.
#[track_caller]
fn planned(stage: &Stage, code: i32) -> Value {
    ran(&mut stage.site.command("plan", &["--output", "json"]))
        .exits(code)
        .json()
}

/// Action, zone, NEG and endpoints of a planned or completed step.
type Told = (String, String, String, BTreeSet<(String, String)>);

fn steps(key: &Value) -> Vec<Told> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let told = |write: &Value| {
        let endpoints = write["operation"]["endpoints"].as_array().into_iter().flatten();
        let endpoints = endpoints.map(|it| (text(&it["ip"]), text(&it["ipv6"]))).collect();
        let details = text(&write["details"]);
        let zone = details.strip_prefix("in ").unwrap().split([':', ',']).next().unwrap();
        (text(&write["action"]), zone.to_owned(), text(&write["name"]), endpoints)
    };
    key["writes"].as_array().unwrap().iter().map(told).collect()
}

fn done(operations: &[Operation]) -> Vec<Told> {
    let told = |operation: &Operation| {
        let does = match operation.does {
            Does::Insert => "create",
            Does::Attach => "attach",
            Does::Detach => "detach",
        };
        let addresses = |it: &Endpoint| (it.ip_address.clone(), it.ipv6_address.clone());
        let endpoints = operation.endpoints.iter().map(addresses).collect();
        (
            does.to_owned(),
            operation.zone.clone(),
            operation.neg.clone(),
            endpoints,
        )
    };
    operations.iter().map(told).collect()
}

/// All stored files, without compiled code.
fn state(stage: &Stage) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_under(&stage.site.state_dir());
    let cache = stage.site.state_dir().join("cache");
    // Nor sockets.
    let kept = files
        .into_iter()
        .filter(|file| !file.starts_with(&cache) && file.is_file());
    kept.map(|file| (file.clone(), fs::read(&file).unwrap())).collect()
}

/// Another client creates a NEG.
fn insert(stage: &Stage, name: &str, zone: &str, subnet: &str) {
    let body = json!({
        "name": name, "networkEndpointType": "GCE_VM_IP_PORT",
        "subnetwork": format!("projects/p1/regions/europe-west3/subnetworks/{subnet}"),
    });
    let path = format!("compute/v1/projects/p1/zones/{zone}/networkEndpointGroups");
    let request = reqwest::Client::new()
        .post(format!("{}/{path}", stage.compute.url()))
        .bearer_auth(TOKEN)
        .json(&body);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answer = runtime.block_on(request.send()).unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    support::wait_until("the NEG", || stage.compute.at_rest().is_some());
}

/// Waits until a running host waits.
fn comes_to_wait(stage: &mut Stage) {
    stage.wait_until("a move that waits", |stage| {
        let status = ["status", "--output", "json", "--config"].map(std::ffi::OsStr::new);
        let ran = support::trueup(status.into_iter().chain([stage.site.folder().as_os_str()]));
        ran.exits(0).json()["negs"]["migrations"][0]["paused_until_ms"].is_u64()
    });
}

#[test]
fn what_is_planned_is_what_is_then_done_and_a_plan_does_nothing() {
    let mut stage = Stage::new(Cluster::of(FEW, Stack::Single), Compute::start(OPERATION_MS, &[]));
    let plan = stage.site.plan().exits(3);
    assert_eq!(
        plan.last_line(),
        "1 neg: 3 to create, 0 to destroy, 6 to attach, 0 failed",
        "{plan}"
    );
    for line in [
        "shop/web/80  +9",
        "  + neg      web  in europe-west3-a, subnet default",
        "  + neg      web  in europe-west3-a: 2 endpoints: 10.0.0.0:8080 (vm-0), 10.0.0.1:8080 (vm-0)",
    ] {
        assert_eq!(
            plan.stdout.lines().filter(|it| *it == line).count(),
            1,
            "{line}: {plan}"
        );
    }
    let first = planned(&stage, 3);
    assert!(
        stage.compute.operations().is_empty() && state(&stage).is_empty(),
        "a plan does nothing: {:?}",
        state(&stage).keys()
    );
    stage.site.run_once().exits(0);
    assert_eq!(steps(&first["keys"][0]), done(&stage.compute.operations()));
    assert_eq!(
        stage.site.plan().exits(0).stdout,
        "shop/web/80  nothing to do\n1 neg: 0 to create, 0 to destroy, 0 failed\n"
    );

    // All six get a second address, one after the other.
    stage.change(|cluster| cluster.set_stack(Stack::Dual));
    let before = (stage.compute.operations().len(), state(&stage));
    let plan = planned(&stage, 3);
    assert_eq!((stage.compute.operations().len(), state(&stage)), before);
    let key = &plan["keys"][0];
    assert_eq!(
        key["waits_ms"],
        json!(5 * WAIT_MS),
        "five pauses between six steps: {key}"
    );
    let text = stage.site.plan().exits(3);
    assert_eq!(
        text.last_line(),
        "1 neg: 0 to create, 0 to destroy, 6 to attach, 6 to detach, 0 failed"
    );
    let first = ZONES[0];
    assert!(
        text.stdout.starts_with(&format!(
            "shop/web/80  +6 -6, 1.5 s of pauses\n  - neg      web  in {first}: 1 endpoint: 10.0.0.0:8080 (vm-0)\n  \
             + neg      web  in {first}: 1 endpoint: 10.0.0.0+[fd00::]:8080 (vm-0)\n"
        )),
        "{text}"
    );
    stage.site.run_once().exits(0);
    assert_eq!(steps(key), done(&stage.compute.operations()[before.0..]));
    assert!(stage.is_true());

    // The Service goes.
    stage.change(|cluster| cluster.remove("web"));
    let plan = stage.site.plan().exits(3);
    assert!(plan.stdout.starts_with("shop/web/80 (gone)  -6\n"), "{plan}");
    assert_eq!(
        plan.last_line(),
        "1 neg: 0 to create, 0 to destroy, 6 to detach, 0 failed"
    );
}

#[test]
fn a_plan_goes_on_from_where_a_host_is_that_runs_and_does_not_disturb_it() {
    let (mut stage, _) = Stage::detaching(LONG_MS);

    // One endpoint is out, which the list of endpoints does not show yet.
    let before = (stage.compute.operations().len(), state(&stage));
    let plan = planned(&stage, 3);
    assert_eq!(stage.compute.operations().len(), before.0);
    let changed = state(&stage);
    assert_eq!(changed.keys().collect::<Vec<_>>(), before.1.keys().collect::<Vec<_>>());
    let journals = |state: &BTreeMap<PathBuf, Vec<u8>>| {
        let journals = stage.site.state_dir().join("journals");
        let kept = state.iter().filter(|(file, _)| file.starts_with(&journals));
        kept.map(|(file, text)| (file.clone(), text.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(journals(&changed), journals(&before.1));
    let key = &plan["keys"][0];
    let steps = steps(key);
    // It comes back at once; then five more follow, each after a pause.
    assert_eq!(steps[0].0, "attach");
    assert_eq!(
        steps[0].3,
        BTreeSet::from([("10.0.0.0".to_owned(), "fd00::".to_owned())])
    );
    assert_eq!(steps.iter().filter(|step| step.0 == "detach").count(), 5, "{steps:?}");
    assert_eq!(key["waits_ms"], json!(5 * LONG_MS));
    let text = stage.site.plan().exits(3);
    assert!(
        text.stdout.starts_with("shop/web/80  +6 -5, 50 min of pauses\n"),
        "{text}"
    );

    // It has ended: the host waits, and the plan's first pause is the rest of that wait.
    stage.compute.end_operations();
    stage.in_flight(Does::Attach);
    stage.compute.end_operations();
    comes_to_wait(&mut stage);
    let key = planned(&stage, 3)["keys"][0].take();
    let left_ms = key["waits_ms"].as_u64().unwrap() - 4 * LONG_MS;
    assert!(left_ms > 0 && left_ms <= LONG_MS, "{key}");
    stage.kill();
}

#[test]
fn what_would_be_refused_is_said_and_what_is_left_is_planned() {
    let mut cluster = Cluster::of(FEW, Stack::Single);
    cluster.add("api", FEW, Stack::Single);
    let stage = Stage::new(cluster, Compute::start(OPERATION_MS, &[]));
    // Another owner's NEG has the name.
    insert(&stage, "api", ZONES[1], "other");
    let plan = stage.site.plan().exits(1);
    let failing = "shop/api/80  +6, then fails: Compute Engine refuses it: 409 NEG api in europe-west3-b has subnet other, not default";
    assert!(plan.stdout.lines().any(|line| line == failing), "{plan}");
    assert!(plan.stdout.lines().any(|line| line == "shop/web/80  +9"), "{plan}");
    assert_eq!(
        plan.last_line(),
        "2 negs: 5 to create, 0 to destroy, 10 to attach, 1 failed"
    );
    let json = planned(&stage, 1);
    assert!(json["keys"][0]["error"].as_str().unwrap().contains("409"), "{json}");

    // Without the right to write, the host sends nothing.
    stage
        .site
        .edit("trueup.toml", r#"write = ["*"]"#, r#"write = ["api@*"]"#);
    let plan = stage.site.plan().exits(1);
    let failing = "shop/web/80  fails: access denied: no grant to write NEG `web` in zone `europe-west3-a`";
    assert!(plan.stdout.contains(failing), "{plan}");

    // Nor is there a server to answer.
    let url = stage.compute.url().to_owned();
    stage.site.edit("trueup.toml", &url, "http://127.0.0.1:1");
    let plan = stage.site.plan().exits(1);
    assert!(
        plan.stdout.contains("fails: Compute Engine is not available: "),
        "{plan}"
    );
}
