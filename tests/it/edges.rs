//! The workspace's packages depend on each other as the map shows: no other edges, and none back.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every edge between the host's rooms. Benches may depend on anything.
const EDGES: [(&str, &str); 35] = [
    ("trueup", "trueup-runtime"),
    ("trueup", "trueup-journal"),
    ("trueup", "trueup-guests-builtin"),
    ("trueup", "trueup-base"),
    ("trueup-runtime", "trueup-engine"),
    ("trueup-runtime", "trueup-controller"),
    ("trueup-runtime", "trueup-capabilities"),
    ("trueup-runtime", "trueup-journal"),
    ("trueup-runtime", "trueup-sims"),
    ("trueup-runtime", "trueup-sources"),
    ("trueup-runtime", "trueup-election"),
    ("trueup-runtime", "trueup-base"),
    ("trueup-engine", "trueup-capabilities"),
    ("trueup-engine", "trueup-journal"),
    ("trueup-engine", "trueup-base"),
    ("trueup-capabilities", "trueup-journal"),
    ("trueup-capabilities", "trueup-base"),
    ("trueup-journal", "trueup-base"),
    ("trueup-sources", "trueup-base"),
    ("trueup-election", "trueup-base"),
    ("trueup-sims", "trueup-base"),
    // Only for tests.
    ("trueup", "trueup-sources"),
    ("trueup", "trueup-election"),
    ("trueup", "trueup-test-needs"),
    ("trueup", "trueup-test-support"),
    ("trueup-capabilities", "trueup-test-needs"),
    ("trueup-capabilities", "trueup-sims"),
    // Guests share no crate with the host; their common code is in one small crate.
    ("trueup-guest-ipam", "trueup-guest"),
    ("trueup-guest-lbaas", "trueup-guest"),
    ("trueup-guest-misbehaving", "trueup-guest"),
    ("trueup-guest-nat44", "trueup-guest"),
    ("trueup-guest-neg", "trueup-guest"),
    ("trueup-guest-nftables", "trueup-guest"),
    ("trueup-guest-nodesync", "trueup-guest"),
    ("trueup-guest-service", "trueup-guest"),
];

/// The runtime starts the CNI plugin for every pod, so it must take only a few milliseconds and a few MiB. It has no
/// edge in the map either.
const CNI_KEEPS_OUT: [&str; 4] = ["wasmtime", "tokio", "axum", "reqwest"];

fn metadata() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root)
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

#[test]
fn rooms_have_the_edges_of_the_map_and_no_others() {
    let metadata = metadata();
    let allowed: BTreeSet<(String, String)> = EDGES
        .iter()
        .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
        .collect();
    for (name, dependencies) in packages(&metadata, &[None, Some("build"), Some("dev")]) {
        for dependency in dependencies
            .into_iter()
            .filter(|dependency| dependency.starts_with("trueup"))
        {
            assert!(
                allowed.contains(&(name.clone(), dependency.clone())),
                "`{name}` depends on `{dependency}`: not an edge of the map"
            );
        }
    }
    let members: BTreeSet<String> = packages(&metadata, &[None]).into_iter().map(|(name, _)| name).collect();
    for (name, _) in EDGES.iter().filter(|(name, _)| !name.starts_with("trueup-guest-")) {
        assert!(members.contains(*name), "the map names `{name}`, which is no package");
    }
}

#[test]
fn rooms_keep_out_what_they_must_not_know() {
    for (name, dependencies) in packages(&metadata(), &[None, Some("build")]) {
        let forbidden: &[&str] = match name.as_str() {
            "trueup-journal" => &["wasmtime", "tokio", "wit-component", "wit-parser", "axum", "reqwest"],
            "trueup-controller" => &["tokio", "wasmtime", "serde_json", "notify", "reqwest", "axum"],
            "trueup-base" => &["wasmtime", "wit-parser", "toml"],
            "trueup-sources" | "trueup-election" => &["wasmtime", "wit-parser", "axum", "toml"],
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "trueup-cni"])
        .args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(root)
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
