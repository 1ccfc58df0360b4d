//! Prints figures of the workspace's structure, and fails when one rises. tools/shape/README.md explains how each is
//! counted.
#![forbid(unsafe_code)]

mod figures;
mod graph;
mod ratchet;
mod repeats;
mod source;
mod tokens;
mod workspace;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use figures::Figure;

const USAGE: &str = "cargo run -p trueup-shape -- [--check | --write | --list FIGURE]";
/// The limits of the figures, from the workspace's root.
const KEPT: &str = "tools/shape/figures";

fn main() -> ExitCode {
    match run() {
        Ok(is_fine) => ExitCode::from(u8::from(!is_fine)),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "shape: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command; false if a figure rose.
fn run() -> Result<bool, String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let root = root()?;
    let all = figures::figures(&workspace::Workspace::read(&root)?);
    let kept = root.join(KEPT);
    match arguments[..] {
        [] => print(&shown(&all)),
        ["--write"] => {
            std::fs::write(&kept, ratchet::written(&all)).map_err(|error| format!("writing {KEPT}: {error}"))?
        }
        ["--list", name] => print(&listed(&all, name)?),
        ["--check"] => {
            let text = std::fs::read_to_string(&kept).map_err(|error| format!("reading {KEPT}: {error}"))?;
            let risen = ratchet::risen(&all, &ratchet::read(&text).map_err(|error| format!("{KEPT}, {error}"))?);
            print(&shown(&all));
            print(&risen);
            return Ok(risen.is_empty());
        }
        _ => return Err(format!("type: {USAGE}")),
    }
    Ok(true)
}

/// The workspace folder at build time.
fn root() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.map(Path::to_owned)
        .ok_or_else(|| "tools/shape is not in a workspace".to_owned())
}

fn shown(all: &[Figure]) -> Vec<String> {
    all.iter()
        .map(|figure| format!("{:<40} {:>6}", figure.name, figure.value))
        .collect()
}

fn listed(all: &[Figure], name: &str) -> Result<Vec<String>, String> {
    let figure = all.iter().find(|figure| figure.name == name);
    let names = || all.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
    let figure = figure.ok_or_else(|| format!("there is no figure `{name}`; there are: {}", names()))?;
    Ok(figure.places.iter().map(|place| place.text.clone()).collect())
}

/// Ignore a reader that went away, such as `head`.
fn print(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
}
