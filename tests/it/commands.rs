//! The parts of commands that scripts rely on: exit codes, JSON, help, and errors that name the place and the next
//! step.
//!
//! `quickstart.rs` and `recordings.rs` cover the effects of commands on sites and recordings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use support::{Engine, Site, program, ran, trueup, wait_until};

/// Every command with an effect, as typed.
pub(crate) const COMMANDS: [&[&str]; 40] = [
    &["run"],
    &["plan"],
    &["check"],
    &["init"],
    &["test"],
    &["replay"],
    &["reconcile"],
    &["journal", "show"],
    &["journal", "serve"],
    &["journal", "to-scenario"],
    &["guest", "list"],
    &["guest", "inspect"],
    &["guest", "status"],
    &["guest", "swap"],
    &["guest", "rollback"],
    &["guest", "history"],
    &["guest", "shadow", "start"],
    &["guest", "shadow", "status"],
    &["guest", "shadow", "stop"],
    &["guest", "shadow", "promote"],
    &["guest", "lock"],
    &["guest", "pull"],
    &["guest", "push"],
    &["guest", "verify"],
    &["ipam", "show"],
    &["ipam", "release"],
    &["checkpoint", "accept"],
    &["checkpoint", "show"],
    &["checkpoint", "verify"],
    &["checkpoint", "copy"],
    &["checkpoint", "restore"],
    &["audit", "show"],
    &["audit", "verify"],
    &["grants", "infer"],
    &["neg", "error-state"],
    &["sim", "lbaas"],
    &["sim", "compute"],
    &["completions"],
    &["man"],
    &["version"],
];

/// A scenario that passes: with an empty wish and an empty world.
const PASSES: &str = r"
- name: nothing is wished for
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps:
    - call: reconciliation.status
      args:
        desired: {
          load_balancers: [lb-1], name_suffix: web.ns.c1, service_uid: u1,
          external_addresses: [], ports: [], servers: [], backoff_steps: 1,
        }
      expect: {Ok: []}
";

/// Files of one test.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let file = self.0.path().join(name);
        fs::write(&file, bytes).unwrap();
        file.display().to_string()
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

/// The built-in version of `lbaas`, as a file's bytes.
fn shipped(version: &str) -> &'static [u8] {
    trueup_guests_builtin::find("lbaas", version).unwrap().bytes
}

#[test]
fn guest_list_is_what_ships_and_every_field_of_it() {
    let listed = trueup(["guest", "list", "--output", "json"]).exits(0).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), trueup_guests_builtin::GUESTS.len());
    let keys = BTreeSet::from(["name", "version", "world", "imports", "exports", "digest", "size"]);
    for (guest, ships) in listed.iter().zip(trueup_guests_builtin::GUESTS) {
        let fields: BTreeSet<&str> = guest.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, keys);
        assert_eq!(guest["name"], ships.name);
        assert_eq!(guest["version"], ships.version);
        assert_eq!(guest["world"], ships.world);
        assert_eq!(guest["digest"], ships.digest);
        assert_eq!(guest["size"], json!(ships.bytes.len()));
    }

    let lbaas = listed
        .iter()
        .find(|guest| guest["name"] == "lbaas" && guest["version"] == "1")
        .unwrap();
    let host = ["clock", "log", "metrics", "random"].map(|name| format!("trueup:host/{name}@0.1.0"));
    let lbaas_api = "trueup:lbaas/api@0.1.0".to_owned();
    let imports: BTreeSet<String> = host.into_iter().chain([lbaas_api]).collect();
    // The guest also imports interfaces that hold only types, which it can't call.
    let can_be_asked = |name: &&str| !name.ends_with("/types@0.1.0");
    let listed_imports: BTreeSet<String> = lbaas["imports"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .filter(can_be_asked)
        .map(str::to_owned)
        .collect();
    assert_eq!(listed_imports, imports);
    let exports = lbaas["exports"].as_array().unwrap();
    assert!(
        exports.contains(&json!("trueup:lbaas/reconciliation@0.1.0")),
        "{exports:?}"
    );
    assert!(exports.contains(&json!("trueup:guest/lifecycle@0.1.0")), "{exports:?}");

    let text = trueup(["guest", "list"]).exits(0);
    for ships in trueup_guests_builtin::GUESTS {
        let line = text
            .stdout
            .lines()
            .find(|line| line.starts_with(&format!("{}@{} ", ships.name, ships.version)));
        assert!(line.is_some_and(|line| line.contains(ships.digest)), "{text}");
    }
}

#[test]
fn guest_inspect_takes_a_name_or_a_file() {
    let file = Desk::new();
    let wasm = file.put("my.wasm", shipped("2"));
    let by_name = trueup(["guest", "inspect", "lbaas@2", "--output", "json"])
        .exits(0)
        .json();
    let by_file = trueup(["guest", "inspect", &wasm, "--output", "json"]).exits(0).json();
    assert_eq!(by_name, by_file);
    assert_eq!(by_name["version"], "2");
    let bare = trueup(["guest", "inspect", "lbaas", "--output", "json"])
        .exits(0)
        .json();
    assert_eq!(bare["version"], "1", "a bare name is version 1");

    let ran = trueup(["guest", "inspect", "unknown"]).exits(2);
    let all = trueup_guests_builtin::GUESTS.iter();
    let all: Vec<String> = all.map(|guest| format!("{}@{}", guest.name, guest.version)).collect();
    let error = format!(
        "no guest `unknown@1` ships with this host; there are: {}",
        all.join(", ")
    );
    assert!(ran.stderr.contains(&error), "{ran}");
    let text = file.put("text.wasm", "no module at all");
    let ran = trueup(["guest", "inspect", &text]).exits(2);
    assert!(ran.stderr.contains("text.wasm"), "{ran}");
}

#[test]
fn test_tells_passed_from_failed_from_nothing_to_do() {
    let desk = Desk::new();
    let passes = desk.put("passes.yaml", PASSES);
    let ran = trueup(["test", &passes]).exits(0);
    assert!(
        ran.last_line().contains("1 passed") && ran.last_line().contains("0 failed"),
        "{ran}"
    );

    let fails = desk.put("fails.yaml", PASSES.replace("expect: {Ok: []}", "expect: {Ok: [1]}"));
    let ran = trueup(["test", &fails]).exits(1);
    assert!(
        ran.stdout.contains("fails.yaml") && ran.last_line().contains("1 failed"),
        "{ran}"
    );
    let ran = trueup(["test", &desk.path()]).exits(1);
    assert!(
        ran.last_line().contains("1 passed") && ran.last_line().contains("1 failed"),
        "{ran}"
    );
    // The load balancer is not there, which the guest logs.
    let logs = desk.put(
        "fails.yaml",
        PASSES.replace("load_balancers: [lb-1]", "load_balancers: [lb-2]"),
    );
    for (log, is_shown) in [(&[][..], false), (&["--log"], true)] {
        let ran = trueup([&["test", &logs], log].concat()).exits(1);
        assert_eq!(ran.stderr.contains("the call ends with an error"), is_shown, "{ran}");
    }
    let creates = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/scenarios/lbaas/create.yaml");
    let ran = trueup(["test", creates, "--log"]).exits(0);
    assert!(ran.stderr.contains("a round"), "what a guest says at `info`: {ran}");
    let summary = trueup(["test", &desk.path(), "--output", "json"]).exits(1).json();
    assert_eq!((&summary["passed"], &summary["failed"]), (&json!(1), &json!(1)));

    let empty = Desk::new();
    for nothing in [
        empty.path(),
        format!("{}/nowhere", empty.path()),
        empty.put("none.yaml", "[]\n"),
    ] {
        let ran = trueup(["test", &nothing]).exits(2);
        assert!(ran.stderr.contains("error: "), "{ran}");
    }
    for (wrong, said) in [
        (PASSES.replace("steps:", "stepps:"), "stepps"),
        (PASSES.replace("guest: lbaas", "guest: nobody"), "nobody"),
        (format!("{PASSES}  - [\n"), "wrong.yaml"),
    ] {
        let wrong = empty.put("wrong.yaml", wrong);
        let ran = trueup(["test", &wrong]).exits(2);
        assert!(
            ran.said("error: ").iter().any(|line| line.contains(said)),
            "`{said}`: {ran}"
        );
    }
}

#[test]
fn test_takes_another_build_of_a_guest() {
    let desk = Desk::new();
    // Only version 2 resets failed resources.
    let reset = desk.put(
        "reset.yaml",
        r#"
- name: a failed backend is reset
  guest: lbaas
  given:
    lbaas:
      load_balancers: {lb-1: Ok}
      objects:
        - identifier: b1
          state: Failed
          tags: ["anxccm-svc-uid=u1"]
          spec: {Backend: {name: web.ns.c1, load_balancer: lb-1, mode: Tcp, health_check: ""}}
  steps:
    - call: reconciliation.reconcile-check
      args:
        desired: {
          load_balancers: [lb-1], name_suffix: web.ns.c1, service_uid: u1,
          external_addresses: [], ports: [], servers: [], backoff_steps: 1,
        }
      expect: {Err: {Failed: [{kind: Backend, identifier: b1}]}}
"#,
    );
    let two = desk.put("two.wasm", shipped("2"));
    trueup(["test", &reset]).exits(1);
    trueup(["test", "--guest", &format!("lbaas={two}"), &reset]).exits(0);

    let missing = format!("lbaas={}/missing.wasm", desk.path());
    let ran = trueup(["test", "--guest", &missing, &reset]).exits(2);
    assert!(ran.stderr.contains("missing.wasm"), "{ran}");
    assert!(!ran.stderr.contains("no scenario here"), "the name is right: {ran}");
    let ran = trueup(["test", "--guest", &format!("lbas={two}"), &reset]).exits(2);
    assert!(
        ran.stderr
            .contains("--guest lbas=...: no scenario here is for a guest `lbas`"),
        "{ran}"
    );
    for misused in ["lbaas", "=two.wasm", "lbaas="] {
        let ran = trueup(["test", "--guest", misused, &reset]).exits(2);
        assert!(ran.stderr.contains("NAME=FILE"), "{ran}");
    }
}

#[test]
fn misuse_exits_2_and_says_so_on_stderr_alone() {
    for args in [
        &[][..],
        &["frobnicate"],
        &["run"],
        &["run", "--twice", "."],
        &["plan"],
        &["test"],
        &["replay"],
        &["journal"],
        &["journal", "show"],
        &["guest"],
        &["guest", "inspect"],
        &["ipam"],
        &["ipam", "show", "one", "another"],
        &["sim", "lbaas", "--listen", "nowhere"],
        &["sim", "lbaas", "--listen", "0.0.0.0:0"],
        &["sim", "compute", "--listen", "0.0.0.0:0"],
        &["completions", "cobol"],
        &["guest", "list", "--output", "xml"],
    ] {
        let ran = trueup(args).exits(2);
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{args:?}: {ran}");
    }
}

#[test]
fn every_command_about_a_configuration_takes_it_as_an_option() {
    for command in [
        &["run"][..],
        &["plan"],
        &["status"],
        &["explain", "default/web"],
        &["guest", "lock"],
        &["guest", "verify"],
        &["ipam", "show"],
        &["ipam", "release"],
        &["audit", "show"],
        &["audit", "verify"],
    ] {
        let ran = trueup(command.iter().chain(&["--config", "/nowhere"])).exits(2);
        let is_the_folder = ran.stderr.contains("/nowhere") && !ran.stderr.contains("Usage:");
        assert!(is_the_folder, "{command:?}: {ran}");
    }
    let both = trueup(["plan", "one", "--config", "another"]).exits(2);
    assert!(both.stderr.contains("cannot be used with"), "{both}");
}

#[test]
fn a_wrong_configuration_is_named_with_file_and_line_and_the_nearest_key() {
    let engine = Engine::start(&[]);
    for (from, to, said) in [
        (
            "cluster = ",
            "clutser = ",
            "unknown key `clutser` in [adapter.lbaas]; did you mean `cluster`?",
        ),
        ("[source]", "[soruce]", "did you mean `source`?"),
        (
            "\"builtin:lbaas@1\"",
            "\"builtin:lbaas@9\"",
            "no guest `lbaas@9` ships with this host",
        ),
        (
            "addresses = [\"203.0.113.10\"]",
            "addresses = [\"203.0.113.300\"]",
            "203.0.113.300",
        ),
        ("kind = \"anexia\"", "kind = \"anexio\"", "anexio"),
        ("[run]", "[run", "trueup.toml:"),
        (
            "backoff_initial_ms = 20 ",
            "backoff_initial_ms = 0 ",
            "backoff_initial_ms: was 0, must be a whole number from 1 to 3600000",
        ),
        (
            "backoff_initial_ms = 20 ",
            "backoff_inital_ms = 20 ",
            "backoff_inital_ms",
        ),
    ] {
        let site = Site::against(&engine);
        site.edit("trueup.toml", from, to);
        let text = fs::read_to_string(site.path("trueup.toml")).unwrap();
        let line = text.lines().position(|line| line.contains(to)).unwrap() + 1;
        for command in ["run", "plan"] {
            let ran = ran(&mut site.command(command, &[])).exits(2);
            assert!(ran.stderr.contains(said), "`{said}`: {ran}");
            assert_eq!(ran.stdout, "");
            // No line of the file contains the guest's opinion of its settings, or which guests exist.
            let is_of_the_file = !said.contains("no guest") && !said.contains("backoff_in");
            let place = format!("{}:{line}: ", site.path("trueup.toml").display());
            assert!(!is_of_the_file || ran.stderr.contains(&place), "`{place}`: {ran}");
        }
    }
    let site = Site::against(&engine);
    site.edit("trueup.toml", "cluster = ", &format!("{} = ", "c".repeat(100_000)));
    let long = ran(&mut site.command("plan", &[])).exits(2);
    assert!(
        long.stderr.len() < 10_000,
        "a long error is cut: {} bytes",
        long.stderr.len()
    );
    let nowhere = trueup(["run", "/nowhere", "--once"]).exits(2);
    assert!(nowhere.stderr.contains("/nowhere"), "{nowhere}");
    let site = Site::against(&engine);
    let variable = ran(site.command("plan", &[]).env("TRUEUP_ADAPTER_LBAAS_CLUSTR", "x")).exits(2);
    assert!(
        variable.stderr.contains("did you mean `TRUEUP_ADAPTER_LBAAS_CLUSTER`?"),
        "{variable}"
    );
    assert_eq!(engine.writes().len(), 0);
}

#[test]
fn help_of_every_command_has_examples_that_are_its_own() {
    let all = trueup(["--help"]).exits(0);
    assert!(all.stdout.contains("Examples:\n"), "{all}");
    for command in COMMANDS {
        assert!(
            all.stdout.contains(&format!("\n  {} ", command[0])),
            "`{}` is listed: {all}",
            command[0]
        );
        let typed = command.join(" ");
        for flag in ["--help", "-h"] {
            let help = trueup(command.iter().chain([&flag])).exits(0);
            let (_, examples) = help
                .stdout
                .split_once("Example")
                .unwrap_or_else(|| panic!("no examples: {help}"));
            assert!(examples.contains(&format!("trueup {typed}")), "{help}");
        }
    }
}

#[test]
fn what_a_cut_job_did_is_reported_with_the_next_one_of_its_key() {
    let engine = Engine::start(&["--settle-ms", "2000"]);
    let site = Site::against(&engine);
    let mut host = site.start("run", &[]);
    wait_until("the first objects of web", || {
        !engine.objects_of("web.default").is_empty()
    });
    site.edit("manifests/web.yaml", "port: 443", "port: 8443");
    for key in ["default/api ", "default/web ", "kube-system/dns "] {
        host.wait_for(key);
    }
    let ran = host.terminate().0.exits(0);
    let created = |line: &str| -> u64 {
        let (before, _) = line.split_once(" created").unwrap_or_default();
        before.rsplit(' ').next().unwrap().parse().unwrap_or(0)
    };
    let keys = ran.stdout.lines().filter(|line| line.contains("; in service: "));
    assert_eq!(keys.map(created).sum::<u64>(), created(ran.last_line()), "{ran}");
}

#[test]
fn every_command_speaks_json() {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    let json = |command: &str, args: &[&str]| ran(&mut site.command(command, &[args, &["--output", "json"]].concat()));
    let plan = json("plan", &[]).exits(3).json();
    assert_eq!(plan["keys"].as_array().unwrap().len(), 3);
    let run = json("run", &["--once"]).exits(0).json();
    assert_eq!(run["summary"]["created"], 29);
    assert_eq!(run["summary"]["failed"], json!({}));
    let events = run["events"].as_array().unwrap();
    assert_eq!(events.len(), 3);
    let created = events.iter().map(|event| event["true"]["created"].as_u64().unwrap());
    assert_eq!(created.sum::<u64>(), 29);
    for event in events {
        let of = &event["true"];
        assert_eq!((&of["gone"], &of["destroyed"]), (&json!(false), &json!(0)), "{event}");
        assert!(
            of["in_service"][0][0].is_string() && of["in_service"][0][1][0].is_u64(),
            "{event}"
        );
    }

    let journals = site.journals();
    let with_journals = |command: &[&str]| {
        let mut program = program();
        ran(program.args(command).args(&journals).args(["--output", "json"]))
            .exits(0)
            .json()
    };
    assert_eq!(with_journals(&["replay"]).as_array().unwrap().len(), 3);
    let lines: usize = journals
        .iter()
        .map(|file| fs::read_to_string(file).unwrap().lines().count())
        .sum();
    assert_eq!(with_journals(&["journal", "show"]).as_array().unwrap().len(), lines);

    // A partial failure does not change the format.
    site.put_manifest("broken.yaml", "kind: [\n");
    let run = json("run", &["--once"]).exits(1).json();
    assert_eq!(run["summary"]["problems"].as_array().unwrap().len(), 1);
    let plan = json("plan", &[]).exits(1).json();
    assert_eq!(plan["problems"].as_array().unwrap().len(), 1);
}

#[test]
fn version_is_told() {
    let ran = trueup(["--version"]).exits(0);
    assert_eq!(ran.stdout.trim(), concat!("trueup ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    use std::process::Stdio;
    let scenarios: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/lbaas/first.yaml");
    let scenarios = scenarios.to_str().unwrap();
    for words in [&["test", scenarios][..], &["completions", "bash"], &["guest", "list"]] {
        let mut child = program()
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(0), ""), "{words:?}");
    }
    // Nor do the messages beside the data.
    let mut child = program()
        .arg("replay")
        .arg("/none")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn the_json_of_a_plan_is_whole_where_its_text_is_cut() {
    let site = Site::services();
    let json = ran(&mut site.command("plan", &["--output", "json"])).exits(3).json();
    let keys = json["keys"].as_array().unwrap().iter();
    let mut writes = keys.flat_map(|key| key["writes"].as_array().unwrap());
    let web = "/vnf-agent/node-a/config/vpp/nat/v2/dnat44/shop/web";
    let details = writes.find(|write| write["name"] == web).unwrap()["details"].as_str();
    let details = details.unwrap();
    let beginning: String = details.chars().take(200).collect();
    let text = ran(&mut site.command("plan", &[])).exits(3);
    assert!(text.stdout.contains(&format!("{beginning}...\n")), "{text}");
    let wide = ran(&mut site.command("plan", &["--output", "wide"])).exits(3);
    assert!(wide.stdout.contains(&format!("{details}\n")), "{wide}");
    serde_json::from_str::<Value>(details).unwrap();
}
