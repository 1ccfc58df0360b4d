//! Opens the instance of a key: from its recording, where it has one, so that its state goes on.
//!
//! The state of an instance is in one place, the newest segment of its journal: a snapshot in the header, and the calls
//! since. While recording is on that is `journals/<guest>/<key>/`, else `instances/<guest>/<key>/`, which keeps the
//! newest segment alone. Where recording was switched on or off, the state moves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use trueup_capabilities::clock::{Clock as _, SystemClock, VirtualClock};
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::pace::Pace;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{CallError, Engine};
use trueup_journal::{
    Ending, Event, Files, GivenAgain, Header, Interrupted, Journal, JournalError, Keep, Opened, Options, ReadError,
    Segment, Tape, TapeError, segment_files, segment_numbers, segment_path,
};

use crate::guests::Program;
use crate::guests::dispatch::{Answer, InvokeError};
use crate::instance::{Instance, Start, StartError};
use crate::replay::{self, NoState};

/// Why an instance can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its recording can't be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The guest did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The settings or limits are no JSON.
    #[error("writing the header of a recording: {0}")]
    Header(#[from] serde_json::Error),
    /// Its state can't be had from its recording.
    #[error("the recorded calls give no state to go on from: {0}")]
    NoState(String),
}

/// Finds a guest that was active once by its digest: what it recorded is repeated by it alone. None: it is not kept.
pub type Recorded = Arc<dyn Fn(&str) -> Option<Arc<Program>> + Send + Sync>;

/// An instance that was opened, and what is to be known of its recording before the next call.
pub struct Reopened {
    /// Ready for [`Instances::finish`] or a call.
    pub instance: Instance,
    /// The call to be finished first; none: the recording ended between calls.
    pub interrupted: Option<Interrupted>,
    /// When the last call of the newest segment began, in milliseconds; 0: it has none.
    pub last_at_ms: u64,
}

/// A version that takes over may so long sleep in `init` and `restore`: whoever waits for the instance waits with it.
const START_MAX: Duration = Duration::from_secs(30);

/// A recording that another process writes is looked at so often before it is taken for one that can't be read, with such a
/// pause: a segment's header is written in far less.
const STATE_TRIES: u32 = 3;
const STATE_PAUSE: Duration = Duration::from_millis(50);

/// What all instances of one version of a guest have in common.
#[derive(Clone)]
pub struct Instances {
    /// Compiles and limits.
    pub engine: Engine,
    /// The name that the guest has in configuration and state: without its version, since state outlives versions.
    pub name: &'static str,
    /// The guest.
    pub program: Arc<Program>,
    /// Versions that recorded what is found.
    pub recorded: Recorded,
    /// For `lifecycle.init`.
    pub settings: serde_json::Value,
    /// States of other guests are not read: an instance whose state is another one's begins with its settings alone.
    pub afresh: bool,
    /// What it may touch.
    pub grants: Grants,
    /// What it may use.
    pub limits: Limits,
    /// The state of an instance that was given its settings and nothing else.
    pub initial: String,
    /// The folder of journals, snapshots and known keys.
    pub state_dir: PathBuf,
    /// Whether recordings are kept beyond what a restart needs.
    pub record: bool,
    /// How recordings are kept.
    pub journal: Options,
    /// The files that are open.
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
            keep: if self.record {
                self.journal.keep
            } else {
                Keep::LastSegment
            },
            ..self.journal
        }
    }

    /// The header of a segment that begins with this state.
    ///
    /// # Errors
    /// Where settings or limits are no JSON.
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

    /// Who the instance of `key` is. A guest without a name of its own has the configuration's.
    pub fn identity(&self, key: &str) -> Identity {
        let own = &self.program.guest.name;
        let is_unnamed = own == trueup_engine::UNKNOWN;
        Identity {
            guest: if is_unnamed { self.name.to_owned() } else { own.clone() },
            version: self.program.guest.version.clone(),
            digest: self.program.guest.digest.to_string(),
            instance: key.to_owned(),
        }
    }

    /// Opens the instance of `key`: rebuilt from its last snapshot and the calls since, without those that failed.
    ///
    /// # Errors
    /// Where its recording is damaged or can't be written, or the guest refuses its settings or its state.
    pub async fn open(&self, key: &str, backends: Backends) -> Result<Instance, OpenError> {
        let opened = self.open_from_recording(key, backends, false).await?;
        Ok(opened.instance)
    }

    /// [`Instances::open`] for a guest whose calls start what goes on without them: a call inside which the recording ends
    /// is to be finished before any other, by [`Instances::finish`].
    ///
    /// # Errors
    /// As [`Instances::open`].
    pub async fn open_to_finish(&self, key: &str, backends: Backends) -> Result<Reopened, OpenError> {
        self.open_from_recording(key, backends, true).await
    }

    async fn open_from_recording(&self, key: &str, backends: Backends, finishes: bool) -> Result<Reopened, OpenError> {
        let state_moves = self.state_moves(key);
        let folder = self.folder(self.record, key);
        let opened = self.open_journal(&folder)?;
        if let Some(torn) = &opened.torn {
            tracing::warn!("{torn}: the host was stopped while it wrote; cut off");
        }
        let other = self.folder(!self.record, key);
        let elsewhere = if state_moves {
            self.open_journal(&other)?.newest
        } else {
            None
        };
        let moved = elsewhere.is_some();
        let mut journal = opened.journal;
        let newest = elsewhere.or(opened.newest);
        let can_go_on = !moved
            && !self.program.has_timers()
            && journal.can_continue()
            && newest.as_ref().is_some_and(|segment| !asked_at_start(segment));
        let interrupted = if finishes {
            Interrupted::find(if moved { &other } else { &folder }, newest.as_ref(), asked_anew)?
        } else {
            None
        };
        // A timer that fired is one that the restored instance schedules anew: it fires by itself.
        let interrupted = interrupted.filter(|interrupted| interrupted.call != FIRES);
        let last_at_ms = newest.as_ref().and_then(Segment::last_call_at_ms).unwrap_or(0);
        let old_header = newest.as_ref().map(|segment| segment.header.clone());
        let snapshot = match newest {
            Some(segment) => self.recover(key, segment, backends.pace.clone()).await?,
            None => self.initial.clone(),
        };
        match &interrupted {
            Some(interrupted) => interrupted.keep(&folder)?,
            None => Interrupted::forget(&folder)?,
        }
        let header = self.header(snapshot.clone())?;
        if can_go_on && old_header.is_some_and(|old| same(&old, &header)) {
            journal.continue_segment()?;
        } else {
            journal.start_segment(&header)?;
        }
        // The newest state is here now. What was kept there would be taken for a call of this segment one day.
        Interrupted::forget(&other)?;
        if moved && self.record {
            // From here on the state is in the journal: a copy that grows old would be taken for newer one day.
            self.forget(key).map_err(|source| JournalError::Io {
                tried: "remove",
                path: other,
                source,
            })?;
        }
        let instance = self.start_recorded(key, journal, backends, &snapshot).await?;
        Ok(Reopened {
            instance,
            interrupted,
            last_at_ms,
        })
    }

    /// Runs a call again inside which the recording ended: on its recorded answers as far as they go and it asks for them,
    /// then live. Answers what the call answers, whichever way it ended: it is not run once more.
    ///
    /// # Errors
    /// Why there is no result, as of [`Instance::call`]; or why it can't be said that the call has ended: then the instance
    /// must not be used any more.
    pub async fn finish(&self, key: &str, instance: &mut Instance, interrupted: Interrupted) -> Answer {
        let Interrupted {
            at_ms,
            call,
            args,
            answers,
        } = interrupted;
        let tape = &mut instance.host_mut().tape;
        tape.give_again(answers, asked_anew).map_err(CallError::from)?;
        let answer = instance.call_at(at_ms, &call, &args).await;
        let again = instance.host_mut().tape.given_again().unwrap_or_default();
        self.tell_finished(key, &call, &again);
        if matches!(&answer, Err(InvokeError::Call(CallError::Tape(_)))) {
            // It has no ending that the next start could see.
            return answer;
        }
        let forgotten = Interrupted::forget(&self.recording(key)).map_err(TapeError::from);
        forgotten.map_err(CallError::from)?;
        answer
    }

    /// The call inside which the recording ended is not to be run again.
    ///
    /// # Errors
    /// Where that can't be kept: then it is found again by the next start.
    pub fn give_up_interrupted(&self, key: &str) -> Result<(), JournalError> {
        Interrupted::forget(&self.recording(key))
    }

    fn tell_finished(&self, key: &str, call: &str, again: &GivenAgain) {
        let guest = &self.program.guest;
        let GivenAgain { given, left, differs } = again;
        match differs {
            Some((recorded, asked)) => tracing::warn!(
                instance = key,
                "`{call}`, inside which the host was stopped, was run again by guest `{}@{}` and went another way: recorded: \
                 `{}` {}; asked: `{}` {}; {given} answers were given again, {left} were not",
                guest.name,
                guest.version,
                recorded.name,
                crate::text::line(&recorded.args),
                asked.name,
                crate::text::line(&asked.args),
            ),
            None if *left > 0 => tracing::warn!(
                instance = key,
                "`{call}`, inside which the host was stopped, was run again by guest `{}@{}` and ended before it had asked \
                 all that was recorded: {given} answers were given again, {left} were not",
                guest.name,
                guest.version,
            ),
            None => tracing::info!(
                instance = key,
                "`{call}`, inside which the host was stopped, was run again: {given} answers were given again"
            ),
        }
    }

    /// Begins the instance of `key` with its settings and nothing else, in a segment of its own: for a guest whose state is
    /// elsewhere, and whose recording may be behind it after a crash. A recording that can't be read is set aside: it is
    /// not needed to go on. `stands`: what was stored with later entries than this one was lost, which is written down.
    ///
    /// # Errors
    /// Where its recording can't be written, or the guest refuses its settings.
    pub async fn open_fresh(&self, key: &str, backends: Backends, stands: Option<u64>) -> Result<Instance, OpenError> {
        let folder = self.folder(self.record, key);
        let Opened {
            mut journal,
            newest,
            torn,
        } = self.open_or_set_aside(&folder)?;
        if let Some(torn) = &torn {
            tracing::warn!("{torn}: the host was stopped while it wrote; cut off");
        }
        if let (Some(stands), Some(_)) = (stands, &newest) {
            match journal.roll_back(stands) {
                // It was rolled back already, and nothing began since.
                Ok(()) | Err(JournalError::Misplaced(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        journal.start_segment(&self.header(self.initial.clone())?)?;
        if self.record {
            // The state of a run that was not recorded would be taken for newer than this one.
            self.forget(key).map_err(|source| JournalError::Io {
                tried: "remove",
                path: self.folder(false, key),
                source,
            })?;
        }
        self.start_recorded(key, journal, backends, &self.initial).await
    }

    /// Opens the instance of `key` again in the process that recorded it, in a segment of its own: with exactly the state
    /// after the calls that succeeded, or not at all.
    ///
    /// # Errors
    /// As [`Instances::open`], and where the recorded calls can't be repeated.
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

    fn open_journal(&self, folder: &Path) -> Result<Opened, JournalError> {
        if self.program.world.is_stateless() {
            return self.open_or_set_aside(folder);
        }
        Journal::open(folder, self.options(), &self.files)
    }

    fn open_or_set_aside(&self, folder: &Path) -> Result<Opened, JournalError> {
        loop {
            let damaged = match Journal::open(folder, self.options(), &self.files) {
                Err(JournalError::Read(ReadError::Damaged { file, line, reason })) => {
                    tracing::warn!(
                        "`{file}` line {line} is damaged: {reason}; it is not needed to go on, and is kept as `{file}.damaged`"
                    );
                    PathBuf::from(file)
                }
                opened => return opened,
            };
            // No longer the name of a segment, so each turn has one less.
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
        let host = Host::new(
            self.identity(key),
            Tape::record(journal),
            self.grants.clone(),
            backends,
            self.limits,
        );
        self.start(host, snapshot).await.map_err(|(_, error)| error.into())
    }

    /// Whether the newest state is where the other kind of recording is kept. State that is not recorded is taken
    /// over by the first run that records again, so where there is any, it is the newest.
    fn state_moves(&self, key: &str) -> bool {
        let has = |record| segment_files(&self.folder(record, key)).is_ok_and(|files| !files.is_empty());
        if self.record {
            has(false)
        } else {
            !has(false) && has(true)
        }
    }

    async fn start(&self, host: Host, snapshot: &str) -> Result<Instance, (Box<Host>, StartError)> {
        let cpu_max = Duration::from_millis(self.limits.cpu_ms);
        Instance::start(
            &self.engine,
            &self.program,
            host,
            Start {
                settings: &self.settings,
                snapshot: Some(snapshot),
                cpu_max,
            },
        )
        .await
    }

    /// The state that an instance of `key` would go on from now, as a snapshot: read alone, also while another process writes.
    /// A call that runs meanwhile, or was cut, is not in it. None: nothing is recorded, it would begin with its settings.
    ///
    /// # Errors
    /// One line: why its recording can't be read.
    pub async fn state_now(&self, key: &str) -> Result<Option<String>, String> {
        let folder = self.folder(self.record != self.state_moves(key), key);
        for tries_left in (0..STATE_TRIES).rev() {
            let numbers = match segment_numbers(&folder) {
                Ok(numbers) => numbers,
                Err(_) if !folder.exists() => return Ok(None),
                Err(error) => return Err(with_causes(error)),
            };
            let Some(newest) = numbers.last() else {
                return Ok(None);
            };
            match Segment::read(&segment_path(&folder, *newest)) {
                Ok(segment) => return self.recover(key, segment, None).await.map(Some).map_err(with_causes),
                // It may have been removed, or is being begun, this moment.
                Err(_) if tries_left > 0 => tokio::time::sleep(STATE_PAUSE).await,
                Err(error) => return Err(with_causes(error)),
            }
        }
        Ok(None)
    }

    /// The state after the recorded calls that succeeded. Where this guest decides differently than the recorded one
    /// did, the calls since the snapshot are no path to a state of its own: the snapshot is what is left.
    ///
    /// # Errors
    /// Where this guest repeats the calls and then gives no state: its own failure, as one in a call.
    async fn recover(&self, key: &str, segment: Segment, pace: Option<Arc<dyn Pace>>) -> Result<String, StartError> {
        let is_own = segment.header.digest == self.program.guest.digest.to_string();
        let last = if segment.snapshot_stands() {
            self.snapshot_of(&segment)
        } else {
            self.initial.clone()
        };
        match self.state_after(segment, pace).await {
            Ok(snapshot) => Ok(snapshot),
            Err(NoState::Snapshot(error)) if is_own => Err(error.into()),
            Err(error) => {
                tracing::warn!(
                    instance = key,
                    "the calls since the last snapshot can't be repeated by guest `{}@{}` ({error}): going on from the snapshot",
                    self.program.guest.name,
                    self.program.guest.version,
                );
                Ok(last)
            }
        }
    }

    fn snapshot_of(&self, segment: &Segment) -> String {
        segment.header.snapshot.clone().unwrap_or_else(|| self.initial.clone())
    }

    /// Whether the state of the guest with this digest is not read.
    fn begins_afresh(&self, digest: &str) -> bool {
        self.afresh && digest != self.program.guest.digest.to_string()
    }

    /// The state after the recorded calls that succeeded and stand.
    async fn state_after(&self, segment: Segment, pace: Option<Arc<dyn Pace>>) -> Result<String, NoState> {
        if self.begins_afresh(&segment.header.digest) {
            return Ok(self.initial.clone());
        }
        if !segment.snapshot_stands() {
            let why = "they were rolled back beyond the beginning of their segment";
            return Err(NoState::Calls(why.to_owned()));
        }
        let last = self.snapshot_of(&segment);
        let segment = segment.without_failed_calls();
        // What was asked at its start alone leads to no other state.
        if segment.last_call_at_ms().is_none() {
            return Ok(last);
        }
        // What another version recorded leads to a state by that version's decisions; its snapshot is then this one's to
        // read.
        let program = if segment.header.digest == self.program.guest.digest.to_string() {
            None
        } else {
            (self.recorded)(&segment.header.digest)
        };
        let program = program.as_ref().unwrap_or(&self.program);
        let cpu_max = Duration::from_millis(self.limits.cpu_ms);
        replay::state_after(&self.engine, program, segment, cpu_max, pace).await
    }

    /// What answers an instance that is only tried: a clock on which nobody waits, and nothing beyond.
    pub(crate) fn trial() -> Backends {
        Backends {
            clock: Arc::new(VirtualClock::new(SystemClock.now_ms())),
            ..Backends::default()
        }
    }

    /// An instance that is not recorded, on `backends`, for what is only tried or planned. `snapshot`: its state; none: it has
    /// its settings alone.
    ///
    /// # Errors
    /// Where the guest refuses its settings or its state.
    pub(crate) async fn start_unrecorded(
        &self,
        key: &str,
        backends: Backends,
        snapshot: Option<&str>,
    ) -> Result<Instance, StartError> {
        let host = Host::new(
            self.identity(key),
            Tape::memory(),
            self.grants.clone(),
            backends,
            self.limits,
        );
        let start = Start {
            settings: &self.settings,
            snapshot,
            cpu_max: Duration::from_millis(self.limits.cpu_ms),
        };
        let started = Instance::start(&self.engine, &self.program, host, start).await;
        started.map_err(|(_, error)| error)
    }

    /// Whether this version takes a state, and gives one again: tried on an instance of its own, which touches nothing.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn try_state(&self, key: &str, snapshot: &str) -> Result<(), StartError> {
        let host = Host::new(
            self.identity(key),
            Tape::memory(),
            Grants::default(),
            Backends {
                log: Arc::new(NoLog),
                ..Self::trial()
            },
            self.limits,
        );
        let mut tried = self.start(host, snapshot).await.map_err(|(_, error)| error)?;
        // A version that can't be left again must not be entered.
        tried.snapshot().await?;
        Ok(())
    }

    /// Moves an instance of another version to this one, with its state, in a segment of its own. What is refused is found
    /// out before the old instance ends; `commit` is called between the two.
    ///
    /// # Errors
    /// Why it did not move, with the old instance where it is still there: then nothing changed.
    pub async fn take_over(
        &self,
        key: &str,
        mut old: Instance,
        commit: impl AsyncFnOnce() -> Result<(), String>,
    ) -> Result<Instance, (Option<Box<Instance>>, String)> {
        let snapshot = if self.begins_afresh(&old.program().guest.digest.to_string()) {
            self.initial.clone()
        } else {
            match old.snapshot().await {
                Ok(snapshot) => snapshot,
                Err(error) => return Err((None, with_causes(error))),
            }
        };
        let header = match self.header(snapshot.clone()) {
            Ok(header) => header,
            Err(error) => return Err((Some(Box::new(old)), with_causes(error))),
        };
        if let Err(error) = self.try_state(key, &snapshot).await {
            return Err((Some(Box::new(old)), with_causes(error)));
        }
        if let Err(error) = commit().await {
            return Err((Some(Box::new(old)), error));
        }
        let mut host = old.into_host();
        host.identity = self.identity(key);
        host.grants = self.grants.clone();
        host.meter.limits = self.limits;
        host.tape.rotate(&header).map_err(|error| (None, with_causes(error)))?;
        match tokio::time::timeout(START_MAX, self.start(host, &snapshot)).await {
            Ok(started) => started.map_err(|(_, error)| (None, with_causes(error))),
            Err(_) => Err((None, format!("it did not start within {} s", START_MAX.as_secs()))),
        }
    }

    /// Goes on in a new segment where the old one is long enough: in a new instance, so that a segment always begins with
    /// what `init` and `restore` ask.
    ///
    /// # Errors
    /// Where the guest gives no snapshot or does not take it, or the segment can't be written. The instance is gone then.
    pub async fn rotate_if_long(&self, mut instance: Instance) -> Result<Instance, RotateError> {
        if !instance.host().tape.wants_rotation() {
            return Ok(instance);
        }
        let snapshot = instance.snapshot().await?;
        let header = self.header(snapshot.clone())?;
        let mut host = instance.into_host();
        host.tape.rotate(&header)?;
        self.start(host, &snapshot).await.map_err(|(_, error)| error.into())
    }

    /// Removes what a key that is gone needs no more. Recordings stay: they tell what happened.
    ///
    /// # Errors
    /// Where the folder can't be removed.
    pub fn forget(&self, key: &str) -> std::io::Result<()> {
        match std::fs::remove_dir_all(self.folder(false, key)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// On one line, with its causes.
fn with_causes(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

/// Why a new segment could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The guest gave no snapshot.
    #[error(transparent)]
    Snapshot(#[from] CallError),
    /// The header is no JSON.
    #[error("writing the header of a recording: {0}")]
    Header(#[from] serde_json::Error),
    /// The segment can't be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// The new instance did not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Ends a call that was dropped while it slept, and the instance with it.
pub(crate) fn cancel(instance: Instance, why: &str) {
    let mut host = instance.into_host();
    if let Err(error) = host.tape.end_call(&Ending::Cancelled(why.to_owned())) {
        tracing::warn!(
            instance = host.identity.instance,
            "recording that a call was cancelled: {error}"
        );
    }
}

/// The export by which timers are told.
const FIRES: &str = "timer-events.on-timer";

/// Timers end with the process in which they were scheduled, and their ids count from 1 in each instance: a call that is run
/// again schedules its own.
fn asked_anew(question: &str) -> bool {
    question.starts_with("timers.")
}

/// Whether `init` or `restore` asked something: they will again, and only a segment's beginning has a place for that.
fn asked_at_start(segment: &Segment) -> bool {
    segment
        .entries
        .first()
        .is_some_and(|entry| matches!(entry.event, Event::Ask(_)))
}

fn same(old: &Header, new: &Header) -> bool {
    let text = |header: &Header| {
        // The snapshot is compared as it is: a guest whose state changed since the header has another one.
        (
            header.guest.clone(),
            header.version.clone(),
            header.digest.clone(),
            header.world.clone(),
            header.host.clone(),
            header.snapshot.clone(),
        )
    };
    text(old) == text(new) && old.settings.get() == new.settings.get() && old.limits.get() == new.limits.get()
}
