//! What all commands have in common: which configuration they are about, the formats of data, colour, the log,
//! `--watch` and `--since`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::reload::running;
use support::{Engine, Site, Started, program, ran, trueup, wait_until};

#[test]
fn a_variable_names_the_configuration_of_every_command_that_is_given_none() {
    for command in [
        &["run"][..],
        &["plan"],
        &["status"],
        &["top", "--help"],
        &["approve"],
        &["explain", "default/web"],
        &["guest", "status"],
        &["guest", "lock"],
        &["guest", "pull"],
        &["guest", "verify"],
        &["ipam", "show"],
        &["audit", "show"],
        &["neg", "error-state", "default/web/80", "on"],
    ] {
        let of = |value: &str, args: &[&str]| ran(program().args(command).args(args).env("TRUEUP_CONFIG", value));
        if command.contains(&"--help") {
            assert!(of("", &[]).exits(0).stdout.contains("TRUEUP_CONFIG"), "{command:?}");
            continue;
        }
        let by_variable = of("/by-variable", &[]).exits(2);
        assert!(
            by_variable.stderr.contains("/by-variable"),
            "{command:?}: {by_variable}"
        );
        let by_option = of("/by-variable", &["--config", "/by-option"]).exits(2);
        assert!(by_option.stderr.contains("/by-option"), "{command:?}: {by_option}");
        assert!(!by_option.stderr.contains("/by-variable"), "{command:?}: {by_option}");
    }
    let by_argument = ran(program()
        .args(["plan", "/by-argument"])
        .env("TRUEUP_CONFIG", "/by-variable"))
    .exits(2);
    assert!(
        by_argument.stderr.contains("/by-argument") && !by_argument.stderr.contains("/by-variable"),
        "{by_argument}"
    );
    // It is no unknown variable of the configuration that it names, and without a value it names none.
    let site = Site::quickstart();
    let planned = ran(program().arg("plan").env("TRUEUP_CONFIG", site.folder())).exits(3);
    assert!(planned.stdout.contains("default/web"), "{planned}");
    let here = ran(program()
        .arg("plan")
        .current_dir(site.folder())
        .env("TRUEUP_CONFIG", ""))
    .exits(3);
    assert_eq!(here.stdout, planned.stdout);
}

#[test]
fn yaml_is_the_same_document_as_json() {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    let config = site.folder().display().to_string();
    let same = |args: &[&str], code: i32| {
        let json = trueup(args.iter().chain(&["-o", "json"])).exits(code).json();
        let yaml = trueup(args.iter().chain(&["-o", "yaml"])).exits(code);
        assert_ne!(yaml.stdout.chars().next(), Some('{'), "{yaml}");
        let yaml: Value = serde_saphyr::from_str(&yaml.stdout).unwrap_or_else(|error| panic!("{error}: {yaml}"));
        assert_eq!(yaml, json, "{args:?}");
    };
    same(&["version"], 0);
    same(&["guest", "list"], 0);
    same(&["plan", &config], 3);
    let events = ran(&mut site.command("run", &["--once", "-o", "yaml"])).exits(0);
    let events: Value = serde_saphyr::from_str(&events.stdout).unwrap();
    assert_eq!(events["summary"]["created"], 29);
    let journals = site.state_dir().display().to_string();
    same(&["journal", "show", &journals], 0);
    same(&["replay", &journals], 0);
    same(&["explain", "default/web", "--config", &config], 0);
    same(&["grants", "infer", &journals], 0);
}

#[test]
fn colour_is_for_terminals_unless_the_operator_says_otherwise() {
    let site = Site::quickstart();
    let plan = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = site.command("plan", args);
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        // Two notes, one on each stream.
        site.put_manifest("broken.yaml", "kind: [\n");
        ran(command.envs(variables.iter().copied())).exits(1)
    };
    let is_coloured = |args: &[&str], variables: &[(&str, &str)]| {
        let ran = plan(args, variables);
        let marks = [
            ran.stdout.contains("\u{1b}[32m+ "),
            ran.stderr.contains("\u{1b}[33mwarning:\u{1b}[0m"),
        ];
        assert_eq!(marks[0], marks[1], "{ran}");
        assert_eq!(
            ran.stdout.contains('\u{1b}') || ran.stderr.contains('\u{1b}'),
            marks[0],
            "{ran}"
        );
        marks[0]
    };
    // What a test reads is no terminal; this variable says that it is to be treated as one.
    let terminal = ("CLICOLOR_FORCE", "1");
    assert!(!is_coloured(&[], &[]));
    assert!(is_coloured(&[], &[terminal]));
    assert!(!is_coloured(&[], &[terminal, ("NO_COLOR", "1")]));
    assert!(is_coloured(&[], &[terminal, ("NO_COLOR", "")]));
    assert!(!is_coloured(&["--color", "never"], &[terminal]));
    assert!(is_coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    let json = plan(&["--color", "always", "-o", "json"], &[]);
    assert!(!json.stdout.contains('\u{1b}'), "{json}");
}

#[test]
fn the_log_shows_more_or_less_and_has_colour_like_everything_else() {
    let site = Site::quickstart();
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = site.command("run", &[args, &["--once"]].concat());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        ran(command.envs(variables.iter().copied())).exits(0).stderr
    };
    assert!(run(&[], &[]).contains(" INFO "));
    assert!(!run(&["-q"], &[]).contains(" INFO "));
    assert!(
        run(&["-q"], &[("TRUEUP_LOG", "info")]).contains(" INFO "),
        "the variable comes first"
    );
    assert!(!run(&[], &[]).contains(" guest: "));
    assert!(run(&["-v"], &[]).contains(" guest: "), "{}", run(&["-v"], &[]));
    assert!(run(&["-vv"], &[]).contains("DEBUG "));
    assert!(!run(&["-v"], &[]).contains("DEBUG "));
    assert!(run(&["--color", "always"], &[]).contains("\u{1b}["));
    assert!(!run(&["--color", "always"], &[]).is_empty() && !run(&[], &[]).contains('\u{1b}'));
    let both = ran(&mut site.command("run", &["-q", "-v"])).exits(2);
    assert!(both.stderr.contains("cannot be used with"), "{both}");
}

#[test]
fn version_tells_which_build_it_is() {
    let build = trueup(["version", "--output", "json"]).exits(0).json();
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        build["target"].as_str().unwrap().contains(std::env::consts::ARCH),
        "{build}"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
    let wasmtime = format!("name = \"wasmtime\"\nversion = {}\n", build["wasmtime"]);
    assert!(lock.contains(&wasmtime), "{build}");
    let ships: BTreeSet<String> = trueup_guests_builtin::GUESTS
        .iter()
        .map(|guest| format!("{} {}@{}", guest.world, guest.name, guest.version))
        .collect();
    let worlds = build["worlds"].as_array().unwrap();
    let told = worlds.iter().flat_map(|of| {
        let guests = of["guests"].as_array().unwrap().iter();
        guests.map(|guest| format!("{} {}", of["world"].as_str().unwrap(), guest.as_str().unwrap()))
    });
    assert_eq!(told.collect::<BTreeSet<_>>(), ships);

    // A checkout has the commit that the program was built from.
    let git = |args: &[&str]| {
        let ran = std::process::Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(args)
            .output();
        let ran = ran.ok().filter(|ran| ran.status.success())?;
        Some(String::from_utf8(ran.stdout).unwrap().trim().to_owned())
    };
    let text = trueup(["version"]).exits(0);
    match git(&["rev-parse", "--show-cdup"]).filter(String::is_empty) {
        Some(_) => {
            let commit = build["commit"].as_str().unwrap();
            assert_eq!(commit.len(), 40, "{build}");
            let at: jiff::Timestamp = build["commit_date"].as_str().unwrap().parse().unwrap();
            let made = git(&["log", "-1", "--format=%ct", commit]);
            assert_eq!(Some(at.as_second().to_string()), made);
            assert!(text.stdout.contains(commit), "{text}");
        }
        None => {
            assert_eq!((&build["commit"], &build["commit_date"]), (&json!(null), &json!(null)));
            assert!(text.stdout.contains("built outside a git checkout"), "{text}");
        }
    }
}

/// The documents of a stream of JSON.
fn documents(text: &str) -> Vec<Value> {
    let documents = serde_json::Deserializer::from_str(text).into_iter();
    // The last one may not be written to its end.
    documents.map_while(Result::ok).collect()
}

#[test]
fn what_is_watched_is_shown_again_when_it_changes_and_only_then() {
    let (_engine, site, host) = running();
    let config = site.folder().to_str().unwrap();
    let watch = |words: &[&str]| Started::of(program().args(words).args(["--watch", "--config", config]));
    let status = watch(&["status", "--keys", "-o", "json"]);
    let text = watch(&["status"]);
    let explained = watch(&["explain", "default/web", "-o", "json"]);
    let shown = |of: &Started| documents(&of.stdout()).len();
    wait_until("the first pictures", || {
        shown(&status) > 0 && shown(&explained) > 0 && text.stdout().contains("all is well")
    });
    // Time passes, memory changes, and nothing is shown for it.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(
        (shown(&explained), text.stdout().matches("all is well").count()),
        (1, 1)
    );
    let before = shown(&status);
    assert_eq!(before, 1, "{}", status.stdout());

    site.edit("manifests/web.yaml", "port: 443", "port: 8443");
    let at_work = |of: &Started| {
        let last = documents(&of.stdout()).pop().unwrap();
        let keys = last["all_keys"].as_array().unwrap().clone();
        let web = keys.into_iter().find(|key| key["key"] == "default/web").unwrap();
        web["in_service"].to_string()
    };
    wait_until("the new port", || at_work(&status).contains(":8443"));
    wait_until("the new job", || shown(&explained) > 1);
    let last = documents(&explained.stdout()).pop().unwrap();
    assert!(last["jobs"][0]["job"]["causes"].to_string().contains("8443"), "{last}");
    wait_until("the new text", || text.stdout().matches("all is well").count() > 1);
    assert!(
        text.stdout().contains("\n\nhost "),
        "a block of its own: {}",
        text.stdout()
    );
    assert!(!text.stdout().contains('\u{1b}'));

    // The command says once that the host went away, and shows its status again once it is back.
    host.terminate().0.exits(0);
    wait_until("the error", || status.stderr().contains("no host runs"));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(
        status.stderr().matches("no host runs").count(),
        1,
        "{}",
        status.stderr()
    );
}

#[test]
fn since_leaves_out_what_was_before() {
    let engine = Engine::start(&["--settle-ms", "20"]);
    let site = Site::against(&engine);
    site.run_once().exits(0);
    let config = site.folder().to_str().unwrap();
    let explain = |args: &[&str]| {
        let mut command = program();
        command.args(["explain", "default/web", "--config", config]).args(args);
        ran(&mut command)
    };
    let jobs = |args: &[&str]| {
        let json = explain(&[args, &["-o", "json"]].concat()).exits(0).json();
        let jobs = json["jobs"].as_array().unwrap().clone();
        jobs.iter()
            .map(|job| job["job"]["began_ms"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let first = jobs(&[]);
    site.edit("manifests/web.yaml", "port: 443", "port: 8443");
    site.run_once().exits(0);
    let all = jobs(&["--since", "1h"]);
    assert!(all.len() >= 2 && all[0] == first[0], "{all:?}, {first:?}");
    let second = jiff::Timestamp::from_millisecond(i64::try_from(all[1]).unwrap())
        .unwrap()
        .to_string();
    assert_eq!(jobs(&["--since", &second]), all[1..]);
    assert_eq!(jobs(&["--since", "1h", "--last", "1"]), all[all.len() - 1..]);
    assert_eq!(jobs(&["--since", "2100-01-01T00:00:00Z"]), [0; 0]);
    let none = explain(&["--since", "2100-01-01T00:00:00Z"]).exits(0);
    assert!(none.stdout.contains("nothing was decided since 2100-01-01"), "{none}");
    let wrong = explain(&["--since", "yesterday"]).exits(2);
    assert!(wrong.stderr.contains("--since: was `yesterday`"), "{wrong}");

    let journals = site.state_dir();
    let calls = |args: &[&str]| {
        let show = program()
            .args(["journal", "show", "-o", "json"])
            .arg(&journals)
            .args(args)
            .output();
        let lines: Value = serde_json::from_slice(&show.unwrap().stdout).unwrap();
        let lines = lines.as_array().unwrap().clone();
        let at_ms = lines.iter().filter_map(|line| line["at_ms"].as_u64());
        (at_ms.collect::<Vec<_>>(), lines.len())
    };
    let (before, with) = (calls(&[]), calls(&["--since", &second]));
    assert!(
        with.0.iter().all(|at_ms| *at_ms >= all[1]) && !with.0.is_empty(),
        "{with:?}"
    );
    assert!(with.0.len() < before.0.len());
    assert_eq!(calls(&["--since", "2100-01-01T00:00:00Z"]), (Vec::new(), 0));
    // Folders are taken by each command that takes recordings.
    let folder = journals.to_str().unwrap();
    for words in [
        &["replay", folder][..],
        &["journal", "show", folder],
        &["grants", "infer", folder],
    ] {
        assert!(!trueup(words).exits(0).stdout.is_empty());
    }
}

/// Scenarios of which the second fails in two steps, and the third one in its only step.
const SCENARIOS: &str = r"
- &first
  name: nothing is wished for
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps:
    - &status
      call: reconciliation.status
      args: &args
        desired: {
          load_balancers: [lb-1], name_suffix: web.ns.c1, service_uid: u1,
          external_addresses: [], ports: [], servers: [], backoff_steps: 1,
        }
      expect: {Ok: []}
- name: two <steps> fail
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps:
    - {call: reconciliation.status, args: *args, expect: {Ok: [1]}}
    - *status
    - {call: reconciliation.status, args: *args, expect: {Ok: [2]}}
- name: one fails
  guest: lbaas
  given: {lbaas: {load_balancers: {lb-1: Ok}}}
  steps: [{call: reconciliation.status, args: *args, expect: {Ok: [3]}}]
";

#[test]
fn test_tells_every_failing_step_takes_a_filter_and_writes_junit() {
    let folder = tempfile::tempdir().unwrap();
    let (file, junit) = (folder.path().join("all.yaml"), folder.path().join("junit.xml"));
    fs::write(&file, SCENARIOS).unwrap();
    let test = |args: &[&str]| ran(program().arg("test").arg(&file).args(args));

    let all = test(&["--junit", junit.to_str().unwrap()]).exits(1);
    assert_eq!(all.last_line(), "1 passed, 2 failed");
    assert!(
        all.stdout.contains("  step 1 (line ") && all.stdout.contains("  step 3 (line "),
        "{all}"
    );
    assert!(all.stdout.lines().next().unwrap().ends_with(" ms)"), "{all}");
    let xml = fs::read_to_string(&junit).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), 3, "{xml}");
    assert_eq!(xml.matches("<failure ").count(), 2, "{xml}");
    assert!(xml.contains("name=\"two &lt;steps&gt; fail\""), "{xml}");
    assert!(xml.contains("tests=\"3\" failures=\"2\" errors=\"0\""), "{xml}");

    let one = test(&["--filter", "<steps>", "-o", "json"]).exits(1).json();
    let [outcome] = one["scenarios"].as_array().unwrap().as_slice() else {
        panic!("{one}");
    };
    assert_eq!(
        (&outcome["failure"]["step"], &outcome["more_failures"][0]["step"]),
        (&json!(1), &json!(3))
    );
    assert!(outcome["took_ms"].is_u64(), "{one}");
    assert_eq!(
        test(&["--filter", "nothing"]).exits(0).last_line(),
        "1 passed, 0 failed"
    );
    let none = test(&["--filter", "elsewhere"]).exits(2);
    assert!(
        none.stderr
            .contains("--filter elsewhere: no scenario's name contains this text"),
        "{none}"
    );
    let unwritable = test(&["--junit", "/nowhere/junit.xml"]).exits(1);
    assert!(
        unwritable.stderr.contains("can't write /nowhere/junit.xml"),
        "{unwritable}"
    );
}

/// Turns every recording of a site into a scenario and runs it. Returns the guests.
fn tested_recordings(site: &Site) -> BTreeSet<String> {
    let file = site.path("recorded.yaml");
    let written = ran(program().args(["journal", "to-scenario"]).arg(site.state_dir())).exits(0);
    assert!(!written.stdout.is_empty() && written.stderr.is_empty(), "{written}");
    fs::write(&file, &written.stdout).unwrap();
    let tested = ran(program().arg("test").arg(&file).args(["-o", "json"]))
        .exits(0)
        .json();
    assert_eq!(tested["passed"], site.journals().len(), "{tested}");
    let scenarios = tested["scenarios"].as_array().unwrap().iter();
    scenarios
        .map(|outcome| outcome["guest"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_recording_of_each_example_becomes_a_scenario_that_passes() {
    let neg = Site::example("neg");
    neg.edit("trueup.toml", "listen = \"127.0.0.1:9481\"", "listen = \"127.0.0.1:0\"");
    let sites = [
        Site::quickstart(),
        neg,
        Site::services(),
        Site::example("toy"),
        Site::ipam(),
    ];
    let mut guests = BTreeSet::new();
    for site in &sites {
        site.run_once().exits(0);
        guests.append(&mut tested_recordings(site));
    }
    // A change, and the end of everything: from here on the recordings begin with a snapshot or go on.
    let [quickstart, ..] = &sites;
    quickstart.edit("manifests/web.yaml", "port: 443", "port: 8443");
    quickstart.remove_manifest("dns.yaml");
    quickstart.run_once().exits(0);
    tested_recordings(quickstart);
    let expected = [
        "ipam@1",
        "lbaas@1",
        "nat44@1",
        "neg@1",
        "nftables@1",
        "nodesync@1",
        "service@1",
        "toy@1",
    ];
    assert_eq!(guests.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn a_recording_that_no_scenario_can_express_is_refused_with_one_line() {
    let site = Site::quickstart();
    site.run_once().exits(0);
    let recording = fs::read_to_string(&site.journals()[1]).unwrap();
    let to_scenario = |text: &str, args: &[&str]| {
        let file = site.path("edited.jsonl");
        fs::write(&file, text).unwrap();
        ran(program().args(["journal", "to-scenario"]).arg(&file).args(args))
    };
    let scenario = to_scenario(&recording, &["-o", "json"]).exits(0).json();
    assert_eq!(scenario[0]["guest"], "lbaas@1", "{scenario}");

    let (first, _) = recording.split_once("\n").unwrap();
    let (before, _) = recording.split_once("\"result\"").unwrap();
    for (text, code, why) in [
        (
            format!("{before}\"trap\":\"unreachable\"}}\n"),
            1,
            "the ending of reconciliation.reconcile differs",
        ),
        (format!("{first}\n"), 2, "it holds no call that ended"),
        (
            recording.replacen("\"created\":", "\"created\":7", 1),
            1,
            "it would not pass: the scenario: ",
        ),
    ] {
        let refused = to_scenario(&text, &[]).exits(code);
        assert_eq!(
            (refused.stdout.as_str(), refused.stderr.lines().count()),
            ("", 1),
            "{refused}"
        );
        assert!(refused.stderr.contains(why), "`{why}`: {refused}");
    }
}

#[test]
fn commands_on_recordings_take_those_of_the_configuration() {
    let site = Site::quickstart();
    site.run_once().exits(0);
    for command in [
        &["replay"][..],
        &["journal", "show"],
        &["journal", "to-scenario"],
        &["grants", "infer"],
    ] {
        let given = ran(program().args(command).arg(site.state_dir())).exits(0);
        let option = ran(program().args(command).arg("--config").arg(site.folder())).exits(0);
        let variable = ran(program().args(command).env("TRUEUP_CONFIG", site.folder())).exits(0);
        assert!(!given.stdout.is_empty(), "{given}");
        assert_eq!(
            (&option.stdout, &variable.stdout),
            (&given.stdout, &given.stdout),
            "{command:?}"
        );
    }
    // A guest decides the recordings of its world: three, beside that of pod addresses.
    let of_lbaas = || {
        let mut replay = program();
        ran(replay
            .args(["replay", "--guest", "lbaas@1", "--config"])
            .arg(site.folder()))
    };
    let said = of_lbaas().exits(0);
    assert_eq!(said.stdout.matches(": identical: ").count(), 3, "{said}");
    let left = "1 of 4 recordings are of another world than the guest, and left out";
    assert_eq!(said.said(left).len(), 1, "{said}");
    let ipam = site
        .journals()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("/ipam/"));
    let said = ran(program().args(["replay", "--guest", "lbaas@1"]).arg(ipam.unwrap())).exits(2);
    let why =
        "was recorded by a guest of the world trueup:ipam/ipam-datastore@0.1.0, and `lbaas@1` is of trueup:lbaas/";
    assert_eq!(said.said(why).len(), 1, "{said}");
    // One that can't be decided does not end the others.
    let first = &site.journals()[1];
    let text = fs::read_to_string(first).unwrap();
    fs::write(
        first,
        text.replacen("\"settings\":{", "\"settings\":{\"nothing\":1,", 1),
    )
    .unwrap();
    let said = of_lbaas().exits(2);
    assert_eq!(said.stdout.matches(": identical: ").count(), 2, "{said}");
    assert_eq!(
        said.said("1 of 4 recordings can't be decided, see above").len(),
        1,
        "{said}"
    );

    let nothing = ran(program().arg("replay").current_dir("/")).exits(2);
    assert!(nothing.stderr.contains("trueup.toml"), "{nothing}");
}
