//! Looks once for the components that tests need, and passes the missing ones to the macro.
//!
//! Cargo runs this again after a component was installed or removed.

use std::path::{Path, PathBuf};

/// A name for `#[needs(...)]`, and its programs, which must all exist: in `PATH`, or at this path.
const COMPONENTS: [(&str, &[&str]); 17] = [
    ("cargo_cyclonedx", &["cargo-cyclonedx"]),
    ("cargo_deb", &["cargo-deb"]),
    ("chromium", &["chromium", "chromedriver"]),
    ("cni", &["/usr/lib/cni/bridge"]),
    ("containerd", &["containerd", "ctr", "runc"]),
    ("docker_registry", &["docker-registry"]),
    ("etcd", &["etcd"]),
    ("etcdctl", &["etcdctl"]),
    ("gcc", &["gcc"]),
    ("kubectl", &["kubectl"]),
    ("netns", &["ip", "nsenter", "ping", "unshare"]),
    ("nft", &["nft"]),
    ("openssl", &["openssl"]),
    ("promtool", &["prometheus", "promtool"]),
    ("pypi", &["python3"]),
    ("script", &["script"]),
    ("systemd", &["systemd-analyze", "systemd-sysusers"]),
];

/// Names to treat as missing, separated by commas. `tools/test` sets it if PyPI does not answer.
const WITHOUT: &str = "TRUEUP_TEST_WITHOUT";

fn main() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian puts administrators' programs there, and leaves these folders out of a user's PATH.
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["PATH", "USER", WITHOUT] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let cargos = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    let systems = ["/usr/bin", "/usr/sbin", "/usr/lib/cni"].map(PathBuf::from);
    for folder in systems.into_iter().chain(cargos) {
        if folder.is_dir() {
            println!("cargo::rerun-if-changed={}", folder.display());
        }
    }
    let without = std::env::var(WITHOUT).unwrap_or_default();
    let is_there = |program: &&str| folders.iter().any(|folder| folder.join(program).is_file());
    let mut missing: Vec<&str> = COMPONENTS
        .iter()
        .filter(|(name, programs)| without.split(',').any(|it| it == *name) || !programs.iter().all(is_there))
        .map(|(name, _)| *name)
        .collect();
    if without.split(',').any(|it| it == "root") || !is_root() {
        missing.push("root");
    }
    let known: Vec<&str> = COMPONENTS.iter().map(|(name, _)| *name).chain(["root"]).collect();
    println!("cargo::rustc-env=TRUEUP_TEST_KNOWN={}", known.join(","));
    println!("cargo::rustc-env=TRUEUP_TEST_MISSING={}", missing.join(","));
}

/// The owner of a process's own folder is its user.
#[cfg(target_os = "linux")]
fn is_root() -> bool {
    use std::os::linux::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|of_process| of_process.st_uid() == 0)
}

#[cfg(not(target_os = "linux"))]
fn is_root() -> bool {
    false
}
