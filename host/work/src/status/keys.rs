//! The state of each key. A step takes time logarithmic in the number of keys, and so does finding the keys in trouble.
//!
//! Two guests may have keys with the same name, so a line is named `GUEST/KEY`, like a decision. A guest's name has no
//! `/`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trueup_capabilities::meter::Effects;

use super::shown::{Counts, KeyShown, Measured, QueueShown, Recent};

/// How many deleted keys are kept for display. The oldest are removed first.
pub const GONE_MAX: usize = 100;

/// How many decisions are kept per key. With a million keys this takes 100 MB.
pub const RECENT_MAX: usize = 4;

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    Queued,
    /// The observed state is the desired state.
    True,
    /// The key and its objects no longer exist.
    Gone,
}

impl KeyState {
    /// All states, those that need attention first.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::SetAside,
        Self::Held,
        Self::Running,
        Self::Queued,
        Self::True,
        Self::Gone,
    ];

    /// The name in JSON, labels and queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::SetAside => "set-aside",
            Self::Held => "held",
            Self::Running => "running",
            Self::Queued => "queued",
            Self::True => "true",
            Self::Gone => "gone",
        }
    }

    /// The state with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// How work on a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    pub const ALL: [Self; 5] = [Self::True, Self::Gone, Self::Failed, Self::Fault, Self::Interrupted];

    /// The name in JSON and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Gone => "gone",
            Self::Failed => "failed",
            Self::Fault => "fault",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The result of work on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
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

#[derive(Debug)]
struct Entry {
    state: KeyState,
    since_ms: u64,
    error: Option<String>,
    failures: u32,
    /// When the first of these failures was. `None` if there is none.
    failing_since_ms: Option<u64>,
    /// When it may run. `None` if it does not wait.
    due_ms: Option<u64>,
    effects: Effects,
    in_service: Vec<String>,
    decisions: u64,
    recent: VecDeque<Recent>,
    /// When the current work began.
    began_ms: Option<u64>,
    /// The time of a change that no work has started on.
    changed_ms: Option<u64>,
    /// The time of the first change since the key was last true, if work has started on it.
    open_ms: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: BTreeMap<Arc<str>, Entry>,
    by_state: BTreeMap<KeyState, BTreeSet<Arc<str>>>,
    /// Keys with an error, in any state.
    troubled: BTreeSet<Arc<str>>,
    /// Keys that are queued, or failed and waiting for a retry, by due time.
    waiting: BTreeSet<(u64, Arc<str>)>,
    gone: VecDeque<Arc<str>>,
    /// By guest: each guest that has or had a key.
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
    /// The key, which may be new. It is removed from the indexes while the caller modifies it.
    fn taken(&mut self, key: &str, now_ms: u64) -> (Arc<str>, Entry) {
        match self.all.remove_entry(key) {
            Some((key, entry)) => {
                if let Some(of_state) = self.by_state.get_mut(&entry.state) {
                    of_state.remove(&key);
                }
                if entry.state == KeyState::SetAside {
                    let measured = self.measured(&key);
                    measured.set_aside = measured.set_aside.saturating_sub(1);
                }
                self.troubled.remove(&key);
                if let Some(due_ms) = entry.due_ms {
                    self.waiting.remove(&(due_ms, Arc::clone(&key)));
                }
                (key, entry)
            }
            None => (Arc::from(key), Entry::new(now_ms)),
        }
    }

    /// The statistics of a line's guest.
    fn measured(&mut self, line: &str) -> &mut Measured {
        let (guest, _) = parts(line);
        self.measured.entry(guest.to_owned()).or_default()
    }

    fn put(&mut self, key: Arc<str>, entry: Entry) {
        let is_set_aside = entry.state == KeyState::SetAside;
        self.measured(&key).set_aside += usize::from(is_set_aside);
        self.by_state.entry(entry.state).or_default().insert(Arc::clone(&key));
        if entry.error.is_some() {
            self.troubled.insert(Arc::clone(&key));
        }
        if let Some(due_ms) = entry.due_ms {
            self.waiting.insert((due_ms, Arc::clone(&key)));
        }
        self.all.insert(key, entry);
    }

    pub(super) fn changed(&mut self, key: &str, now_ms: u64) {
        let (key, mut entry) = self.taken(key, now_ms);
        entry.changed_ms.get_or_insert(now_ms);
        if entry.state != KeyState::Running {
            // A queued key keeps its place in the queue.
            let due_ms = entry.due_ms.map_or(now_ms, |due_ms| due_ms.min(now_ms));
            entry.set_state(KeyState::Queued, now_ms);
            entry.due_ms = Some(due_ms);
        }
        self.put(key, entry);
    }

    pub(super) fn began(&mut self, key: &str, now_ms: u64) {
        let (key, mut entry) = self.taken(key, now_ms);
        let changed_ms = entry.changed_ms.take();
        entry.open_ms = entry.open_ms.or(changed_ms);
        entry.began_ms = Some(now_ms);
        entry.due_ms = None;
        entry.set_state(KeyState::Running, now_ms);
        self.put(key, entry);
    }

    pub(super) fn finished(&mut self, key: &str, finished: Finished, now_ms: u64) {
        let (key, mut entry) = self.taken(key, now_ms);
        let took_ms = now_ms.saturating_sub(entry.began_ms.take().unwrap_or(now_ms));
        entry.remember(&finished, took_ms, now_ms);
        let is_true = matches!(finished.outcome, Outcome::True | Outcome::Gone);
        let measured = self.measured(&key);
        measured.took.observe_ms(took_ms);
        *measured.outcomes.entry(finished.outcome).or_default() += 1;
        measured.effects += finished.effects;
        if is_true && let Some(open_ms) = entry.open_ms.take() {
            measured.to_effect.observe_ms(now_ms.saturating_sub(open_ms));
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
            entry.in_service = finished.in_service;
        }
        if is_true {
            entry.fails(None, 0, now_ms);
        } else if let Some(error) = finished.error {
            entry.fails(Some(error), finished.failures, now_ms);
        }
        entry.set_state(state, now_ms);
        if state == KeyState::Gone {
            entry.recent.shrink_to_fit();
            self.gone.push_back(Arc::clone(&key));
        }
        self.put(key, entry);
        self.forget_gone();
    }

    /// Sets the state of a key that is not being reconciled, with its error and its number of failures.
    pub(super) fn set_state(&mut self, key: &str, state: KeyState, why: Option<(&str, u32)>, now_ms: u64) {
        let (key, mut entry) = self.taken(key, now_ms);
        entry.due_ms = None;
        entry.began_ms = None;
        // A later change may complete this one, so its time counts from the first.
        let changed_ms = entry.changed_ms.take();
        entry.open_ms = entry.open_ms.or(changed_ms);
        let failures = why.map_or(0, |(_, failures)| failures);
        entry.fails(why.map(|(error, _)| error.to_owned()), failures, now_ms);
        entry.set_state(state, now_ms);
        self.put(key, entry);
    }

    /// A guest no longer acts on this host: its failures say nothing of its keys any more, which wait for the next term.
    /// What is invalid, what is set aside and what still runs stays as it is.
    pub(super) fn rest(&mut self, guest: &str, now_ms: u64) {
        let failed = |line: &Arc<str>| {
            let entry = self.all.get(line).filter(|_| parts(line).0 == guest);
            let keeps = [KeyState::SetAside, KeyState::Running];
            entry.is_some_and(|entry| entry.failures > 0 && !keeps.contains(&entry.state))
        };
        let failed: Vec<_> = self.troubled.iter().filter(|line| failed(line)).cloned().collect();
        for line in failed {
            self.set_state(&line, KeyState::Queued, None, now_ms);
        }
    }

    /// Nothing is desired for a key, and no work on it is left, although it may have been queued.
    pub(super) fn gone(&mut self, key: &str, now_ms: u64) {
        if self.all.get(key).is_none_or(|entry| entry.state == KeyState::Gone) {
            return;
        }
        self.set_state(key, KeyState::Gone, None, now_ms);
        let (key, mut entry) = self.taken(key, now_ms);
        entry.open_ms = None;
        entry.recent.shrink_to_fit();
        self.gone.push_back(Arc::clone(&key));
        self.put(key, entry);
        self.forget_gone();
    }

    fn forget_gone(&mut self) {
        while self.gone.len() > GONE_MAX
            && let Some(key) = self.gone.pop_front()
        {
            // A key that came back stays.
            if self.all.get(&key).is_some_and(|entry| entry.state == KeyState::Gone) && !self.gone.contains(&key) {
                self.all.remove(&key);
                if let Some(gone) = self.by_state.get_mut(&KeyState::Gone) {
                    gone.remove(&key);
                }
            }
        }
    }

    /// The number of keys in each state.
    pub(super) fn counts(&self) -> Counts {
        let count = |state| self.by_state.get(&state).map_or(0, BTreeSet::len);
        KeyState::ALL.into_iter().map(|state| (state, count(state))).collect()
    }

    /// The queue. The keys of `resting` guests wait for another host to end, not for their turn.
    pub(super) fn queue(&self, sleeping: usize, resting: &BTreeSet<String>, now_ms: u64) -> QueueShown {
        let are_ready = || self.waiting.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
        let ready = are_ready().count();
        let oldest = are_ready().find(|(_, line)| !resting.contains(parts(line).0));
        QueueShown {
            ready,
            delayed: self.waiting.len() - ready,
            running: self.by_state.get(&KeyState::Running).map_or(0, BTreeSet::len),
            sleeping,
            oldest_waiting_ms: oldest.map_or(0, |(due_ms, _)| now_ms.saturating_sub(*due_ms)),
        }
    }

    /// Keys after `after` in order, in one state or in any, at most `max`.
    pub(super) fn list(&self, state: Option<KeyState>, after: &str, max: usize, now_ms: u64) -> Vec<KeyShown> {
        use std::ops::Bound::{Excluded, Unbounded};
        let range = (Excluded(after), Unbounded);
        match state {
            None => {
                let found = self.all.range::<str, _>(range).take(max);
                found.map(|(key, entry)| entry.show(key, now_ms)).collect()
            }
            Some(state) => self.shown(
                self.by_state
                    .get(&state)
                    .into_iter()
                    .flat_map(|keys| keys.range::<str, _>(range)),
                max,
                now_ms,
            ),
        }
    }

    /// Keys with an error in order, at most `max`.
    pub(super) fn in_trouble(&self, after: &str, max: usize, now_ms: u64) -> Vec<KeyShown> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.shown(self.troubled.range::<str, _>((Excluded(after), Unbounded)), max, now_ms)
    }

    pub(super) fn in_trouble_count(&self) -> usize {
        self.troubled.len()
    }

    fn shown<'a>(&self, keys: impl Iterator<Item = &'a Arc<str>>, max: usize, now_ms: u64) -> Vec<KeyShown> {
        let found = keys
            .take(max)
            .filter_map(|key| Some(self.all.get(key)?.show(key, now_ms)));
        found.collect()
    }

    pub(super) fn one(&self, line: &str, now_ms: u64) -> Option<KeyShown> {
        self.all.get(line).map(|entry| entry.show(line, now_ms))
    }

    /// Statistics for each guest that has or had a key.
    pub(super) fn by_guest(&self) -> &BTreeMap<String, Measured> {
        &self.measured
    }
}

impl Entry {
    fn new(now_ms: u64) -> Self {
        Self {
            state: KeyState::Queued,
            since_ms: now_ms,
            error: None,
            failures: 0,
            failing_since_ms: None,
            due_ms: None,
            effects: Effects::default(),
            in_service: Vec::new(),
            decisions: 0,
            recent: VecDeque::new(),
            began_ms: None,
            changed_ms: None,
            open_ms: None,
        }
    }

    fn set_state(&mut self, state: KeyState, now_ms: u64) {
        if self.state != state {
            self.state = state;
            self.since_ms = now_ms;
        }
    }

    fn fails(&mut self, error: Option<String>, failures: u32, now_ms: u64) {
        self.failing_since_ms = error.as_ref().map(|_| self.failing_since_ms.unwrap_or(now_ms));
        self.error = error;
        self.failures = failures;
    }

    fn remember(&mut self, finished: &Finished, took_ms: u64, now_ms: u64) {
        self.effects += finished.effects;
        self.decisions += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.recent.push_back(Recent {
            at_ms: now_ms,
            took_ms: small(took_ms),
            created: small(finished.effects.created),
            destroyed: small(finished.effects.destroyed),
            outcome: finished.outcome,
        });
    }

    fn show(&self, line: &str, now_ms: u64) -> KeyShown {
        let (guest, key) = parts(line);
        KeyShown {
            guest: guest.to_owned(),
            key: key.to_owned(),
            state: self.state,
            since_ms: match self.state {
                KeyState::Failed => self.failing_since_ms.unwrap_or(self.since_ms),
                _ => self.since_ms,
            },
            error: self.error.clone(),
            failures: self.failures,
            next_try_in_ms: self.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
            created: self.effects.created,
            destroyed: self.effects.destroyed,
            in_service: self.in_service.clone(),
            decisions: self.decisions,
            recent: self.recent.iter().rev().copied().collect(),
        }
    }
}
