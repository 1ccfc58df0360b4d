//! Opens the instance of a key. If it has a recording, its state continues from there.
//!
//! The state of an instance is in one place, the newest segment of its journal: a snapshot in the header, and the
//! calls since. While recording is on, that is `journals/<guest>/<key>/`, else `instances/<guest>/<key>/`, which
//! keeps only the newest segment. When recording is switched on or off, the state moves.

mod moves;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use serde_json::value::to_raw_value;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::pace::Pace;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{CallError, Engine};
use trueup_journal::{
    Files, GivenAgain, Header, Interrupted, Journal, JournalError, Opened, Options, ReadError, Segment, Tape,
    TapeError, first_asks, segment_files, segment_numbers, segment_path,
};

use crate::dispatch::{Answer, InvokeError};
use crate::instance::{Instance, Start, StartError};
use crate::program::Program;
use crate::replay::{self, NoState};

/// Why an instance can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its recording can't be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A new segment of its recording can't begin.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// The guest did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The settings or limits are not valid JSON.
    #[error("writing the header of a recording: {0}")]
    Header(#[from] serde_json::Error),
    /// In a plan: its recording can't be read.
    #[error("{0}")]
    Unreadable(String),
    /// The host can't rebuild its state from its recording.
    #[error("the recorded calls give no state to go on from: {0}")]
    NoState(String),
}

/// Finds by digest a guest that was once active: only that guest can repeat what it recorded. `None` if it is not
/// kept.
pub type Recorded = Arc<dyn Fn(&str) -> Option<Arc<Program>> + Send + Sync>;

/// How the recording of an instance ended before it was opened.
#[derive(Default)]
pub struct LastCall {
    /// The call to finish first. `None` if the recording ended between calls.
    pub interrupted: Option<Interrupted>,
    /// When the last call of the newest segment began, in milliseconds since 1970. 0 if it has no call.
    pub at_ms: u64,
}

/// How often the host tries to read a recording that another process writes before it gives up, and the pause between
/// tries. Writing a segment's header takes far less.
const STATE_TRIES: u32 = 3;
const STATE_PAUSE: Duration = Duration::from_millis(50);

/// What all instances of one version of a guest share.
#[derive(Clone)]
pub struct Instances {
    /// Compiles guests and enforces limits.
    pub engine: Engine,
    /// The guest's name in configuration and state, without its version: state outlives versions.
    pub name: &'static str,
    /// The guest.
    pub program: Arc<Program>,
    /// Finds the versions that recorded existing state.
    pub recorded: Recorded,
    /// For `lifecycle.init`.
    pub settings: serde_json::Value,
    /// Whether to ignore states of other guests. An instance whose state was recorded by another guest then begins
    /// with its settings alone.
    pub afresh: bool,
    /// What it may access.
    pub grants: Grants,
    /// The limits of its resources.
    pub limits: Limits,
    /// The state of an instance that received only its settings.
    pub initial: String,
    /// The folder of journals, snapshots and known keys.
    pub state_dir: PathBuf,
    /// Whether recordings are kept beyond what a restart needs.
    pub record: bool,
    /// How recordings are kept.
    pub journal: Options,
    /// The pool of open files.
    pub files: Files,
}

impl Instances {
    fn folder(&self, record: bool, key: &str) -> PathBuf {
        let root = if record { "journals" } else { "instances" };
        trueup_journal::instance_dir(&self.state_dir.join(root), self.name, key)
    }

    /// The folder of the recording of `key`.
    pub fn recording(&self, key: &str) -> PathBuf {
        self.folder(self.record, key)
    }

    fn options(&self) -> Options {
        Options {
            // Without recordings, only the segment that a restart needs.
            keep_bytes: if self.record { self.journal.keep_bytes } else { 0 },
            ..self.journal
        }
    }

    /// The header of a segment that begins with this state.
    ///
    /// # Errors
    /// If settings or limits are not valid JSON.
    pub fn header(&self, snapshot: String) -> Result<Header, serde_json::Error> {
        let guest = &self.program.guest;
        Ok(Header {
            format: trueup_journal::FORMAT,
            guest: guest.name.clone(),
            version: guest.version.clone(),
            digest: guest.digest.to_string(),
            world: self.program.world.name.to_owned(),
            host: env!("CARGO_PKG_VERSION").to_owned(),
            settings: to_raw_value(&self.settings)?,
            limits: to_raw_value(&self.limits)?,
            snapshot: Some(snapshot),
        })
    }

    /// The identity of the instance of `key`. A guest without its own name gets the one of the configuration.
    pub fn identity(&self, key: &str) -> Identity {
        let own = &self.program.guest.name;
        let is_unnamed = own == trueup_engine::UNKNOWN;
        Identity {
            name: self.name.to_owned(),
            guest: if is_unnamed { self.name.to_owned() } else { own.clone() },
            ..self.program.identity(key)
        }
    }

    /// The same version with the settings of one key over the configured ones.
    pub fn with_settings(&self, settings: &Map<String, serde_json::Value>) -> Arc<Self> {
        let mut merged = self.clone();
        match &mut merged.settings {
            serde_json::Value::Object(all) => all.extend(settings.clone()),
            none => *none = settings.clone().into(),
        }
        Arc::new(merged)
    }

    /// Opens the instance of `key`. Rebuilds it from its last snapshot and the calls since, except those that failed.
    ///
    /// # Errors
    /// If its recording is damaged or can't be written, or the guest refuses its settings or its state.
    pub async fn open(&self, key: &str, backends: Backends) -> Result<Instance, OpenError> {
        let (instance, _) = self.open_recorded(key, backends, false).await?;
        Ok(instance)
    }

    /// [`Instances::open`], with what the caller must know before the next call. `finishes`: the guest's calls start
    /// work that goes on without them. If the recording ends inside a call, the caller must then finish that call
    /// before any other, with [`Instances::finish`].
    ///
    /// # Errors
    /// As [`Instances::open`].
    pub async fn open_recorded(
        &self,
        key: &str,
        backends: Backends,
        finishes: bool,
    ) -> Result<(Instance, LastCall), OpenError> {
        let state_moves = self.state_moves(key);
        let folder = self.folder(self.record, key);
        let is_needed = !self.program.world.is_stateless;
        let opened = self.open_journal(&folder, is_needed)?;
        let other = self.folder(!self.record, key);
        let elsewhere = match state_moves {
            true => self.open_journal(&other, is_needed)?.newest,
            false => None,
        };
        let moved = elsewhere.is_some();
        let mut journal = opened.journal;
        let newest = elsewhere.or(opened.newest);
        let can_go_on = !moved
            && !self.program.has_timers()
            && journal.can_continue()
            // They will ask again, and only the beginning of a segment has a place for that.
            && newest.as_ref().is_some_and(|segment| first_asks(&segment.entries).is_empty());
        let interrupted = match finishes {
            true => Interrupted::find(if moved { &other } else { &folder }, newest.as_ref(), asked_anew)?,
            false => None,
        };
        // The restored instance schedules a timer that fired anew, so it fires by itself.
        let interrupted = interrupted.filter(|interrupted| interrupted.call != FIRES);
        let at_ms = newest.as_ref().and_then(Segment::last_call_at_ms).unwrap_or(0);
        let old_header = newest.as_ref().map(|segment| segment.header.clone());
        let (snapshot, repeated) = match newest {
            Some(segment) => self.recover(key, segment, backends.pace.clone()).await?,
            None => (self.initial.clone(), true),
        };
        match &interrupted {
            Some(interrupted) => interrupted.keep(&folder)?,
            None => Interrupted::forget(&folder)?,
        }
        let header = self.header(snapshot.clone())?;
        // The snapshots are compared as they are: a guest whose state changed since the header has a different one.
        let text = |header: &Header| serde_json::to_string(header).ok();
        if can_go_on && repeated && old_header.is_some_and(|old| text(&old) == text(&header)) {
            journal.continue_segment()?;
        } else {
            journal.start_segment(&header)?;
        }
        // The newest state is here now. Otherwise a later start would take what was kept there for a call of this
        // segment.
        Interrupted::forget(&other)?;
        if moved && self.record {
            // From here on the state is in the journal. Otherwise a later start would take the outdated copy for
            // newer.
            self.forget_unrecorded(key)?;
        }
        let instance = self.start_recorded(key, journal, backends, &snapshot).await?;
        Ok((instance, LastCall { interrupted, at_ms }))
    }

    /// Runs a call again inside which the recording ended. It gets the recorded answers as long as it asks for them,
    /// then live ones. Returns the call's answer. The call is not run once more, however it ended.
    ///
    /// # Errors
    /// Why there is no result, as of [`Instance::call`]; or why the host can't record the end of the call: then the
    /// caller must not use the instance any more.
    pub async fn finish(&self, key: &str, instance: &mut Instance, interrupted: Interrupted) -> Answer {
        let Interrupted { at_ms, call, args, .. } = interrupted;
        let tape = &mut instance.host_mut().tape;
        let given = tape.give_again(interrupted.answers, asked_anew);
        given.map_err(CallError::from)?;
        let answer = instance.call_at(at_ms, &call, &args).await;
        let again = instance.host_mut().tape.given_again().unwrap_or_default();
        self.report_finished(key, &call, &again);
        if matches!(&answer, Err(InvokeError::Call(CallError::Tape(_)))) {
            // The recording has no ending that the next start could see.
            return answer;
        }
        let forgotten = Interrupted::forget(&self.recording(key)).map_err(TapeError::from);
        forgotten.map_err(CallError::from)?;
        answer
    }

    fn report_finished(&self, key: &str, call: &str, again: &GivenAgain) {
        let guest = &self.program.guest;
        let GivenAgain { given, left, differs } = again;
        let went = match differs {
            Some((recorded, asked)) => format!(
                "went another way: recorded: `{}` {}; asked: `{}` {}",
                recorded.name,
                trueup_base::text::line(&recorded.args),
                asked.name,
                trueup_base::text::line(&asked.args),
            ),
            None if *left > 0 => "ended before it had asked all that was recorded".to_owned(),
            None => {
                tracing::info!(
                    instance = key,
                    "`{call}`, inside which the host was stopped, was run again: {given} answers were given again"
                );
                return;
            }
        };
        tracing::warn!(
            instance = key,
            "`{call}`, inside which the host was stopped, was run again by guest `{}@{}` and {went}; {given} answers were \
             given again, {left} were not",
            guest.name,
            guest.version,
        );
    }

    /// Begins the instance of `key` with only its settings, in a new segment. For a guest whose state is stored
    /// elsewhere, and whose recording may lag behind after a crash. Sets aside a recording that can't be read: the
    /// instance does not need it. `valid_through` is the last entry that is still valid, if the store lost what came
    /// after it. The recording then says so.
    ///
    /// # Errors
    /// If its recording can't be written, or the guest refuses its settings.
    pub async fn open_fresh(
        &self,
        key: &str,
        backends: Backends,
        valid_through: Option<u64>,
    ) -> Result<Instance, OpenError> {
        let folder = self.folder(self.record, key);
        let opened = self.open_journal(&folder, false)?;
        let mut journal = opened.journal;
        if let (Some(valid_through), Some(_)) = (valid_through, opened.newest) {
            match journal.roll_back(valid_through) {
                // It was already rolled back, and nothing began since.
                Ok(()) | Err(JournalError::Misplaced(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        journal.start_segment(&self.header(self.initial.clone())?)?;
        if self.record {
            // Otherwise a later start would take the state of an unrecorded run for newer than this one.
            self.forget_unrecorded(key)?;
        }
        self.start_recorded(key, journal, backends, &self.initial).await
    }

    /// Opens the instance of `key` again in the process that recorded it, in a new segment: with exactly the state
    /// after the calls that succeeded, or not at all.
    ///
    /// # Errors
    /// As [`Instances::open`], and if the recorded calls can't be repeated.
    pub async fn reopen(&self, key: &str, backends: Backends) -> Result<Instance, OpenError> {
        let opened = Journal::open(&self.folder(self.record, key), self.options(), &self.files)?;
        let Some(newest) = opened.newest else {
            return Err(OpenError::NoState("there are none".to_owned()));
        };
        let state = self.state_after(newest, backends.pace.clone()).await;
        let snapshot = state.map_err(|error| OpenError::NoState(error.to_string()))?;
        let mut journal = opened.journal;
        journal.start_segment(&self.header(snapshot.clone())?)?;
        self.start_recorded(key, journal, backends, &snapshot).await
    }

    fn forget_unrecorded(&self, key: &str) -> Result<(), JournalError> {
        self.forget(key).map_err(|source| JournalError::Io {
            tried: "remove",
            path: self.folder(false, key),
            source,
        })
    }

    /// Opens a recording. If it `is_needed` to go on, damage is an error; otherwise a damaged segment is set aside.
    /// The next one begins after it, so that no two calls have one number.
    fn open_journal(&self, folder: &Path, is_needed: bool) -> Result<Opened, JournalError> {
        let mut next_n = 0;
        loop {
            let damaged = match Journal::open(folder, self.options(), &self.files) {
                Err(JournalError::Read(ReadError::Damaged { file, line, reason })) if !is_needed => {
                    tracing::warn!(
                        "`{file}` line {line} is damaged: {reason}; it is not needed to go on, and is kept as `{file}.damaged`"
                    );
                    PathBuf::from(file)
                }
                opened => {
                    let mut opened = opened?;
                    opened.journal.skip_to(next_n);
                    if let Some(torn) = &opened.torn {
                        tracing::warn!("{torn}: the host was stopped while it wrote; cut off");
                    }
                    return Ok(opened);
                }
            };
            // The number after its last entry: it has a line for each.
            let first = damaged.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            let bytes = std::fs::read(&damaged).unwrap_or_default();
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            next_n = next_n.max(first.unwrap_or_default() + lines);
            // The new name is not that of a segment, so each iteration has one segment less.
            let aside = damaged.with_extension("jsonl.damaged");
            std::fs::rename(&damaged, &aside).map_err(|source| JournalError::Io {
                tried: "rename",
                path: damaged,
                source,
            })?;
        }
    }

    async fn start_recorded(
        &self,
        key: &str,
        journal: Journal,
        backends: Backends,
        snapshot: &str,
    ) -> Result<Instance, OpenError> {
        let host = self.host(key, Tape::record(journal), backends);
        Ok(self.start(host, Some(snapshot)).await?)
    }

    /// Whether the other kind of recording holds the newest state. The first run that records again takes over
    /// unrecorded state, so unrecorded state, if any, is the newest.
    fn state_moves(&self, key: &str) -> bool {
        let has = |record| segment_files(&self.folder(record, key)).is_ok_and(|files| !files.is_empty());
        match self.record {
            true => has(false),
            false => !has(false) && has(true),
        }
    }

    /// The host of an instance of `key`.
    fn host(&self, key: &str, tape: Tape, backends: Backends) -> Host {
        Host::new(self.identity(key), tape, self.grants.clone(), backends, self.limits)
    }

    async fn start(&self, host: Host, snapshot: Option<&str>) -> Result<Instance, StartError> {
        let start = Start {
            settings: &self.settings,
            snapshot,
            cpu_max: Duration::from_millis(self.limits.cpu_ms),
        };
        let started = Instance::start(&self.engine, &self.program, host, start);
        started.await.map_err(|(_, error)| error)
    }

    /// The state that an instance of `key` would continue from now, as a snapshot. Only reads, also while another
    /// process writes. It lacks a call that runs meanwhile or was cut. `None` if nothing is recorded: it would begin
    /// with its settings.
    ///
    /// # Errors
    /// Why its recording can't be read, in one line.
    pub async fn state_now(&self, key: &str) -> Result<Option<String>, String> {
        let folder = self.folder(self.record != self.state_moves(key), key);
        for tries_left in (0..STATE_TRIES).rev() {
            let newest = match segment_numbers(&folder) {
                Ok(numbers) => numbers.last().copied(),
                Err(_) if !folder.exists() => None,
                Err(error) => return Err(with_causes(error)),
            };
            let Some(newest) = newest else { return Ok(None) };
            match Segment::read(&segment_path(&folder, newest)) {
                Ok(segment) => {
                    let recovered = self.recover(key, segment, None).await.map_err(with_causes);
                    return recovered.map(|(state, _)| Some(state));
                }
                // Another process may be removing or creating it right now.
                Err(_) if tries_left > 0 => tokio::time::sleep(STATE_PAUSE).await,
                Err(error) => return Err(with_causes(error)),
            }
        }
        Ok(None)
    }

    /// The state after the recorded calls that succeeded. If this guest decides differently than the recorded one,
    /// the calls since the snapshot do not lead to a state of its own. Then falls back to the snapshot, and returns
    /// false beside it.
    ///
    /// # Errors
    /// If this guest repeats the calls and then gives no state: its own failure, as in a call.
    async fn recover(
        &self,
        key: &str,
        segment: Segment,
        pace: Option<Arc<dyn Pace>>,
    ) -> Result<(String, bool), StartError> {
        let is_own = segment.header.digest == self.program.guest.digest.to_string();
        let last = match segment.snapshot_is_valid() {
            true => self.snapshot_of(&segment),
            false => self.initial.clone(),
        };
        match self.state_after(segment, pace).await {
            Ok(snapshot) => Ok((snapshot, true)),
            Err(NoState::Snapshot(error)) if is_own => Err(error.into()),
            Err(error) => {
                tracing::warn!(
                    instance = key,
                    "the calls since the last snapshot can't be repeated by guest `{}@{}` ({error}): going on from the snapshot",
                    self.program.guest.name,
                    self.program.guest.version,
                );
                Ok((last, false))
            }
        }
    }

    fn snapshot_of(&self, segment: &Segment) -> String {
        segment.header.snapshot.clone().unwrap_or_else(|| self.initial.clone())
    }

    /// Whether to ignore the state of the guest with this digest.
    fn begins_afresh(&self, digest: &str) -> bool {
        self.afresh && digest != self.program.guest.digest.to_string()
    }

    /// The state after the recorded calls that succeeded and were not rolled back.
    async fn state_after(&self, segment: Segment, pace: Option<Arc<dyn Pace>>) -> Result<String, NoState> {
        if self.begins_afresh(&segment.header.digest) {
            return Ok(self.initial.clone());
        }
        if !segment.snapshot_is_valid() {
            let why = "they were rolled back beyond the beginning of their segment";
            return Err(NoState::Calls(why.to_owned()));
        }
        let last = self.snapshot_of(&segment);
        let segment = segment.without_failed_calls();
        // Questions asked only at its start lead to no other state.
        if segment.last_call_at_ms().is_none() {
            return Ok(last);
        }
        // The version that recorded the calls repeats them. This version then reads that version's snapshot.
        let is_own = segment.header.digest == self.program.guest.digest.to_string();
        let recorded = (!is_own).then(|| (self.recorded)(&segment.header.digest)).flatten();
        let program = recorded.as_ref().unwrap_or(&self.program);
        let cpu_max = Duration::from_millis(self.limits.cpu_ms);
        replay::state_after(&self.engine, program, segment, cpu_max, pace).await
    }

    /// Removes what a key that is gone no longer needs. Recordings stay, since they show what happened.
    ///
    /// # Errors
    /// If the folder can't be removed.
    pub fn forget(&self, key: &str) -> std::io::Result<()> {
        match std::fs::remove_dir_all(self.folder(false, key)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The error with its causes, on one line.
pub fn with_causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

/// The export that the host calls when a timer fires.
const FIRES: &str = "timer-events.on-timer";

/// Timers end with the process that scheduled them, and their ids count from 1 in each instance. A call that runs
/// again schedules its own.
fn asked_anew(question: &str) -> bool {
    question.starts_with("timers.")
}
