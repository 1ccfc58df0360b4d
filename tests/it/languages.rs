//! A guest in another language: the test builds it from source with that language's own tools. It can be inspected,
//! run, recorded and replayed like any other, and has no access to the machine.
//!
//! Needs `python3` with its `venv`, and a package registry that `pip` reaches.
//! Building and compiling take a minute, so all tests of this file share both.

use needs::needs;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use support::{Ran, Site, program, ran};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The built guests, for all tests of this file.
static BUILT: LazyLock<Built> = LazyLock::new(|| Built::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages")));

struct Built {
    folder: PathBuf,
    /// The example.
    lbaas: PathBuf,
    /// A guest that looks for ways out.
    probe: PathBuf,
}

impl Built {
    fn new(folder: PathBuf) -> Self {
        // Remove what an earlier run left.
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let example = Path::new(ROOT).join("examples/guests/lbaas-python");
        let venv = folder.join("venv");
        let hint = "install python3 and python3-venv";
        finished(Command::new("python3").args(["-m", "venv"]).arg(&venv), hint);
        let pip = Command::new(venv.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(example.join("requirements.txt"))
            .spawn();
        let installed = pip.unwrap().wait().unwrap();
        assert!(installed.success(), "pip could not install componentize-py");
        let built = Self {
            lbaas: folder.join("lbaas.wasm"),
            probe: folder.join("probe.wasm"),
            folder,
        };
        // At once: each takes one processor for a while.
        let guests = [
            componentize(&venv, &example, "app", &built.lbaas),
            componentize(
                &venv,
                &Path::new(ROOT).join("tests/it/languages"),
                "probe",
                &built.probe,
            ),
        ];
        for guest in guests {
            let output = guest.wait_with_output().unwrap();
            assert!(
                output.status.success(),
                "componentize-py: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        // Compiled only here.
        for guest in [&built.lbaas, &built.probe] {
            ran(built.command(&["guest", "inspect"]).arg(guest)).exits(0);
        }
        built
    }

    /// A command that finds the compiled code.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.env("XDG_CACHE_HOME", self.folder.join("cache")).args(args);
        command
    }

    /// The quickstart with one of the guests, and its compiled code.
    fn site(&self, guest: &Path) -> Site {
        let site = Site::quickstart();
        let reference = format!("use = \"file:{}\"", guest.display());
        site.edit("trueup.toml", "use = \"builtin:lbaas@1\"", &reference);
        let cache = site.state_dir().join("cache");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&cache)
            .unwrap();
        for entry in fs::read_dir(self.folder.join("cache/trueup")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), cache.join(entry.file_name())).unwrap();
        }
        site
    }

    fn replay(&self, guest: &Path, journals: &[PathBuf]) -> Ran {
        let mut command = self.command(&["replay", "--log", "--guest"]);
        ran(command.arg(guest).args(journals).env("TRUEUP_LOG", "guest=info"))
    }

    /// Runs the scenarios under a path with one of the guests.
    fn test(&self, scenarios: &Path, guest: &Path, more: &[&str]) -> Ran {
        let guest = format!("lbaas={}", guest.display());
        ran(self.command(&["test", "--guest", &guest]).arg(scenarios).args(more))
    }
}

fn finished(command: &mut Command, hint: &str) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: {hint}"));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}: {hint}");
}

/// Starts to build a component of the module `app` in `folder`.
fn componentize(venv: &Path, folder: &Path, app: &str, output: &Path) -> std::process::Child {
    let mut command = Command::new(venv.join("bin/componentize-py"));
    command.arg("-q");
    for package in ["host", "guest", "lbaas"] {
        command.arg("-d").arg(Path::new(ROOT).join("wit").join(package));
    }
    command
        .args(["-w", "trueup:lbaas/lbaas-reconciler", "componentize", app, "-o"])
        .arg(output)
        .current_dir(folder)
        // Leave the source's folder unchanged.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

/// The guest's log in the instance of one key: level, then the line.
fn logged(ran: &Ran, instance: &str) -> Vec<String> {
    // A host calls a guest without a name by its name in the configuration.
    let end = format!(" version=unknown instance={instance}");
    let lines = ran.stderr.lines().filter_map(|line| line.strip_suffix(&end));
    lines
        .filter_map(|line| {
            let (line, _) = line.rsplit_once(" guest=")?;
            let (before, text) = line.split_once(" guest: ")?;
            Some(format!("{} {text}", before.split_whitespace().last()?))
        })
        .collect()
}

fn key_of(journal: &Path) -> String {
    let folder = journal.parent().unwrap().file_name().unwrap().to_str().unwrap();
    folder.replace("%2F", "/")
}

#[needs(pypi)]
#[test]
fn a_guest_in_python_is_of_its_world_and_asks_for_wasi_beside_it() {
    let built = &*BUILT;
    let inspected = ran(built
        .command(&["guest", "inspect", "--output", "json"])
        .arg(&built.lbaas))
    .exits(0);
    let inspected = inspected.json();
    assert_eq!(inspected["world"], "trueup:lbaas/lbaas-reconciler@0.1.0");
    let imports: Vec<&str> = inspected["imports"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(imports.contains(&"trueup:lbaas/api@0.1.0"), "{imports:?}");
    assert!(
        imports
            .iter()
            .any(|import| import.starts_with("wasi:random/random@0.2.")),
        "{imports:?}"
    );
}

#[needs(pypi)]
#[test]
fn it_brings_the_quickstart_true_and_its_recordings_replay() {
    let built = &*BUILT;
    let site = built.site(&built.lbaas);
    site.converges("3 services: 3 true, 0 failed; 29 created, 0 destroyed");
    // From its snapshots: the questions at its start have their own segment.
    site.converges("3 services: 3 true, 0 failed; 0 created, 0 destroyed");

    let journals: Vec<PathBuf> = site
        .journals()
        .into_iter()
        .filter(|journal| journal.starts_with(site.state_dir().join("journals/lbaas")))
        .collect();
    assert!(journals.len() >= 6, "two runs of three Services: {journals:?}");
    let replayed = built.replay(&built.lbaas, &journals).exits(0);
    assert_eq!(
        replayed.stdout.matches(": identical: 2 calls, ").count(),
        journals.len(),
        "{replayed}"
    );

    // It does the same as the guest in Rust: a version that takes over has nothing left to do.
    let reference = format!("use = \"file:{}\"", built.lbaas.display());
    site.edit("trueup.toml", &reference, "use = \"builtin:lbaas@1\"");
    site.converges("3 services: 3 true, 0 failed; 0 created, 0 destroyed");
}

#[needs(pypi)]
#[test]
fn it_passes_the_gate_against_the_guest_in_rust() {
    let built = &*BUILT;
    let site = built.site(&built.lbaas);
    let (rust, python) = ("builtin:lbaas@1".to_owned(), format!("file:{}", built.lbaas.display()));
    let edit =
        |from: &str, to: &str| site.edit("trueup.toml", &format!("use = \"{from}\""), &format!("use = \"{to}\""));
    edit(&python, &rust);
    site.run_once().exits(0);
    edit(&rust, &python);
    let swapped = site.run_once().exits(0);
    assert!(!swapped.stderr.contains(" stays active"), "{swapped}");
    assert!(
        swapped.stderr.contains("passed: no self-test; gate: identical: "),
        "{swapped}"
    );
    assert_eq!(
        swapped.last_line(),
        "3 services: 3 true, 0 failed; 0 created, 0 destroyed"
    );
}

#[test]
fn it_decides_as_its_readme_says_and_twice_the_same() {
    let built = &*BUILT;
    let readme = fs::read_to_string(Path::new(ROOT).join("examples/guests/lbaas-python/README.md")).unwrap();
    let left_out: BTreeSet<&str> = readme.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let scenarios = Path::new(ROOT).join("tests/scenarios/lbaas");

    let first = built.test(&scenarios, &built.lbaas, &[]).exits(1);
    let named = |verdict: &str| -> BTreeSet<&str> {
        let lines = first.stdout.lines().filter_map(|line| line.strip_prefix(verdict));
        // Without how long it took: `(7 ms)`.
        let names = lines.map(|line| line.trim().split_once(": ").unwrap().1);
        names.map(|name| name.rsplit_once(" (").unwrap().0).collect()
    };
    assert_eq!(named("FAILED "), left_out, "{first}");
    assert!(named("ok ").len() >= 38, "{first}");

    let [one, other] = [(); 2].map(|()| built.test(&scenarios, &built.lbaas, &["--output", "json"]).exits(1));
    let decided = |mut summary: Value| {
        let scenarios = summary["scenarios"].as_array_mut().unwrap();
        let took = |outcome: &mut Value| outcome.as_object_mut().unwrap().remove("took_ms");
        assert!(scenarios.iter_mut().all(|outcome| took(outcome).is_some()));
        summary
    };
    assert_eq!(decided(one.json()), decided(other.json()));
}

#[needs(pypi)]
#[test]
fn nothing_of_the_machine_reaches_it() {
    let built = &*BUILT;
    let missing = |path: &str| format!("\"FileNotFoundError: [Errno 44] No such file or directory: '{path}'\"");
    let refused = "\"PermissionError: [Errno 2] Permission denied\"";
    // A scenario's clock moves only when a guest sleeps, and its randomness is 0.
    let found: Vec<Value> = [
        ("environment", "{}"),
        ("arguments", "[]"),
        ("root", &missing("/")),
        ("file", &missing("/etc/hostname")),
        ("written", &missing("/tmp/left-behind")),
        ("input", "\"\""),
        ("tcp", refused),
        ("udp", refused),
        ("resolved", "\"gaierror: [Errno -4] Non-recoverable error\""),
        ("now", "1795000000123000000"),
        ("bytes", "\"00000000\""),
        ("number", "0"),
        ("seeded", "1349011583"),
        ("slept", "20"),
    ]
    .into_iter()
    .map(|(name, value)| json!({"address": format!("{name}: {value}"), "ports": []}))
    .collect();
    let scenario = |suffix: &str, expect: Value| {
        let desired = json!({"load_balancers": ["lb-1"], "name_suffix": suffix, "service_uid": "u1", "external_addresses": [],
            "ports": [], "servers": [], "backoff_steps": 1});
        json!({"name": suffix, "guest": "lbaas", "given": {"now_ms": 1_795_000_000_123_u64}, "steps": [
            {"call": "reconciliation.status", "args": {"desired": desired}, "expect": expect, "expect_calls": []},
        ]})
    };
    let file = built.folder.join("outside.json");
    let scenarios = [
        scenario("looks", json!({ "Ok": found })),
        scenario("exits", Value::Null),
    ];
    fs::write(&file, Value::from(scenarios.to_vec()).to_string()).unwrap();
    let looked = built.test(&file, &built.probe, &[]).exits(1);
    assert_eq!(looked.last_line(), "1 passed, 1 failed", "{looked}");
    let exited = "exited with status 1; a guest answers its calls, and must not exit";
    assert!(
        looked.stdout.contains("outside.json: looks (") && looked.stdout.contains(exited),
        "{looked}"
    );
}

#[needs(pypi)]
#[test]
fn what_it_prints_is_logged_and_a_replay_prints_the_same() {
    let built = &*BUILT;
    let site = built.site(&built.probe);
    let mut command = site.command("run", &["--once"]);
    let run = ran(command
        .env("TRUEUP_LOG", "guest=info")
        .env("A_SECRET", "of-the-machine"))
    .exits(0);
    assert!(!run.stderr.contains("of-the-machine"), "{run}");
    let mut changing = BTreeSet::new();
    let journals = site.journals();
    for journal in journals
        .iter()
        .filter(|journal| journal.starts_with(site.state_dir().join("journals/lbaas")))
    {
        let lines = logged(&run, &key_of(journal));
        let [constants, drawn, other, long] = &lines[..] else {
            panic!("four lines: {lines:?}");
        };
        assert!(
            constants.starts_with("INFO constants {\"environment\": {}, "),
            "{constants}"
        );
        assert_eq!(other, "WARN a line on the other output");
        assert_eq!(*long, format!("INFO {}...", "z".repeat(16 << 10)), "cut");
        changing.insert(drawn.clone());

        let replayed = built.replay(&built.probe, std::slice::from_ref(journal)).exits(0);
        assert!(replayed.stdout.contains(": identical: 2 calls, "), "{replayed}");
        assert_eq!(
            logged(&replayed, "replay"),
            lines,
            "time and chance are the recorded ones"
        );
    }
    assert_eq!(changing.len(), 3, "each Service has a chance of its own: {changing:?}");
}
