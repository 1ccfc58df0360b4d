//! Begins the instance, rebuilds it, and makes it read its store.

use std::time::Duration;

use tokio::time::Instant;
use trueup_work::lifecycle::active::Handover;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::Event;

use super::calls::reads_store;
use super::{Actor, READING_RETRY, Task};
use crate::ipam::durability::Lost;
use crate::ipam::enis::Inventory;
use crate::ipam::guest::{Error, Nothing};
use crate::ipam::protocol;

/// After more than this many calls in a row in which the instance ended, the actor pauses before it begins the
/// instance again.
const ENDS_AT_ONCE_MAX: u32 = 3;

/// The first of these pauses; each is twice the one before. Requests wait meanwhile and are not refused.
const ENDED_PAUSE: Duration = Duration::from_millis(10);

/// The longest of these pauses: requests have 10 s by default.
const ENDED_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause before the actor tries again to begin an instance that failed to begin. It doubles each time. Requests
/// are refused meanwhile.
const DOWN_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between such tries.
const DOWN_PAUSE_MAX: Duration = Duration::from_secs(30);

impl Actor {
    /// Begins the instance. Afterwards its store is read or will be read again soon, or the instance is to be begun
    /// again soon.
    pub(super) async fn begin(&mut self) {
        self.due.remove(&Task::Begin);
        if let Err(Failure { error, .. }) = self.try_begin().await {
            self.slot.end();
            self.due.remove(&Task::Reading);
            self.downs = self.downs.saturating_add(1);
            let pause = doubled(DOWN_PAUSE, self.downs, DOWN_PAUSE_MAX);
            self.due.insert(Task::Begin, Instant::now() + pause);
            self.unread = Some(error.clone());
            self.report(|instance| Event::Down {
                instance,
                error,
                again_in_ms: ms(pause),
            });
        }
        self.not_serving.send_replace(self.unread.clone());
    }

    /// With only what the store has, never from the recording: a DEL may have stored the release and nothing more. The
    /// recording then still has the pod's address, ADD would return it without another write, and the next host would
    /// not know of it.
    async fn try_begin(&mut self) -> Result<(), Failure> {
        self.unread = Some("the instance is being built again".to_owned());
        self.has = Inventory::default();
        self.slot.begin(self.valid_entry).await?;
        if self.valid_entry.is_some() || !self.is_begun {
            // Not after a trap: writes from before it may still wait for their sync, and so do the answers.
            self.answers.begin_life(self.last_entry()).await;
        }
        self.is_begun = true;
        self.valid_entry = None;
        let should_have = self.wanted.with(self.remembered.inventory(), self.released.ids());
        // The reading needs all of them: it drops allocations on addresses that no interface has.
        let additions = self.has.additions_to(&should_have);
        let remembered = self.remembered.add(&additions);
        remembered.map_err(|error| format!("the interfaces can't be remembered: {error}"))?;
        self.add(&should_have).await?;
        self.read().await?;
        self.rest().await
    }

    /// Recovers after the instance ended in a call, or after it.
    pub(super) async fn recover(&mut self, error: String) {
        if self.slot.is_live() {
            // It gave an invalid answer but is still there.
            tracing::error!(instance = self.settings.instance, "{error}");
            return;
        }
        self.not_serving.send_replace(Some(error.clone()));
        self.report(|instance| Event::Ended { instance, error });
        self.pause_between_ends().await;
        self.begin().await;
    }

    /// Makes another version active, with the state of the one before. If the instance gives no state and the store was
    /// read, it is begun from the store.
    pub(super) async fn hand_over(&mut self, handover: Handover) {
        let was_live = self.slot.is_live();
        let next = match self.was_read {
            true => reads_store(&handover.instances),
            false => handover.instances,
        };
        let handed_over = self.slot.hand_over(next, handover.commit, self.was_read).await;
        if handed_over.is_ok() {
            // Everything is tried again.
            self.managed.failing.began_version();
        }
        // The caller may have disconnected; the version is active all the same.
        let _ = handover.reply.send(handed_over);
        if !self.slot.is_live() {
            if was_live {
                let why = "the instance is being built again".to_owned();
                self.not_serving.send_replace(Some(why));
            }
            self.begin().await;
        }
    }

    /// Rebuilds the instance after a loss.
    pub(super) async fn roll_back(&mut self, lost: Lost) {
        let Lost { error, valid_entry } = lost;
        self.not_serving.send_replace(Some(error.clone()));
        self.report(|instance| Event::RolledBack {
            instance,
            error,
            stands: valid_entry,
        });
        self.valid_entry = Some(valid_entry);
        self.slot.end();
        self.pause_between_ends().await;
        self.begin().await;
    }

    async fn pause_between_ends(&mut self) {
        self.ends = self.ends.saturating_add(1);
        if let Some(times) = self.ends.checked_sub(ENDS_AT_ONCE_MAX).filter(|times| *times > 0) {
            tokio::time::sleep(doubled(ENDED_PAUSE, times, ENDED_PAUSE_MAX)).await;
        }
    }

    /// Makes the guest read its store. Tries again later if that fails.
    pub(super) async fn read(&mut self) -> Result<(), Failure> {
        self.due.remove(&Task::Reading);
        let read: Result<(), Error> = self.ask("datastore.read-backing-store", &Nothing {}).await?;
        match read {
            Ok(()) => {
                self.unread = None;
                // Later instances read it too, whatever phase they were set to. Otherwise phase 1 would ask the
                // container runtime again, which does not know yet what was just assigned, and still knows what was
                // just freed.
                self.was_read = true;
                // A candidate beside it gets the same settings.
                self.slot.go_on_as(reads_store(&self.slot.instances()));
                self.readings_failed = 0;
                self.downs = 0;
                let stats = self.stats().await?;
                let allocated = self.allocated().await?;
                self.holders.read(allocated);
                self.report(|instance| Event::Read { instance, stats });
                self.follow().await?;
                // An earlier instance may have left something to forget.
                self.forget_soon();
                // A reading after a trap does not look at the spool: a release in which the instance ends would loop.
                if !self.due.contains_key(&Task::Spool) {
                    self.look_at_spool();
                }
            }
            Err(error) => {
                let error = match error {
                    Error::BackingStore(text) => text,
                    other => protocol::name(&other),
                };
                self.readings_failed = self.readings_failed.saturating_add(1);
                self.due.insert(Task::Reading, Instant::now() + READING_RETRY);
                self.unread = Some(error.clone());
                self.report(|instance| Event::ReadingFailed {
                    instance,
                    error,
                    again_in_ms: ms(READING_RETRY),
                });
            }
        }
        self.not_serving.send_replace(self.unread.clone());
        Ok(())
    }
}

/// `first`, doubled with each of `times` after the first, up to `max`.
fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    let factor = 2_u32.saturating_pow(times.saturating_sub(1));
    first.saturating_mul(factor).min(max)
}

fn ms(pause: Duration) -> Option<u64> {
    u64::try_from(pause.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses =
            [1, 2, 3, 7, 8, 40, u32::MAX].map(|times| doubled(ENDED_PAUSE, times, ENDED_PAUSE_MAX).as_millis());
        assert_eq!(pauses, [10, 20, 40, 640, 1000, 1000, 1000]);
    }
}
