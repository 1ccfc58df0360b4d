//! Builds the guests that ship with trueup, so that one `cargo build` builds the host and its guests.

#[path = "build/guests.rs"]
mod guests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() {
    if let Err(error) = run() {
        for line in error.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = manifest_dir.ancestors().nth(2);
    let root = root.ok_or("host/guests-builtin stands in a workspace")?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    // `TARGET/PROFILE/build/PACKAGE/out`: guests of every profile share one folder, since they are built alike.
    let target_dir = out.ancestors().nth(4);
    let target_dir = target_dir
        .ok_or("cargo's OUT_DIR is in a target folder")?
        .join("guests");

    let mut watched =
        BTreeSet::from(["Cargo.toml", "Cargo.lock", "tools/guest-target/wrap"].map(|file| root.join(file)));
    let mut table = String::from("&[\n");
    for source in guests::SOURCES {
        let bytes = guests::build(root, &target_dir, source)?;
        watched.append(&mut guests::made_of(root, &target_dir, source)?);
        let file = out.join(format!("{}@{}.wasm", source.name, source.version));
        write_if_changed(&file, &bytes)?;
        let digest = Sha256::digest(&bytes);
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            table,
            "    Builtin {{ name: {:?}, version: {:?}, world: {:?}, digest: \"sha256:{digest}\", bytes: include_bytes!({:?}) }},",
            source.name,
            source.version,
            source.world,
            file.display().to_string(),
        );
    }
    table.push(']');
    for file in ["build.rs", "build"].map(PathBuf::from).into_iter().chain(watched) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    write_if_changed(&out.join("table.rs"), table.as_bytes())
}

fn variable(name: &str) -> Result<std::ffi::OsString, String> {
    std::env::var_os(name).ok_or_else(|| format!("cargo sets {name} for build scripts"))
}

/// Unchanged bytes keep their file's time, so that embedding crates are not rebuilt.
fn write_if_changed(file: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    std::fs::write(file, bytes).map_err(|error| format!("writing {}: {error}", file.display()))
}
