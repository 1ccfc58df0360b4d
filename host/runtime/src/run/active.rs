//! Which version of a guest is active, and what watches it: shared by the loop, its jobs and whoever manages guests.
//!
//! A call that has begun ends on the version it began with; the next one looks here.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use trueup_capabilities::meter::Usage;
use trueup_capabilities::quota::Quotas;

use super::instances::Instances;
use crate::board::Calls;
use crate::decisions::Cause;
use crate::guests::dispatch::Answer;
use crate::instance::Instance;
use crate::shadow::{self, Interest, Observed, Shadow};

/// Why keys run again when another version is active.
pub(crate) fn became_active(before: &Instances, now: &Instances) -> Cause {
    let named = |instances: &Instances| {
        let guest = &instances.program.guest;
        format!("{}@{}", guest.name, guest.version)
    };
    Cause::Version {
        guest: named(now),
        digest: now.program.guest.digest.to_string(),
        before: named(before),
    }
}

/// The active version of one guest, and its shadow.
pub(crate) struct Active {
    instances: RwLock<Arc<Instances>>,
    shadow: RwLock<Option<Arc<Shadow>>>,
    /// What its calls came to, those of earlier versions included.
    pub(crate) calls: Calls,
    /// What its instances hold: whoever makes instances of it hands it on to them.
    pub(crate) usage: Arc<Usage>,
    /// How often it asked, and what it holds: likewise.
    pub(crate) quotas: Arc<Quotas>,
    /// What waits in it was approved.
    pub(crate) approved: Notify,
}

impl Active {
    pub(crate) fn new(instances: Arc<Instances>) -> Arc<Self> {
        Arc::new(Self {
            instances: RwLock::new(instances),
            shadow: RwLock::default(),
            calls: Calls::default(),
            usage: Arc::default(),
            quotas: Arc::default(),
            approved: Notify::new(),
        })
    }

    /// What the next call is made with.
    pub(crate) fn instances(&self) -> Arc<Instances> {
        Arc::clone(&self.instances.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes another version the active one.
    pub(crate) fn set(&self, instances: Arc<Instances>) {
        *self.instances.write().unwrap_or_else(PoisonError::into_inner) = instances;
    }

    /// The candidate that is compared with it; none: there is none.
    pub(crate) fn shadow(&self) -> Option<Arc<Shadow>> {
        self.shadow.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins or ends a comparison.
    pub(crate) fn set_shadow(&self, shadow: Option<Arc<Shadow>>) {
        *self.shadow.write().unwrap_or_else(PoisonError::into_inner) = shadow;
    }

    /// Calls an instance, and counts the call; where there is a shadow, it is told of it. Where this future is dropped, it
    /// is not.
    pub(crate) async fn call(&self, key: &str, instance: &mut Instance, call: &str, args: &RawValue) -> Answer {
        let at_ms = instance.host().backends.clock.now_ms();
        self.call_at(at_ms, key, instance, call, args).await
    }

    /// [`Active::call`] at a time that the caller gives, in milliseconds since 1970.
    pub(crate) async fn call_at(
        &self,
        at_ms: u64,
        key: &str,
        instance: &mut Instance,
        call: &str,
        args: &RawValue,
    ) -> Answer {
        let counted = self.calls.begin();
        let answer = self.observed_call(at_ms, key, instance, call, args).await;
        counted.end(answer.is_ok());
        answer
    }

    async fn observed_call(
        &self,
        at_ms: u64,
        key: &str,
        instance: &mut Instance,
        call: &str,
        args: &RawValue,
    ) -> Answer {
        let Some(observer) = self.shadow() else {
            return instance.call_at(at_ms, call, args).await;
        };
        let digest = instance.program().guest.digest;
        let state = match observer.interest(key, &digest) {
            Interest::Nothing => {
                let answer = instance.call_at(at_ms, call, args).await;
                observer.pass_over(key);
                return answer;
            }
            Interest::Call => None,
            Interest::StateAndCall => match instance.snapshot().await {
                Ok(state) => Some(state),
                Err(error) => {
                    // It may have cost this instance, and must not cost the next one too.
                    tracing::warn!(
                        instance = key,
                        "no snapshot for the candidate in shadow, which sees no more of this instance: {error}"
                    );
                    observer.has_no_state(key);
                    // Where the instance is no more, this says so.
                    let answer = instance.call_at(at_ms, call, args).await;
                    observer.pass_over(key);
                    return answer;
                }
            },
        };
        let settings = state.is_some().then(|| instance.settings().clone());
        let mut timers = instance.host().timers.waiting();
        // It was taken to be told, and waits in the state.
        timers.extend(shadow::fired(call, args).map(|timer| (at_ms, timer)));
        let begun = Instant::now();
        instance.host_mut().tape.keep_entries(true);
        let answer = instance.call_at(at_ms, call, args).await;
        let tape = &mut instance.host_mut().tape;
        let entries = tape.take_entries();
        tape.keep_entries(false);
        observer.observe(Observed {
            key: key.to_owned(),
            digest,
            state,
            settings,
            timers,
            entries,
            took: begun.elapsed(),
        });
        answer
    }
}

/// A version that is to become the active one: it passed all that can be found out beside the active one.
pub(crate) struct Handover {
    pub(crate) instances: Arc<Instances>,
    /// Makes it the active one for the next start too. Called when nothing can refuse it any more.
    pub(crate) commit: Box<dyn FnOnce() -> Result<(), String> + Send>,
    /// Whether it became the active one, or why not.
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
}
