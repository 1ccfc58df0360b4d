//! One turn of a key: its instance, opened on demand and brought to the active version, and the calls to it, each
//! recorded as a decision.
//!
//! Which calls, in which order, is up to the world.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tracing::Instrument as _;
use trueup_base::clock::Clock;
use trueup_base::fence::Fence;
use trueup_base::progress::{self, Doing};
use trueup_capabilities::Backends;
use trueup_capabilities::meter::{Change, Effects, Unapplied};
use trueup_instance::dispatch::{self, Answer};
use trueup_journal::Interrupted;

use crate::decisions::{JobRecorder, JobResult};
use crate::keyed::interrupt::{Interrupt, Interruptible, Sleepers, Turns};
use crate::lifecycle::active::Active;
use crate::lifecycle::failure::{End, Failure};
use crate::slot::{self, InstanceSlot, Open};

/// What becomes of a call that did not end.
///
/// |            | the host wants it to end       | a kill cut it            | its recording can't go on |
/// | ---------- | ------------------------------ | ------------------------ | ------------------------- |
/// | `Dropped`  | cut at its next sleep          | as if it was never made  | the next turn reports it  |
/// | `Finished` | it goes on; no other call      | finished before any other | the turn fails           |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutCalls {
    /// It is cut, and the next turn of the key begins anew.
    Dropped,
    /// It runs to its end, in this process or the next.
    Finished,
}

/// What all turns of one guest share.
pub struct Shared {
    /// The version that decides.
    pub active: Arc<Active>,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) cut: CutCalls,
}

impl Shared {
    pub(crate) fn new(active: &Arc<Active>, workers: usize, cut: CutCalls) -> Arc<Self> {
        Arc::new(Self {
            active: Arc::clone(active),
            sleepers: Arc::default(),
            turns: Turns::new(workers),
            cut,
        })
    }
}

/// A turn of one key.
pub struct Turn {
    /// What all turns of the loop share.
    pub shared: Arc<Shared>,
    /// The instance of the key's last turn, if it is still there.
    pub slot: InstanceSlot,
    /// Why it runs, and the record of its decisions.
    pub(crate) decided: JobRecorder,
    /// The fence of the epoch in which it begins. In a later epoch it changes nothing outside.
    pub fence: Fence,
    /// Wanted once the turn is to end.
    pub(crate) interrupt: Arc<Interrupt>,
    /// Whether the next calls are to remove everything.
    pub removing: bool,
    /// How many objects the next call destroys in all, if its guest said so.
    pub foreseen: Option<u64>,
    /// Whether the next calls say how many objects the key has.
    pub counts: bool,
    /// How much was created and destroyed, however the turn ends.
    pub effects: Effects,
    /// The same, object by object.
    pub changes: Vec<Change>,
    /// What the backend failed to apply, as its last call saw it.
    pub unapplied: Unapplied,
    /// When its last call began, in milliseconds since 1970, as far as is known.
    pub last_at_ms: u64,
    _doing: Doing,
}

/// The result of a turn.
pub struct Done<K, O> {
    pub(crate) key: K,
    /// `None` if there is no instance.
    pub(crate) slot: Option<InstanceSlot>,
    pub(crate) end: End,
    pub(crate) effects: Effects,
    pub(crate) changes: Vec<Change>,
    /// What else the world found out.
    pub(crate) out: O,
}

impl Turn {
    /// A turn that has made no call.
    pub(crate) fn new(
        shared: Arc<Shared>,
        slot: InstanceSlot,
        decided: JobRecorder,
        fence: Fence,
        interrupt: Arc<Interrupt>,
    ) -> Self {
        Self {
            _doing: progress::doing(|| format!("working on {}", slot.key())),
            shared,
            slot,
            decided,
            fence,
            interrupt,
            removing: false,
            foreseen: None,
            counts: false,
            effects: Effects::default(),
            changes: Vec::new(),
            unapplied: Unapplied::new(),
            last_at_ms: 0,
        }
    }

    /// Ends the turn, and writes the record of its decisions.
    pub fn end<K, O>(self, key: K, end: End, out: O) -> Done<K, O> {
        self.decided.end(JobResult::from(&end), self.effects);
        Done {
            key,
            slot: Some(self.slot).filter(InstanceSlot::is_live),
            end,
            effects: self.effects,
            changes: self.changes,
            out,
        }
    }

    /// Stops a turn whose calls are never cut, between two of them.
    pub fn go_on(&self) -> Result<(), Failure> {
        if self.interrupt.is_wanted() {
            return Err(Failure::cut());
        }
        Ok(())
    }

    /// Calls get these backends; in a plan, those of the plan in place of them. The host may cut a call while it sleeps
    /// or computes for long, if calls are dropped.
    pub fn set_backends(&mut self, backends: Backends) {
        let backends = match &self.shared.active.plan {
            Some(plan) => plan.backends(self.slot.key(), backends),
            None => backends,
        };
        let interrupt = match self.shared.cut {
            CutCalls::Dropped => Arc::clone(&self.interrupt),
            // This one is never wanted, so no call is cut.
            CutCalls::Finished => Arc::default(),
        };
        let pace = Arc::new(Interruptible {
            clock: backends.clock,
            turns: Arc::clone(&self.shared.turns),
            interrupt,
            sleepers: Arc::clone(&self.shared.sleepers),
        });
        self.slot.set_backends(Backends {
            clock: Arc::clone(&pace) as Arc<dyn Clock>,
            pace: Some(pace),
            ..backends
        });
    }

    /// Gets the instance, as `InstanceSlot::ready`. Returns whether it was just opened, and the call that its
    /// recording ends in, which the world must finish.
    pub async fn ready(
        &mut self,
        settings: Option<&Map<String, Value>>,
    ) -> Result<Option<Option<Interrupted>>, Failure> {
        let finishes = self.shared.cut == CutCalls::Finished;
        let opened = tokio::select! {
            biased;
            // A guest may sleep in `init` too.
            ready = self.slot.ready(settings, finishes) => ready?,
            () = self.interrupt.reached() => return Err(Failure::cut()),
        };
        Ok(opened.map(|last| {
            if finishes {
                self.last_at_ms = self.last_at_ms.max(last.at_ms);
            }
            last.interrupted
        }))
    }

    /// Calls the guest, and reads its answer. Records one decision. Its time is later than that of any call before.
    pub async fn call<R: DeserializeOwned, T>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        read: impl FnOnce(R, &Unapplied) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let called = self.called(call, args).await;
        let answer = called.and_then(|answer| read(dispatch::read(call, &answer)?, &self.unapplied));
        self.decided.end_call(&answer);
        answer
    }

    async fn called(&mut self, call: &str, args: &impl Serialize) -> Result<Box<RawValue>, Failure> {
        let args = slot::arguments(call, args)?;
        let mut open = self.slot.take()?;
        let host = open.instance.host_mut();
        (host.removing, host.foreseen) = (self.removing, self.foreseen);
        let before = host.meter.effects;
        self.last_at_ms = host.backends.clock.now_ms().max(self.last_at_ms.saturating_add(1));
        let span = self.decided.begin(host, call, self.removing);
        let (active, key) = (self.slot.active(), self.slot.key());
        let calling = active.call(self.last_at_ms, key, &mut open.instance, call, &args);
        let answer = tokio::select! {
            biased;
            answer = calling.instrument(span) => Some(answer),
            () = self.interrupt.reached() => None,
        };
        let host = open.instance.host_mut();
        if let Some(left) = host.left().filter(|_| self.counts) {
            host.backends.quotas.holdings.hold(key, left);
        }
        self.effects.created += host.meter.effects.created - before.created;
        self.effects.destroyed += host.meter.effects.destroyed - before.destroyed;
        self.changes.append(&mut host.changes);
        self.unapplied = std::mem::take(&mut host.unapplied);
        self.settled(open, answer).await
    }

    /// Finishes the call inside which the recording ended, and returns its answer.
    pub async fn finish(&mut self, interrupted: Interrupted) -> Result<Box<RawValue>, Failure> {
        let mut open = self.slot.take()?;
        self.last_at_ms = self.last_at_ms.max(interrupted.at_ms);
        let span = self.decided.begin(open.instance.host(), &interrupted.call, false);
        let counted = self.slot.active().calls.begin();
        let finishing = open.form.finish(self.slot.key(), &mut open.instance, interrupted);
        let answer = finishing.instrument(span).await;
        counted.end(answer.is_ok());
        let settled = self.settled(open, Some(answer)).await;
        self.decided.end_call(&settled);
        settled
    }

    /// The result of a call; `None` if it was cut. If it succeeded, the instance goes on, in a new segment if the old
    /// one is long.
    async fn settled(&mut self, open: Open, answer: Option<Answer>) -> Result<Box<RawValue>, Failure> {
        self.decided.asked(open.instance.host().meter.used.imports);
        let Some(answer) = answer else {
            let why = "the host stops, there is a newer input or version, or another key waits";
            let why = format!("ended while it slept or waited for its turn: {why}");
            self.slot.cancel(open, why);
            return Err(Failure::cut());
        };
        let answer = self.slot.settle(open, answer)?;
        self.slot.try_tick().inspect_err(|_| self.slot.end())?;
        let rotated = tokio::select! {
            biased;
            rotated = self.slot.rotate() => rotated,
            // The answer is valid. Its recording continues in a new instance.
            () = self.interrupt.reached() => Ok(()),
        };
        if let Err(Failure { error, .. }) = rotated {
            if self.shared.cut == CutCalls::Finished {
                return Err(Failure::from(format!("its recording can't go on: {error}")));
            }
            // The next call opens the instance anew and reports if that fails.
            let instance = self.slot.key();
            tracing::warn!(instance, "its recording goes on in a new instance: {error}");
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::lifecycle::failure::Blame;

    #[test]
    fn an_unreadable_answer_is_a_fault_of_the_guest() {
        let answer = to_raw_value("yes").unwrap_or_default();
        let trouble = dispatch::read::<bool>("timer-events.on-timer", &answer).map_err(Failure::from);
        let Err(Failure { error, blame, .. }) = trouble else {
            panic!("it is an answer");
        };
        assert_eq!(blame, Blame::Guest, "else it is tried again for ever");
        assert!(error.starts_with("the answer of `timer-events.on-timer`: "), "{error}");
    }
}
