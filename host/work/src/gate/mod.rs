//! The swap gate: before a version is activated, it repeats the active version's last decisions.
//!
//! It replays recordings and reports how they compare. Other code decides whether a version is activated. The gate
//! writes nothing, and only the tape answers the candidate. It runs on a thread of its own: a candidate that computes
//! for ever blocks no thread of the active guest.
//!
//! ```text
//! journals/<guest>/*/ -- newest first, by the active version's digest --> replay by the candidate --> Verdict
//! ```

mod verdict;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::to_raw_value;
use toml::Spanned;
use trueup_base::regular;
use trueup_engine::Engine;
use trueup_instance::replay::{self, Compare, Cpu, Options, ReplayError};
use trueup_instance::{Program, StartError, with_causes};
use trueup_journal::{
    Accepted, JournalError, Outcome, ReadError, Rule, Segment, first_asks, key_of, segment_numbers, segment_path,
};

pub use self::verdict::{FirstDifference, Verdict};
pub use trueup_config::{GATE_CALLS, Mode};

use crate::load::named;

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
    let begun = Verdict {
        candidate: named(&candidate.guest),
        mode: gate.mode,
        ..Verdict::default()
    };
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
    let proving = tokio::task::spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                biased;
                _ = given_up => {}
                () = proof.within(&folders) => {}
            }
        });
        proof.verdict
    });
    proving.await.unwrap_or_else(|_| Verdict {
        refused: Some("the gate's thread ended without a verdict".to_owned()),
        ..begun
    })
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
            let why = format!("the gate took more than {} ms", wall_max.as_millis());
            self.verdict.give_up(why);
        }
        self.verdict.decide();
    }

    /// Newest first, until there are enough calls.
    async fn newest(&mut self, folders: &[PathBuf]) {
        let mut newest = match newest(folders) {
            Ok(newest) => newest,
            Err(error) => return self.verdict.give_up(with_causes(error)),
        };
        // How many calls are to be replayed; with the mode `off`, how many snapshots are to be restored.
        let is_off = self.gate.mode == Mode::Off;
        let enough = if is_off { SNAPSHOTS } else { self.gate.calls };
        let replayed = |verdict: &Verdict| if is_off { verdict.recordings } else { verdict.calls_read };
        let mut opened = 0;
        while replayed(&self.verdict) < enough && opened < FILES_OPENED_MAX {
            let Some(found) = newest.next() else { return };
            if self.started.contains(&found.key) {
                continue;
            }
            opened += 1;
            match found.read_if_by(&self.active) {
                Ok(Some(segment)) => self.one(&found, segment).await,
                Ok(None) => self.verdict.by_others += 1,
                // It was removed as too old, or its header is being written.
                Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(ReadError::Empty { .. }) => {}
                Err(error) => self.verdict.pass_over(with_causes(error)),
            }
            // Stop after a refusal; and a candidate that does not answer would block again and again.
            if self.verdict.is_over() {
                return;
            }
            tokio::task::yield_now().await;
        }
        if opened == FILES_OPENED_MAX && replayed(&self.verdict) == 0 && newest.next().is_some() {
            self.verdict.give_up(format!(
                "none of the newest {FILES_OPENED_MAX} recordings holds a call of the active version, and older ones were not looked at"
            ));
        }
    }

    async fn one(&mut self, found: &Found, mut segment: Segment) {
        if self.gate.mode == Mode::Off {
            self.started.insert(found.key.clone());
            // Only what `init` and `restore` asked, to restore just the snapshot.
            let asks = first_asks(&segment.entries).to_vec();
            segment = match Segment::of(&segment.name, segment.first, segment.header, asks) {
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
        if matches!(outcome, Outcome::AskedUnrecorded { .. }) && compares(self.gate.mode) == Compare::Decisions {
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

/// The maximum number of keys per folder; recordings of further keys are not found. A cluster has 10,000 services at
/// most.
const KEYS_MAX: usize = 100_000;

/// A recording.
#[derive(Debug)]
struct Found {
    key: String,
    path: PathBuf,
}

/// All recordings in a guest's folders, each of which holds a folder for each key, by the files' time and then by name.
/// A missing folder is empty. `keep_total_bytes` limits their number.
fn newest(folders: &[PathBuf]) -> Result<impl Iterator<Item = Found>, JournalError> {
    let mut all = Vec::new();
    for folder in folders {
        let failed = |source| JournalError::Io {
            tried: "list",
            path: folder.clone(),
            source,
        };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(failed)?,
        };
        for entry in entries.take(KEYS_MAX) {
            let entry = entry.map_err(failed)?;
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let numbers = match segment_numbers(&entry.path()) {
                // The key was forgotten meanwhile.
                Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                numbers => numbers?,
            };
            let component = entry.file_name().to_string_lossy().into_owned();
            // A long key is known only by its folder.
            let key = key_of(&component).unwrap_or(component);
            for path in numbers.into_iter().map(|first| segment_path(&entry.path(), first)) {
                // A missing file was removed as too old.
                if let Ok(modified) = fs::metadata(&path).and_then(|file| file.modified()) {
                    all.push((modified, Found { key: key.clone(), path }));
                }
            }
        }
    }
    all.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.path.cmp(&other.path)));
    Ok(all.into_iter().map(|(_, found)| found))
}

impl Found {
    /// The recording, if a guest of this digest made it. Otherwise reads only the header.
    fn read_if_by(&self, digest: &str) -> Result<Option<Segment>, ReadError> {
        let name = self.path.display().to_string();
        let failed = |source| ReadError::Io {
            file: name.clone(),
            source,
        };
        let mut reader = BufReader::new(regular::open(&self.path).map_err(failed)?);
        let mut bytes = Vec::new();
        reader.read_until(b'\n', &mut bytes).map_err(failed)?;
        if Segment::from_bytes(&name, &bytes)?.header.digest != digest {
            return Ok(None);
        }
        reader.read_to_end(&mut bytes).map_err(failed)?;
        Segment::from_bytes(&name, &bytes).map(Some)
    }
}

/// A file above this size was given by mistake.
const RULES_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    accept: Vec<Spanned<Rule>>,
}

/// Reads the file of accepted differences: which fields of which entries may differ, and why.
///
/// ```toml
/// [[accept]]
/// entry = "api.create"                      # a question; or "result of reconciliation.reconcile"
/// field = "args.specs[*].backend.balance"   # as `trueup replay` names it; `[*]` any index, `**` anything below
/// from = "leastconn"                        # only where the recording has this; without it, whatever it has
/// to = "roundrobin"                         # only where the candidate has this
/// why = "version 2 balances in turn"
/// ```
///
/// `from` and `to` are TOML for JSON. TOML has no null, so a rule about null leaves the field out; JSON has no dates,
/// so a rule with one never fits.
///
/// # Errors
/// One line with the file's name, and the line number if there is one: what was given, and what it must be.
pub fn read_accepted(file: &Path) -> Result<Accepted, String> {
    let name = file.display();
    let text = regular::read_text(file, RULES_BYTES_MAX);
    let text = text.map_err(|error| format!("{name}: {}", trueup_base::text::cause(&error)))?;
    let wrong = |at: Option<usize>, what: &str| match at {
        Some(at) => {
            let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            format!("{name}:{}: {what}", before + 1)
        }
        None => format!("{name}: {what}"),
    };
    let File { accept } = toml::from_str(&text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        wrong(at, &error.message().replace('\n', "; "))
    })?;
    for rule in &accept {
        let checked = rule.get_ref().check();
        checked.map_err(|what| wrong(Some(rule.span().start), &what))?;
    }
    Ok(Accepted(accept.into_iter().map(Spanned::into_inner).collect()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn recordings_come_newest_first_over_all_keys() {
        let dir = tempfile::tempdir().unwrap();
        let write = |key: &str, first: u64, seconds: u64| {
            let path = segment_path(&dir.path().join("journals").join(key), first);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        };
        write("b", 0, 10);
        write("b", 100, 40);
        write("default%2Fa", 0, 20);
        write("default%2Fa", 90, 30);
        write("c", 7, 30);
        fs::write(dir.path().join("journals/c/notes.txt"), "").unwrap();
        fs::write(dir.path().join("journals/stray"), "").unwrap();
        let folders = [dir.path().join("journals"), dir.path().join("not there")];
        let order = newest(&folders).unwrap().map(|found| {
            let file = found.path.file_name().unwrap().to_string_lossy().into_owned();
            format!("{} {file}", found.key)
        });
        assert_eq!(
            order.collect::<Vec<_>>(),
            [
                "b 100.jsonl",
                "c 7.jsonl",
                "default/a 90.jsonl",
                "default/a 0.jsonl",
                "b 0.jsonl"
            ]
        );
    }

    const WHOLE: &str = "# why not\n[[accept]]\nentry = \"api.create\"\nfield = \"args.specs[*].backend.balance\"\n\
                         from = \"leastconn\"\nto = { a = [1] }\nwhy = \"in turn\"\n";

    #[track_caller]
    fn check(text: &str, expected: Result<usize, &str>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("accepted.toml");
        fs::write(&file, text).unwrap();
        let read = read_accepted(&file);
        let read = read.as_ref().map_err(|error| {
            let place = format!("{}:", file.display());
            error.strip_prefix(&place).unwrap_or(error)
        });
        match expected {
            Ok(rules) => assert_eq!(read.unwrap().0.len(), rules),
            Err(expected) => assert_eq!(read.unwrap_err(), expected),
        }
    }

    #[test]
    fn rules_are_read_and_an_empty_file_has_none() {
        check("", Ok(0));
        check(WHOLE, Ok(1));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_its_place() {
        check("accept = 1\n", Err("1: invalid type: integer `1`, expected a sequence"));
        check(
            &WHOLE.replace("from", "form"),
            Err("5: unknown field `form`, expected one of `entry`, `field`, `from`, `to`, `why`"),
        );
        check(&WHOLE.replace("why = \"in turn\"", ""), Err("2: missing field `why`"));
        check(
            &WHOLE.replace("args.specs[*]", "args.specs[x]"),
            Err(
                "2: `field` was `args.specs[x].backend.balance`: what is `[x].backend.balance`? a name follows a dot; a number, `*`, or another name in quotes is in brackets",
            ),
        );
        check("[[accept]\n", Err("1: unclosed array table, expected `]`"));
    }

    #[test]
    fn a_file_that_is_not_there_or_another_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        let read = read_accepted(&file).unwrap_err();
        assert!(
            read.starts_with(&format!("{}: ", file.display())) && !read.contains('\n'),
            "{read}"
        );
        fs::write(&file, vec![b'#'; usize::try_from(RULES_BYTES_MAX).unwrap() + 1]).unwrap();
        let read = read_accepted(&file).unwrap_err();
        assert!(read.ends_with("it is longer than 1048576 bytes"), "{read}");
    }
}
