//! What is due by time, and what is reported of the addresses.

use std::time::Duration;

use tokio::time::Instant;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::pods::Event;

use super::{Actor, LEAVING_PERIOD, SYNC_PERIOD, Task, WARM_PERIOD};

/// How often the actor asks the container runtime for its sandboxes.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// A pod that got no address asks again within this time, as kubelet does.
const REFUSED_FOR: Duration = Duration::from_secs(120);

impl Actor {
    pub(super) async fn do_due(&mut self) {
        if self.take_due(Task::Begin) {
            self.begin().await;
        }
        let done = self.try_due().await;
        if let Err(Failure { error, .. }) = done {
            self.recover(error).await;
        }
    }

    async fn try_due(&mut self) -> Result<(), Failure> {
        if self.take_due(Task::Reading) && self.datastore.slot.is_live() {
            self.read().await?;
        }
        if self.take_due(Task::Spool) {
            self.look_at_spool();
        }
        if self.take_due(Task::Leaving) {
            self.due.insert(Task::Leaving, Instant::now() + LEAVING_PERIOD);
            if self.is_serving() {
                self.follow().await?;
            }
        }
        if self.take_due(Task::Warm) {
            self.due.insert(Task::Warm, Instant::now() + WARM_PERIOD);
            self.last_warm = Some(Instant::now());
            self.give_up_unused().await?;
        }
        if self.take_due(Task::Forget) {
            self.forget_gone().await;
        }
        if self.take_due(Task::Look) {
            self.due.insert(Task::Look, Instant::now() + LOOK_PERIOD);
            self.look_at_runtime();
        }
        if self.take_due(Task::Sync) {
            self.due.insert(Task::Sync, Instant::now() + SYNC_PERIOD);
            self.take_in_look().await;
            self.holders.write(false);
            self.count();
            self.datastore.rest().await?;
        }
        Ok(())
    }

    // For display.

    /// Reports how many addresses there are and any problems with them, when that changes.
    fn count(&mut self) {
        if !self.is_serving() {
            // The problem was already reported.
            return;
        }
        let rest_ms = self.datastore.cooling_period_ms();
        let stats = self.holders.stats(&self.has, rest_ms, Instant::now());
        let mut problems = Vec::new();
        if self
            .counted
            .as_ref()
            .is_some_and(|(before, _)| stats.free > before.free)
        {
            // A pod that asks now gets it.
            self.refused_at = None;
        }
        // An address of an earlier process may rest.
        let refused_for = REFUSED_FOR.min(Duration::from_millis(rest_ms));
        let asked = self.refused_at.is_some_and(|at| at.elapsed() < refused_for);
        if stats.free == 0 || asked {
            problems.push(format!(
                "no address is free: {} of {} are assigned{}",
                stats.assigned,
                stats.addresses,
                if stats.addresses > stats.assigned {
                    ", the others rest"
                } else {
                    ""
                }
            ));
        }
        let unstored = self.unstored.as_ref();
        problems.extend(unstored.map(|why| format!("the store did not take the last change: {why}")));
        match self.holders.forgotten_count(Instant::now()) {
            0 => {}
            count => problems.push(format!(
                "{count} {} whose containers the container runtime does not know: look with `trueup ipam release`",
                if count == 1 {
                    "address is held"
                } else {
                    "addresses are held"
                }
            )),
        }
        let counted = Some((stats, problems));
        if self.counted == counted {
            return;
        }
        self.counted.clone_from(&counted);
        if let Some((stats, problems)) = counted {
            self.report(Event::Counted {
                instance: self.name(),
                stats,
                problems,
            });
        }
    }

    /// Asks the container runtime for its sandboxes, in the background.
    fn look_at_runtime(&mut self) {
        let Some(runtime) = self.runtime.clone().filter(|_| self.looking.is_none()) else {
            return;
        };
        self.looking = Some(tokio::spawn(async move { runtime.list_ids().await }));
    }

    /// Compares the holders with what the container runtime listed, if it did.
    async fn take_in_look(&mut self) {
        let Some(looked) = self.looking.take_if(|looking| looking.is_finished()) else {
            return;
        };
        match looked.await {
            Ok(Ok(sandboxes)) => {
                self.holders.compare(&sandboxes, Instant::now());
                self.look_failed = None;
            }
            Ok(Err(error)) => {
                if self.look_failed.as_ref() != Some(&error) {
                    tracing::warn!(
                        instance = self.settings.instance,
                        "addresses are not compared with the container runtime: {error}; trying again"
                    );
                }
                self.look_failed = Some(error);
            }
            Err(error) => tracing::error!("the look at the container runtime ended badly: {error}"),
        }
    }
}
