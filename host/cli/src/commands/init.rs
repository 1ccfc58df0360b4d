//! `trueup init`: writes a first configuration.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;
use serde::Serialize;
use trueup_runtime::init::{self, From};

use crate::exit::{Ending, Failure, misused};
use crate::output::{self, Output};

/// The words of `--source`.
const SOURCES: [&str; 2] = ["manifests", "kubernetes"];

/// Writes a commented configuration for one world, which works as it is: its backends are simulated.
///
/// Asks for what is missing, if it runs on a terminal. Never overwrites a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to write into; it is made if it is missing.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// What the host is to do.
    #[arg(long, value_name = "WORLD", value_parser = worlds())]
    world: Option<String>,
    /// Where the desired state comes from.
    #[arg(long, value_name = "SOURCE", value_parser = SOURCES)]
    source: Option<String>,
}

/// What was written, and what to type next.
#[derive(Serialize)]
struct Written {
    written: Vec<PathBuf>,
    next: [String; 2],
}

fn worlds() -> Vec<&'static str> {
    init::worlds().into_iter().map(|(world, _)| world).collect()
}

pub(crate) fn exec(args: &Args, output: Output) -> Ending {
    let folder = args.folder.display();
    let world = given(args, "world", args.world.clone(), &worlds())?;
    let reads_source = init::worlds().contains(&(&world, true));
    let from = match (&args.source, reads_source) {
        (None, false) => From::Manifests,
        (Some(_), false) => {
            let what = format!("the world `{world}` reads no source");
            return Err(misused(anyhow!("{what}: trueup init {folder} --world {world}")));
        }
        (source, true) => match given(args, "source", source.clone(), &SOURCES)?.as_str() {
            "kubernetes" => From::Kubernetes,
            _ => From::Manifests,
        },
    };
    let written = Written {
        written: init::write(&args.folder, &world, from)?,
        next: ["check", "plan"].map(|command| format!("trueup {command} {folder}")),
    };
    output::show(&written, output, |of| {
        let files = of.written.iter().map(|file| format!("wrote {}", file.display()));
        let next = of.next.iter().map(|next| format!("next: {next}"));
        files.chain(next).collect()
    })
}

/// The value of a flag, or the answer to a question on a terminal.
fn given(args: &Args, flag: &str, value: Option<String>, words: &[&str]) -> Result<String, Failure> {
    if let Some(value) = value {
        return Ok(value);
    }
    let missing = || {
        let world = args.world.as_deref().unwrap_or("WORLD");
        let source = if flag == "world" { "" } else { " --source SOURCE" };
        let folder = args.folder.display();
        let one = format!("with as {} one of {}", flag.to_uppercase(), words.join(", "));
        let type_this = format!("trueup init {folder} --world {world}{source}");
        misused(anyhow!("--{flag} is missing: {type_this}, {one}"))
    };
    let (mut answers, mut to) = (std::io::stdin().lock(), std::io::stderr());
    if !answers.is_terminal() || !to.is_terminal() {
        return Err(missing());
    }
    loop {
        // If the question can not be written, the answer ends the loop.
        let _ = write!(to, "{flag} ({}): ", words.join(", "));
        let mut answer = String::new();
        if !answers.read_line(&mut answer).is_ok_and(|read| read > 0) {
            return Err(missing());
        }
        if let Some(word) = words.iter().find(|word| **word == answer.trim()) {
            return Ok((*word).to_owned());
        }
    }
}
