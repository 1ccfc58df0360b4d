//! What a guest holds over all its keys, and how much of it may be destroyed in one round without an operator's
//! approval.
//!
//! Complements `quota.rs`, which limits one call. A round lasts ten minutes from the first object that it destroys,
//! and while a part of it waits: changes of the source that come one after another add up. It compares with what the
//! keys held when it began. Knows nothing of guests: keys are texts, and objects are counted.
//!
//! ```text
//! look    -> expect, guess: what each key will lose, or may lose at most --+
//! destroy -> uncounted: is it more than expected? -> foresee --------------+
//! destroy -> admit: may this many go? -------------------------------------+-> waits, or goes (destroyed)
//! approve -> the waiting keys may -------------------------------------------> go
//! ```
//!
//! A guest may destroy more of a key than was expected, for example if it replaces everything. If that could be too
//! much, the turn of the key first finds out how many objects go in all. So a key changes or waits as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use trueup_base::clock::Clock;
use trueup_base::text::counted;

/// The part of a refusal that tells it from one by grants.
pub const WAITS: &str = "it waits for an approval";

/// The answer to a guest that asks to destroy more than was expected. It tells a count from a refusal.
pub const COUNTS_FIRST: &str = "the host first counts what is to be destroyed";

/// What a turn must find out before its key may lose more than was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// How many objects its key is to lose in all: [`Holdings::foresee`].
    Key,
    /// How many objects other keys are to lose, which changed and had no turn since. Their turns come first.
    Others,
}

/// How long a round lasts from the first object that it destroys. Long enough for people and scripts that delete one
/// object after another; short enough that the ordinary changes of a busy cluster do not add up to half of it.
pub const ROUND_MS: u64 = 600_000;

/// How long keys wait for the turns of others that changed, in milliseconds. If keys change all the time, there are
/// always others.
pub const OTHERS_MAX_MS: u64 = 5_000;

/// A destruction above both limits waits for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApproveAbove {
    /// The number of objects.
    pub objects: u32,
    /// The percentage of all objects that the guest holds. With 100, nothing waits.
    pub percent: u8,
}

impl Default for ApproveAbove {
    fn default() -> Self {
        Self {
            objects: 10,
            percent: 50,
        }
    }
}

impl ApproveAbove {
    /// Whether destroying `going` of `all` objects must wait.
    pub fn is_above(self, going: u64, all: u64) -> bool {
        going > u64::from(self.objects) && u128::from(going) * 100 > u128::from(all) * u128::from(self.percent)
    }
}

/// The state that survives a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// The number of objects by key.
    pub held: BTreeMap<String, u64>,
    /// What the round that now waits has destroyed.
    pub destroyed: u64,
    /// The keys whose change is approved and not done.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub approved: BTreeSet<String>,
}

/// What waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The keys whose objects go once it is approved.
    pub keys: Vec<String>,
    /// The number of objects that go then.
    pub objects: u64,
    /// The number of other objects that the round destroyed before. They count for the limit.
    #[serde(default)]
    pub destroyed: u64,
    /// The number of all objects when the round began.
    pub of: u64,
}

impl Waiting {
    /// `14 of 42 objects (14 others went already)`. `what` the guest holds, in the plural.
    pub fn text(&self, what: &str) -> String {
        let went = match self.destroyed {
            0 => String::new(),
            went => format!(" ({} went already)", counted(went, "other", "others")),
        };
        format!("{} of {} {what}{went}", self.objects, self.of)
    }
}

/// See the module.
#[derive(Default)]
pub struct Holdings(Mutex<State>);

#[derive(Default)]
struct State {
    /// The limit, and the clock that measures rounds. `None` if there is no limit.
    guard: Option<(ApproveAbove, Arc<dyn Clock>)>,
    held: BTreeMap<String, u64>,
    held_total: u64,
    going: BTreeMap<String, u64>,
    going_total: u64,
    /// For each key that changed and had no turn since: how many objects it may lose at most, beside those expected.
    guessed: BTreeMap<String, u64>,
    guessed_total: u64,
    /// When the first of the keys that wait for others began to, by `Clock::steady_ms`.
    waits_since_ms: Option<u64>,
    /// Keys that lose exactly what is expected.
    counted: BTreeSet<String>,
    /// For each key whose turn was not allowed to destroy yet: what that must find out.
    uncounted: BTreeMap<String, Uncounted>,
    /// For each key whose turn began to destroy: how many more objects it may destroy, whatever else is to go
    /// meanwhile. So no key is left half destroyed.
    admitted: BTreeMap<String, u64>,
    /// For each key that lost objects in this round: how many it had before.
    before: BTreeMap<String, u64>,
    /// How many objects these keys have less than before, and what earlier processes destroyed in this round.
    destroyed: u64,
    /// When the round destroyed its first object, by `Clock::steady_ms`.
    began_ms: u64,
    refused: BTreeSet<String>,
    approved: BTreeSet<String>,
    is_changed: bool,
    /// Approvals changed since the state was saved: the next process must not miss one, nor take an old one for new.
    has_new_approvals: bool,
    /// This is the round of an earlier process or term, and a part of it waits.
    goes_on: bool,
}

impl Holdings {
    /// Enables the limit. Without this call, there is none.
    pub fn guard(&self, above: ApproveAbove, clock: Arc<dyn Clock>) {
        self.0.lock().guard = Some((above, clock));
    }

    /// Continues from the state of an earlier process.
    pub fn restore(&self, kept: Kept) {
        let mut state = self.0.lock();
        state.held_total = kept.held.values().sum();
        state.held = kept.held;
        state.destroyed = kept.destroyed;
        state.goes_on = kept.destroyed > 0;
        state.approved = kept.approved;
    }

    /// The state to save; `None` if it has not changed since the last call.
    pub fn changed(&self) -> Option<Kept> {
        let mut state = self.0.lock();
        let is_changed = std::mem::take(&mut state.is_changed);
        state.has_new_approvals = false;
        let waits = !state.refused.is_empty() || state.goes_on;
        is_changed.then(|| Kept {
            held: state.held.clone(),
            approved: state.approved.clone(),
            destroyed: if waits { state.destroyed } else { 0 },
        })
    }

    /// Whether the state is to be saved at once: something waits for an approval, or an approval came or ended.
    pub fn is_urgent(&self) -> bool {
        let state = self.0.lock();
        !state.refused.is_empty() || state.has_new_approvals
    }

    /// The known number of a key's objects.
    pub fn held(&self, key: &str) -> u64 {
        self.0.lock().held.get(key).copied().unwrap_or_default()
    }

    /// The number of objects of a key that is to lose all of them. If none was counted, such as by a host that has just
    /// begun to act, it counts as many as others have on average. If no object was counted, it counts more than may go
    /// without an approval: it then waits until others are counted.
    pub fn held_by_gone(&self, key: &str) -> u64 {
        let mut state = self.0.lock();
        if let Some(held) = state.held.get(key) {
            return *held;
        }
        let typical = match state.held_total {
            0 => u64::from(state.above().objects) + 1,
            total => total.div_ceil(state.held.len() as u64),
        };
        state.hold(key, typical);
        typical
    }

    /// Sets the observed number of a key's objects.
    pub fn hold(&self, key: &str, count: u64) {
        self.0.lock().hold(key, count);
    }

    /// Records that nothing is left of a key, and forgets it. What it held and what it was to lose end together: if
    /// only the latter did, others could lose more meanwhile.
    pub fn forget(&self, key: &str) {
        let mut state = self.0.lock();
        state.hold(key, 0);
        state.is_changed |= state.held.remove(key).is_some();
        state.done(key);
    }

    /// Sets how many objects a key will lose in this round. 0 if the key is as desired, or nothing else is desired any
    /// more.
    pub fn expect(&self, key: &str, count: u64) {
        let mut state = self.0.lock();
        state.end_if_over();
        if state.approved.contains(key) {
            return;
        }
        state.counted.remove(key);
        state.set_going(key, count);
        if count == 0 {
            state.refused.remove(key);
        }
    }

    /// The same for a key that may lose more than `count`: its guest decides that.
    pub fn guess(&self, key: &str, count: u64) {
        self.expect(key, count);
        let mut state = self.0.lock();
        let held = state.held.get(key).copied().unwrap_or_default();
        state.set_guessed(key, held.saturating_sub(count));
    }

    /// What the turn of a key must find out before it asks again whether `count` of `has` objects may go. `None` if
    /// that is as expected, or can't be too much. `is_limited`: another limit needs the number of all that goes.
    pub fn uncounted(&self, key: &str, count: u64, has: u64, is_limited: bool) -> Option<Uncounted> {
        let mut state = self.0.lock();
        state.end_if_over();
        let (is_counted, is_expected) = (state.counted.contains(key), count <= state.going(key));
        let needs = match state.guard {
            _ if is_limited => Some(Uncounted::Key),
            None => None,
            Some(_) if state.approved.contains(key) || state.has_begun(key, count) => None,
            Some(_) => {
                if !is_counted && !state.guessed.contains_key(key) {
                    let held = state.held.get(key).copied().unwrap_or_default();
                    let most = held.max(has).max(count);
                    let beside = most.saturating_sub(state.going(key));
                    state.set_guessed(key, beside);
                }
                match state.may_be_above() {
                    true if !is_counted => Some(Uncounted::Key),
                    true if is_expected && state.waits_for_others() => Some(Uncounted::Others),
                    _ => None,
                }
            }
        };
        match needs {
            Some(needs) => state.uncounted.insert(key.to_owned(), needs),
            None => state.uncounted.remove(key),
        };
        needs
    }

    /// Whether a key that loses a known number of objects waits for the turns of others that changed: together they may
    /// lose too many.
    pub fn comes_after_others(&self, key: &str) -> bool {
        let mut state = self.0.lock();
        let is_due = state.approved.contains(key) || state.has_begun(key, state.going(key));
        let loses = state.counted.contains(key) && state.going(key) > 0 && !is_due;
        loses && state.waits_for_others()
    }

    /// Takes what the turn of a key must find out before it may destroy.
    pub fn take_uncounted(&self, key: &str) -> Option<Uncounted> {
        self.0.lock().uncounted.remove(key)
    }

    /// A key loses exactly this many objects: all, or as many as its guest says that the calls of its turn destroy.
    pub fn foresee(&self, key: &str, count: u64) {
        self.expect(key, count);
        let mut state = self.0.lock();
        state.set_guessed(key, 0);
        state.counted.insert(key.to_owned());
    }

    /// The turn of a key ended, or it needs none: it loses nothing that was not expected.
    pub fn turn_ended(&self, key: &str) {
        self.0.lock().turn_ended(key);
    }

    /// Whether a key may lose this many objects now.
    ///
    /// # Errors
    /// One line: the key waits for an approval.
    pub fn admit(&self, key: &str, count: u64) -> Result<(), String> {
        let mut state = self.0.lock();
        state.end_if_over();
        if state.guard.is_none() || state.approved.contains(key) {
            return Ok(());
        }
        let (going, guessed) = (state.going(key).max(count), state.guessed(key));
        let guessed = guessed.saturating_sub(going - state.going(key));
        state.set_going(key, going);
        state.set_guessed(key, guessed);
        if state.has_begun(key, count) || !state.is_above() {
            let all = if state.may_be_above() { going } else { going + guessed };
            let admitted = state.admitted.get(key).copied().unwrap_or_default().max(all);
            state.admitted.insert(key.to_owned(), admitted - count);
            state.refused.remove(key);
            return Ok(());
        }
        state.is_changed |= state.refused.insert(key.to_owned());
        Err(state.why())
    }

    /// Whether a key may lose everything that it has now.
    ///
    /// # Errors
    /// As [`Holdings::admit`].
    pub fn admit_all(&self, key: &str) -> Result<(), String> {
        self.admit(key, self.held(key))
    }

    /// Whether all of these keys, of one object each, may go now. If so, they are removed; otherwise all of them wait.
    pub fn let_go(&self, keys: &BTreeSet<String>) -> bool {
        keys.iter().for_each(|key| self.expect(key, 1));
        if keys.iter().any(|key| self.admit(key, 1).is_err()) {
            return false;
        }
        for key in keys {
            self.destroyed(key, 1);
            self.forget(key);
        }
        true
    }

    /// The keys that have objects and are not known.
    pub fn without(&self, is_known: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let state = self.0.lock();
        state.held.keys().filter(|key| !is_known(key)).cloned().collect()
    }

    /// Records that a key lost this many objects.
    pub fn destroyed(&self, key: &str, count: u64) {
        let mut state = self.0.lock();
        let Some((_, clock)) = &state.guard else { return };
        let now_ms = clock.steady_ms();
        if count == 0 || state.approved.contains(key) {
            return;
        }
        if state.before.is_empty() && state.destroyed == 0 {
            state.began_ms = now_ms;
        }
        state.is_changed = true;
        let left = state.going(key).saturating_sub(count);
        state.set_going(key, left);
        match state.held.get(key).copied() {
            Some(held) => {
                state.before.entry(key.to_owned()).or_insert(held);
                state.hold(key, held.saturating_sub(count));
            }
            // It was not counted: it had at least these.
            None => {
                *state.before.entry(key.to_owned()).or_default() += count;
                state.destroyed += count;
            }
        }
    }

    /// Records that a key is as desired, with this many objects.
    pub fn settled(&self, key: &str, count: u64) {
        self.hold(key, count);
        self.done(key);
    }

    /// Records that a key lost all its objects.
    pub fn emptied(&self, key: &str) {
        self.destroyed(key, self.held(key));
        self.forget(key);
    }

    /// Records that a key is as desired, so it loses nothing more.
    pub fn done(&self, key: &str) {
        self.0.lock().done(key);
    }

    /// Why a key waits; `None` if it does not.
    pub fn refusal(&self, key: &str) -> Option<String> {
        let state = self.0.lock();
        state.refused.contains(key).then(|| state.why())
    }

    /// What waits; `None` if nothing does.
    pub fn waiting(&self) -> Option<Waiting> {
        let state = self.0.lock();
        (!state.refused.is_empty()).then(|| state.waiting())
    }

    /// The keys that waited but need not any more, because the round now destroys less.
    pub fn freed(&self) -> BTreeSet<String> {
        let mut state = self.0.lock();
        if state.is_above() {
            return BTreeSet::new();
        }
        state.is_changed |= !state.refused.is_empty();
        std::mem::take(&mut state.refused)
    }

    /// Another host acts now: nothing waits here any more, and no key has begun to destroy. If this host acts again, it
    /// goes on with the round in which something waited.
    pub fn pause(&self) {
        let mut state = self.0.lock();
        state.goes_on |= !state.refused.is_empty();
        state.refused.clear();
        state.admitted.clear();
    }

    /// Approves what waits and returns it; `None` if nothing waits.
    pub fn approve(&self) -> Option<Waiting> {
        let mut state = self.0.lock();
        if state.refused.is_empty() {
            return None;
        }
        let waiting = state.waiting();
        for key in &waiting.keys {
            state.set_going(key, 0);
        }
        state.approved.extend(waiting.keys.iter().cloned());
        state.refused.clear();
        state.begin_round();
        (state.is_changed, state.has_new_approvals) = (true, true);
        Some(waiting)
    }
}

impl State {
    fn above(&self) -> ApproveAbove {
        self.guard.as_ref().map(|(above, _)| *above).unwrap_or_default()
    }

    /// A key has this many objects, and can't lose more. Those that it lost in this round and has again were replaced,
    /// and do not count.
    fn hold(&mut self, key: &str, count: u64) {
        if self.going(key) > count {
            self.set_going(key, count);
        }
        self.destroyed = self.destroyed.saturating_sub(self.lost(key));
        let before = self.held.insert(key.to_owned(), count);
        self.destroyed += self.lost(key);
        self.is_changed |= before != Some(count);
        self.held_total = self.held_total - before.unwrap_or_default() + count;
    }

    /// How many objects a key has less than when the round began.
    fn lost(&self, key: &str) -> u64 {
        let held = self.held.get(key).copied().unwrap_or_default();
        self.before.get(key).map_or(0, |before| before.saturating_sub(held))
    }

    fn begin_round(&mut self) {
        self.destroyed = 0;
        self.before.clear();
    }

    /// Ends the round after [`ROUND_MS`] if nothing of it waits. One that goes on from an earlier process or term lasts
    /// for as long from now on.
    fn end_if_over(&mut self) {
        let Some((_, clock)) = &self.guard else { return };
        let now_ms = clock.steady_ms();
        if std::mem::take(&mut self.goes_on) {
            self.began_ms = now_ms;
        }
        if self.refused.is_empty() && now_ms.saturating_sub(self.began_ms) >= ROUND_MS {
            self.begin_round();
        }
    }

    fn going(&self, key: &str) -> u64 {
        self.going.get(key).copied().unwrap_or_default()
    }

    fn set_going(&mut self, key: &str, count: u64) {
        self.going_total = self.going_total - set(&mut self.going, key, count) + count;
    }

    fn guessed(&self, key: &str) -> u64 {
        self.guessed.get(key).copied().unwrap_or_default()
    }

    /// Whether the turn of a key began to destroy, and may go on with this many objects.
    fn has_begun(&self, key: &str, count: u64) -> bool {
        self.admitted.get(key).is_some_and(|admitted| *admitted >= count)
    }

    fn set_guessed(&mut self, key: &str, count: u64) {
        self.guessed_total = self.guessed_total - set(&mut self.guessed, key, count) + count;
        self.waits_since_ms.take_if(|_| self.guessed.is_empty());
    }

    fn done(&mut self, key: &str) {
        self.set_going(key, 0);
        self.turn_ended(key);
        self.has_new_approvals |= self.approved.remove(key);
        self.is_changed |= self.has_new_approvals | self.refused.remove(key);
    }

    fn turn_ended(&mut self, key: &str) {
        self.set_guessed(key, 0);
        self.counted.remove(key);
        self.uncounted.remove(key);
        self.admitted.remove(key);
    }

    fn all(&self) -> u64 {
        let approved: u64 = self.approved.iter().filter_map(|key| self.held.get(key)).sum();
        // What is approved goes, so it does not count as kept. A key may turn out to have more than was known.
        (self.held_total - approved).max(self.going_total) + self.destroyed
    }

    fn is_above(&self) -> bool {
        let going = self.going_total + self.destroyed;
        self.guard.is_some() && self.above().is_above(going, self.all())
    }

    /// Whether keys that lose something wait for the turns of those that may lose something.
    fn waits_for_others(&mut self) -> bool {
        let Some((_, clock)) = &self.guard else { return false };
        let now_ms = clock.steady_ms();
        if !self.may_be_above() || self.is_above() {
            return false;
        }
        let since_ms = *self.waits_since_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since_ms) < OTHERS_MAX_MS
    }

    /// The same if all keys lose as much as they may.
    fn may_be_above(&self) -> bool {
        let going = self.going_total + self.guessed_total + self.destroyed;
        self.guard.is_some() && self.above().is_above(going, self.all().max(going))
    }

    fn why(&self) -> String {
        let ApproveAbove { objects, percent } = self.above();
        let going = self.waiting().text("objects");
        format!(
            "destroying {going} is more than {objects} and more than {percent} %: {WAITS}, or for a change of the source \
             after which less is to go; type: trueup approve"
        )
    }

    fn waiting(&self) -> Waiting {
        let keys: BTreeSet<&String> = self.refused.iter().chain(self.going.keys()).collect();
        Waiting {
            keys: keys.into_iter().cloned().collect(),
            objects: self.going_total,
            destroyed: self.destroyed,
            of: self.all(),
        }
    }
}

/// Sets the number of a key, which is absent if it is 0. Returns that before.
fn set(numbers: &mut BTreeMap<String, u64>, key: &str, count: u64) -> u64 {
    let before = match count {
        0 => numbers.remove(key),
        _ => numbers.insert(key.to_owned(), count),
    };
    before.unwrap_or_default()
}

#[cfg(test)]
#[path = "holdings_tests.rs"]
mod tests;
