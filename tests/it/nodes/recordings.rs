//! The recordings of one node's guests refer to each other: every call of a renderer names the service processor's
//! question that it answers, and the processor's nodes name the answer of `nodesync` that they come from. All of them
//! replay.

use needs::needs;
use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;

use super::entries::{Call, Entries, segments};
use super::manifests::Manifests;
use super::site::{Config, Host, wait_until};
use super::store::{Etcd, RECORDS};
use support::trueup;

const RENDERERS: [&str; 2] = ["nftables", "nat44"];

/// A node whose guests received everything, after its end.
fn recorded() -> (Etcd, Manifests, Host) {
    let etcd = Etcd::start();
    let manifests = Manifests::new();
    manifests.put_node("node-a", "172.30.1.1");
    manifests.put_service("web", 10, 30080);
    manifests.put_endpoints("web", &["10.1.1.2", "10.1.2.2"]);
    let config = Config::new("node-a", &manifests)
        .against(&etcd.url())
        .patient_by_default();
    let mut host = Host::start_new(config.numbered().publishing(&["192.168.16.1/24"]).serving(&RENDERERS));
    assert_eq!(host.wait_for_number(), 1);
    let asked = |host: &Host, question: &str| host.entries("service").asks_of(question).len();
    wait_until("the services to be rendered", || asked(&host, "renderer.resync") > 0);
    // A node joins; a Service changes, another comes, and goes.
    let nodes = asked(&host, "renderer.update-node-port-services");
    etcd.put(
        &format!("{RECORDS}2"),
        r#"{"id":2,"name":"node-b","ip_addresses":["192.168.16.2/24"]}"#,
    );
    wait_until("the node to be rendered", || {
        asked(&host, "renderer.update-node-port-services") > nodes
    });
    manifests.put_service("web", 10, 30081);
    wait_until("the change to be rendered", || {
        asked(&host, "renderer.update-service") > 0
    });
    manifests.put_endpoints("db", &["10.1.1.3"]);
    manifests.put_service("db", 11, 0);
    wait_until("the second Service to be rendered", || {
        asked(&host, "renderer.add-service") > 0
    });
    manifests.remove("service-db.yaml");
    wait_until("it to be gone", || asked(&host, "renderer.delete-service") > 0);
    let ended = host.terminate().exits(0);
    assert_eq!(
        ended.last_line(),
        "2 nodes, 1 service: 2 renderers true, 0 failed",
        "{ended}"
    );
    (etcd, manifests, host)
}

#[needs(etcd)]
#[test]
fn recordings_name_each_call_s_question_and_replay_identically() {
    let (_etcd, _manifests, host) = recorded();
    let (nodesync, service) = (host.entries("nodesync"), host.entries("service"));
    for renderer in RENDERERS {
        answers_each_question(&service, &host.entries(renderer));
    }
    told_what_nodesync_answered(&nodesync, &service);

    let of = |guest: &str| segments(&host.site.state_dir(), guest, "node-a");
    for guest in ["nodesync", "service", "nftables", "nat44"] {
        let files = of(guest);
        let replayed = replay(&files).exits(0);
        let identical = replayed.stdout.lines().filter(|line| line.contains(": identical: "));
        assert_eq!(identical.count(), files.len(), "{replayed}");
    }
    shown(&host, of("nat44").remove(0));
    explained(&host);
}

/// The host renders nothing before it knows what Kubernetes says about the nodes. Otherwise it would remove addresses
/// of a node for a moment.
#[needs(etcd)]
#[test]
fn a_restarted_host_takes_no_address_of_a_node_away() {
    let (_etcd, _manifests, mut host) = recorded();
    for n in 2..5 {
        let resyncs = |host: &Host| host.entries("nat44").calls_of("renderer.resync");
        let before = resyncs(&host).len();
        host.start();
        wait_until("the services to be rendered", || resyncs(&host).len() > before);
        host.terminate().exits(0);
        for resync in resyncs(&host).iter().skip(before) {
            assert!(resync.args.to_string().contains("172.30.1.1"), "start {n}: {resync:?}");
        }
    }
}

/// A Service is found without the name of a guest: the call that changed it, then those of the renderers.
fn explained(host: &Host) {
    let state_dir = host.site.state_dir();
    let args = ["explain", "shop/web", "--last", "1", "--output", "json", "--state-dir"].map(OsString::from);
    let told = trueup(args.into_iter().chain([state_dir.into()])).exits(0).json();
    assert_eq!(told["guest"], "nat44, nftables, service", "{told}");
    let jobs = told["jobs"].as_array().unwrap().iter();
    let calls: Vec<&str> = jobs
        .map(|job| job["job"]["decisions"][0]["call"].as_str().unwrap())
        .collect();
    assert_eq!(
        calls,
        ["processor.update", "renderer.update-service", "renderer.update-service"],
        "{told}"
    );
}

fn replay(files: &[PathBuf]) -> support::Ran {
    trueup(
        [OsString::from("replay")]
            .into_iter()
            .chain(files.iter().map(Into::into)),
    )
}

/// The entry in the recording of this guest that caused the call.
#[track_caller]
fn asked_in(call: &Call, guest: &str) -> u64 {
    let by = &call.by;
    assert_eq!(
        (&by["guest"], &by["instance"]),
        (&json!(guest), &json!("node-a")),
        "{call:?}"
    );
    by["n"].as_u64().unwrap()
}

/// Both were always in step: each got each question once, in order.
fn answers_each_question(service: &Entries, renderer: &Entries) {
    let calls = renderer.calls();
    for call in &calls {
        let question = service.at(asked_in(call, "service"));
        assert_eq!(
            (&question["ask"], &question["args"]),
            (&json!(call.name), &call.args),
            "{call:?}"
        );
        assert_eq!(question.get("answer"), call.result.as_ref(), "{call:?}");
    }
    for question in [
        "resync",
        "update-node-port-services",
        "add-service",
        "update-service",
        "delete-service",
    ] {
        let name = format!("renderer.{question}");
        let args: Vec<_> = calls
            .iter()
            .filter(|call| call.name == name)
            .map(|call| call.args.clone())
            .collect();
        assert_ne!(args.len(), 0, "{name}");
        assert_eq!(args, service.asks_of(&name), "{name}");
    }
    assert!(calls.is_sorted_by_key(|call| call.by["n"].as_u64()));
}

fn told_what_nodesync_answered(nodesync: &Entries, service: &Entries) {
    let mut told = 0;
    for call in service.calls() {
        let nodes = match call.name.as_str() {
            "processor.resync" => &call.args["state"]["nodes"],
            _ => &call.args["event"]["Nodes"],
        };
        if !nodes.is_array() || (nodes == &json!([]) && call.by.is_null()) {
            continue;
        }
        let asked = nodesync.call_of(asked_in(&call, "nodesync"));
        assert_eq!(
            (asked.name.as_str(), asked.result.as_ref()),
            ("node-sync.get-all-nodes", Some(nodes)),
            "{call:?}"
        );
        told += 1;
    }
    assert!(told >= 2, "this node, then the other");
}

/// In the operator's view, as text and as JSON.
fn shown(host: &Host, file: PathBuf) {
    let calls = host.calls("nat44");
    let (first, by) = (&calls[0], &calls[0].by);
    let words = || {
        ["journal", "show"]
            .map(OsString::from)
            .into_iter()
            .chain([file.clone().into()])
    };
    let text = trueup(words()).exits(0);
    let says = format!("call {} by service/node-a {} ", first.name, by["n"]);
    assert!(
        text.stdout.lines().any(|line| line.contains(&says)),
        "`{says}` in {text}"
    );
    let json = trueup(words().chain(["--output".into(), "json".into()]))
        .exits(0)
        .json();
    let lines = json.as_array().unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line["call"] == json!(first.name) && line["by"] == *by),
        "{json}"
    );
}
