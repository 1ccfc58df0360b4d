//! Compares a recording with another guest: what that guest would have decided.
//!
//! A segment is replayed once as a whole. Everything after a first difference follows from it, so a later decision is
//! replayed separately, from the state at the start of its segment, and marked as such.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use trueup_engine::Engine;
use trueup_instance::Program;
use trueup_instance::replay::{Options, replay};
use trueup_journal::{Event, Outcome, Segment};

use super::decision::{for_each_entry, read_header};
use super::index::{Decision, Located};

/// A larger file is not replayed: it would be held in memory as a whole.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// A file, and its length when it was replayed.
type Replayed = (PathBuf, u64);

/// The guest to compare with.
#[derive(Clone)]
pub struct Against {
    engine: Engine,
    program: Arc<Program>,
    /// The results for whole segments, by file and length. Only one replay runs at a time, because it takes memory.
    known: Arc<Mutex<BTreeMap<Replayed, Result<Outcome, String>>>>,
}

/// How a decision or a segment compares.
#[derive(Debug, Default, Serialize)]
pub(super) struct Comparison {
    /// Whether it was the same, as far as it can be compared.
    same: bool,
    /// If it was replayed separately: the position of the earlier difference.
    alone_since: Option<u64>,
    /// The first entry that differs.
    pub(super) diverged_at: Option<u64>,
    /// The result as text: the first line, then details.
    words: String,
    outcome: Option<Outcome>,
}

impl Against {
    /// Compares recordings with this guest.
    pub fn new(engine: Engine, program: Arc<Program>) -> Self {
        Self {
            engine,
            program,
            known: Arc::default(),
        }
    }

    /// The name and version, and the digest.
    pub(super) fn guest(&self) -> Value {
        let guest = &self.program.guest;
        json!({ "guest": format!("{}@{}", guest.name, guest.version), "digest": guest.digest.to_string() })
    }

    /// Compares a whole segment.
    pub(super) async fn segment(&self, file: &Path) -> Comparison {
        compared(self.whole(file).await, None)
    }

    /// Compares one decision.
    pub(super) async fn decision(&self, file: &Path, decision: &Decision) -> Comparison {
        let whole = self.whole(file).await;
        match whole.as_ref().ok().and_then(Outcome::diverged_at) {
            Some(at) if at < decision.n => compared(self.replayed(alone(file, decision)).await, Some(at)),
            Some(at) if at > decision.last() => Comparison {
                same: true,
                words: format!("the same; the recording is left later, at entry {at}"),
                ..Comparison::default()
            },
            _ => compared(whole, None),
        }
    }

    async fn whole(&self, file: &Path) -> Result<Outcome, String> {
        let shown = file.display();
        let metadata = std::fs::metadata(file).map_err(|error| format!("can't read `{shown}`: {error}"));
        let bytes = metadata?.len();
        if bytes > SEGMENT_BYTES_MAX {
            let only = format!("only files of up to {SEGMENT_BYTES_MAX} are decided again here");
            return Err(format!("`{shown}` has {bytes} bytes, and {only}; use `trueup replay`"));
        }
        let mut known = self.known.lock().await;
        let replayed = (file.to_owned(), bytes);
        if let Some(outcome) = known.get(&replayed) {
            return outcome.clone();
        }
        let path = file.to_owned();
        let read = tokio::task::spawn_blocking(move || Segment::read(&path).map_err(|error| error.to_string())).await;
        let segment = read.map_err(|error| error.to_string()).flatten();
        let outcome = self.replayed(segment).await;
        known.insert(replayed, outcome.clone());
        outcome
    }

    async fn replayed(&self, segment: Result<Segment, String>) -> Result<Outcome, String> {
        let outcome = replay(&self.engine, &self.program, segment?, Options::default()).await;
        outcome.map_err(|error| error.to_string())
    }
}

fn compared(outcome: Result<Outcome, String>, alone_since: Option<u64>) -> Comparison {
    match outcome {
        Ok(outcome) => Comparison {
            same: outcome.is_identical(),
            alone_since,
            diverged_at: outcome.diverged_at(),
            words: outcome.to_string(),
            outcome: Some(outcome),
        },
        Err(why) => Comparison {
            alone_since,
            words: format!("can't be decided again: {why}"),
            ..Comparison::default()
        },
    }
}

/// A segment with one decision: its call is the first, and its entries keep their numbers.
fn alone(file: &Path, decision: &Decision) -> Result<Segment, String> {
    let (_, header) = read_header(file)?;
    let mut entries = Vec::new();
    for_each_entry(file, decision.offset, decision.bytes, |Located { entry, .. }| {
        if !matches!(entry.event, Event::Header(_) | Event::RolledBack(_)) {
            entries.push(entry);
        }
        true
    })?;
    let first = decision.n.saturating_sub(1);
    Segment::of(&file.display().to_string(), first, header, entries).map_err(|error| error.to_string())
}
