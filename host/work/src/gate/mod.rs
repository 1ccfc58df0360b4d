//! The swap gate: before a version is activated, it repeats the active version's last decisions.
//!
//! It replays recordings and reports how they compare. Other code decides whether a version is activated. The gate
//! writes nothing, and only the tape answers the candidate. It runs on a thread of its own: a candidate that computes
//! for ever blocks no thread of the active guest.
//!
//! ```text
//! journals/<guest>/*/ -- newest first, by the active version's digest --> replay by the candidate --> Verdict
//! ```

mod newest;
mod rules;
mod verdict;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use trueup_engine::Engine;
use trueup_instance::replay::{self, Compare, Cpu, Options, ReplayError};
use trueup_instance::{Program, StartError, with_causes};
use trueup_journal::{Accepted, Outcome, ReadError, Segment, first_asks};

pub use self::rules::read_accepted;
pub use self::verdict::{FirstDifference, Verdict};
pub use trueup_config::{GATE_CALLS, Mode};

use self::newest::Found;

/// The limit of the whole gate in wall-clock time. Reading and replaying 100 calls takes less than a second. An
/// operator who waits for a swap looks at the screen for about this long.
pub const WALL_MAX: Duration = Duration::from_secs(120);

/// The number of snapshots to restore if nothing is replayed, the newest of each key: enough to see whether the
/// candidate reads what the active version writes.
pub const SNAPSHOTS: u64 = 16;

/// The maximum number of files opened, however few calls they hold. After a swap, many may be of an earlier version.
const FILES_OPENED_MAX: u64 = 1_000;

/// The requirements for the candidate.
#[derive(Debug, Clone)]
pub struct Gate {
    /// How much may differ.
    pub mode: Mode,
    /// The minimum number of the last calls to replay, if as many are recorded. Recordings are replayed from their
    /// beginning, so it may be more.
    pub calls: u64,
    /// Differences that are accepted.
    pub accepted: Arc<Accepted>,
    /// The candidate begins without the recorded states.
    pub afresh: bool,
    /// The settings that the candidate will have. If it refuses recorded ones, it replays with these: settings may
    /// change together with the version. `None`: such a refusal is one of the gate.
    pub settings: Option<serde_json::Value>,
    /// The wall-clock limit of the whole gate: [`WALL_MAX`] by default.
    pub wall_max: Duration,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            calls: GATE_CALLS,
            accepted: Arc::default(),
            afresh: false,
            settings: None,
            wall_max: WALL_MAX,
        }
    }
}

/// What is compared of a recorded call.
pub fn compares(mode: Mode) -> Compare {
    match mode {
        Mode::Strict => Compare::Everything,
        Mode::Identical | Mode::Report | Mode::Off => Compare::Decisions,
    }
}

/// Replays with `candidate` what the version `active` (its digest) of the guest `name` last recorded, under any key.
/// Starts the guest with the recorded limits, and with the recorded settings if it accepts them. A missing folder holds
/// no calls. A recording that is written meanwhile may end anywhere.
pub async fn prove(
    engine: &Engine,
    candidate: &Arc<Program>,
    state_dir: &Path,
    name: &str,
    active: &str,
    gate: &Gate,
) -> Verdict {
    let begun = Verdict::begin(candidate, gate);
    let mut proof = Proof {
        engine: engine.clone(),
        candidate: Arc::clone(candidate),
        active: active.to_owned(),
        gate: gate.clone(),
        started: BTreeSet::new(),
        verdict: begun.clone(),
    };
    let folders = ["journals", "instances"].map(|kind| trueup_journal::guest_dir(&state_dir.join(kind), name));
    // The first half is dropped when the caller no longer waits.
    let (_waits, given_up) = tokio::sync::oneshot::channel::<()>();
    let runtime = tokio::runtime::Handle::current();
    let proving = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = given_up => {}
                () = proof.within(&folders) => {}
            }
        });
        proof.verdict
    });
    let proved = proving.await;
    proved.unwrap_or_else(|_| begun.refuse("the gate's thread ended without a verdict".to_owned()))
}

/// A running gate.
struct Proof {
    engine: Engine,
    candidate: Arc<Program>,
    active: String,
    gate: Gate,
    /// If nothing is replayed: the keys whose snapshot was restored.
    started: BTreeSet<String>,
    verdict: Verdict,
}

impl Proof {
    async fn within(&mut self, folders: &[PathBuf]) {
        let wall_max = self.gate.wall_max;
        if tokio::time::timeout(wall_max, self.newest(folders)).await.is_err() {
            self.verdict
                .give_up(format!("the gate took more than {} ms", wall_max.as_millis()));
        }
        self.verdict.decide();
    }

    /// Newest first, until there are enough calls.
    async fn newest(&mut self, folders: &[PathBuf]) {
        let mut newest = match newest::newest(folders) {
            Ok(newest) => newest,
            Err(error) => return self.verdict.give_up(with_causes(error)),
        };
        let mut opened = 0;
        while !self.is_enough() && opened < FILES_OPENED_MAX {
            let Some(found) = newest.next() else { return };
            if self.started.contains(&found.key) {
                continue;
            }
            opened += 1;
            match found.read_if_by(&self.active) {
                Ok(Some(segment)) => self.one(&found, segment).await,
                Ok(None) => self.verdict.by_others += 1,
                // It was removed as too old, or its header is being written.
                Err(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(ReadError::Empty { .. }) => {}
                Err(error) => self.verdict.pass_over(with_causes(error)),
            }
            // Stop after a refusal; and a candidate that does not answer would block again and again.
            if self.verdict.is_over() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let replayed = match self.gate.mode {
            Mode::Off => self.verdict.recordings,
            Mode::Identical | Mode::Strict | Mode::Report => self.verdict.calls_read,
        };
        if opened == FILES_OPENED_MAX && replayed == 0 && newest.next().is_some() {
            self.verdict.give_up(format!(
                "none of the newest {FILES_OPENED_MAX} recordings holds a call of the active version, and older ones were not looked at"
            ));
        }
    }

    fn is_enough(&self) -> bool {
        match self.gate.mode {
            Mode::Off => self.verdict.recordings >= SNAPSHOTS,
            Mode::Identical | Mode::Strict | Mode::Report => self.verdict.calls_read >= self.gate.calls,
        }
    }

    async fn one(&mut self, found: &Found, mut segment: Segment) {
        if self.gate.mode == Mode::Off {
            self.started.insert(found.key.clone());
            segment = match without_calls(segment) {
                Ok(segment) => segment,
                Err(error) => return self.verdict.pass_over(error.to_string()),
            };
        }
        if self.gate.afresh {
            segment.header.snapshot = None;
        }
        if let (true, Some(settings)) = (self.verdict.own_settings, &self.gate.settings) {
            match to_raw_value(settings) {
                Ok(settings) => segment.header.settings = settings,
                Err(error) => return self.verdict.give_up(format!("its settings are no JSON: {error}")),
            }
        }
        let options = Options {
            compare: compares(self.gate.mode),
            accepted: Arc::clone(&self.gate.accepted),
            cpu: Cpu::AsRecorded,
            ..Options::default()
        };
        let calls = segment.entries.iter().filter(|entry| entry.call().is_some());
        let calls: Vec<u64> = calls.map(|entry| entry.n).collect();
        match replay::replay(&self.engine, &self.candidate, segment, options).await {
            Ok(outcome) => self.compare(found, &calls, &outcome),
            Err(ReplayError::Damaged(error)) => self.verdict.pass_over(error.to_string()),
            Err(ReplayError::Start(StartError::Settings { .. }))
                if self.gate.settings.is_some() && !self.verdict.own_settings =>
            {
                self.verdict.own_settings = true;
                // If the file is gone meanwhile, there is nothing to compare.
                if let Ok(Some(segment)) = found.read_if_by(&self.active) {
                    Box::pin(self.one(found, segment)).await;
                }
            }
            // The active version's instances take room too: it is not the candidate's fault that none is left now.
            Err(error) if error.no_room().is_some() => {
                let why = format!("there was no room for an instance of it: {}", with_causes(error));
                self.verdict.give_up(why);
            }
            Err(error @ (ReplayError::Start(_) | ReplayError::Call { .. })) => {
                self.verdict.recordings += 1;
                let refuses_state = matches!(error, ReplayError::Start(StartError::Snapshot { .. }));
                let helps = match refuses_state && self.candidate.world.may_start_without_state() {
                    true => "; `--afresh` starts it without that state",
                    false => "",
                };
                let why = with_causes(error);
                self.verdict.refused = Some(format!("{why} (`{}`){helps}", found.path.display()));
            }
        }
    }

    /// Counts what was the same, and what was not.
    fn compare(&mut self, found: &Found, calls: &[u64], outcome: &Outcome) {
        let verdict = &mut self.verdict;
        verdict.recordings += 1;
        verdict.calls_read += calls.len() as u64;
        if self.gate.mode == Mode::Off {
            // The requests of `init` and `restore` do not matter: they were not refused.
            return;
        }
        let Some(at) = outcome.diverged_at() else {
            verdict.identical += calls.len() as u64;
            let Some(tally) = outcome.tally() else { return };
            verdict.accepted += tally.accepted;
            if let Some(reads) = &tally.reads {
                verdict.reads_differ += reads.count;
                verdict.first_read.get_or_insert_with(|| reads.first.clone());
            }
            return;
        };
        // The call with the difference. All later calls follow from another state.
        let begun = calls.iter().filter(|n| **n < at).count() as u64;
        verdict.identical += begun.saturating_sub(1);
        verdict.not_compared += (calls.len() as u64).saturating_sub(begun.max(1));
        let first = || FirstDifference {
            key: found.key.clone(),
            n: at,
            what: outcome.one_line(),
            file: found.path.clone(),
        };
        let is_undecided = matches!(outcome, Outcome::AskedUnrecorded { .. });
        if is_undecided && compares(self.gate.mode) == Compare::Decisions {
            verdict.undecided += 1;
            verdict.first_undecided.get_or_insert_with(first);
        } else {
            verdict.differ += 1;
            verdict.first.get_or_insert_with(first);
        }
        if outcome.ran_out_of_time() {
            verdict.give_up("a call gave no answer in its time, and others were not tried".to_owned());
        }
    }
}

/// Keeps only what `init` and `restore` asked, to restore just the snapshot.
fn without_calls(segment: Segment) -> Result<Segment, ReadError> {
    let entries = first_asks(&segment.entries).to_vec();
    Segment::of(&segment.name, segment.first, segment.header, entries)
}
