//! Builds a guest of this workspace into a component: compiles, encodes, names it.
//!
//! Used by the build script, and by tests: one builds once more in another folder and compares the bytes, others build
//! guests that do not ship.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where guests run: no `wasi:*`, so that a guest imports its world and nothing else.
const TARGET: &str = "wasm32-unknown-unknown";

/// A guest that ships with trueup.
pub(crate) struct Source {
    /// Its name in configurations and scenarios.
    pub(crate) name: &'static str,
    /// Its version: a bare name means version 1 for ever.
    pub(crate) version: &'static str,
    /// The package in `guests/`.
    pub(crate) package: &'static str,
    /// What makes this version differ.
    pub(crate) features: &'static [&'static str],
    /// The world that it implements.
    pub(crate) world: &'static str,
}

/// Every guest that ships, in the order in which `guest list` shows them.
pub(crate) const SOURCES: &[Source] = &[
    Source {
        name: "ipam",
        version: "1",
        package: "trueup-guest-ipam",
        features: &[],
        world: "trueup:ipam/ipam-datastore@0.1.0",
    },
    Source {
        name: "lbaas",
        version: "1",
        package: "trueup-guest-lbaas",
        features: &[],
        world: "trueup:lbaas/lbaas-reconciler@0.1.0",
    },
    Source {
        name: "lbaas",
        version: "2",
        package: "trueup-guest-lbaas",
        features: &["version-2"],
        world: "trueup:lbaas/lbaas-reconciler@0.1.0",
    },
    Source {
        name: "nat44",
        version: "1",
        package: "trueup-guest-nat44",
        features: &[],
        world: "trueup:service/etcd-renderer@0.1.0",
    },
    Source {
        name: "neg",
        version: "1",
        package: "trueup-guest-neg",
        features: &[],
        world: "trueup:neg/neg-syncer@0.1.0",
    },
    Source {
        name: "nftables",
        version: "1",
        package: "trueup-guest-nftables",
        features: &[],
        world: "trueup:service/nftables-renderer@0.1.0",
    },
    Source {
        name: "nodesync",
        version: "1",
        package: "trueup-guest-nodesync",
        features: &[],
        world: "trueup:nodesync/node-syncer@0.1.0",
    },
    Source {
        name: "service",
        version: "1",
        package: "trueup-guest-service",
        features: &[],
        world: "trueup:service/service-processor@0.1.0",
    },
];

/// Compiles `source` from the workspace at `root`, with its own target folder, and answers the component's bytes.
///
/// # Errors
/// One line: what failed, and what to type where the compilation target is missing.
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args([
            "build",
            "--locked",
            "--quiet",
            "--profile",
            "guest",
            "--target",
            TARGET,
            "--package",
            source.package,
        ])
        .arg("--target-dir")
        .arg(target_dir);
    if !source.features.is_empty() {
        command.arg("--features").arg(source.features.join(","));
    }
    // The outer build's settings are not the guest's: its flags, its features, its jobserver.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let outer = [
            "CARGO_FEATURE_",
            "CARGO_CFG_",
            "DEP_",
            "CARGO_PROFILE_",
            "RUSTC",
            "CARGO_PKG_",
            "CARGO_BUILD_",
        ];
        let named = [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "MAKEFLAGS",
            "CARGO_MAKEFLAGS",
            "MFLAGS",
            "TARGET",
            "PROFILE",
        ];
        if outer.iter().any(|prefix| text.starts_with(prefix)) || named.contains(&text.as_ref()) {
            command.env_remove(&name);
        }
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", remap_flags(root, target_dir)?.join("\u{1f}"));
    let output = command
        .output()
        .map_err(|error| format!("starting cargo for guest `{}`: {error}", source.name))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("E0463") && (stderr.contains("`std`") || stderr.contains("`core`")) {
            return Err(format!(
                "the target {TARGET} is not installed; type: rustup target add {TARGET}"
            ));
        }
        return Err(format!(
            "building guest `{}@{}` failed:\n{stderr}",
            source.name, source.version
        ));
    }
    let file = target_dir
        .join(TARGET)
        .join("guest")
        .join(format!("{}.wasm", source.package.replace('-', "_")));
    std::fs::read(&file).map_err(|error| format!("reading {}: {error}", file.display()))
}

/// Without these the bytes would hold the building machine's paths, and differ from one folder to the next.
fn remap_flags(root: &Path, target_dir: &Path) -> Result<Vec<String>, String> {
    let sysroot = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")))
        .args(["--print", "sysroot"])
        .output()
        .map_err(|error| format!("asking rustc for its sysroot: {error}"))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .unwrap_or_default();
    // The last that fits wins, so the innermost folder comes last.
    Ok([
        (home.as_path(), "/cargo"),
        (root, "/trueup"),
        (target_dir, "/target"),
        (&sysroot.join("lib/rustlib/src/rust"), "/rust"),
    ]
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .to_vec())
}
