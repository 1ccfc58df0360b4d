//! The queue by key, and the history of each key.
//!
//! `backoff.rs` computes the length of a pause. A key is in exactly one state: at rest, queued, or running.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::backoff::{Backoff, pick};
use crate::{KEYS_MAX, RETRY_AFTER_MS_MIN};

/// How a controller behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How long a failed key waits.
    pub backoff: Backoff,
    /// A key at rest runs again at most this many ms after its last success, and no sooner than half of that. The seed
    /// determines the time in between, so that keys that succeeded together do not come back together. 0 means never.
    pub resync_ms: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key is as desired: it rests, and its failures are forgotten.
    Success,
    /// Counts as a failure: the key runs again after a pause that grows with each failure.
    Failure,
    /// Counts as a failure with a known pause in ms (a server's `Retry-After`): exactly that, without jitter. The pause
    /// after the next [`Outcome::Failure`] does not grow because of it.
    RetryAfter(u64),
    /// The run was stopped before it could succeed or fail. It does not count, and the key runs again after this many
    /// ms: 0, or longer if another key is to run first.
    Interrupted(u64),
}

/// The controller refused a change because it already knows [`KEYS_MAX`] other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("queueing a changed key: {KEYS_MAX} other keys are known, which is the limit; split the source")]
pub struct TooManyKeys;

/// The state of a key for a status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// Failures since the last success.
    pub failures: u32,
    /// Taken and not yet done.
    pub running: bool,
    /// When it may run next; `None` while it runs, or rests without a resync.
    pub due_ms: Option<u64>,
    /// How its last run ended; `None` before the first.
    pub last: Option<Outcome>,
    /// The number of finished runs.
    pub runs: u64,
}

/// Orders keys by due time, then by the order in which they were queued.
pub(crate) type Position = (u64, u64);

/// Why a key is in the queue: a resync alone is not unfinished work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Work,
    Resync,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    Queued(Position, Reason),
    /// The key may have to run once more because of a change meanwhile, or never again because it was forgotten
    /// meanwhile.
    Running(Then),
    #[default]
    AtRest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    AsItEnded,
    OnceMore,
    Forgotten,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    stage: Stage,
    /// Without what follows from the stage.
    history: KeyStatus,
    /// The last growing pause, before jitter.
    pause_ms: Option<u64>,
}

/// The queue. The crate's documentation lists its promises.
///
/// A `now_ms` earlier than a previous one counts as that one: a clock that is set back stops nothing.
#[derive(Debug)]
pub struct Controller<K> {
    settings: Settings,
    chance: ChaCha8Rng,
    now_ms: u64,
    arrivals: u64,
    pub(crate) keys: BTreeMap<K, Entry>,
    pub(crate) queue: BTreeMap<Position, K>,
    pub(crate) running: usize,
    /// Queued keys that are more than a resync.
    pub(crate) waiting: usize,
}

impl<K: Ord + Clone> Controller<K> {
    /// A controller that knows no key.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            chance: ChaCha8Rng::seed_from_u64(seed),
            now_ms: 0,
            arrivals: 0,
            keys: BTreeMap::new(),
            queue: BTreeMap::new(),
            running: 0,
            waiting: 0,
        }
    }

    /// Reports a change of the object of `key`: the key runs as soon as it is taken, and once more if it is running
    /// now.
    pub fn changed(&mut self, key: &K, now_ms: u64) -> Result<(), TooManyKeys> {
        let now_ms = self.clock(now_ms);
        if !self.keys.contains_key(key) {
            if self.keys.len() >= KEYS_MAX {
                return Err(TooManyKeys);
            }
            self.keys.insert(key.clone(), Entry::default());
        }
        match self.keys.get_mut(key).map(|entry| &mut entry.stage) {
            Some(Stage::Running(then)) => *then = Then::OnceMore,
            // It keeps its place in line. Otherwise a key that changes all the time would go to the end each time.
            Some(Stage::Queued((due_ms, _), Reason::Work)) if *due_ms <= now_ms => {}
            _ => self.enqueue(key, now_ms, Reason::Work),
        }
        Ok(())
    }

    /// Moves a queued key before all others, and makes it due. Has no effect on any other key.
    pub fn first(&mut self, key: &K) {
        if let Some(Stage::Queued(..)) = self.keys.get(key).map(|entry| &entry.stage) {
            self.enqueue(key, 0, Reason::Work);
        }
    }

    /// Takes the key that is due and has waited longest. The caller runs it and then calls [`done`](Self::done). `None`
    /// if no key is due.
    pub fn take_ready(&mut self, now_ms: u64) -> Option<K> {
        let now_ms = self.clock(now_ms);
        let ((due_ms, _), key) = self.queue.first_key_value()?;
        let key = (*due_ms <= now_ms).then(|| key.clone())?;
        self.take(&key);
        Some(key)
    }

    /// Takes a queued key even if it is not due, or others are due before it. Has no effect on any other key.
    pub fn take(&mut self, key: &K) {
        if let Some(entry) = self.dequeue(key) {
            entry.stage = Stage::Running(Then::AsItEnded);
            self.running += 1;
        }
    }

    /// Reports how the run of `key` ended. Returns when the key is due next, if at all. Has no effect on a key that is
    /// not running.
    pub fn done(&mut self, key: &K, outcome: Outcome, now_ms: u64) -> Option<u64> {
        let now_ms = self.clock(now_ms);
        let entry = self.keys.get_mut(key)?;
        let Stage::Running(then) = entry.stage else {
            return None;
        };
        self.running -= 1;
        entry.stage = Stage::AtRest;
        let history = &mut entry.history;
        history.last = Some(outcome);
        history.runs += 1;

        // Drawn for every run, so that one key's random numbers do not depend on how another's run ended.
        let chance = self.chance.next_u64();
        let Settings { backoff, resync_ms } = self.settings;
        let next = match outcome {
            Outcome::Success => {
                history.failures = 0;
                entry.pause_ms = None;
                (resync_ms > 0).then(|| {
                    let soonest_ms = resync_ms.div_ceil(2);
                    (soonest_ms + pick(resync_ms - soonest_ms, chance), Reason::Resync)
                })
            }
            Outcome::Failure => {
                history.failures = history.failures.saturating_add(1);
                let base_ms = backoff.next_base_ms(entry.pause_ms);
                entry.pause_ms = Some(base_ms);
                Some((backoff.with_jitter_ms(base_ms, chance), Reason::Work))
            }
            Outcome::Interrupted(pause_ms) => Some((pause_ms, Reason::Work)),
            Outcome::RetryAfter(pause_ms) => {
                history.failures = history.failures.saturating_add(1);
                Some((pause_ms.max(RETRY_AFTER_MS_MIN), Reason::Work))
            }
        };
        let (pause_ms, reason) = match then {
            Then::Forgotten => {
                self.keys.remove(key);
                return None;
            }
            Then::OnceMore => (0, Reason::Work),
            Then::AsItEnded => next?,
        };
        let due_ms = now_ms.saturating_add(pause_ms);
        self.enqueue(key, due_ms, reason);
        Some(due_ms)
    }

    /// Drops the key and its history: the controller neither retries nor resyncs it. If it is running, that run
    /// continues, and the key is dropped when it is done; a later change brings it back.
    pub fn forget(&mut self, key: &K) {
        if let Some(Stage::Running(then)) = self.keys.get_mut(key).map(|entry| &mut entry.stage) {
            *then = Then::Forgotten;
            return;
        }
        self.dequeue(key);
        self.keys.remove(key);
    }

    /// When the next key is due; until then there is nothing to take. `None`: not before a change or the end of a run.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((due_ms, _), _)| *due_ms)
    }

    /// Whether no key runs, is ready or waits for a retry; resyncs may be scheduled.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting == 0
    }

    /// The state of one key; `None` if it was never seen, or forgotten.
    pub fn status(&self, key: &K) -> Option<KeyStatus> {
        let entry = self.keys.get(key)?;
        let due_ms = match entry.stage {
            Stage::Queued((due_ms, _), _) => Some(due_ms),
            Stage::Running(_) | Stage::AtRest => None,
        };
        Some(KeyStatus {
            running: matches!(entry.stage, Stage::Running(_)),
            due_ms,
            ..entry.history
        })
    }

    fn clock(&mut self, now_ms: u64) -> u64 {
        self.now_ms = self.now_ms.max(now_ms);
        self.now_ms
    }

    /// Puts a known key that does not run at the end of those due at `due_ms`, wherever it was.
    fn enqueue(&mut self, key: &K, due_ms: u64, reason: Reason) {
        self.dequeue(key);
        let Some(entry) = self.keys.get_mut(key) else { return };
        self.arrivals += 1;
        let place = (due_ms, self.arrivals);
        entry.stage = Stage::Queued(place, reason);
        if reason == Reason::Work {
            self.waiting += 1;
        }
        self.queue.insert(place, key.clone());
    }

    /// Takes a key out of the queue. `None` if it is not there.
    fn dequeue(&mut self, key: &K) -> Option<&mut Entry> {
        let entry = self.keys.get_mut(key)?;
        let Stage::Queued(place, reason) = entry.stage else {
            return None;
        };
        entry.stage = Stage::AtRest;
        if reason == Reason::Work {
            self.waiting -= 1;
        }
        self.queue.remove(&place);
        Some(entry)
    }
}
