//! Holds a recording against another guest: what that would have decided where the recorded one decided so.
//!
//! A segment is decided again whole, once. What comes after a first difference follows from it, so a decision behind it is
//! decided again by itself, from the state with which its segment begins, and said to be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Mutex;
use trueup_capabilities::log::NoLog;
use trueup_engine::Engine;
use trueup_journal::{Entry, Event, Outcome, Segment};

use super::decision::{Lines, read_header};
use super::index::Decision;
use crate::guests::Program;
use crate::replay::replay;

/// A larger file is not decided again: it would stand in memory whole.
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// A file, and how many bytes of it were there.
type Replayed = (PathBuf, u64);

/// Another guest.
#[derive(Clone)]
pub struct Against {
    engine: Engine,
    program: Arc<Program>,
    /// How whole segments compared, by file and how much of it was there. One is replayed at a time: it takes memory.
    known: Arc<Mutex<BTreeMap<Replayed, Result<Outcome, String>>>>,
}

/// How a decision, or a segment, compares.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    /// It was the same, as far as there is anything to compare.
    same: bool,
    /// It was decided by itself, since something before it differs: where.
    alone_since: Option<u64>,
    /// The first entry that differs.
    diverged_at: Option<u64>,
    /// In words, the first line and lines of detail.
    words: String,
    outcome: Option<Outcome>,
}

impl Against {
    /// Holds recordings against this guest.
    pub fn new(engine: Engine, program: Arc<Program>) -> Self {
        Self {
            engine,
            program,
            known: Arc::default(),
        }
    }

    /// Name and version, and digest.
    pub(super) fn guest(&self) -> (String, String) {
        let guest = &self.program.guest;
        (format!("{}@{}", guest.name, guest.version), guest.digest.to_string())
    }

    /// How a whole segment compares.
    pub(super) async fn segment(&self, file: &Path) -> Standing {
        Standing::of(self.whole(file).await, None)
    }

    /// How one decision compares.
    pub(super) async fn decision(&self, file: &Path, decision: &Decision) -> Standing {
        let whole = self.whole(file).await;
        let diverged_at = whole.as_ref().ok().and_then(Outcome::diverged_at);
        let Some(diverged_at) = diverged_at.filter(|at| *at < decision.n) else {
            let last = decision.n + u64::from(decision.asks) + 1;
            let standing = Standing::of(whole, None);
            return match diverged_at {
                Some(at) if at > last => Standing {
                    same: true,
                    diverged_at: None,
                    words: format!("the same; the recording is left later, at entry {at}"),
                    alone_since: None,
                    outcome: None,
                },
                _ => standing,
            };
        };
        let alone = match alone(file, decision) {
            Ok(segment) => self.replayed(segment).await,
            Err(why) => Err(why),
        };
        Standing::of(alone, Some(diverged_at))
    }

    async fn whole(&self, file: &Path) -> Result<Outcome, String> {
        let bytes = std::fs::metadata(file)
            .map_err(|error| format!("can't read `{}`: {error}", file.display()))?
            .len();
        if bytes > SEGMENT_BYTES_MAX {
            return Err(format!(
                "`{}` has {bytes} bytes, and only files of up to {SEGMENT_BYTES_MAX} are decided again here; use `trueup replay`",
                file.display()
            ));
        }
        let mut known = self.known.lock().await;
        let place = (file.to_owned(), bytes);
        if let Some(outcome) = known.get(&place) {
            return outcome.clone();
        }
        let path = file.to_owned();
        let read = tokio::task::spawn_blocking(move || Segment::read(&path).map_err(|error| error.to_string())).await;
        let outcome = match read.map_err(|error| error.to_string()).and_then(|read| read) {
            Ok(segment) => self.replayed(segment).await,
            Err(why) => Err(why),
        };
        known.insert(place, outcome.clone());
        outcome
    }

    async fn replayed(&self, segment: Segment) -> Result<Outcome, String> {
        let outcome = replay(&self.engine, &self.program, segment, Arc::new(NoLog)).await;
        outcome.map_err(|error| error.to_string())
    }
}

impl Standing {
    fn of(outcome: Result<Outcome, String>, alone_since: Option<u64>) -> Self {
        match outcome {
            Ok(outcome) => Self {
                same: outcome.is_identical(),
                alone_since,
                diverged_at: outcome.diverged_at(),
                words: outcome.to_string(),
                outcome: Some(outcome),
            },
            Err(why) => Self {
                same: false,
                alone_since,
                diverged_at: None,
                words: format!("can't be decided again: {why}"),
                outcome: None,
            },
        }
    }
}

/// A segment of one decision: its call is the first, and its entries keep their numbers.
fn alone(file: &Path, decision: &Decision) -> Result<Segment, String> {
    let (_, header) = read_header(file)?;
    let lines = Lines::read(file, decision, 0, usize::MAX)?;
    let call = lines.call.map(|(n, call)| Entry {
        n,
        event: Event::Call(call),
    });
    let asks = lines.asks.into_iter().map(|(n, ask)| Entry {
        n,
        event: Event::Ask(ask),
    });
    let ending = lines.ending.map(|(n, ending)| Entry {
        n,
        event: Event::Ending(ending),
    });
    let entries = call.into_iter().chain(asks).chain(ending).collect();
    let first = decision.n.saturating_sub(1);
    Segment::of(&file.display().to_string(), first, header, entries).map_err(|error| error.to_string())
}
