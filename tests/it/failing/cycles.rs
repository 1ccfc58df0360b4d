//! The convergence guard: it stops and names a key that goes in circles, and ignores edits and occasional failures.

use std::collections::BTreeMap;

use serde_json::json;

use super::{guest, lines, set_aside, standing, wait_for_lines};
use support::{Engine, FAILED, Object, Site, wait_until};

/// Two Services of the quickstart, on an Engine that deploys servers and other resources alike.
fn site(engine: &Engine) -> Site {
    let site = Site::against(engine);
    let settings = "settings = { backoff_initial_ms = 20";
    site.edit(
        "trueup.toml",
        settings,
        &format!("gate = \"off\"\ncycles_max = 3\n{settings}, backoff_jitter_percent = 0, backoff_factor_percent = 100, max_rounds = 3"),
    );
    site.edit(
        "trueup.toml",
        "backoff_initial_ms = 10",
        "backoff_initial_ms = 10\nbackoff_max_ms = 20\nresync_ms = 200",
    );
    site
}

/// Requests that change the Engine's objects.
fn writes(engine: &Engine) -> BTreeMap<String, u64> {
    engine.writes()
}

#[test]
fn a_destroy_and_create_cycle_stops_its_key_and_is_named() {
    let engine = Engine::start(&["--settle-ms", "10"]);
    let site = site(&engine);
    let mut host = site.start("run", &[]);
    wait_for_lines(&mut host, "web", " true ", 1);
    assert_eq!(set_aside(&site), Vec::<String>::new());

    // From here on the Engine can't deploy backends, and a new Service needs some.
    engine.fault(&json!({"path": "*/backend.json/*", "fail_next": 1_000_000}));
    super::put_service(&site, "late", 30099);
    wait_for_lines(&mut host, "late", "; set aside after ", 1);
    // The tries before say what the guest waited for in vain.
    let said = host.stderr();
    let waited = |line: &&str| line.contains("default/late: waited too long for: backend ");
    let line = said.lines().find(waited).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("; the Engine failed to apply: backend "), "{line}");
    let standing = standing(&site);
    let [entry] = standing["quarantined"].as_array().unwrap().as_slice() else {
        panic!("{standing}")
    };
    let error = entry["error"].as_str().unwrap();
    let name = "http.late.default.quickstart";
    assert!(
        error.starts_with(&format!("a cycle: create backend `{name}`, destroy backend `{name}`, "))
            && error.contains(" times with the same desired state"),
        "{error}"
    );
    assert!(entry["failures"].as_u64().unwrap() >= 3, "{entry}");
    assert_eq!(entry["instance"], "default/late");

    // The guard has stopped it: no more writes, while the host looks at the others.
    let (before, done) = (writes(&engine), lines(&host.stdout(), "web", " true "));
    wait_for_lines(&mut host, "web", " true ", done + 3);
    assert_eq!(writes(&engine), before);

    // The other version asks the Engine to apply failed resources, and destroys nothing: no cycle, and in sync once the
    // Engine recovers.
    guest(&site, &["swap", "lbaas", "lbaas@2"]).exits(0);
    host.wait_for_warning("warning: default/late: reset, and not ready again yet");
    assert_eq!(set_aside(&site), Vec::<String>::new());
    engine.clear_faults();
    wait_for_lines(&mut host, "late", " true ", 1);
    host.terminate().0.exits(0);
}

#[test]
fn edits_and_objects_that_fail_now_and_then_are_no_cycle() {
    for version in ["lbaas@1", "lbaas@2"] {
        let engine = Engine::start(&["--settle-ms", "10"]);
        let site = site(&engine);
        site.edit("trueup.toml", "builtin:lbaas@1", &format!("builtin:{version}"));
        super::put_service(&site, "edited", 30100);
        let mut host = site.start("run", &[]);
        wait_for_lines(&mut host, "edited", " true ", 1);
        for node_port in (30101..30111).chain([30101, 30102, 30101, 30102, 30101]) {
            super::put_service(&site, "edited", node_port);
            wait_until("the edited port", || {
                let ports = ports(&engine);
                !ports.is_empty() && ports.iter().all(|port| *port == node_port.to_string())
            });
        }
        let mut before = backends(engine.objects());
        // As often as a cycle's turns, and more, but in sync in between.
        for turn in 0..5 {
            let none = lines(&host.stdout(), "edited", "nothing to do");
            wait_for_lines(&mut host, "edited", "nothing to do", none + 1);
            engine.fail_one(|object| object.kind == "backend" && object.name().contains("edited"));
            let mut now = Vec::new();
            wait_until("a backend that is well", || {
                // From one look: a backend that moves between two looks is in sync in neither.
                let objects = engine.objects();
                let is_well = objects.iter().all(|object| object.state != FAILED);
                now = backends(objects);
                is_well && now.len() == 1
            });
            assert_eq!(now != before, version == "lbaas@1", "{version} turn {turn}: made again");
            before = now;
        }
        assert_eq!(set_aside(&site), Vec::<String>::new(), "{version}: {}", host.stdout());
        host.terminate().0.exits(0);
    }
}

/// The backends of the edited service.
fn backends(objects: Vec<Object>) -> Vec<String> {
    let backends = objects
        .into_iter()
        .filter(|object| object.kind == "backend" && object.name().contains("edited"));
    backends.map(|object| object.identifier).collect()
}

/// The ports of the servers of the edited service.
fn ports(engine: &Engine) -> Vec<String> {
    let objects = engine.objects().into_iter();
    let servers = objects.filter(|object| object.kind == "server" && object.name().contains("edited"));
    servers.map(|object| object.field("port")).collect()
}
