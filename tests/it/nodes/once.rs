//! `trueup run --once` of a node: it ends when the renderers have everything, reports the result in its last line and
//! its exit code, and leaves recordings that replay.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::manifests::Manifests;
use super::site::{Config, Host};
use support::ran;

fn manifests() -> Manifests {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 30080);
    manifests.put_service("db", 11, 0);
    manifests.put_endpoints("web", &["10.1.1.2", "10.1.2.2"]);
    manifests.put_endpoints("db", &["10.1.1.3"]);
    manifests
}

fn config(manifests: &Manifests) -> Config {
    Config::new("node-a", manifests)
        .numbered()
        .publishing(&["192.168.16.1/24"])
        .serving(&["nftables", "nat44"])
}

#[test]
fn a_node_is_numbered_and_its_services_rendered_and_the_last_line_says_so() {
    let manifests = manifests();
    let host = Host::new(config(&manifests));
    let first = host.site.run_once().exits(0);
    assert_eq!(
        first.last_line(),
        "1 node, 2 services: 2 renderers true, 0 failed",
        "{first}"
    );
    assert!(
        first.stdout.contains(&format!("{:<24} numbered 1\n", "node-a")),
        "{first}"
    );
    assert_eq!(first.stderr, "", "{first}");
    // The host's own store keeps the number.
    let again = host.site.run_once().exits(0);
    assert_eq!(again.last_line(), first.last_line(), "{again}");
    assert!(
        again.stdout.contains(&format!("{:<24} numbered 1\n", "node-a")),
        "{again}"
    );

    let document = ran(&mut host.site.command("run", &["--once", "--output", "json"]))
        .exits(0)
        .json();
    let expected = json!({
        "id": 1, "nodes": 1, "services": 2, "rendered": ["nftables/node-a", "nat44/node-a"], "failed": [], "problems": [],
        "cut_short": null,
    });
    assert_eq!(document["node"], expected, "{document}");
    let events = document["events"].as_array().unwrap();
    let numbered = json!({ "numbered": { "node": "node-a", "id": 1 } });
    assert!(
        events
            .iter()
            .any(|event| *event == json!({ "node": numbered }) || *event == numbered),
        "{document}"
    );
    let words: [std::ffi::OsString; 1] = ["replay".into()];
    support::trueup(
        words
            .into_iter()
            .chain(host.site.journals().into_iter().map(Into::into)),
    )
    .exits(0);
}

#[test]
fn a_plan_says_what_the_run_then_stores_and_changes_nothing() {
    let manifests = manifests();
    let host = Host::new(config(&manifests));
    let writes = |plan: &Value| {
        let keys = plan["keys"].as_array().unwrap().clone();
        let writes = |key: &Value| {
            (
                key["guest"].as_str().unwrap().to_owned(),
                key["writes"].as_array().unwrap().len(),
            )
        };
        assert!(keys.iter().all(|key| key["key"] == "node-a"), "{plan}");
        keys.iter().map(writes).collect::<BTreeMap<String, usize>>()
    };
    let json = |code| {
        let before = host.site.state();
        let plan = ran(&mut host.site.command("plan", &["--output", "json"]))
            .exits(code)
            .json();
        assert!(host.site.state() == before, "a plan writes nothing");
        writes(&plan)
    };
    let planned = json(3);
    assert_eq!((planned["service"], planned["nftables"]), (0, 1));
    assert!(planned["nodesync"] > 0 && planned["nat44"] > 0, "{planned:?}");
    let text = host.site.plan().exits(3);
    assert!(
        text.last_line().ends_with("0 failed; node-a has the number 1"),
        "{text}"
    );
    assert!(
        text.stdout.contains("allocatedIDs/1  {\"id\":1,\"name\":\"node-a\""),
        "{text}"
    );

    host.site.run_once().exits(0);
    assert!(json(0).values().all(|writes| *writes == 0));
    let text = host.site.plan().exits(0);
    assert!(text.stdout.contains("nftables/node-a  nothing to do\n"), "{text}");

    manifests.put_service("new", 12, 0);
    manifests.put_endpoints("new", &["10.1.1.4"]);
    let planned = json(3);
    assert_eq!((planned["nodesync"], planned["nftables"]), (0, 1));
    host.site.run_once().exits(0);
    assert!(json(0).values().all(|writes| *writes == 0));
}

#[test]
fn a_plan_after_changes_one_by_one_has_nothing_to_do() {
    let manifests = manifests();
    let mut host = Host::start_new(config(&manifests));
    host.wait_for("2 services rendered by nftables/node-a, nat44/node-a");
    manifests.put_service("web", 20, 30080);
    host.wait_for("Service shop/web applied by nftables/node-a, nat44/node-a");
    manifests.put_endpoints("db", &["10.1.1.9"]);
    host.wait_for("endpoints shop/db applied by nftables/node-a, nat44/node-a");
    let nothing = "nftables/node-a  nothing to do\n";
    let beside = host.site.plan().exits(0);
    assert!(beside.stdout.contains(nothing), "{beside}");
    host.terminate().exits(0);
    let after = host.site.plan().exits(0);
    assert!(after.stdout.contains(nothing), "{after}");
    manifests.put_endpoints("db", &["10.1.1.8"]);
    let changed = host.site.plan().exits(3);
    assert!(!changed.stdout.contains(nothing), "{changed}");
}

#[test]
fn what_cannot_be_read_is_a_failure_that_is_named() {
    let port = "apiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: default}\n\
                spec: {clusterIP: 10.96.0.77, ports: [{port: 808100}]}\n";
    for (text, says) in [
        ("kind: Service\n  this: is no YAML\n", "broken.yaml"),
        (port, "spec.ports[0].port: was 808100"),
    ] {
        let manifests = manifests();
        manifests.put("broken.yaml", text);
        let host = Host::new(config(&manifests));
        let ended = host.site.run_once().exits(1);
        assert!(ended.stderr.contains(says), "{ended}");
    }
}

#[test]
fn a_node_without_its_store_fails_and_reports_the_reason() {
    let manifests = manifests();
    // No process listens there.
    let host = Host::new(config(&manifests).against("http://127.0.0.1:1").patient(200));
    let ended = host.site.run_once().exits(1);
    assert_eq!(
        ended.last_line(),
        "0 nodes, 2 services: 1 renderer true, 2 failed",
        "{ended}"
    );
    let failed: Vec<&str> = ended
        .stdout
        .lines()
        .filter(|line| line.contains(" failed   "))
        .collect();
    for (line, name) in failed.iter().zip(["nat44/node-a", "nodesync/node-a"]) {
        assert!(line.starts_with(name) && line.contains("unavailable: "), "{ended}");
    }
    let document = ran(&mut host.site.command("run", &["--once", "--output", "json"]))
        .exits(1)
        .json();
    let node: &Value = &document["node"];
    assert_eq!(
        (&node["id"], &node["rendered"]),
        (&Value::Null, &json!(["nftables/node-a"])),
        "{document}"
    );
    assert_eq!(node["failed"].as_array().unwrap().len(), 2, "{document}");
    assert!(fs::exists(host.site.state_dir()).unwrap());
}

#[test]
fn what_a_guest_asks_and_is_not_granted_is_told_at_the_start() {
    let manifests = manifests();
    let host = Host::new(config(&manifests));
    for grants in [
        "grants = { nftables = { write = [\"ip trueup\", \"ip6 trueup\"] } }\n",
        "read = [\"/vnf-agent/node-a/\"], ",
    ] {
        host.site.edit("trueup.toml", grants, "");
    }
    let ended = host.site.run_once().exits(1);
    for told in [
        "[guests.nftables] has no grant to write anything of nftables (`nftables = { write = [\"ip trueup\", \"ip6 \
         trueup\"] }`): its calls will be refused",
        "[guests.nat44] has no grant to read anything of etcd (`etcd = { read = [\"PREFIX\"] }`): its calls will be refused",
    ] {
        assert!(ended.stderr.contains(told), "{ended}");
    }
    assert_eq!(ended.stderr.matches("has no grant to").count(), 2, "{ended}");
}

/// The failures in a row after which a run with an end gives up the number.
const FAILURES_MAX_ONCE: u64 = 5;

#[test]
fn a_run_ends_with_a_message_when_the_store_refuses_connections() {
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    // No process listens there. The host tries a question for seconds before it fails, longer than anything else takes
    // in the loop that waits for it.
    let config = Config::new("node-a", &manifests).against("http://127.0.0.1:1");
    let host = Host::new(config.patient_by_default().numbered());
    let mut run = host.site.command("run", &["--once", "--output", "json"]);
    let ended = ran(&mut run).exits(1);
    let document = ended.json();
    let node = &document["node"];
    assert_eq!((&node["id"], &node["nodes"]), (&Value::Null, &json!(0)), "{document}");
    let failed = node["failed"].as_array().unwrap();
    let why = failed[0][1].as_str().unwrap();
    assert_eq!(
        (failed.len(), &failed[0][0]),
        (1, &json!("nodesync/node-a")),
        "{document}"
    );
    assert!(
        why.starts_with("reading `/vnf-agent/contiv-ksr/allocatedIDs/`: unavailable: etcd at `http://127.0.0.1:1`: "),
        "{why}"
    );
    // It was tried as often as any other work, with pauses in between.
    let events = document["events"].as_array().unwrap().iter();
    let tries = events
        .filter(|event| event["failed"]["key"] == "nodesync/node-a")
        .count();
    assert_eq!(u64::try_from(tries).unwrap(), FAILURES_MAX_ONCE, "{document}");
}
