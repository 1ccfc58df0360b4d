//! The same with the real program: two services, of which the guest leaves one alone.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trueup_journal::{instance_dir, segment_files};

use super::COMPONENT;
use support::{Ran, Started, program, trueup};

fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default, uid: uid-{name} }}\n\
         spec: {{ type: LoadBalancer, ports: [{{ name: http, port: 80, nodePort: 30080 }}] }}\n",
    )
}

/// A configuration with two services, `calm` and `wild`, and the guest `misbehaving`.
fn project(dir: &Path, guest: &str) -> PathBuf {
    let manifests = dir.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(dir.join("misbehaving.wasm"), &*COMPONENT).unwrap();
    let mut objects = String::from(
        "apiVersion: v1\nkind: Node\nmetadata: { name: node-1 }\n\
         status: { conditions: [{ type: Ready, status: \"True\" }], addresses: [{ type: InternalIP, address: 10.0.0.1 }] }\n",
    );
    for name in ["calm", "wild"] {
        objects += &service(name);
    }
    std::fs::write(manifests.join("all.yaml"), objects).unwrap();
    let config = format!(
        "[source]\nmanifests = \"manifests\"\n[guests.lbaas]\nuse = \"file:misbehaving.wasm\"\n{guest}\n\
         [adapter.lbaas]\ncluster = \"test\"\nload_balancers = [\"lb-1\"]\naddresses = [\"203.0.113.10\"]\n\
         [backend.lbaas]\nkind = \"simulated\"\n[run]\nbackoff_initial_ms = 1\nbackoff_max_ms = 1\n",
    );
    let file = dir.join("trueup.toml");
    std::fs::write(&file, config).unwrap();
    file
}

fn run_once(dir: &Path, guest: &str) -> Ran {
    trueup(["run", project(dir, guest).to_str().unwrap(), "--once"])
}

#[test]
fn the_program_stops_a_wild_service_and_serves_the_calm_one() {
    for (guest, says, outcome) in [
        (
            "settings = { does = \"loop\" }\nlimits = { cpu_ms = 1500 }",
            "computed for more than 1500 ms by the wall clock",
            "identical as far as recorded",
        ),
        (
            "settings = { does = \"panic\" }",
            "trapped: panicked at ",
            "identical: ",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = run_once(dir.path(), guest);
        let stdout = &run.stdout;
        assert_eq!(run.code, Some(1), "{stdout}{}", run.stderr);
        assert!(run.line("default/calm").contains(" true "), "{stdout}");
        let failed = run.line("default/wild");
        assert!(
            failed.contains("failed   guest `misbehaving@1` in `reconciliation.reconcile`: ") && failed.contains(says),
            "{failed}"
        );
        assert!(failed.contains("misbehaving::trouble::"), "{failed}");
        assert_eq!(
            stdout.lines().last(),
            Some("2 services: 1 true, 1 failed; 0 created, 0 destroyed")
        );

        let journal = instance_dir(&dir.path().join(".trueup/journals"), "lbaas", "default/wild");
        let files = segment_files(&journal).unwrap();
        assert_eq!(files.len(), 5, "each try is a call of a new instance");
        let wasm = dir.path().join("misbehaving.wasm");
        for file in files {
            let replayed = trueup(["replay", "--guest", wasm.to_str().unwrap(), file.path.to_str().unwrap()]);
            assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
            assert!(replayed.stdout.contains(outcome), "{}", replayed.stdout);
        }
    }
}

#[test]
fn a_calm_service_is_served_beside_300_that_hang_or_loop() {
    const HANGING: usize = 300;
    for guest in [
        "settings = { does = \"sleep\", amount = 4_000_000_000 }",
        "settings = { does = \"loop\" }",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = project(dir.path(), guest);
        let manifests = dir.path().join("manifests");
        let wild: String = (0..HANGING).map(|number| service(&format!("wild-{number}"))).collect();
        std::fs::write(manifests.join("wild.yaml"), wild).unwrap();
        let mut host = Started::of(program().arg("run").arg(&config));
        host.wait_for("default/calm");
        // All run, or wait for their turn.
        std::thread::sleep(Duration::from_secs(4));
        std::fs::write(manifests.join("late.yaml"), service("calm-late")).unwrap();
        // It takes a few seconds if nothing else runs. One after another, 300 loops would take 750 s: the wait ends
        // after 60.
        host.wait_for("default/calm-late");
        let (ran, stopping) = host.terminate();
        assert!(stopping < Duration::from_secs(30), "{guest}: {stopping:?}");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = project(dir.path(), "");
    let pipe = |name: &str| {
        let path = dir.path().join(name);
        let _ = std::fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        path
    };
    let config = config.to_str().unwrap();
    let says = "it is a named pipe, must be a regular file";
    let refused = |args: &[&str], code: i32| {
        let begun = Instant::now();
        let ran = trueup(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        let errors: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(
            matches!(errors[..], [error] if error.ends_with(says) || error.contains(&format!("{says};"))),
            "{errors:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20));
    };
    pipe("misbehaving.wasm");
    refused(&["run", config, "--once"], 2);
    refused(&["replay", pipe("00000000000000000000.jsonl").to_str().unwrap()], 2);
    pipe("trueup.toml");
    refused(&["run", config, "--once"], 2);
}

#[test]
fn what_a_guest_says_is_one_line_that_no_terminal_obeys() {
    for (guest, says) in [
        (
            "settings = { does = \"say\", amount = 1_000_000 }",
            "invalid input: \\u{1b}[31mred\\u{7}\\r\\ndefault/calm             true     \\u{202e}reversedxxx",
        ),
        (
            "settings = { does = \"serve\" }",
            "the guest says that `\\u{1b}[31mred\\u{7}\\r\\ndefault/calm",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = run_once(dir.path(), guest);
        let (stdout, stderr) = (&run.stdout, &run.stderr);
        assert_eq!(run.code, Some(1), "{stdout}");
        for text in [stdout, stderr] {
            assert!(!text.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}']), "{text:?}");
            assert!(text.len() < 100_000, "{} bytes", text.len());
        }
        let failed = |line: &str| line.starts_with("default/wild") && line.contains(says);
        assert!(stdout.lines().any(failed), "{stdout}");
        let calm = stdout.lines().filter(|line| line.starts_with("default/calm"));
        assert_eq!(calm.count(), 1, "{stdout}");
        let shown = std::fs::read_dir(dir.path().join(".trueup/status/default")).unwrap();
        let shown: Vec<_> = shown.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(shown, ["calm.json"]);
    }
}

#[test]
fn a_guest_whose_snapshot_is_too_large_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let config = project(
        dir.path(),
        "settings = { does = \"swell\", amount = 100000 }\nlimits = { answer_bytes = 1024 }",
    );
    let run = trueup(["run", config.to_str().unwrap(), "--once"]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    assert!(
        run.stderr
            .contains("guest `misbehaving@1` in `lifecycle.snapshot`: failed: its answer is 100002 bytes"),
        "{}",
        run.stderr
    );
}
