//! Builds a guest of this workspace into a component: compiles, encodes, names it.
//!
//! Used by the build script and by tests: one builds again in another folder and compares the bytes, others build
//! guests that do not ship.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of guests: no `wasi:*`, so that a guest imports only its world.
const TARGET: &str = "wasm32-unknown-unknown";

/// A guest that ships with trueup. Its package is `guests/NAME`.
pub(crate) struct Source {
    /// Its name in configurations and scenarios.
    pub(crate) name: &'static str,
    /// Its version: a bare name means version 1 forever.
    pub(crate) version: &'static str,
    /// The features that distinguish this version.
    pub(crate) features: &'static [&'static str],
    /// The world that it implements.
    pub(crate) world: &'static str,
}

/// Every guest that ships, in the order of `guest list`: name, version, features, world.
pub(crate) const SOURCES: &[Source] = &[
    ships("ipam", "1", &[], "trueup:ipam/ipam-datastore@0.1.0"),
    ships("lbaas", "1", &[], "trueup:lbaas/lbaas-reconciler@0.1.0"),
    ships("lbaas", "2", &["version-2"], "trueup:lbaas/lbaas-reconciler@0.1.0"),
    ships("nat44", "1", &[], "trueup:service/etcd-renderer@0.1.0"),
    ships("neg", "1", &[], "trueup:neg/neg-syncer@0.1.0"),
    ships("nftables", "1", &[], "trueup:service/nftables-renderer@0.1.0"),
    ships("nodesync", "1", &[], "trueup:nodesync/node-syncer@0.1.0"),
    ships("service", "1", &[], "trueup:service/service-processor@0.1.0"),
    ships("toy", "1", &[], "trueup:toy/toy-reconciler@0.1.0"),
];

/// An entry of [`SOURCES`].
const fn ships(
    name: &'static str,
    version: &'static str,
    features: &'static [&'static str],
    world: &'static str,
) -> Source {
    Source {
        name,
        version,
        features,
        world,
    }
}

impl Source {
    /// The name of its package.
    fn package(&self) -> String {
        format!("trueup-guest-{}", self.name)
    }
}

/// Compiles `source` from the workspace at `root` in `target_dir`, and returns the component's bytes.
///
/// Guests in the same folder share their dependencies. The call waits while another process builds there, because all
/// versions of a guest are built to one file.
///
/// # Errors
/// What failed, and the command to run if the compilation target is missing and can't be added.
pub(crate) fn build(root: &Path, target_dir: &Path, source: &Source) -> Result<Vec<u8>, String> {
    let module = compile(root, target_dir, source)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{what} guest `{}@{}`: {error}", source.name, source.version)
    };
    let component = wit_component::ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(|error| failed("encoding", &format!("{error:#}")))?;
    let mut metadata = wasm_metadata::AddMetadata::default();
    metadata.name = wasm_metadata::AddMetadataField::Set(source.name.to_owned());
    metadata.version = wasm_metadata::AddMetadataField::Set(wasm_metadata::Version::new(source.version.to_owned()));
    metadata
        .to_wasm(&component)
        .map_err(|error| failed("naming", &format!("{error:#}")))
}

/// The core module alone, as wit-bindgen made it.
///
/// # Errors
/// As [`build`].
pub(crate) fn compile(root: &Path, target_dir: &Path, source: &Source) -> Result<Vec<u8>, String> {
    add_target(root)?;
    let _lock = lock(target_dir)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--locked", "--quiet"])
        .args(["--profile", "guest", "--target", TARGET])
        .args(["--package", &source.package()])
        .arg("--target-dir")
        .arg(target_dir);
    if !source.features.is_empty() {
        command.arg("--features").arg(source.features.join(","));
    }
    remove_outer_settings(&mut command);
    // The wrapper's path would become part of the guest's symbol names.
    command.env("RUSTC_WORKSPACE_WRAPPER", "");
    command.env("CARGO_ENCODED_RUSTFLAGS", remap_flags(root, target_dir)?.join("\u{1f}"));
    let not_started = |error| format!("starting cargo for guest `{}`: {error}", source.name);
    let output = command.output().map_err(not_started)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "building guest `{0}@{1}`, package `trueup-guest-{0}` in `guests/{0}`, failed:\n{stderr}",
            source.name, source.version
        ));
    }
    let file = artifact(target_dir, source, "wasm");
    std::fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))
}

/// The outer build's settings must not apply to the guest: its flags, its features, its jobserver.
fn remove_outer_settings(command: &mut Command) {
    const STARTS: [&str; 7] = [
        "CARGO_FEATURE_",
        "CARGO_CFG_",
        "DEP_",
        "CARGO_PROFILE_",
        "RUSTC",
        "CARGO_PKG_",
        "CARGO_BUILD_",
    ];
    const NAMES: [&str; 8] = [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "MAKEFLAGS",
        "CARGO_MAKEFLAGS",
        "MFLAGS",
        "TARGET",
        "PROFILE",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if STARTS.iter().any(|start| text.starts_with(start)) || NAMES.contains(&text.as_ref()) {
            command.env_remove(&name);
        }
    }
}

/// The workspace files of the last build of `source` in `target_dir`: its sources, those of the guest crates that it
/// uses, their manifests and the interfaces. Tests are not included.
///
/// # Errors
/// One line: what could not be read.
pub(crate) fn made_of(root: &Path, target_dir: &Path, source: &Source) -> Result<BTreeSet<PathBuf>, String> {
    let file = artifact(target_dir, source, "d");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("reading {}: {error}", file.display()))?;
    // One line: `FILE: FILE FILE...`, with a backslash before each blank within a path.
    let Some((_, paths)) = text.lines().next().and_then(|line| line.split_once(": ")) else {
        return Err(format!("{}: no line says what the guest is made of", file.display()));
    };
    let mut files = BTreeSet::new();
    for path in paths.replace("\\ ", "\0").split(' ').filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path.replace('\0', " "));
        let manifests = path.ancestors().map(|folder| folder.join("Cargo.toml"));
        files.extend(manifests.filter(|manifest| manifest.starts_with(root) && manifest.is_file()));
        files.insert(path);
    }
    Ok(files)
}

/// The output of cargo for `source`: the module, or with `d` the list of its sources.
fn artifact(target_dir: &Path, source: &Source, extension: &str) -> PathBuf {
    let name = source.package().replace('-', "_");
    target_dir.join(format!("{TARGET}/guest/{name}.{extension}"))
}

/// Held until it is dropped.
fn lock(target_dir: &Path) -> Result<File, String> {
    let file = target_dir.join("build.lock");
    let failed = |error: std::io::Error| format!("locking {}: {error}", file.display());
    std::fs::create_dir_all(target_dir).map_err(failed)?;
    let lock = File::create(&file).map_err(failed)?;
    lock.lock().map_err(failed)?;
    Ok(lock)
}

/// Adds the target if it is missing. Cargo does so before a build (`.cargo/config.toml`), but not if another wrapper
/// replaces that one, as with clippy.
fn add_target(root: &Path) -> Result<(), String> {
    let wrap = root.join("tools/guest-target/wrap");
    let output = Command::new(&wrap).arg(rustc()).arg("-vV").output();
    let output = output.map_err(|error| format!("starting {}: {error}", wrap.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn rustc() -> OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"))
}

/// Without these flags the bytes would contain the building machine's paths, and differ between folders.
fn remap_flags(root: &Path, target_dir: &Path) -> Result<Vec<String>, String> {
    let sysroot = Command::new(rustc()).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map_err(|error| format!("asking rustc for its sysroot: {error}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    let default = || std::env::home_dir().map(|home| home.join(".cargo"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(default).unwrap_or_default();
    // The last match wins, so the innermost folder comes last.
    Ok([
        (home.as_path(), "/cargo"),
        (root, "/trueup"),
        (target_dir, "/target"),
        (&sysroot.join("lib/rustlib/src/rust"), "/rust"),
    ]
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .to_vec())
}
