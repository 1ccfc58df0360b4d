//! The same by the real program: two services, of which the guest leaves one in peace.

use std::path::{Path, PathBuf};

use trueup_journal::{instance_dir, segment_files};

use super::COMPONENT;
use super::support::trueup;

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
        objects += &format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default, uid: uid-{name} }}\n\
             spec: {{ type: LoadBalancer, ports: [{{ name: http, port: 80, nodePort: 30080 }}] }}\n",
        );
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

#[test]
fn the_program_stops_a_wild_service_and_serves_the_calm_one() {
    for (guest, says, outcome) in [
        (
            "settings = { does = \"loop\" }\nlimits = { cpu_ms = 300 }",
            "used more than 300 ms of CPU time",
            "identical as far as recorded",
        ),
        (
            "settings = { does = \"panic\" }",
            "trapped: panicked at ",
            "identical: ",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let config = project(dir.path(), guest);
        let run = trueup(["run", config.to_str().unwrap(), "--once"]);
        let stdout = &run.stdout;
        assert_eq!(run.code, Some(1), "{stdout}{}", run.stderr);
        let line = |key: &str| {
            stdout
                .lines()
                .find(|line| line.starts_with(key))
                .unwrap_or_else(|| panic!("no `{key}` in {stdout}"))
        };
        assert!(line("default/calm").contains(" true "), "{stdout}");
        let failed = line("default/wild");
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
