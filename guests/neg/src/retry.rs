//! When to try again: the delay doubles each time, up to a maximum, for a limited number of times. No jitter: the world
//! has no randomness.

use serde::{Deserialize, Serialize};

use crate::bindings::trueup::neg::api::Error;
use crate::settings::Settings;
use crate::world::{self, Pending, World};

/// The retries of one kind; as JSON in the form of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How many since the latest success.
    pub count: u64,
    /// The timer of the next retry.
    #[serde(rename = "due_ms")]
    pub pending: Option<Pending>,
}

impl Retry {
    /// Schedules the next retry, unless the limit is reached. `cause` is what to retry.
    fn next(&mut self, world: &mut impl World, settings: &Settings, cause: &str) {
        if settings.max_retries != 0 && self.count >= settings.max_retries {
            return;
        }
        let delay_ms = delay_ms(settings, self.count);
        self.count = self.count.saturating_add(1);
        self.schedule(world, delay_ms, cause);
    }

    fn schedule(&mut self, world: &mut impl World, delay_ms: u64, cause: &str) {
        let now_ms = world.now_ms();
        self.pending = Some(Pending::after(world, now_ms, delay_ms));
        world::count(world, "trueup_neg_retries_total", &[("cause", cause)], 1);
    }

    /// A sync ended with this error.
    pub fn after_sync_error(&mut self, world: &mut impl World, settings: &Settings, error: &Error) {
        self.cancel(world);
        if let Error::RateLimited(Some(delay_ms)) = *error {
            self.schedule(world, delay_ms, "sync");
        } else {
            self.next(world, settings, "sync");
        }
    }

    /// An operation failed. Several failures share one timer.
    pub fn after_failed_operation(&mut self, world: &mut impl World, settings: &Settings) {
        if self.pending.is_none() {
            self.next(world, settings, "operation");
        }
    }

    /// True if it was this timer.
    pub fn on_timer(&mut self, timer: u64) -> bool {
        self.pending.take_if(|pending| pending.timer == timer).is_some()
    }

    /// Leaves no timer pending.
    pub fn cancel(&mut self, world: &mut impl World) {
        if let Some(pending) = self.pending.take() {
            world.cancel(pending.timer);
        }
    }
}

/// The delay after this many retries.
fn delay_ms(settings: &Settings, count: u64) -> u64 {
    let factor = u32::try_from(count).ok().and_then(|count| 1_u64.checked_shl(count));
    let delay_ms = factor.and_then(|factor| settings.min_retry_delay_ms.checked_mul(factor));
    delay_ms.map_or(settings.max_retry_delay_ms, |ms| ms.min(settings.max_retry_delay_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_maximum() {
        let settings = Settings::default();
        let delays: Vec<u64> = (0..9).map(|count| delay_ms(&settings, count)).collect();
        assert_eq!(
            delays,
            [5000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]
        );
        for count in [60, 63, 64, 1 << 32, u64::MAX] {
            assert_eq!(delay_ms(&settings, count), 600_000, "{count}");
        }
        let endless = Settings {
            min_retry_delay_ms: 1,
            max_retry_delay_ms: u64::MAX,
            ..settings
        };
        assert_eq!([delay_ms(&endless, 63), delay_ms(&endless, 64)], [1 << 63, u64::MAX]);
    }
}
