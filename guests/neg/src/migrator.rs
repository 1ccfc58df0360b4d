//! The dual-stack migrator: pause and continue, and the filter with its state.
//!
//! Knows no operations: the code that starts a detachment pauses the migrator, and continues it with the result.

use serde::{Deserialize, Serialize};

use crate::entry::Groups;
use crate::filter::{self, Committed, Decision};
use crate::settings::Settings;
use crate::world::{self, Pending, World};

/// The state of the migrator; as JSON in the form of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrator {
    /// If true, no detachment may start until [`Migrator::resume`], or until the wait ends.
    pub paused: bool,
    /// The timer of the wait after a detachment: paused until it fires. `None` if none runs.
    #[serde(rename = "wait_ends_ms")]
    pub wait: Option<Pending>,
    /// When the latest detachment succeeded. `None` if none did.
    #[serde(rename = "previous_detachment_ms")]
    pub detached_ms: Option<u64>,
    /// When a filter first found migration endpoints in `remove`. `None` if the latest filter found none.
    #[serde(rename = "migration_started_ms")]
    pub started_ms: Option<u64>,
}

impl Migrator {
    /// `migrator.filter` over sorted sets. Without dual stack it returns them unchanged.
    pub fn filter(
        &mut self,
        world: &mut impl World,
        settings: &Settings,
        (add, remove): (Groups, Groups),
        committed: impl FnOnce() -> Committed,
        in_error_state: bool,
    ) -> Decision {
        if !settings.enable_dual_stack {
            return Decision {
                add,
                remove,
                ..Decision::default()
            };
        }
        let committed = committed();
        let now_ms = world.now_ms();
        // If the clock was set back, times that are now in the future count as now; they must not wait for the clock to
        // catch up.
        for stamp in [&mut self.detached_ms, &mut self.started_ms] {
            *stamp = stamp.map(|then_ms| then_ms.min(now_ms));
        }
        let is_recent = |then_ms| now_ms.saturating_sub(then_ms) < settings.previous_detach_threshold_ms;
        let is_troubled = in_error_state || self.detached_ms.is_some_and(is_recent);
        let decision = filter::decide(settings, (self.paused, is_troubled), add, remove, committed);
        self.show(world, &decision, committed, now_ms);
        decision
    }

    fn show(&mut self, world: &mut impl World, decision: &Decision, committed: Committed, now_ms: u64) {
        // Those that this filter took out of `remove`.
        world.gauge_count("trueup_neg_migration_endpoints", &[], decision.migrating);
        for (stack, number) in [
            ("ipv4", committed.ipv4),
            ("ipv6", committed.ipv6),
            ("dual", committed.dual),
        ] {
            world.gauge_count("trueup_neg_committed_endpoints", &[("type", stack)], number);
        }
        world::count(world, "trueup_neg_migration_detachments_total", &[], decision.put_back);
        let unfinished = if decision.migrating > 0 {
            world::seconds(*self.started_ms.get_or_insert(now_ms), now_ms)
        } else {
            if let Some(started_ms) = self.started_ms.take() {
                let seconds = world::seconds(started_ms, now_ms);
                world.histogram_observe("trueup_neg_migration_duration_seconds", &[], seconds);
            }
            0.0
        };
        world.gauge_set("trueup_neg_migration_unfinished_seconds", &[], unfinished);
    }

    /// `migrator.pause`
    pub fn pause(&mut self, world: &mut impl World, settings: &Settings) {
        if settings.enable_dual_stack && !self.paused {
            self.paused = true;
            world::show_whether(world, world::MIGRATION_PAUSED, true);
        }
    }

    /// `migrator.continue`: at once after a failure, else after the wait.
    pub fn resume(&mut self, world: &mut impl World, settings: &Settings, failure: Option<&str>) {
        if !settings.enable_dual_stack || !self.paused || self.wait.is_some() {
            return;
        }
        if failure.is_some() {
            self.go_on(world);
            return;
        }
        let now_ms = world.now_ms();
        self.detached_ms = Some(now_ms);
        self.wait = Some(Pending::after(world, now_ms, settings.migration_wait_ms));
    }

    /// All operations of a detachment ended.
    pub fn end_detachment(&mut self, world: &mut impl World, settings: &Settings, failure: Option<&str>) {
        if settings.enable_dual_stack {
            self.resume(world, settings, failure);
        } else if self.wait.is_none() {
            // A pause began while dual stack was on. Without dual stack it has no effect, and nothing would end it
            // later.
            self.paused = false;
        }
    }

    /// `migrator.is-paused`
    pub fn is_paused(&self, settings: &Settings) -> bool {
        settings.enable_dual_stack && self.paused
    }

    /// True if it was the wait timer.
    pub fn on_timer(&mut self, world: &mut impl World, timer: u64) -> bool {
        let is_wait = self.wait.take_if(|wait| wait.timer == timer).is_some();
        if is_wait {
            self.go_on(world);
        }
        is_wait
    }

    fn go_on(&mut self, world: &mut impl World) {
        self.paused = false;
        world::show_whether(world, world::MIGRATION_PAUSED, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Simulation;

    #[test]
    fn a_clock_that_is_set_back_keeps_no_stamp_in_the_future() {
        let mut world = Simulation::default();
        let settings = Settings::read("{}").unwrap();
        let mut migrator = Migrator {
            detached_ms: Some(86_400_000),
            ..Migrator::default()
        };
        for now_ms in [1_000, 500, 90_000_000] {
            world.now_ms = now_ms;
            migrator.filter(&mut world, &settings, Default::default(), Committed::default, false);
        }
        assert_eq!(migrator.detached_ms, Some(500), "nor one that follows the clock");
    }
}
