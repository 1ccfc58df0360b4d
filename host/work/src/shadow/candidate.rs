//! The candidate's instance of one key, and what it is compared with.
//!
//! It holds the last known state of the active instance and the calls since. From these, the active instance's state
//! can be computed at any time, and a recording of a difference is made of them. The instance lives from call to
//! call: beginning one for each call takes five times as long (0.8 ms against 0.17 ms for a service of two ports,
//! unoptimised, on two cores).

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use trueup_instance::replay::{self, Cpu, Options, ReplayError};
use trueup_instance::{Instance, Instances};
use trueup_journal::{Entry, Event, Header, Outcome, Segment};

use super::begun;
use super::job::{Begin, bytes_of};
use super::setup::Setup;
use super::status::Verdict;

/// How much longer a candidate's call may take than the active guest's in wall-clock time, up to `cpu_ms`. A slow
/// candidate is then soon reported as a difference, and the calls behind it are compared too. A call takes
/// milliseconds; a second leaves room for a busy machine.
pub const CPU_MORE_MAX: Duration = Duration::from_secs(1);

/// The maximum size of the calls since the last known state of a key. Above it, the shadow computes a new state. As
/// long as a segment of a journal.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;

/// The candidate's settings, plus those that the active instance has and the configuration does not: an adapter gave
/// them to this key.
fn with_own(candidate: &Value, active: &Value, begun: &RawValue) -> Option<Box<RawValue>> {
    let (Value::Object(candidate), Value::Object(active)) = (candidate, active) else {
        return None;
    };
    let mut settings = candidate.clone();
    let begun: Map<String, Value> = serde_json::from_str(begun.get()).ok()?;
    let own = begun
        .into_iter()
        .filter(|(name, _)| !active.contains_key(name) && !candidate.contains_key(name));
    settings.extend(own);
    to_raw_value(&settings).ok()
}

/// The candidate's instance of one key.
pub(super) struct CandidateInstance {
    /// The active instance's state, and what `init` and `restore` asked when it began.
    begin: Begin,
    /// Its calls since, in the journal's numbers and without a gap.
    calls: Vec<Entry>,
    bytes: usize,
    /// `None` if it must begin from that state. There are then no calls since.
    instance: Option<Instance>,
}

/// How a call compares.
pub(super) enum Judged {
    Same,
    NotSame {
        verdict: Verdict,
        n: Option<u64>,
        what: String,
    },
    /// It could not be compared: one line.
    Not(String),
}

impl CandidateInstance {
    /// Has the candidate make the call, with the recorded answers. Compares the result, and adds the call to the
    /// history.
    pub(super) async fn call(&mut self, versions: &Setup, call: &[Entry], took: Duration) -> Judged {
        let first = call.first().map(|entry| entry.n);
        if let (Some(last), Some(first)) = (self.calls.last(), first)
            && last.n.checked_add(1) != Some(first)
        {
            return Judged::Not(format!("entry {first} does not follow entry {}", last.n));
        }
        self.calls.extend_from_slice(call);
        self.bytes += bytes_of(call);
        let mut instance = match self.instance.take() {
            Some(mut instance) => match instance.host_mut().tape.feed(call.to_vec()) {
                Ok(()) => instance,
                Err(error) => return Judged::Not(error.to_string()),
            },
            None => match self.start(versions).await {
                Ok(instance) => instance,
                Err(judged) => return judged,
            },
        };
        let cpu_ms = Duration::from_millis(versions.candidate.limits.cpu_ms);
        let time = cpu_ms.min(took.saturating_add(CPU_MORE_MAX));
        // A busy guest yields at every epoch, so the timeout takes effect.
        let outcome = match tokio::time::timeout(time, replay::go_on(&mut instance)).await {
            Ok(Ok(outcome)) => outcome.unwrap_or_else(|| replay::outcome(instance.host())),
            Ok(Err(error)) => return Judged::not_started(&error),
            Err(_) => return Judged::no_answer(call, time, took),
        };
        if outcome.is_identical() && instance.is_usable() {
            self.instance = Some(instance);
        }
        Judged::from(&outcome)
    }

    /// A guest with timers schedules them anew when it begins. Finds out its requests, if its beginning was not
    /// observed.
    async fn see_start(&mut self, versions: &Setup) {
        let Some(Event::Call(call)) = self.calls.first().map(|entry| &entry.event) else {
            return;
        };
        if self.begin.is_seen || !versions.active.program.has_timers() {
            return;
        }
        let Ok(header) = self.header(&versions.active) else {
            return;
        };
        if let Some(asked) = begun::asked(&versions.active, &header, call.at_ms, &self.begin.timers).await {
            self.begin.start = Some(asked);
            self.begin.is_seen = true;
        }
    }

    /// Begins the candidate's instance from the active one's state, with the recorded calls before it.
    async fn start(&mut self, versions: &Setup) -> Result<Instance, Judged> {
        self.see_start(versions).await;
        let segment = self.recording_for_candidate(versions).map_err(Judged::Not)?;
        let options = Options {
            compare: versions.compare,
            cpu: Cpu::AsRecorded,
            ..Options::default()
        };
        let Instances { engine, program, .. } = &versions.candidate;
        match replay::begin(engine, program, segment, options).await {
            Ok(Ok(instance)) => Ok(instance),
            Ok(Err(_)) if !self.knows_start(versions).await => Err(Judged::Not(
                "the host did not record what the active guest asked in `init` and `restore`".to_owned(),
            )),
            Ok(Err(outcome)) => Err(Judged::from(&outcome)),
            Err(error) => Err(Judged::not_started(&error)),
        }
    }

    /// Whether the active guest's requests at its beginning are known. If they were not observed, whether it makes
    /// none.
    async fn knows_start(&self, versions: &Setup) -> bool {
        if self.begin.start.is_some() {
            return true;
        }
        let Instances { engine, program, .. } = &versions.active;
        let header = self.header(&versions.active).ok();
        let segment = header.and_then(|header| Segment::of("shadow", 0, header, Vec::new()).ok());
        let Some(segment) = segment else { return false };
        let begun = replay::begin(engine, program, segment, Options::default()).await;
        matches!(begun, Ok(Ok(_)))
    }

    /// Continues from a given state. The active guest makes the same requests at its beginning as before, and has the
    /// same settings, until it is known to have begun anew.
    pub(super) fn after(mut begin: Begin, before: Option<Self>) -> Self {
        if let Some(before) = before {
            begin.start = begin.start.or(before.begin.start);
            begin.settings = begin.settings.or(before.begin.settings);
        }
        Self {
            begin,
            calls: Vec::new(),
            bytes: 0,
            instance: None,
        }
    }

    /// Everything from the last known state on. With it, a replay by the candidate shows the same again.
    ///
    /// # Errors
    /// One line: why there is no such recording.
    pub(super) fn recording_for_candidate(&self, versions: &Setup) -> Result<Segment, String> {
        let Setup { active, candidate, .. } = versions;
        let mut header = self.header(active)?;
        let json = |error: serde_json::Error| error.to_string();
        header.limits = to_raw_value(&candidate.limits).map_err(json)?;
        if active.settings != candidate.settings {
            let begun = self.begin.settings.as_ref();
            let with_own = begun.and_then(|begun| with_own(&candidate.settings, &active.settings, begun));
            header.settings = with_own.map_or_else(|| to_raw_value(&candidate.settings).map_err(json), Ok)?;
        }
        if candidate.afresh {
            header.snapshot = None;
        }
        self.recording(header)
    }

    /// The header of a recording by the active guest from here on. Has the settings of the active instance at its
    /// beginning, if they are known.
    fn header(&self, active: &Instances) -> Result<Header, String> {
        let mut header = active
            .header(self.begin.snapshot.clone())
            .map_err(|error| error.to_string())?;
        if let Some(begun) = &self.begin.settings {
            header.settings.clone_from(begun);
        }
        Ok(header)
    }

    fn recording(&self, header: Header) -> Result<Segment, String> {
        let start = self.begin.start.as_deref().unwrap_or_default();
        let entries: Vec<Entry> = start.iter().chain(&self.calls).cloned().collect();
        // The calls keep the journal's numbers. The requests of the beginning may be from long before.
        let before = start.len() as u64 + 1;
        let first = self.calls.first().map_or(0, |entry| entry.n.saturating_sub(before));
        Segment::of("shadow", first, header, entries).map_err(|error| error.to_string())
    }

    pub(super) fn is_long(&self) -> bool {
        self.bytes > HISTORY_BYTES_MAX
    }

    /// Continues from the active instance's current state, by repeating its calls from the last known state.
    ///
    /// # Errors
    /// One line: why they can't be repeated.
    pub(super) async fn catch_up(&mut self, versions: &Setup) -> Result<(), String> {
        self.instance = None;
        let active = &versions.active;
        let segment = self.recording(self.header(active)?)?;
        let cpu_max = Duration::from_millis(active.limits.cpu_ms);
        let snapshot = replay::state_after(&active.engine, &active.program, segment, cpu_max, None);
        let snapshot = snapshot.await.map_err(|error| error.to_string())?;
        let begun_ms = self.calls.iter().find_map(|entry| match &entry.event {
            Event::Call(call) => Some(call.at_ms),
            _ => None,
        });
        let entries = self.begin.start.iter().flatten().chain(&self.calls).cloned();
        self.begin.timers = begun::waiting(begun_ms.unwrap_or_default(), entries);
        self.begin.is_seen = false;
        self.begin.snapshot = snapshot;
        self.calls = Vec::new();
        self.bytes = 0;
        Ok(())
    }
}

impl Judged {
    fn no_answer(call: &[Entry], time: Duration, took: Duration) -> Self {
        let (Some(Event::Call(begun)), Some(ending)) = (call.first().map(|entry| &entry.event), call.last()) else {
            return Self::Not("no call".to_owned());
        };
        Self::NotSame {
            verdict: Verdict::Different,
            n: Some(ending.n),
            what: format!(
                "diverged at entry {}: `{}`: recorded an ending after {} ms, replayed no answer within {} ms",
                ending.n,
                begun.name,
                took.as_millis(),
                time.as_millis()
            ),
        }
    }

    fn not_started(error: &ReplayError) -> Self {
        if let Some(text) = error.no_room() {
            // It could be instantiated at its beginning. That there is no room for it now is not its fault.
            return Self::Not(text.to_owned());
        }
        Self::NotSame {
            verdict: Verdict::Different,
            n: None,
            what: error.to_string(),
        }
    }
}

impl From<&Outcome> for Judged {
    fn from(outcome: &Outcome) -> Self {
        let verdict = match outcome {
            Outcome::Identical { .. } | Outcome::IdenticalAsFarAsRecorded { .. } => return Self::Same,
            Outcome::AskedUnrecorded { .. } => Verdict::Unrecorded,
            Outcome::Diverged { .. } | Outcome::Unused { .. } => Verdict::Different,
        };
        Self::NotSame {
            verdict,
            n: outcome.diverged_at(),
            what: outcome.one_line(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_candidate_gets_the_keys_settings_and_keeps_its_own_configuration() {
        let begun = to_raw_value(&json!({"wait": 1, "old": 2, "neg_names": {"s": "web"}})).unwrap();
        let settings = with_own(&json!({"wait": 9, "more": 3}), &json!({"wait": 1, "old": 2}), &begun).unwrap();
        let settings: Value = serde_json::from_str(settings.get()).unwrap();
        assert_eq!(settings, json!({"wait": 9, "more": 3, "neg_names": {"s": "web"}}));
    }
}
