//! The chain from a change to the resulting actions.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{KEYS, SETTLE, causes, explain, explained, jobs, running, site};
use support::{Engine, Running, Site, trueup, wait_until};

/// The fields of a cause or a wish, each as `path: old -> new`.
fn fields(of: &Value) -> Vec<String> {
    let fields = of["fields"].as_array().unwrap().iter();
    fields
        .map(|field| {
            format!(
                "{}: {} -> {}",
                field["path"].as_str().unwrap(),
                field["old"],
                field["new"]
            )
        })
        .collect()
}

/// Replaces what belongs only to this run (times, digests, numbers of entries, questions during waits, the folder) by
/// words.
fn without_what_changes(text: &str, folder: &Path) -> String {
    let text = text.replace(folder.to_str().unwrap(), "SITE");
    let mut told = String::new();
    for line in text.lines() {
        let line = match line.split_once("asked: ") {
            Some((indent, _)) => format!("{indent}asked: WHAT"),
            None => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
        };
        let line = match line.strip_suffix(" ms").and_then(|line| line.rsplit_once(' ')) {
            Some((before, _)) => format!("{before} N ms"),
            None => line,
        };
        told.push_str(&line);
        told.push('\n');
    }
    told
}

fn word(word: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if word.starts_with("sha256:") {
        return "DIGEST".to_owned();
    }
    if word.len() == 24 && word.ends_with('Z') && word.contains('T') {
        return "TIME".to_owned();
    }
    match word.split_once('#') {
        Some((key, number)) if digits(number.trim_end_matches(':')) => {
            format!("{key}#N{}", number.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => word.to_owned(),
    }
}

#[track_caller]
fn hold(name: &str, said: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/it/explain")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    let held = fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(
        held,
        said,
        "{} holds the first; rewrite it with BLESS=1 where the second is better",
        golden.display()
    );
}

#[test]
fn a_port_that_is_edited_is_the_cause_and_the_calls_are_what_it_led_to() {
    let running = running();
    let site = &running.site;
    let first = explained(site, "default/web", &[]);
    assert_eq!(
        causes(&jobs(&first)[0]),
        [("start", String::new()), ("input", "Service web found".to_owned())]
    );

    running.edit("web.yaml", "nodePort: 30080", "nodePort: 30081", &["default/web"]);
    let explanation = explained(site, "default/web", &[]);
    let [job] = &jobs(&explanation)[..] else {
        panic!("one job: {explanation:#}")
    };
    assert_eq!(causes(job), [("input", "Service web changed".to_owned())]);
    assert_eq!(
        fields(&job["job"]["causes"][0]),
        ["spec.ports[http].nodePort: 30080 -> 30081"]
    );
    assert_eq!(job["job"]["came"]["end"], "true");
    let decisions = job["job"]["decisions"].as_array().unwrap();
    let calls: Vec<&str> = decisions.iter().map(|made| made["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["reconciliation.reconcile", "reconciliation.status"]);
    let told = &job["calls"][0]["told"];
    assert_eq!(fields(&told["wish"]), ["ports[http].internal: 30080 -> 30081"]);
    // A server can't be edited: those of the port go, and come back with the new number.
    let count = |action: &str| {
        let writes = told["writes"].as_array().unwrap().iter();
        writes
            .filter(|write| write["action"] == action && write["kind"] == "server")
            .count() as u64
    };
    let effects = &job["job"]["effects"];
    assert!(count("create") > 0 && count("destroy") > 0, "{told:#}");
    assert_eq!(json!(count("create")), effects["created"]);
    assert_eq!(json!(count("destroy")), effects["destroyed"]);

    // The number in the id is that of the entry in the journal.
    let made = &decisions[0];
    let n = made["n"].as_u64().unwrap();
    assert_eq!(made["id"], format!("lbaas/default/web#{n}"));
    let file = told["file"].as_str().unwrap();
    let entry = fs::read_to_string(file).unwrap();
    let entry = entry.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let entry = entry.into_iter().find(|entry| entry["n"] == n).unwrap();
    assert_eq!(entry["call"], "reconciliation.reconcile");
    trueup(["journal", "show", file]).exits(0);

    // By its number, whatever came later; keys without a change have no such decision.
    let by_number = explained(site, "default/web", &["--decision", &n.to_string()]);
    assert_eq!(jobs(&by_number), jobs(&explanation));
    assert_eq!(jobs(&explained(site, "default/api", &["--last", "9"])).len(), 1);
    let wrong = explain(site, "default/web", &["--decision", "999999"]).exits(2);
    assert!(
        wrong
            .said("decision 999999 of `default/web` is not kept; kept are ")
            .len()
            == 1,
        "{wrong}"
    );

    let text = explain(site, "default/web", &[]).exits(0);
    hold("edited-port.golden", &without_what_changes(&text.stdout, site.folder()));

    // An operator examines an incident on another machine, after the host is gone.
    let copy = tempfile::tempdir().unwrap();
    let state = copy.path().join("state");
    copy_folder(&site.state_dir(), &state);
    running.host.kill();
    let there = trueup([
        "explain",
        "default/web",
        "--output",
        "json",
        "--state-dir",
        state.to_str().unwrap(),
    ]);
    let there = there.exits(0).json();
    assert_eq!(jobs(&there)[0]["job"], job["job"], "the same, from a copy");
    let file = jobs(&there)[0]["calls"][0]["told"]["file"].as_str().unwrap();
    assert!(Path::new(file).starts_with(&state), "{file} is the copy's");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_node_that_is_not_ready_is_the_cause_for_every_service() {
    let running = running();
    let node = "address: 192.0.2.13 }\n  conditions:\n    - { type: Ready, status: \"";
    running.edit("nodes.yaml", &format!("{node}True"), &format!("{node}False"), &KEYS);
    for key in KEYS {
        let explanation = explained(&running.site, key, &[]);
        let job = &jobs(&explanation)[0];
        assert_eq!(causes(job), [("input", "Node node-3 changed".to_owned())], "{key}");
        assert_eq!(
            fields(&job["job"]["causes"][0]),
            ["status.conditions[Ready].status: \"True\" -> \"False\""]
        );
        let wish = fields(&job["calls"][0]["told"]["wish"]);
        assert!(wish.len() == 1 && wish[0].starts_with("servers[node-3]: "), "{wish:?}");
    }
}

#[test]
fn what_fails_is_tried_again_and_what_began_it_is_still_told() {
    let running = running();
    let Running { engine, site, host } = &running;
    engine.fault(&json!({"method": "POST", "path": "*", "status": 422, "message": "not today"}));
    site.edit("manifests/web.yaml", "nodePort: 30080", "nodePort: 30081");
    wait_until("two tries", || host.stderr().matches("default/web: ").count() >= 3);
    let explanation = explained(site, "default/web", &["--last", "9"]);
    let retried = jobs(&explanation)
        .iter()
        .rev()
        .find(|job| causes(job)[0].0 == "retry")
        .unwrap();
    assert!(retried["job"]["failures_before"].as_u64().unwrap() >= 1, "{retried:#}");
    assert_eq!(retried["origin"]["causes"][0]["name"], "web");
    assert_eq!(retried["job"]["came"]["end"], "failed");
    let error = retried["job"]["decisions"][0]["error"].as_str().unwrap();
    assert!(error.contains("not today"), "{error}");

    let before = running.truths("default/web");
    engine.clear_faults();
    wait_until("its success", || running.truths("default/web") > before);
    let explanation = explained(site, "default/web", &[]);
    assert_eq!(causes(&jobs(&explanation)[0])[0].0, "retry");
    assert_eq!(jobs(&explanation)[0]["job"]["came"]["end"], "true");
}

#[test]
fn a_version_that_becomes_active_is_the_cause_of_what_it_begins_anew() {
    // New resources take so long that the guest sleeps when the version changes.
    let engine = Engine::start(&["--settle-ms", "600000"]);
    let site = site(&engine);
    let mut host = site.start("run", &[]);
    wait_until("something that is waited for", || {
        !engine.objects_of("web.default").is_empty()
    });
    site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    host.wait_for("active");
    let mut of_version = Value::Null;
    wait_until("a job that ended", || {
        // Another edit ends it, since it sleeps too.
        let _ = fs::write(site.path("manifests/touch.yaml"), "");
        let ran = explain(&site, "default/web", &["--last", "9", "--output", "json"]);
        ran.code == Some(0) && {
            of_version = ran.json();
            jobs(&of_version)
                .iter()
                .any(|job| job["job"]["came"]["end"] == "interrupted")
        }
    });
    assert_eq!(jobs(&of_version)[0]["job"]["came"]["end"], "interrupted");
    host.terminate();
    let all = explained(&site, "default/web", &["--last", "9"]);
    let begun_anew = jobs(&all)
        .iter()
        .find(|job| causes(job).iter().any(|(why, _)| *why == "version"));
    let begun_anew = begun_anew.unwrap_or_else(|| panic!("a job of the version: {all:#}"));
    assert!(
        causes(begun_anew).contains(&("version", "lbaas@2".to_owned())),
        "{begun_anew:#}"
    );
    assert_eq!(begun_anew["job"]["decisions"][0]["version"], "2");
    assert!(
        begun_anew["guest_before"]
            .as_str()
            .unwrap()
            .starts_with("lbaas@1 sha256:"),
        "{begun_anew:#}"
    );
}

#[test]
fn an_unknown_key_and_one_without_decisions_are_one_line() {
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    let none = explain(&site, "default/web", &[]).exits(2);
    assert_eq!(none.stderr.lines().count(), 1, "{none}");
    site.run_once().exits(0);
    let unknown = explain(&site, "default/wbe", &[]).exits(2);
    assert_eq!(
        unknown.stderr,
        "error: nothing is known of `default/wbe` of guest `lbaas`; did you mean `default/web`, `default/api`?\n"
    );
    fs::remove_dir_all(site.state_dir().join("decisions")).unwrap();
    let nothing = explain(&site, "default/web", &[]).exits(2);
    assert!(
        nothing
            .said("error: no decision about `default/web` of guest `lbaas` is kept; its recording is in ")
            .len()
            == 1,
        "{nothing}"
    );
    // Decisions that no recording keeps beyond a restart still have numbers.
    support::ran(&mut site.command("run", &["--once", "--no-record"])).exits(0);
    let explanation = explained(&site, "default/web", &[]);
    let made = &jobs(&explanation)[0]["job"]["decisions"][0];
    assert!(
        made["n"].as_u64().is_some() && jobs(&explanation)[0]["calls"][0]["told"].is_object(),
        "{explanation:#}"
    );
}

#[test]
fn a_service_that_can_not_be_is_refused_and_says_so() {
    let running = running();
    running
        .site
        .edit("manifests/web.yaml", "nodePort: 30080", "nodePort: 0");
    wait_until("the refusal", || running.host.stdout().contains("has no nodePort"));
    let explanation = explained(&running.site, "default/web", &[]);
    let job = &jobs(&explanation)[0];
    assert_eq!(job["job"]["came"]["end"], "refused");
    assert_eq!(job["job"]["decisions"], json!([]));
    assert_eq!(causes(job), [("input", "Service web changed".to_owned())]);
}

#[test]
fn of_pod_addresses_the_requests_of_an_instance_are_told() {
    let site = Site::quickstart();
    site.run_once().exits(0);
    let instances = fs::read_dir(site.state_dir().join("journals/ipam")).unwrap();
    let instance = instances
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .next()
        .unwrap();
    let explanation = explained(&site, &instance, &["--guest", "ipam", "--last", "50"]);
    let asked: Vec<&str> = jobs(&explanation)
        .iter()
        .map(|job| job["job"]["causes"][0]["request"].as_str().unwrap())
        .collect();
    assert!(asked.contains(&"interface eni-1 has 10.0.0.3"), "{asked:?}");
    let of_address = explained(&site, "10.0.0.3", &["--guest", "ipam", "--last", "9"]);
    for job in jobs(&of_address) {
        assert_eq!(job["job"]["causes"][0]["request"], "interface eni-1 has 10.0.0.3");
    }
    explain(&site, "10.9.9.9", &["--guest", "ipam"]).exits(2);
}
