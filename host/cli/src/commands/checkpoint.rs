//! `trueup checkpoint`: lets an operator inspect, move or repair what guests have stored.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::Identity;
use trueup_capabilities::audit::{self, Audit};
use trueup_capabilities::checkpoint::tools::{self, Accepted, Copied, Kind, Mark, Picture, ToolError, Torn, Verdict};
use trueup_runtime::state_lock::StateLock;
use trueup_worlds::ipam::stored::{self, Allocation};

use super::one_of;
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
        /// Goes on although entries are lost.
        #[arg(long)]
        yes: bool,
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
    #[arg(long, value_parser = one_of(KINDS))]
    kind: Option<Kind>,
}

/// The kinds of stores.
const KINDS: [(&str, &str, Kind); 2] = [("file", FILE, Kind::File), ("json-file", JSON_FILE, Kind::JsonFile)];
const FILE: &str = "One file with checksums; a guest's changes are appended";
const JSON_FILE: &str = "The file that the AWS VPC CNI's node agent reads and writes";

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    match command {
        Command::Show { path } => show(&path, output),
        Command::Verify { path } => verify(&path, output),
        Command::Copy(args) => {
            let copied = tools::copy(&args.from, &args.to, args.kind, args.replace, stored::data)?;
            let done = format!("copied {} to {}", args.from.display(), args.to.display());
            report(&copied, &done, output)
        }
        Command::Restore { path, generation } => {
            let audited = Audited::of(&path)?;
            let copied = tools::restore(&path, generation)?;
            let done = format!("brought back generation {generation} of {}", path.display());
            audited.write_down("checkpoint restore", &path, &format!("generation {generation}"))?;
            report(&copied, &done, output)
        }
        Command::Accept { path, yes } => accept(&path, yes, output),
    }
}

/// The audit log and the lock of the state folder in which a store is. `None` for a store elsewhere.
struct Audited(Option<(StateLock, Audit)>);

impl Audited {
    fn of(store: &Path) -> Result<Self, Failure> {
        let whole = std::path::absolute(store).map_err(misused)?;
        let is_state = |folder: &&Path| audit::is_log(&folder.join("audit")).is_ok_and(|is_log| is_log);
        let Some(state_dir) = whole.ancestors().skip(1).find(is_state) else {
            return Ok(Self(None));
        };
        let lock = StateLock::take(state_dir)?;
        let audit = Audit::open(&state_dir.join("audit"))?;
        Ok(Self(Some((lock, audit))))
    }

    /// Writes a line of the audit log, if there is one.
    fn write_down(&self, action: &str, store: &Path, outcome: &str) -> Result<(), Failure> {
        let Some((_, audit)) = &self.0 else { return Ok(()) };
        let (now_ms, scope) = (SystemClock.now_ms(), store.display().to_string());
        Ok(audit.managed(now_ms, &Identity::default(), action, &scope, outcome)?)
    }
}

fn accept(path: &Path, yes: bool, output: Output) -> Ending {
    let audited = Audited::of(path)?;
    let changed = tools::accept(path, yes)?;
    let shown = path.display();
    let text = |mark: Option<Mark>, none: &str| mark.map_or_else(|| none.to_owned(), |mark| mark.to_string());
    let outcome = if let Some(Accepted { known, found }) = &changed {
        let (found, known) = (text(*found, "an empty store"), text(*known, "nothing"));
        let going_on = format!("going on with {found}; known was {known}");
        audited.write_down("checkpoint accept", path, &going_on)?;
        going_on
    } else {
        "nothing is missing".to_owned()
    };
    output::show(changed.as_slice(), output, |_| vec![format!("{shown}: {outcome}")])
}

/// The output of `show` as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    picture: Picture,
    /// `None` if the data is not the IPAM guest's.
    allocations: Option<Vec<Allocation>>,
    /// Why `allocations` is `None`.
    not_understood: Option<String>,
}

fn show(path: &Path, output: Output) -> Ending {
    let mut picture = tools::look(path)?;
    let damage = picture.damage.take();
    let allocations = stored::allocations(&picture.saved);
    // Nothing but its content says that such a file is a store.
    if let (Kind::JsonFile, Err(why)) = (picture.kind, &allocations) {
        let is_none = format!("`{}` is no store of pod addresses: {why}", path.display());
        return Err(misused(anyhow!("{is_none}; give the `path` of [backend.checkpoint]")));
    }
    let shown = Shown {
        picture,
        not_understood: allocations.as_ref().err().cloned(),
        allocations: allocations.ok(),
    };
    output::show(&shown, output, lines)?;
    damage.map_or(Ok(Exit::Done), |damage| Err(ToolError::from(damage).into()))
}

fn lines(shown: &Shown) -> Vec<String> {
    let picture = &shown.picture;
    let mut lines = Vec::new();
    let mut fact = |name: &str, value: &str| lines.push(format!("{name:<12} {value}"));
    fact("path", &picture.path.display().to_string());
    fact("kind", picture.kind.name());
    fact("size", &format!("{} bytes", picture.bytes));
    fact("data", &format!("{} bytes", picture.data_bytes));
    fact("entries", &picture.entries.to_string());
    if let Some(number) = picture.last_sequence {
        fact("last record", &number.to_string());
    }
    if picture.in_use {
        let pid = picture.pid.map(|pid| pid.to_string());
        let pid = pid.as_deref().unwrap_or("not known");
        fact("in use", &format!("by a host, pid {pid}"));
    }
    if let Some(tail) = &picture.tail {
        let what = match picture.in_use {
            true => "being written",
            false => "torn: a write was interrupted, and never answered",
        };
        fact("tail", &format!("{}; {what}", tail_text(tail)));
    }
    if let Some(lost) = &picture.lost {
        fact("lost", lost);
    }
    for known in &picture.generations {
        fact("generation", &format!("{}: {} bytes", known.generation, known.bytes));
    }
    let Some(all) = &shown.allocations else {
        let why = shown.not_understood.as_deref().unwrap_or_default();
        fact("allocations", &format!("not known: {why}"));
        return lines;
    };
    fact("allocations", &all.len().to_string());
    let row = |ip: &str, network: &str, interface: &str, container: &str| {
        format!("{ip:<16} {network:<24} {interface:<16} {container}")
    };
    if !all.is_empty() {
        lines.extend([String::new(), row("ADDRESS", "NETWORK", "INTERFACE", "CONTAINER")]);
    }
    lines.extend(all.iter().map(|allocation| {
        let key = &allocation.key;
        row(&allocation.ipv4, &key.network_name, &key.if_name, &key.container_id)
    }));
    lines
}

fn tail_text(tail: &Torn) -> String {
    let record = tail.record;
    let offset = tail.offset;
    let reason = &tail.reason;
    format!("record {record} at offset {offset}, {} bytes, {reason}", tail.bytes)
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
    let shown = path.display();
    let (exit, line) = match &verdict {
        Verdict::Whole => (Exit::Done, format!("{shown}: whole")),
        Verdict::Unfinished { tail } => {
            let line = format!("{shown}: whole; a host is writing {}", tail_text(tail));
            (Exit::Done, line)
        }
        Verdict::Torn { tail } => (Exit::Failed, format!("{shown}: torn: {}", tail_text(tail))),
        Verdict::Corrupt { text } => (Exit::Failed, format!("corrupt: {text}")),
    };
    let verdict = &verdict;
    output::show(&Verified { path, kind, verdict }, output, |_| vec![line])?;
    Ok(exit)
}

fn report(copied: &Copied, done: &str, output: Output) -> Ending {
    if let Some(tail) = &copied.left_out {
        output::talk(&format!("warning: left out an interrupted write: {}", tail_text(tail)));
    }
    output::show(copied, output, |copied| {
        let mut line = format!("{done} ({}): {} bytes of data", copied.kind.name(), copied.data_bytes);
        line += &format!(", {} entries", copied.entries);
        if copied.folded > 0 {
            line += &format!("; {} entries folded in", copied.folded);
        }
        vec![line]
    })
}
