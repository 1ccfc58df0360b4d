//! The workspace's packages depend on each other as the picture in docs/architecture.md shows: no other edges, and none
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The page with the picture, and what encloses it.
const PAGE: &str = "docs/architecture.md";
const BEGIN: &str = "```mermaid\n";
const END: &str = "```";

/// If this variable is `write`, the test writes the picture instead of comparing it.
const WRITE: &str = "MAP";

/// The runtime starts the CNI plugin for every pod, so it must take only a few milliseconds and a few MiB. It has no
/// edge in the map either.
const CNI_KEEPS_OUT: [&str; 4] = ["wasmtime", "tokio", "axum", "reqwest"];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The name of every package but benches, and the names of all its dependencies of the given kind (`null` is normal).
fn packages(metadata: &Value, kinds: &[Option<&str>]) -> Vec<(String, BTreeSet<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let wanted = dependencies.filter(|dependency| kinds.contains(&dependency["kind"].as_str()));
            (
                text(&package["name"]),
                wanted.map(|dependency| text(&dependency["name"])).collect(),
            )
        })
        .filter(|(name, _): &(String, _)| name != "trueup-benches")
        .collect()
}

/// The room of a package: its folder's last name. The guests that decide are one room.
fn room(package: &Value) -> String {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let folder = manifest.parent().unwrap();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let is_guest = folder.parent().unwrap().ends_with("guests");
    if is_guest && name != "sdk" {
        "guests".to_owned()
    } else {
        name.to_owned()
    }
}

/// The edges between rooms, as lines of Mermaid: `a --> b`, and `a -.-> b` for tests only. Benches may depend on
/// anything.
fn picture(metadata: &Value) -> String {
    let packages = metadata["packages"].as_array().unwrap();
    let rooms: BTreeMap<&str, String> = packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), room(package)))
        .collect();
    let mut edges: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for package in packages.iter().filter(|package| package["name"] != "trueup-benches") {
        let from = &rooms[package["name"].as_str().unwrap()];
        for dependency in package["dependencies"].as_array().unwrap() {
            let Some(to) = rooms.get(dependency["name"].as_str().unwrap()).filter(|to| *to != from) else {
                continue;
            };
            let is_for_tests = dependency["kind"] == "dev";
            let known = edges.entry((from, to)).or_insert(is_for_tests);
            *known &= is_for_tests;
        }
    }
    let arrow = |is_for_tests| if is_for_tests { "-.->" } else { "-->" };
    let lines = edges
        .into_iter()
        .map(|((from, to), is_for_tests)| format!("    {from} {} {to}\n", arrow(is_for_tests)));
    format!("graph TD\n{}", lines.collect::<String>())
}

#[test]
fn rooms_have_the_edges_of_the_map_and_no_others() {
    let path = Path::new(ROOT).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let found = picture(&metadata());
    if std::env::var(WRITE).is_ok_and(|value| value == "write") {
        fs::write(&path, [before, BEGIN, &found, END, after].concat()).unwrap();
        return;
    }
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (shown, found) = (lines(shown), lines(&found));
    let unwanted: Vec<&String> = found.difference(&shown).collect();
    let missing: Vec<&String> = shown.difference(&found).collect();
    assert!(
        unwanted.is_empty() && missing.is_empty(),
        "{PAGE} lacks {unwanted:?}; no package has {missing:?}"
    );
}

#[test]
fn rooms_keep_out_what_they_must_not_know() {
    for (name, dependencies) in packages(&metadata(), &[None, Some("build")]) {
        let forbidden: &[&str] = match name.as_str() {
            "trueup-journal" => &["wasmtime", "tokio", "wit-component", "wit-parser", "axum", "reqwest"],
            "trueup-controller" => &["tokio", "wasmtime", "serde_json", "notify", "reqwest", "axum"],
            "trueup-base" => &["wasmtime", "wit-parser", "toml"],
            "trueup-config" => &["wasmtime", "wit-parser", "axum", "tokio", "trueup-engine"],
            "trueup-registry" => &["wasmtime", "wit-parser", "axum", "trueup-engine"],
            "trueup-sources" | "trueup-election" => &["wasmtime", "wit-parser", "axum", "toml"],
            "trueup-instance" | "trueup-scenario" => &["trueup-registry", "trueup-config", "axum", "reqwest", "kube"],
            "trueup-work" | "trueup-worlds" => &["axum", "hyper", "reqwest", "prometheus"],
            "trueup-cni" => &CNI_KEEPS_OUT,
            guest if guest.starts_with("trueup-guest-") => &["tokio", "wasmtime", "rand", "reqwest"],
            _ => &[],
        };
        for forbidden in forbidden {
            assert!(
                !dependencies.contains(*forbidden),
                "`{name}` must not know `{forbidden}`"
            );
        }
    }
}

#[test]
fn the_cni_plugin_keeps_out_the_host_and_its_libraries_behind_others_too() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "trueup-cni"])
        .args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(
        names.is_superset(&BTreeSet::from(["trueup-cni", "serde_json"])),
        "{names:?}"
    );
    for name in names.iter().filter(|name| **name != "trueup-cni") {
        let kept_out = name.starts_with("trueup") || CNI_KEEPS_OUT.contains(name);
        assert!(!kept_out, "`trueup-cni` reaches `{name}`");
    }
}
