//! A guest that fails breaks nothing else: the host retries it, sets its input aside, holds it, or switches to another
//! version.
//!
//! With the real binary. This file covers inputs that are set aside; `failing/policies.rs` covers other policies, and
//! `failing/cycles.rs` the guard against cycles.

use crate::guests::misbehaving;

mod cycles;
mod policies;

use std::fs;
use std::sync::LazyLock;

use serde_json::{Value, json};
use trueup_journal::{Segment, instance_dir, segment_files};

use support::{Ran, Site, Started, program, ran, wait_until};

pub(crate) static MISBEHAVING_1: LazyLock<Vec<u8>> =
    LazyLock::new(|| misbehaving::built("1", misbehaving::guests::build));
/// The same, but for services of the name `panic-2`.
static MISBEHAVING_2: LazyLock<Vec<u8>> = LazyLock::new(|| misbehaving::built("2", misbehaving::guests::build));

/// How many failures in a row set an input aside in these tests.
const ENOUGH: usize = 3;

/// Short, so that the tests are fast; long enough for an honest guest on a busy machine, which may stall in its call.
const LIMITS: &str = "limits = { cpu_ms = 1000, memory_bytes = 16777216, imports_per_call = 1000 }";

/// A site whose guest causes trouble in each service that is named after one, `panic` or `loop`, and in no other.
fn site(version: &str, guest: &str, services: &[&str]) -> Site {
    let site = Site::of(&format!(
        "[source]\nmanifests = \"manifests\"\n\
         [guests.lbaas]\nuse = \"file:misbehaving-{version}.wasm\"\ngate = \"off\"\nquarantine_after = {ENOUGH}\n\
         grants = {{ lbaas = {{ read = [\"*\"], write = [\"*\"] }} }}\n{LIMITS}\n{guest}\n\
         [adapter.lbaas]\ncluster = \"test\"\nload_balancers = [\"lb-1\"]\naddresses = [\"203.0.113.10\"]\n\
         [backend.lbaas]\nkind = \"simulated\"\n\
         [run]\nbackoff_initial_ms = 1\nbackoff_max_ms = 10\nresync_ms = 50\n",
    ));
    fs::write(site.path("misbehaving-1.wasm"), &*MISBEHAVING_1).unwrap();
    fs::write(site.path("misbehaving-2.wasm"), &*MISBEHAVING_2).unwrap();
    fs::create_dir(site.path("manifests")).unwrap();
    site.put_manifest(
        "node.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: { name: node-1 }\n\
         status: { conditions: [{ type: Ready, status: \"True\" }], addresses: [{ type: InternalIP, address: 10.0.0.1 }] }\n",
    );
    for name in services {
        put_service(&site, name, 30080);
    }
    site
}

fn put_service(site: &Site, name: &str, node_port: u16) {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default, uid: uid-{name} }}\n\
         spec: {{ type: LoadBalancer, ports: [{{ name: http, port: 80, nodePort: {node_port} }}] }}\n"
    );
    site.put_manifest(&format!("{name}.yaml"), &text);
}

/// A `trueup guest` command about the host of the site.
fn guest(site: &Site, words: &[&str]) -> Ran {
    ran(program()
        .arg("guest")
        .args(words)
        .arg("--config")
        .arg(site.folder())
        .current_dir(site.folder()))
}

fn standing(site: &Site) -> Value {
    guest(site, &["status", "--output", "json"]).exits(0).json()[0].take()
}

/// The keys that are set aside.
fn set_aside(site: &Site) -> Vec<String> {
    let standing = standing(site);
    let all = standing["quarantined"].as_array().unwrap().iter();
    all.map(|entry| entry["instance"].as_str().unwrap().to_owned())
        .collect()
}

/// How often the host tried the guest in this service: each failure ends its instance, and the next one starts a
/// segment.
fn tries(site: &Site, name: &str) -> usize {
    segments(site, name).len()
}

fn segments(site: &Site, name: &str) -> Vec<Segment> {
    let key = format!("default/{name}");
    let folder = instance_dir(&site.state_dir().join("journals"), "lbaas", &key);
    let files = segment_files(&folder).unwrap();
    files.iter().map(|file| Segment::read(&file.path).unwrap()).collect()
}

/// Waits until a run has printed a line this often: it begins with the key and contains this.
#[track_caller]
fn wait_for_lines(started: &mut Started, name: &str, text: &str, times: usize) {
    wait_until(&format!("{times} lines of `{name}` with `{text}`"), || {
        assert!(started.ended().is_none(), "{}{}", started.stdout(), started.stderr());
        lines(&started.stdout(), name, text) >= times
    });
}

fn lines(stdout: &str, name: &str, text: &str) -> usize {
    let key = format!("default/{name} ");
    stdout
        .lines()
        .filter(|line| line.starts_with(&key) && line.contains(text))
        .count()
}

/// The words of a run for a service in sync, for one that is set aside, and for the version that took over.
const TRUE: &str = " true ";
const SET_ASIDE: &str = "; set aside after 3 times until it or the guest changes, its recording is ";

#[test]
fn each_trouble_is_retried_and_set_aside_alone_with_its_recording() {
    const TROUBLES: [(&str, &str); 4] = [
        ("allocate", "above the limit `memory_bytes`"),
        ("ask", "asked more than 1000 questions"),
        ("loop", "its limit `cpu_ms`"),
        ("panic", "trapped: panicked at "),
    ];
    let site = site("1", "", &["allocate", "ask", "calm", "loop", "panic"]);
    let mut host = site.start("run", &[]);
    host.wait_for("default/calm ");
    for (name, _) in TROUBLES {
        wait_for_lines(&mut host, name, SET_ASIDE, 1);
    }

    // In JSON and in words: why, how often, since when, and where to look.
    let standing = standing(&site);
    let quarantined = standing["quarantined"].as_array().unwrap();
    assert_eq!(quarantined.len(), TROUBLES.len(), "{standing}");
    for ((name, says), entry) in TROUBLES.iter().zip(quarantined) {
        assert_eq!(entry["instance"], format!("default/{name}"));
        let error = entry["error"].as_str().unwrap();
        assert!(
            error.contains(says) && error.contains("misbehaving::trouble::"),
            "{error}"
        );
        assert_eq!(
            (&entry["failures"], tries(&site, name)),
            (&json!(ENOUGH), ENOUGH),
            "{name}"
        );
        assert!(entry["at_ms"].as_u64().unwrap() > 1_600_000_000_000, "{entry}");
        assert_eq!(entry["digest"], standing["active"]["digest"]);
        assert!(entry["input"].as_str().unwrap().starts_with("sha256:"), "{entry}");
        let journal = entry["journal"].as_str().unwrap();
        assert!(fs::read_dir(journal).unwrap().count() == ENOUGH, "{journal}");
        let retried = host.stderr();
        let retried = retried.lines().filter(|line| {
            line.contains(&format!("warning: default/{name}: ")) && line.contains("; trying again in 0.0 s")
        });
        assert_eq!(retried.count(), ENOUGH - 1, "{name}: with a pause each");
    }
    let shown = guest(&site, &["status", "lbaas"]).exits(0);
    let row = |name: &str| shown.line(name);
    assert!(
        row("lbaas ").contains(" misbehaving@1 ") && row("lbaas ").contains(" 4 "),
        "{shown}"
    );
    assert!(
        row("default/loop ").contains(" 3 ") && row("default/loop ").ends_with("journals/lbaas/default%2Floop"),
        "{shown}"
    );
    // One line of the audit log each.
    let audited = ran(&mut site.command_of(&["audit", "show"], &["--output", "json"]))
        .exits(0)
        .json();
    let audited = audited
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["call"] == "quarantine");
    let mut audited: Vec<&str> = audited
        .map(|line| {
            assert!(
                line["digest"] == standing["active"]["digest"] && line["version"] == "1" && !line["outcome"].is_null(),
                "{line}"
            );
            line["scope"].as_str().unwrap()
        })
        .collect();
    audited.sort_unstable();
    assert_eq!(
        audited,
        ["default/allocate", "default/ask", "default/loop", "default/panic"]
    );
    ran(&mut site.command_of(&["audit", "verify"], &[])).exits(0);

    // The recording of an incident becomes a scenario that ends as the guest did.
    for (name, limit) in [("panic", "imports_per_call"), ("ask", "imports_per_call")] {
        let recorded = &segments(&site, name)[0].name;
        let written = ran(program().args(["journal", "to-scenario"]).arg(recorded)).exits(0);
        assert!(written.stdout.contains("expect_ending"), "{written}");
        assert!(
            written.stdout.contains(limit),
            "the limits are those of the recording: {written}"
        );
    }

    // The others go on, with changes and with regular looks. The host leaves alone what is set aside.
    for node_port in 30081..30084 {
        let done = lines(&host.stdout(), "calm", TRUE);
        put_service(&site, "calm", node_port);
        wait_for_lines(&mut host, "calm", TRUE, done + 2);
    }
    for (name, _) in TROUBLES {
        assert_eq!(tries(&site, name), ENOUGH, "{name}");
        assert_eq!(lines(&host.stdout(), name, SET_ASIDE), 1, "{name}: said once");
    }
    // An operator who asks for it is told how to have it tried again.
    let asked = ran(program()
        .args(["reconcile", "default/panic", "--config"])
        .arg(site.folder()))
    .exits(1);
    let (_, command) = asked.stdout.split_once("guest changes: `trueup ").unwrap();
    let (command, _) = command.split_once("` tries it again").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[0], "guest", "{asked}");
    guest(&site, &words[1..]).exits(0);
    wait_until("more tries", || tries(&site, "panic") > ENOUGH);
    host.terminate().0.exits(0);
}

#[test]
fn what_is_set_aside_is_retried_on_a_change_and_not_after_a_restart() {
    let site = site("1", "", &["calm", "panic"]);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 1);

    put_service(&site, "panic", 30081);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 2);
    assert_eq!(tries(&site, "panic"), 2 * ENOUGH, "another input is tried as often");
    // The earlier form differs from the last input.
    put_service(&site, "panic", 30080);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 3);
    // The Service goes, and the guest fails in that too; it comes back.
    site.remove_manifest("panic.yaml");
    wait_for_lines(&mut host, "panic", SET_ASIDE, 4);
    assert_eq!(set_aside(&site), ["default/panic"]);
    put_service(&site, "panic", 30080);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 5);
    assert_eq!((set_aside(&site).len(), tries(&site, "panic")), (1, 5 * ENOUGH));
    let at_ms = standing(&site)["quarantined"][0]["at_ms"].take();
    host.terminate().0.exits(0);
    let planned = site.plan().exits(1);
    assert!(planned.stdout.contains("set aside: "), "{planned}");
    assert!(
        planned.stdout.ends_with("0 to create, 0 to destroy, 1 failed\n"),
        "{planned}"
    );

    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "panic", SET_ASIDE, 1);
    wait_for_lines(&mut host, "calm", TRUE, 3);
    assert_eq!(tries(&site, "panic"), 5 * ENOUGH, "set aside over a restart");
    assert_eq!(set_aside(&site), ["default/panic"]);
    let status = ran(program().args(["status", "-o", "json", "--config"]).arg(site.folder())).json();
    assert_eq!(status["in_trouble"][0]["since_ms"], at_ms, "{status}");
    // An invalid wish is not the input that is set aside.
    put_service(&site, "panic", 0);
    wait_until("no key that is set aside", || set_aside(&site).is_empty());
    host.kill();
}

#[test]
fn a_run_that_ends_fails_as_long_as_something_is_set_aside_and_says_why() {
    let site = site("1", "", &["calm", "panic"]);
    let said = |run: &Ran| {
        assert_eq!(
            run.last_line(),
            "2 services: 1 true, 1 failed; 0 created, 0 destroyed",
            "{run}"
        );
        let line = run.line("default/panic ");
        assert!(
            line.contains(" failed   guest `misbehaving@1` in `reconciliation.reconcile`: trapped: "),
            "{line}"
        );
        line.to_owned()
    };
    let first = site.run_once().exits(1);
    assert!(said(&first).contains(SET_ASIDE), "{first}");
    let next = site.run_once().exits(1);
    assert_eq!(said(&next), said(&first));
    assert_eq!(
        (tries(&site, "panic"), next.stderr.as_str()),
        (ENOUGH, ""),
        "not tried again"
    );

    let document = ran(&mut site.command("run", &["--once", "--output", "json"]))
        .exits(1)
        .json();
    let events = document["events"].as_array().unwrap();
    let events: Vec<&Value> = events
        .iter()
        .map(|event| &event["quarantined"])
        .filter(|it| !it.is_null())
        .collect();
    let [event] = events.as_slice() else {
        panic!("{document}")
    };
    assert_eq!(
        (&event["key"], &event["failures"]),
        (&json!("default/panic"), &json!(ENOUGH))
    );
    assert_eq!(document["summary"]["failed"]["default/panic"], event["error"]);

    // A guest with other limits or settings may succeed, so the host tries again.
    site.edit("trueup.toml", "imports_per_call = 1000", "imports_per_call = 1001");
    assert!(said(&site.run_once().exits(1)).contains(SET_ASIDE));
    assert_eq!(tries(&site, "panic"), 2 * ENOUGH);
    // Another version may, too.
    site.edit("trueup.toml", "misbehaving-1.wasm", "misbehaving-2.wasm");
    site.run_once().exits(1);
    assert_eq!(tries(&site, "panic"), 3 * ENOUGH);
    // A deleted Service is no failure.
    let folder = site.state_dir().join("quarantine/lbaas");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    site.remove_manifest("panic.yaml");
    fs::remove_dir_all(site.state_dir().join("keys")).unwrap();
    site.run_once().exits(0);
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        0,
        "no file of what is not desired"
    );
}
