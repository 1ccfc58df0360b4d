//! One turn of a key: its instance, opened on demand and brought to the active version, and the calls to it, each
//! recorded as a decision.
//!
//! Which calls, in which order, is up to the world.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tracing::Instrument as _;
use trueup_base::fence::Fence;
use trueup_capabilities::Backends;
use trueup_capabilities::meter::{Change, Effects};
use trueup_journal::{Interrupted, Journal, JournalError};

use crate::decisions::{Came, Decided};
use crate::guests::dispatch::{self, Answer};
use crate::instance::Instance;
use crate::instances::{self, Instances, OpenError, Reopened, with_causes};
use crate::lifecycle::active::Active;
use crate::lifecycle::failure::{End, Failure};
use crate::work::interrupt::{Interrupt, InterruptibleClock, Sleepers};
use crate::work::turns::{Paced, Turns};

/// What becomes of a call that did not end.
///
/// |            | the host wants it to end       | a kill cut it            | its recording can't go on |
/// | ---------- | ------------------------------ | ------------------------ | ------------------------- |
/// | `Dropped`  | cut at its next sleep          | as if it was never made  | the next turn reports it  |
/// | `Finished` | it goes on; no other call      | finished before any other | the turn fails           |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutCalls {
    Dropped,
    Finished,
}

/// What all turns of one guest share.
pub(crate) struct Shared {
    pub(crate) active: Arc<Active>,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) cut: CutCalls,
}

/// An instance, and what it was opened with.
pub(crate) struct Live {
    pub(crate) instance: Instance,
    /// The version that was active then.
    base: Arc<Instances>,
    /// The same with the settings of this key.
    version: Arc<Instances>,
    /// Ends its call while it sleeps.
    pub(crate) interrupt: Arc<Interrupt>,
}

impl Live {
    /// When its first timer is due, by `Clock::steady_ms`. `None` if it has no timer.
    pub(crate) fn timer_ms(&self) -> Option<u64> {
        self.instance.host().timers.next_due_ms()
    }

    /// Syncs the recording to disk if the configuration says so and it is due.
    pub(crate) fn sync_if_due(&mut self) -> Result<(), JournalError> {
        let journal = self.instance.host_mut().tape.journal_mut();
        journal.map_or(Ok(()), |journal| journal.tick(Instant::now()))
    }

    /// Syncs the whole recording to disk: nothing will sync it later.
    pub(crate) fn sync(&mut self) {
        if let Some(Err(error)) = self.instance.host_mut().tape.journal_mut().map(Journal::sync_now) {
            tracing::warn!("{error}");
        }
    }
}

/// A turn of one key.
pub(crate) struct Turn {
    pub(crate) shared: Arc<Shared>,
    /// The key, as text.
    pub(crate) instance: String,
    /// Why it runs, and the record of its decisions.
    pub(crate) decided: Decided,
    /// The backends for its calls. An instance that is open already gets them too.
    pub(crate) backends: Backends,
    /// The fence of the epoch in which it begins. In a later epoch it changes nothing outside.
    pub(crate) fence: Fence,
    /// Wanted once the turn is to end. That of `live`, if calls are dropped.
    pub(crate) interrupt: Arc<Interrupt>,
    /// The instance of the key's last turn, if it is still there.
    pub(crate) live: Option<Live>,
    /// Whether the next calls are to remove everything.
    pub(crate) removing: bool,
    /// Whether the next calls say how many objects the key has.
    pub(crate) counts: bool,
    /// How much was created and destroyed, however the turn ends.
    pub(crate) effects: Effects,
    /// The same, object by object.
    pub(crate) changes: Vec<Change>,
    /// When its last call began, in milliseconds since 1970, as far as is known.
    pub(crate) last_at_ms: u64,
}

/// The result of a turn.
pub(crate) struct Done<K, O> {
    pub(crate) key: K,
    pub(crate) live: Option<Live>,
    pub(crate) end: End,
    pub(crate) effects: Effects,
    pub(crate) changes: Vec<Change>,
    /// What else the world found out.
    pub(crate) out: O,
}

impl Turn {
    /// Ends the turn, and writes the record of its decisions.
    pub(crate) fn end<K, O>(self, key: K, end: End, out: O) -> Done<K, O> {
        self.decided.end(Came::from(&end), self.effects, &self.changes);
        Done {
            key,
            live: self.live,
            end,
            effects: self.effects,
            changes: self.changes,
            out,
        }
    }

    /// Stops a turn whose calls are never cut, between two of them.
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        if self.interrupt.is_wanted() {
            return Err(Failure::cut());
        }
        Ok(())
    }

    /// Gets the instance: of the active version, with the settings of this key over the configured ones. Returns
    /// whether it was just opened, and the call that its recording ends in, which the world must finish.
    pub(crate) async fn ready(
        &mut self,
        settings: Option<&Map<String, Value>>,
    ) -> Result<Option<Option<Interrupted>>, Failure> {
        let interrupt = Arc::clone(&self.interrupt);
        let base = self.shared.active.instances();
        let version = settings.map_or_else(|| Arc::clone(&base), |settings| with_settings(&base, settings));
        tokio::select! {
            biased;
            ready = async {
                match self.live.take() {
                    Some(live) => self.bring_up_to_date(live, base, version).await.map(|()| None),
                    // A guest may sleep in `init` too.
                    None => self.open(base, version).await.map(Some),
                }
            } => ready,
            () = interrupt.reached() => Err(Failure::cut()),
        }
    }

    /// Moves the state if the version or the settings changed. If the new version refuses the state, the instance
    /// stays as it is, for when another version becomes active again.
    async fn bring_up_to_date(
        &mut self,
        mut live: Live,
        base: Arc<Instances>,
        version: Arc<Instances>,
    ) -> Result<(), Failure> {
        // The backends with which it was opened may be of a past epoch.
        let before = &live.instance.host().backends;
        let backends = Backends {
            clock: Arc::clone(&before.clock),
            pace: before.pace.clone(),
            random: Arc::clone(&before.random),
            ..self.backends.clone()
        };
        live.instance.host_mut().backends = backends;
        if Arc::ptr_eq(&base, &live.base) && version.settings == live.version.settings {
            self.live = Some(live);
            return Ok(());
        }
        match version.take_over(&self.instance, live.instance, async || Ok(())).await {
            Ok(instance) => {
                self.live = Some(Live {
                    instance,
                    base,
                    version,
                    interrupt: live.interrupt,
                });
                Ok(())
            }
            Err((left, error)) => {
                self.live = left.map(|instance| Live {
                    instance: *instance,
                    base: live.base,
                    version: live.version,
                    interrupt: live.interrupt,
                });
                Err(Failure::of_guest(error))
            }
        }
    }

    async fn open(&mut self, base: Arc<Instances>, version: Arc<Instances>) -> Result<Option<Interrupted>, Failure> {
        let interrupt = match self.shared.cut {
            CutCalls::Dropped => Arc::clone(&self.interrupt),
            // This one is never wanted, so no call is cut.
            CutCalls::Finished => Interrupt::new(),
        };
        let clock = InterruptibleClock {
            clock: Arc::clone(&self.backends.clock),
            interrupt: Arc::clone(&interrupt),
            sleepers: Arc::clone(&self.shared.sleepers),
        };
        let pace = Paced {
            turns: Arc::clone(&self.shared.turns),
            interrupt: Arc::clone(&interrupt),
            sleepers: Arc::clone(&self.shared.sleepers),
        };
        let backends = Backends {
            clock: Arc::new(clock),
            pace: Some(Arc::new(pace)),
            ..self.backends.clone()
        };
        let opened = match self.shared.cut {
            CutCalls::Dropped => version.open(&self.instance, backends).await.map(|instance| Reopened {
                instance,
                interrupted: None,
                last_at_ms: 0,
            }),
            CutCalls::Finished => version.open_to_finish(&self.instance, backends).await,
        };
        let Reopened {
            instance,
            interrupted,
            last_at_ms,
        } = opened.map_err(not_opened)?;
        self.last_at_ms = self.last_at_ms.max(last_at_ms);
        self.live = Some(Live {
            instance,
            base,
            version,
            interrupt,
        });
        Ok(interrupted)
    }

    /// Calls the guest, and reads its answer. Records one decision. Its time is later than that of any call before.
    pub(crate) async fn call<R: DeserializeOwned, T>(
        &mut self,
        call: &str,
        args: &impl Serialize,
        read: impl FnOnce(R) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let called = self.called(call, args).await;
        let answer = called.and_then(|answer| read(dispatch::read(call, &answer)?));
        self.decided
            .end_call(answer.as_ref().err().map(|failure| failure.error.as_str()));
        answer
    }

    async fn called(&mut self, call: &str, args: &impl Serialize) -> Result<Box<RawValue>, Failure> {
        let args = to_raw_value(args).map_err(|error| format!("arguments of `{call}`: {error}"))?;
        let Some(mut live) = self.live.take() else {
            return Err(Failure::from(format!("`{call}`: its instance is gone")));
        };
        live.instance.host_mut().removing(self.removing);
        let before = live.instance.host().meter.effects;
        let now_ms = live.instance.host().backends.clock.now_ms();
        self.last_at_ms = now_ms.max(self.last_at_ms.saturating_add(1));
        let span = self.decided.begin(live.instance.host(), call, self.removing);
        let active = &self.shared.active;
        let calling = active.call_at(self.last_at_ms, &self.instance, &mut live.instance, call, &args);
        let answer = tokio::select! {
            biased;
            answer = calling.instrument(span) => Some(answer),
            () = self.interrupt.reached() => None,
        };
        if let Some(left) = live.instance.host().left().filter(|_| self.counts) {
            self.backends.quotas.holdings.hold(&self.instance, left);
        }
        let after = live.instance.host().meter.effects;
        self.effects.created += after.created - before.created;
        self.effects.destroyed += after.destroyed - before.destroyed;
        self.changes.append(&mut live.instance.host_mut().changes);
        self.settled(live, answer).await
    }

    /// Finishes the call inside which the recording ended, and returns its answer.
    pub(crate) async fn finish(&mut self, interrupted: Interrupted) -> Result<Box<RawValue>, Failure> {
        let Some(mut live) = self.live.take() else {
            return Err(Failure::from("its instance is gone".to_owned()));
        };
        self.last_at_ms = self.last_at_ms.max(interrupted.at_ms);
        let span = self.decided.begin(live.instance.host(), &interrupted.call, false);
        let counted = self.shared.active.calls.begin();
        let version = Arc::clone(&live.version);
        let finishing = version.finish(&self.instance, &mut live.instance, interrupted);
        let answer = finishing.instrument(span).await;
        counted.end(answer.is_ok());
        let settled = self.settled(live, Some(answer)).await;
        self.decided
            .end_call(settled.as_ref().err().map(|failure| failure.error.as_str()));
        settled
    }

    /// The result of a call; `None` if it was cut. If it succeeded, the instance goes on, in a new segment if the old
    /// one is long.
    async fn settled(&mut self, mut live: Live, answer: Option<Answer>) -> Result<Box<RawValue>, Failure> {
        self.decided.asked(live.instance.host().meter.used.imports);
        let Some(answer) = answer else {
            instances::cancel(
                live.instance,
                "ended while it slept or waited for its turn: the host stops, there is a newer input or version, or another key waits",
            );
            return Err(Failure::cut());
        };
        let answer = answer?;
        live.sync_if_due().map_err(with_causes)?;
        let rotated = tokio::select! {
            biased;
            rotated = live.version.rotate_if_long(live.instance) => rotated,
            // The answer is valid. Its recording continues in a new instance.
            () = self.interrupt.reached() => return Ok(answer),
        };
        match rotated {
            Ok(instance) => self.live = Some(Live { instance, ..live }),
            Err(error) if self.shared.cut == CutCalls::Finished => {
                let error = with_causes(error);
                return Err(Failure::from(format!("its recording can't go on: {error}")));
            }
            // The next call opens the instance anew and reports if that fails.
            Err(error) => tracing::warn!(
                instance = self.instance,
                "its recording goes on in a new instance: {error}"
            ),
        }
        Ok(answer)
    }
}

/// A version with the settings of one key on top of the configured ones.
pub(crate) fn with_settings(base: &Instances, settings: &Map<String, Value>) -> Arc<Instances> {
    let mut merged = base.clone();
    if let Value::Object(all) = &mut merged.settings {
        all.extend(settings.clone());
    } else {
        merged.settings = Value::Object(settings.clone());
    }
    Arc::new(merged)
}

fn not_opened(error: OpenError) -> Failure {
    if matches!(error, OpenError::Start(_)) {
        return Failure::of_guest(with_causes(error));
    }
    let damaged = matches!(error, OpenError::Journal(JournalError::Read(_)));
    let next = if damaged {
        "; repair it, or move its folder away to go on without what it says"
    } else {
        ""
    };
    Failure::from(with_causes(error) + next)
}

#[cfg(test)]
mod tests {
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
