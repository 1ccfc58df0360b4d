//! Traces: one for each decision, with its questions in it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::collector::{Collector, Span};
use super::{SETTLE, explained, jobs, site};
use support::{Engine, Site, files_under, ran};

/// Every call in the journals of a site: the questions of each, by the decision's id.
fn recorded(site: &Site) -> BTreeMap<String, Vec<String>> {
    let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files_under(&site.state_dir().join("journals")) {
        let mut open = None;
        let folders = file.ancestors().skip(1);
        let mut names = folders.map(|folder| folder.file_name().unwrap().to_str().unwrap());
        let key = names.next().unwrap().replace("%2F", "/");
        let guest = names.next().unwrap();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            if line.get("call").is_some() {
                let id = format!("{guest}/{key}#{}", line["n"]);
                calls.insert(id.clone(), Vec::new());
                open = Some(id);
            } else if let (Some(ask), Some(id)) = (line.get("ask"), &open) {
                calls.get_mut(id).unwrap().push(ask.as_str().unwrap().to_owned());
            } else {
                open = None;
            }
        }
    }
    calls
}

fn run_traced(site: &Site, collector: &Collector, more: impl FnOnce(&mut Command)) {
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_TELEMETRY_OTLP", collector.url());
    more(&mut run);
    ran(&mut run).exits(0);
}

/// A site that has run once, and its spans.
fn traced(more: impl FnOnce(&mut Command)) -> (Site, Collector) {
    let (collector, engine) = (Collector::start(), Engine::start(&SETTLE));
    let site = site(&engine);
    run_traced(&site, &collector, more);
    (site, collector)
}

#[test]
fn each_decision_is_a_trace_with_its_questions_in_it() {
    let (site, collector) = traced(|run| {
        run.env("OTEL_RESOURCE_ATTRIBUTES", "site=test")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=abc");
    });
    let spans = collector.spans();
    let roots: Vec<&Span> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    let by_decision: BTreeMap<&str, &Span> = roots
        .iter()
        .map(|it| (it.attributes["decision"].as_str(), *it))
        .collect();
    let calls = recorded(&site);
    assert_eq!(
        by_decision.keys().copied().collect::<Vec<_>>(),
        calls.keys().map(String::as_str).collect::<Vec<_>>(),
        "one trace for each call that is recorded"
    );
    assert_eq!(roots.len(), calls.len());
    for (id, asked) in &calls {
        let root = by_decision[id.as_str()];
        for name in ["guest", "version", "digest", "key", "call", "cause", "outcome"] {
            assert!(!root.attributes[name].is_empty(), "{name} of {root:?}");
        }
        assert!(root.attributes["digest"].starts_with("sha256:"));
        let children: Vec<&Span> = spans
            .iter()
            .filter(|span| span.trace == root.trace && span.id != root.id)
            .collect();
        let mut names: Vec<&str> = children.iter().map(|span| span.name.as_str()).collect();
        let mut expected: Vec<String> = asked.iter().map(|ask| qualified(ask)).collect();
        names.sort_unstable();
        expected.sort();
        assert_eq!(names, expected, "{id}");
        for child in children {
            assert_eq!(child.parent, root.id);
            assert!(
                root.began_ns <= child.began_ns && child.ended_ns <= root.ended_ns && child.began_ns <= child.ended_ns
            );
        }
    }
    let create = spans.iter().find(|span| span.name == "lbaas.api.create").unwrap();
    assert!(create.attributes["args"].contains("quickstart"), "{create:?}");
    assert_eq!(
        spans.iter().filter(|span| span.status == 2).count(),
        0,
        "nothing failed"
    );
    let web = explained(&site, "default/web", &[]);
    let made = &jobs(&web)[0]["job"]["decisions"][0];
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["trace"], by_decision[id].trace);
    assert_eq!(by_decision[id].name, "reconcile default/web");
    assert_eq!(by_decision[id].attributes["cause"], "start; Service default/web found");

    let resource = collector.resource();
    assert_eq!(
        (resource["service.name"].as_str(), resource["site"].as_str()),
        ("trueup", "test")
    );
    assert!(
        collector
            .header("x-token")
            .iter()
            .all(|token| token.as_deref() == Some("abc"))
    );
}

fn qualified(ask: &str) -> String {
    match ask.split_once('.').unwrap().0 {
        "api" => format!("lbaas.{ask}"),
        "store" => format!("checkpoint.{ask}"),
        _ => format!("host.{ask}"),
    }
}

#[test]
fn what_fails_is_an_error_of_its_question_and_of_its_decision() {
    let collector = Collector::start();
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    engine.fault(
        &serde_json::json!({"method": "POST", "path": "*backend*", "times": 1, "status": 422, "message": "not today"}),
    );
    run_traced(&site, &collector, |run| {
        run.env("OTEL_SERVICE_NAME", "edge");
    });
    let spans = collector.spans();
    let failed: Vec<&Span> = spans.iter().filter(|span| span.status == 2).collect();
    let of = |root: bool| failed.iter().find(|span| span.parent.is_empty() == root).unwrap();
    assert!(of(false).attributes["error"].contains("not today"), "{failed:?}");
    assert!(of(true).attributes["outcome"].contains("not today"), "{failed:?}");
    assert_eq!(collector.resource()["service.name"], "edge");
}

#[test]
fn a_part_is_traced_where_only_a_part_is_wanted() {
    let (site, collector) = traced(|run| {
        run.env("TRUEUP_TELEMETRY_SAMPLE", "0");
    });
    assert_eq!(collector.spans().len(), 0);
    let explanation = explained(&site, "default/web", &[]);
    assert_eq!(jobs(&explanation)[0]["job"]["decisions"][0].get("trace"), None);
}

#[test]
fn without_a_collector_everything_goes_on_and_it_is_said_once() {
    // No process listens there: the port was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_TELEMETRY_OTLP", format!("http://127.0.0.1:{port}"));
    let ran = ran(&mut run).exits(0);
    assert_eq!(ran.last_line(), "3 services: 3 true, 0 failed; 29 created, 0 destroyed");
    assert_eq!(ran.said("the collector of traces at ").len(), 1, "{ran}");
    assert!(ran.said("spans were dropped so far").len() == 1, "{ran}");
}
