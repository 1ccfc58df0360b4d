//! The course of one key: the guest's real decisions, to their end, on a virtual clock on which waiting takes no
//! time.
//!
//! ```text
//! state of now -> sync -> ends of operations -> due timers -> sync -> ... -> the clock moves to the next timer -> ...
//! ```
//! Operations succeed at once, so the only time that passes is the guest's own waiting.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use trueup_base::clock::{Clock as _, VirtualClock};
use trueup_capabilities::neg::planned::Planned;
use trueup_capabilities::neg::{EndpointGroup, Error as ApiError};
use trueup_instance::Instance;

use super::story::Story;
use crate::neg::guest::{Error, OnOperation, OnTimer, Sync, SyncReport};
use crate::neg::shown;

/// The maximum number of guest calls for one key. A move of 10,000 endpoints in steps of a hundredth takes some
/// hundred. A guest that never ends must not keep a plan from ending.
const CALLS_MAX: usize = 10_000;

/// After this many syncs in a row that started nothing, with nothing in flight, nothing more is to come. A guest
/// retries less often by default.
const FRUITLESS_MAX: usize = 20;

/// A key's course.
pub(super) struct Course {
    pub(super) instance: Instance,
    pub(super) planned: Arc<Planned>,
    pub(super) clock: Arc<VirtualClock>,
    /// When the plan began, in milliseconds since 1970.
    pub(super) began_ms: u64,
    pub(super) target: Vec<EndpointGroup>,
    pub(super) story: Story,
    pub(super) calls: usize,
    /// More calls would follow: the limit is [`CALLS_MAX`].
    pub(super) is_cut: bool,
}

impl Course {
    /// From the sync with which a host begins until nothing is left to do.
    ///
    /// # Errors
    /// Why the key does not reach its desired state.
    pub(super) async fn run(&mut self) -> Result<(), String> {
        let (mut wanted, mut fruitless, mut looked) = (true, 0, Ok(()));
        while fruitless < FRUITLESS_MAX {
            self.is_cut = self.calls >= CALLS_MAX;
            if self.is_cut {
                break;
            }
            if wanted {
                let before = self.story.steps.len();
                looked = self.look().await?;
                let is_fruitless = self.story.steps.len() == before && self.story.in_flight.is_empty();
                fruitless = if is_fruitless { fruitless + 1 } else { 0 };
            }
            let Some(wants) = self.notify().await? else { break };
            wanted = wants;
        }
        looked
    }

    /// Notifies the guest of what ended and what is due, or moves the clock to what is due next. Returns whether the
    /// guest wants a sync. `None` if nothing is left.
    async fn notify(&mut self) -> Result<Option<bool>, String> {
        let mut wanted = false;
        let mut has_notified = false;
        while let Some((operation, _)) = self.story.in_flight.pop_first() {
            self.planned
                .end(operation)
                .await
                .map_err(|error| shown::in_words(&error, None))?;
            let args = OnOperation {
                operation,
                failure: None,
            };
            wanted |= self.call::<bool>("syncer.on-operation", &args).await?;
            has_notified = true;
        }
        if !has_notified && let Some(due_ms) = self.instance.host().timers.next_due_ms() {
            // If a timer is already due, the clock does not go back.
            self.clock.set_ms(due_ms.max(self.clock.now_ms()));
        }
        while self.calls < CALLS_MAX {
            let now_ms = self.clock.now_ms();
            let Some((_, timer)) = self.instance.host_mut().timers.take_due(now_ms) else {
                break;
            };
            wanted |= self.call::<bool>("timer-events.on-timer", &OnTimer { timer }).await?;
            has_notified = true;
        }
        Ok(has_notified.then_some(wanted))
    }

    /// A sync. The inner error is about one NEG; the others could be read and changed.
    async fn look(&mut self) -> Result<Result<(), String>, String> {
        let target = self.target.clone();
        let answer: Result<SyncReport, Error> = self.call("syncer.sync", &Sync { target }).await?;
        match answer {
            Ok(_) => Ok(Ok(())),
            // One NEG failed; the guest goes on with the others.
            Err(error @ Error::Api(ApiError::NotFound | ApiError::Refused(_))) => {
                Ok(Err(shown::describe(&error, None)))
            }
            Err(error) => Err(shown::describe(&error, None)),
        }
    }

    async fn call<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Result<R, String> {
        self.calls += 1;
        let args = to_raw_value(args).map_err(|error| format!("arguments of `{call}`: {error}"))?;
        let answer = self.instance.call(call, &args).await;
        // Taken at once, even after a failure: the endpoint lists of a long course would not fit.
        let entries = self.instance.host_mut().tape.take_entries();
        let after_ms = self.clock.now_ms().saturating_sub(self.began_ms);
        for entry in &entries {
            self.story.read(after_ms, &entry.event);
        }
        let answer = answer.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        serde_json::from_str(answer.get()).map_err(|error| format!("the answer of `{call}`: {error}"))
    }
}
