//! The Containerfile, without a container engine: a linter reads it, and its SBOM step runs.

use needs::needs;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{VENV, read, shipped};
use support::ran;

#[needs(pypi)]
#[test]
fn the_containerfile_has_no_lint_and_names_what_exists() {
    let file = shipped("deploy/Containerfile");
    let said = ran(Command::new(VENV.join("bin/hadolint")).arg("--no-color").arg(&file));
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{said}");
    let text = read("deploy/Containerfile");
    for word in text
        .split_whitespace()
        .filter(|word| word.starts_with("deploy/") && !word.ends_with('`'))
    {
        assert!(shipped(word).is_file(), "{word}");
    }
    let toolchain = format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(text.contains(&toolchain), "{toolchain}");
}

/// An instruction of the Containerfile, as its shell gets it.
fn instruction(beginning: &str) -> String {
    let text = read("deploy/Containerfile").replace("\\\n", "");
    let line = text.lines().find(|line| line.starts_with(beginning));
    line.unwrap().trim_start_matches("RUN ").to_owned()
}

#[needs(cargo_cyclonedx)]
#[test]
fn the_images_sbom_lists_the_crates_of_each_program() {
    // The command writes beside each manifest.
    let workspace = crate::docs::copied_checkout();
    let tree = tempfile::tempdir().unwrap();
    let command = instruction("RUN cargo cyclonedx ").replace("/tree/", &format!("{}/", tree.path().display()));
    ran(Command::new("sh").args(["-c", &command]).current_dir(workspace.path())).exits(0);
    for (program, crate_of_it) in [("trueup", "wasmtime"), ("trueup-cni", "rustix")] {
        let path = tree.path().join(format!("usr/share/sbom/{program}.cdx.json"));
        let sbom: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(sbom["bomFormat"], "CycloneDX");
        assert_eq!(sbom["metadata"]["component"]["name"], program);
        let components = sbom["components"].as_array().unwrap();
        let names: BTreeSet<&str> = components.iter().filter_map(|it| it["name"].as_str()).collect();
        assert!(names.contains(crate_of_it), "{program}: {names:?}");
        // Crates that only build others: no part of a program.
        for of_a_build in ["cc", "autocfg"] {
            assert!(!names.contains(of_a_build), "{program}: {of_a_build}");
        }
    }
}
