//! `trueup checkpoint`: lets an operator inspect, move or repair what guests have stored.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use trueup_capabilities::checkpoint::tools::{self, Accepted, Copied, Kind, Mark, Picture, ToolError, Torn, Verdict};

use crate::exit::{Ending, Exit, Failure, misused};
use crate::output::{self, Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Shows the stored facts, and which key holds which address. Works while a host runs.
    Show {
        /// The store, or a generation of it.
        path: PathBuf,
    },
    /// Checks every stored byte. Exits 0 if the store is whole, and 1 if it is torn or corrupt. Works while a host
    /// runs.
    Verify {
        /// The store, or a generation of it.
        path: PathBuf,
    },
    /// Copies one store to another, of the same kind or of a different one. For a JSON file, the entries are folded
    /// into the data. No host may run on either store.
    Copy(Copy),
    /// Restores an earlier checkpoint. The present one, damaged or not, becomes generation 1 first. No host may run on
    /// it.
    Restore {
        /// The store.
        path: PathBuf,
        /// Which: 1 is the one that was replaced last.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        generation: u32,
    },
    /// Accepts a store that was cut or replaced by an older copy. If the store is gone, starts with an empty one.
    /// Missing data stays lost: addresses that pods got since are free again. No host may run on it.
    Accept {
        /// The store.
        path: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The store to copy.
    from: PathBuf,
    /// The store to copy to.
    to: PathBuf,
    /// Overwrites TO if it already holds something; the old contents become a generation.
    #[arg(long)]
    replace: bool,
    /// The kind of TO if TO does not exist yet. Default: `json-file` for a name that ends in `.json`, else `file`.
    #[arg(long, value_enum)]
    kind: Option<KindArg>,
}

/// A kind of store, as it is typed.
#[derive(Debug, Clone, std::marker::Copy, ValueEnum)]
enum KindArg {
    /// One file with checksums; a guest's changes are appended.
    File,
    /// The file that the AWS VPC CNI's node agent reads and writes.
    JsonFile,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::File => Self::File,
            KindArg::JsonFile => Self::JsonFile,
        }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Misused(_) => misused(error),
            ToolError::Locked(_) | ToolError::Store(_) => Self::Failed(error.into()),
        }
    }
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    match command {
        Command::Show { path } => show(&path, output),
        Command::Verify { path } => verify(&path, output),
        Command::Copy(args) => copy(&args, output),
        Command::Restore { path, generation } => {
            let copied = tools::restore(&path, generation)?;
            let done = format!("brought back generation {generation} of {}", path.display());
            report(&copied, &done, output)
        }
        Command::Accept { path } => accept(&path, output),
    }
}

fn accept(path: &Path, output: Output) -> Ending {
    let changed = tools::accept(path)?;
    if let Output::Json = output {
        output::json(&changed.as_slice())?;
        return Ok(Exit::Done);
    }
    let shown = path.display();
    let text = |mark: Option<Mark>, none: &str| mark.map_or_else(|| none.to_owned(), |mark| mark.to_string());
    output::line(&match changed {
        None => format!("{shown}: nothing is missing"),
        Some(Accepted { known, found }) => format!(
            "{shown}: going on with {}; known was {}",
            text(found, "an empty store"),
            text(known, "nothing"),
        ),
    })?;
    Ok(Exit::Done)
}

fn show(path: &Path, output: Output) -> Ending {
    let picture = tools::look(path)?;
    match output {
        Output::Json => output::json(&picture)?,
        Output::Text => print(&picture)?,
    }
    Ok(Exit::Done)
}

fn print(picture: &Picture) -> anyhow::Result<()> {
    let fact = |name: &str, value: &str| output::line(&format!("{name:<12} {value}"));
    fact("path", &picture.path.display().to_string())?;
    fact("kind", picture.kind.name())?;
    fact("size", &format!("{} bytes", picture.bytes))?;
    fact("data", &format!("{} bytes", picture.data_bytes))?;
    fact("entries", &picture.entries.to_string())?;
    if let Some(number) = picture.last_sequence {
        fact("last record", &number.to_string())?;
    }
    if picture.in_use {
        let pid = picture
            .pid
            .map_or_else(|| "not known".to_owned(), |pid| pid.to_string());
        fact("in use", &format!("by a host, pid {pid}"))?;
    }
    if let Some(tail) = &picture.tail {
        let what = if picture.in_use {
            "being written"
        } else {
            "torn: a write was interrupted, and never answered"
        };
        fact("tail", &format!("{}; {what}", tail_text(tail)))?;
    }
    if let Some(lost) = &picture.lost {
        fact("lost", lost)?;
    }
    for known in &picture.generations {
        fact("generation", &format!("{}: {} bytes", known.generation, known.bytes))?;
    }
    match (&picture.allocations, &picture.not_understood) {
        (Some(all), _) => {
            fact("allocations", &all.len().to_string())?;
            if !all.is_empty() {
                output::line("")?;
                output::line(&format!(
                    "{:<16} {:<24} {:<16} {}",
                    "ADDRESS", "NETWORK", "INTERFACE", "CONTAINER"
                ))?;
            }
            for allocation in all {
                let key = &allocation.key;
                output::line(&format!(
                    "{:<16} {:<24} {:<16} {}",
                    allocation.ipv4, key.network_name, key.if_name, key.container_id
                ))?;
            }
        }
        (None, why) => fact(
            "allocations",
            &format!("not known: {}", why.as_deref().unwrap_or_default()),
        )?,
    }
    Ok(())
}

fn tail_text(tail: &Torn) -> String {
    format!(
        "record {} at offset {}, {} bytes, {}",
        tail.record, tail.offset, tail.bytes, tail.reason
    )
}

/// The output of `verify` as JSON.
#[derive(Serialize)]
struct Verified<'a> {
    path: &'a Path,
    kind: Kind,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

fn verify(path: &Path, output: Output) -> Ending {
    let (kind, verdict) = tools::verify(path)?;
    match output {
        Output::Json => output::json(&Verified {
            path,
            kind,
            verdict: &verdict,
        })?,
        Output::Text => {
            let shown = path.display();
            output::line(&match &verdict {
                Verdict::Whole => format!("{shown}: whole"),
                Verdict::Unfinished { tail } => format!("{shown}: whole; a host is writing {}", tail_text(tail)),
                Verdict::Torn { tail } => format!("{shown}: torn: {}", tail_text(tail)),
                Verdict::Corrupt { text } => format!("corrupt: {text}"),
            })?;
        }
    }
    Ok(match verdict {
        Verdict::Whole | Verdict::Unfinished { .. } => Exit::Done,
        Verdict::Torn { .. } | Verdict::Corrupt { .. } => Exit::Failed,
    })
}

fn copy(args: &Copy, output: Output) -> Ending {
    let copied = tools::copy(&args.from, &args.to, args.kind.map(Kind::from), args.replace)?;
    let done = format!("copied {} to {}", args.from.display(), args.to.display());
    report(&copied, &done, output)
}

fn report(copied: &Copied, done: &str, output: Output) -> Ending {
    if let Some(tail) = &copied.left_out {
        output::talk(&format!("warning: left out an interrupted write: {}", tail_text(tail)));
    }
    match output {
        Output::Json => output::json(copied)?,
        Output::Text => {
            let folded = (copied.folded > 0).then(|| format!("; {} entries folded in", copied.folded));
            output::line(&format!(
                "{done} ({}): {} bytes of data, {} entries{}",
                copied.kind.name(),
                copied.data_bytes,
                copied.entries,
                folded.unwrap_or_default()
            ))?;
        }
    }
    Ok(Exit::Done)
}
