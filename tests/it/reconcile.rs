//! `trueup reconcile`: a running host works on one key at once.

use serde_json::{Value, json};

use crate::reload::running;
use support::{Engine, Ran, Site, program, ran, wait_until};

fn reconcile(site: &Site, key: &str, args: &[&str]) -> Ran {
    let mut command = program();
    command.args(["reconcile", key, "--config"]).arg(site.folder());
    ran(command.args(args))
}

/// Removes an object of a Service as if someone else had destroyed it.
fn destroy_one(engine: &Engine, kind: &str, suffix: &str) {
    let mut state = engine.state();
    let objects = state["objects"].as_array_mut().unwrap();
    let is_it = |object: &Value| {
        object["kind"] == kind
            && object["fields"]["name"]
                .as_str()
                .is_some_and(|name| name.ends_with(suffix))
    };
    let at = objects.iter().position(is_it).unwrap();
    objects.remove(at);
    engine.put_state(&state);
}

#[test]
fn a_key_is_made_true_at_once_and_the_exit_code_says_whether_it_is() {
    let (engine, site, host) = running();
    let quiet = reconcile(&site, "default/web", &[]).exits(0);
    assert!(quiet.stdout.starts_with("default/web "), "{quiet}");
    assert!(
        quiet.stdout.contains(" true  in ") && quiet.stdout.contains("0 created, 0 destroyed; in service: "),
        "{quiet}"
    );
    // The next resync is minutes away, so this alone mends what someone else broke.
    let before = engine.objects_of("web.default").len();
    destroy_one(&engine, "server", ".web.default.quickstart");
    let mended = reconcile(&site, "lbaas/default/web", &["-o", "json"]).exits(0).json();
    assert_eq!(
        (&mended["state"], &mended["recent"][0]["created"]),
        (&json!("true"), &json!(1)),
        "{mended}"
    );
    assert_eq!(engine.objects_of("web.default").len(), before);
    let why = ran(program()
        .args(["explain", "default/web", "-o", "json", "--config"])
        .arg(site.folder()));
    let cause = &why.exits(0).json()["jobs"][0]["job"]["causes"][0];
    assert_eq!(
        (&cause["why"], &cause["by_operator"]),
        (&json!("resync"), &json!(true)),
        "{cause}"
    );
    let audit = ran(program().args(["audit", "show"]).arg(site.folder())).exits(0);
    assert!(audit.stdout.contains("reconcile"), "{audit}");

    engine.fault(&json!({"path": "*", "times": 1000, "status": 403}));
    let failed = reconcile(&site, "default/web", &["--guest", "lbaas"]).exits(1);
    assert!(failed.stdout.contains(" failed "), "{failed}");
    engine.clear_faults();
    reconcile(&site, "default/web", &[]).exits(0);

    let unknown = reconcile(&site, "default/wbe", &[]).exits(2);
    assert!(
        unknown
            .stderr
            .contains("no key `default/wbe` is known to this host; did you mean `default/web`"),
        "{unknown}"
    );
    site.remove_manifest("dns.yaml");
    wait_until("a key that is gone is said to be", || {
        let gone = reconcile(&site, "kube-system/dns", &[]);
        gone.stderr.contains("it is gone, or")
    });
    host.terminate().0.exits(0);
    let none = reconcile(&site, "default/web", &[]).exits(1);
    assert!(none.stderr.contains("no host runs"), "{none}");
}

#[test]
fn a_key_that_is_not_done_in_time_is_told_and_gone_on_with() {
    // No other key may take the fault.
    let (engine, site, _host) = running();
    engine.fault(&json!({"path": "*", "times": 1, "delay_ms": 8000}));
    let late = reconcile(&site, "default/web", &["--timeout", "0"]).exits(1);
    assert!(late.stdout.contains("not done after 0 s; the host goes on"), "{late}");
    let explained = || {
        let mut explain = program();
        let explain = explain.args(["explain", "default/web", "--config"]).arg(site.folder());
        ran(explain).exits(0).stdout
    };
    wait_until("the job that runs to be shown", || {
        let said = explained();
        let runs = said.split_once("\n  still runs since ");
        runs.is_some_and(|(_, below)| below.contains("\n  look deeper: trueup journal show "))
    });
    wait_until("the key", || reconcile(&site, "default/web", &[]).code == Some(0));

    // What can't be read leaves the key as it was.
    site.edit("manifests/web.yaml", "type: LoadBalancer", "type: LoadBalncer");
    wait_until("what can't be read", || {
        let said = explained();
        said.contains("! a manifest that can't be read may hold this Service")
            && said.contains("web.yaml:8: spec.type: was `LoadBalncer`")
    });
}

#[test]
fn what_reads_a_state_folder_that_was_moved_away_says_so() {
    let (_engine, site, host) = running();
    let away = site.path("away");
    std::fs::rename(site.state_dir(), &away).unwrap();
    let moved = format!(
        "state folder {}: it was moved, removed or replaced",
        site.state_dir().display()
    );
    for (args, exit) in [
        (&["status"][..], 1),
        (&["explain", "default/web"], 0),
        (&["guest", "history", "lbaas"], 0),
    ] {
        let said = ran(program().args(args).arg("--state-dir").arg(&away)).exits(exit);
        let lines = said.stdout.lines().chain(said.stderr.lines());
        assert_eq!(lines.filter(|line| line.contains(&moved)).count(), 1, "{said}");
    }
    std::fs::rename(&away, site.state_dir()).unwrap();
    host.terminate().0.exits(0);
}
