//! Gives the program the commit it is built from, its target, and the version of wasmtime.
//!
//! Two builds of one commit get the same: nothing here reads a clock. Outside a git checkout, as in a package or a
//! tarball, there is no commit.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), String> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=BUILT_FOR={}", variable("TARGET")?);

    let lock = root.join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let lock = std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let (_, after) = lock
        .split_once("name = \"wasmtime\"\nversion = \"")
        .ok_or("Cargo.lock has no wasmtime")?;
    let wasmtime = after.split('"').next().unwrap_or_default();
    println!("cargo::rustc-env=WASMTIME={wasmtime}");

    if let Some((commit, date)) = commit(&root) {
        println!("cargo::rustc-env=COMMIT={commit}");
        println!("cargo::rustc-env=COMMIT_DATE={date}");
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}

/// The commit of the checkout and its date in UTC. `None` if this folder is not the root of a checkout: a repository
/// around an unpacked tarball is another project.
fn commit(root: &Path) -> Option<(String, String)> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // Cargo runs this again each time if a watched file does not exist.
    for file in ["HEAD", "logs/HEAD", "packed-refs"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
    let last = git(root, &["log", "-1", date, "--format=%H %cd"])?;
    let (commit, date) = last.split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let ran = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(args)
        .env("TZ", "UTC0")
        .output()
        .ok()?;
    let text = String::from_utf8(ran.stdout).ok()?;
    ran.status.success().then(|| text.trim().to_owned())
}
