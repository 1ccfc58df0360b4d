//! The state of each key. A step takes time logarithmic in the number of keys; a document looks at all of them.
//!
//! Two guests may have keys with the same name, so a line is named `GUEST/KEY`, like a decision. A guest's name has no
//! `/`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use trueup_capabilities::meter::Effects;

use super::shown::{Counts, KeyShown, Measured, QueueShown, Recent};

/// How many deleted keys are kept for display. The oldest are removed first.
pub const GONE_MAX: usize = 100;

/// How many decisions are kept per key. With a million keys this takes 100 MB.
pub const RECENT_MAX: usize = 4;

/// So many resyncs in a row that correct objects make a key contested.
const CORRECTIONS_MIN: u32 = 2;

/// The state of a key. Those that need attention come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum KeyState {
    /// It failed. It is retried after its backoff, or, if it is not to be retried, when it changes.
    Failed,
    /// The guest failed on it so often that the host waits until the key or the guest changes.
    SetAside,
    /// No source object names it, but its objects are kept, since an unreadable object may name it.
    Held,
    /// It is being reconciled.
    Running,
    /// It waits for its turn.
    #[default]
    Queued,
    /// The observed state is the desired state.
    True,
    /// The key and its objects no longer exist.
    Gone,
}

impl KeyState {
    /// All states.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in JSON, labels and queries.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How work on a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// The observed state is the desired state.
    True,
    /// The key and its objects no longer exist.
    Gone,
    /// It failed.
    Failed,
    /// The guest failed: it trapped, exceeded a limit, or gave no answer.
    Fault,
    /// It was interrupted while it slept, for a newer input or a stop.
    Interrupted,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in JSON and labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The result of work on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took. `None`: since it was reported to begin.
    pub took: Option<Duration>,
    /// One line. `None` if nothing failed.
    pub error: Option<String>,
    /// Consecutive failures.
    pub failures: u32,
    /// Milliseconds until the next try. `None` if there is no automatic one.
    pub again_in_ms: Option<u64>,
    /// Objects created and destroyed.
    pub effects: Effects,
    /// What is in service now, such as `203.0.113.10:80`. Empty if the work did not find out.
    pub in_service: Vec<String>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Without what [`Entry::show`] adds.
    shown: KeyShown,
    /// When the first of its failures was, also before a reload or a restart. `None` if there is none.
    failing_since_ms: Option<u64>,
    /// When it may run. `None` if it does not wait.
    due_ms: Option<u64>,
    /// When the current work began.
    began_ms: Option<u64>,
    /// The time of a change that no work has started on.
    changed_ms: Option<u64>,
    /// The time of the first change since the key was last true, if work has started on it.
    open_ms: Option<u64>,
    /// How many resyncs in a row corrected its objects.
    corrections: u32,
}

/// Since when keys have an error, by line.
pub type Failing = BTreeMap<String, u64>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: BTreeMap<String, Entry>,
    /// Of keys that failed before a reload or a restart and are not known since.
    failing_before: Failing,
    gone: VecDeque<String>,
    /// By guest: each guest that has or had a key. Without the number of keys that are set aside.
    measured: BTreeMap<String, Measured>,
}

/// The name of a line: `GUEST/KEY`.
pub(super) fn line_of(guest: &str, key: &str) -> String {
    format!("{guest}/{key}")
}

/// The guest and the key of a line.
fn parts(line: &str) -> (&str, &str) {
    line.split_once('/').unwrap_or(("", line))
}

impl Keys {
    /// The key, which may be new, and the statistics of its guest.
    fn of(&mut self, line: &str, now_ms: u64) -> (&mut Entry, &mut Measured) {
        let (guest, key) = parts(line);
        let entry = self.all.entry(line.to_owned()).or_insert_with(|| Entry {
            shown: KeyShown {
                guest: guest.to_owned(),
                key: key.to_owned(),
                since_ms: now_ms,
                ..KeyShown::default()
            },
            failing_since_ms: self.failing_before.remove(line),
            ..Entry::default()
        });
        (entry, self.measured.entry(guest.to_owned()).or_default())
    }

    /// Since when keys with an error have one.
    pub(super) fn failing(&self) -> Failing {
        let failing = |(line, entry): (&String, &Entry)| Some((line.clone(), entry.failing_since_ms?));
        self.all.iter().filter_map(failing).collect()
    }

    /// A key failed before a reload or a restart. If it fails at its first turn, it fails since then.
    pub(super) fn failed_before(&mut self, line: String, since_ms: u64) {
        self.failing_before.entry(line).or_insert(since_ms);
    }

    pub(super) fn changed(&mut self, line: &str, now_ms: u64) {
        let (entry, _) = self.of(line, now_ms);
        entry.changed_ms.get_or_insert(now_ms);
        if entry.shown.state != KeyState::Running {
            // A queued key keeps its place in the queue.
            let due_ms = entry.due_ms.map_or(now_ms, |due_ms| due_ms.min(now_ms));
            entry.set_state(KeyState::Queued, now_ms);
            entry.due_ms = Some(due_ms);
        }
    }

    pub(super) fn began(&mut self, line: &str, now_ms: u64) {
        let (entry, _) = self.of(line, now_ms);
        entry.open_ms = entry.open_ms.or(entry.changed_ms.take());
        entry.began_ms = Some(now_ms);
        entry.due_ms = None;
        entry.set_state(KeyState::Running, now_ms);
    }

    pub(super) fn finished(&mut self, line: &str, finished: Finished, now_ms: u64) {
        let (entry, measured) = self.of(line, now_ms);
        let since_ms = entry.began_ms.take().unwrap_or(now_ms);
        let since_began = Duration::from_millis(now_ms.saturating_sub(since_ms));
        let took = finished.took.unwrap_or(since_began);
        entry.remember(&finished, took, now_ms);
        let is_true = matches!(finished.outcome, Outcome::True | Outcome::Gone);
        measured.took.observe(took);
        *measured.outcomes.entry(finished.outcome).or_default() += 1;
        measured.effects += finished.effects;
        if is_true && let Some(open_ms) = entry.open_ms.take() {
            let took = Duration::from_millis(now_ms.saturating_sub(open_ms));
            measured.to_effect.observe(took);
        }
        let state = match finished.outcome {
            // It changed during the work, so more work remains.
            Outcome::True | Outcome::Gone if entry.changed_ms.is_some() => KeyState::Queued,
            Outcome::True => KeyState::True,
            Outcome::Gone => KeyState::Gone,
            Outcome::Failed | Outcome::Fault => KeyState::Failed,
            Outcome::Interrupted => KeyState::Queued,
        };
        entry.due_ms = match state {
            KeyState::Queued => Some(now_ms),
            KeyState::Failed => finished.again_in_ms.map(|ms| now_ms.saturating_add(ms)),
            _ => None,
        };
        // A failed job that changed something leaves it open what is in service.
        if is_true || finished.effects != Effects::default() {
            entry.shown.in_service = finished.in_service;
        }
        if is_true {
            entry.fails(None, 0, now_ms);
        } else if let Some(error) = finished.error {
            entry.fails(Some(error), finished.failures, now_ms);
        }
        entry.set_state(state, now_ms);
        if state == KeyState::Gone {
            self.went(line);
        }
    }

    /// Sets the state of a key that is not being reconciled, with its error and its number of failures.
    pub(super) fn set_state(&mut self, line: &str, state: KeyState, why: Option<(&str, u32)>, now_ms: u64) {
        let (entry, _) = self.of(line, now_ms);
        (entry.due_ms, entry.began_ms) = (None, None);
        // A later change may complete this one, so its time counts from the first.
        entry.open_ms = entry.open_ms.or(entry.changed_ms.take());
        let (error, failures) = why.unzip();
        entry.fails(error.map(str::to_owned), failures.unwrap_or_default(), now_ms);
        entry.set_state(state, now_ms);
    }

    /// A guest no longer acts on this host: its failures say nothing of its keys any more, which wait for the next
    /// term. What is invalid, what is set aside and what still runs stays as it is.
    pub(super) fn rest(&mut self, guest: &str, now_ms: u64) {
        let keeps = [KeyState::SetAside, KeyState::Running];
        let has_failed = |key: &KeyShown| key.guest == guest && key.failures > 0 && !keeps.contains(&key.state);
        let failed = self.all.iter().filter(|(_, entry)| has_failed(&entry.shown));
        let failed: Vec<String> = failed.map(|(line, _)| line.clone()).collect();
        for line in failed {
            self.set_state(&line, KeyState::Queued, None, now_ms);
        }
    }

    /// Nothing is desired for a key, and no work on it is left, although it may have been queued.
    pub(super) fn gone(&mut self, line: &str, now_ms: u64) {
        if self.is_there(line) {
            self.set_state(line, KeyState::Gone, None, now_ms);
            self.of(line, now_ms).0.open_ms = None;
            self.went(line);
        }
    }

    fn is_there(&self, line: &str) -> bool {
        self.all.get(line).is_some_and(|it| it.shown.state != KeyState::Gone)
    }

    /// Keeps a key that is gone, and forgets the oldest if there are too many.
    fn went(&mut self, line: &str) {
        self.gone.push_back(line.to_owned());
        while self.gone.len() > GONE_MAX
            && let Some(oldest) = self.gone.pop_front()
        {
            // A key that came back stays.
            if !self.is_there(&oldest) && !self.gone.contains(&oldest) {
                self.all.remove(&oldest);
            }
        }
    }

    /// The number of keys in each state.
    pub(super) fn counts(&self) -> Counts {
        let mut counts: Counts = KeyState::ALL.iter().map(|state| (*state, 0)).collect();
        for entry in self.all.values() {
            *counts.entry(entry.shown.state).or_default() += 1;
        }
        counts
    }

    /// The queue. The keys of `resting` guests wait for another host to end, not for their turn.
    pub(super) fn queue(&self, sleeping: usize, resting: &BTreeSet<String>, now_ms: u64) -> QueueShown {
        let waiting = self.all.iter().filter_map(|(line, entry)| Some((entry.due_ms?, line)));
        let (ready, delayed): (Vec<_>, Vec<_>) = waiting.partition(|(due_ms, _)| *due_ms <= now_ms);
        let in_turn = ready.iter().filter(|(_, line)| !resting.contains(parts(line).0));
        let oldest = in_turn.map(|(due_ms, _)| *due_ms).min();
        let running = self.all.values().filter(|entry| entry.shown.state == KeyState::Running);
        QueueShown {
            ready: ready.len(),
            delayed: delayed.len(),
            running: running.count(),
            sleeping,
            oldest_waiting_ms: oldest.map_or(0, |due_ms| now_ms.saturating_sub(due_ms)),
        }
    }

    pub(super) fn in_trouble_count(&self) -> usize {
        self.all.values().filter(|entry| entry.shown.is_in_trouble()).count()
    }

    /// Keys after `after` in order that `fits` accepts, at most `max`.
    pub(super) fn list(&self, after: &str, max: usize, now_ms: u64, fits: impl Fn(&KeyShown) -> bool) -> Vec<KeyShown> {
        let found = self.all.range::<str, _>((Excluded(after), Unbounded));
        let found = found.filter(|(_, entry)| fits(&entry.shown)).take(max);
        found.map(|(_, entry)| entry.show(now_ms)).collect()
    }

    pub(super) fn one(&self, line: &str, now_ms: u64) -> Option<KeyShown> {
        self.all.get(line).map(|entry| entry.show(now_ms))
    }

    /// A resync of a key ended. Returns how many in a row corrected its objects.
    pub(super) fn resynced(&mut self, line: &str, corrected: bool) -> u32 {
        let Some(entry) = self.all.get_mut(line) else { return 0 };
        let one_more = entry.corrections.saturating_add(1);
        entry.corrections = if corrected { one_more } else { 0 };
        entry.corrections
    }

    /// Forgets the corrections of all keys.
    pub(super) fn forget_corrections(&mut self) {
        self.all.values_mut().for_each(|entry| entry.corrections = 0);
    }

    /// Keys whose objects another writer changes, in order. One correction may follow an edit by hand. Another host
    /// with the same objects undoes each correction, so the next resync corrects them again.
    pub(super) fn contested(&self) -> impl Iterator<Item = &str> {
        let all = self.all.iter();
        all.filter_map(|(line, entry)| (entry.corrections >= CORRECTIONS_MIN).then_some(line.as_str()))
    }

    /// Statistics for each guest that has or had a key.
    pub(super) fn by_guest(&self) -> BTreeMap<String, Measured> {
        let mut measured = self.measured.clone();
        for entry in self.all.values() {
            if entry.shown.state == KeyState::SetAside {
                measured.entry(entry.shown.guest.clone()).or_default().set_aside += 1;
            }
        }
        measured
    }
}

impl Entry {
    fn set_state(&mut self, state: KeyState, now_ms: u64) {
        if self.shown.state != state {
            self.shown.state = state;
            self.shown.since_ms = now_ms;
        }
    }

    fn fails(&mut self, error: Option<String>, failures: u32, now_ms: u64) {
        self.failing_since_ms = error.as_ref().map(|_| self.failing_since_ms.unwrap_or(now_ms));
        self.shown.error = error;
        self.shown.failures = failures;
    }

    fn remember(&mut self, finished: &Finished, took: Duration, now_ms: u64) {
        let Effects { created, destroyed } = finished.effects;
        self.shown.created += created;
        self.shown.destroyed += destroyed;
        self.shown.decisions += 1;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let recent = Recent {
            at_ms: now_ms,
            took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
            created: small(created),
            destroyed: small(destroyed),
            outcome: finished.outcome,
        };
        self.shown.recent.insert(0, recent);
        self.shown.recent.truncate(RECENT_MAX);
    }

    fn show(&self, now_ms: u64) -> KeyShown {
        let failing_since_ms = self.failing_since_ms.filter(|_| self.shown.error.is_some());
        KeyShown {
            since_ms: failing_since_ms.unwrap_or(self.shown.since_ms),
            next_try_in_ms: self.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
            ..self.shown.clone()
        }
    }
}
