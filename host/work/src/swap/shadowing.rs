//! The manager's commands about a comparison in shadow: begin, look, end, promote.

use std::sync::Arc;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_config::Proof;
use trueup_instance::{Instances, Program};
use trueup_registry::Reference;

use super::managed::{Activated, Awaited, Compared, ManageError, Managed, Promotion};
use super::manager::{Activation, Manager, changing};
use super::proof::{Refused, Step, may_begin_afresh, of_world};
use super::revisions::By;
use crate::gate::{self, Mode};
use crate::shadow::{self, PromotionRefused, Shadow};

impl Manager {
    /// Begins to compare a candidate with the active version. Stops a comparison with another one.
    ///
    /// # Errors
    /// Why it can't be compared, or that it already is.
    pub async fn shadow_start(
        &self,
        name: &str,
        reference: &Reference,
        strict: bool,
        afresh: bool,
    ) -> Result<shadow::Status, ManageError> {
        let managed = self.managed(name)?;
        let _changing = changing(managed)?;
        let refused = |refused| ManageError::refused(name, reference, &refused, "what is active");
        let fetched = self.guests.named(reference, &managed.config.verify).await;
        let mut candidate = fetched.map_err(refused)?;
        let program = &candidate.program;
        self.is_not_compared(name, program)?;
        of_world(program, managed.worlds).map_err(refused)?;
        let afresh = afresh || managed.config.proof.afresh;
        may_begin_afresh(program, afresh).map_err(refused)?;
        let setup = shadow_setup(managed, program, strict, afresh);
        if let Some(bytes) = candidate.bytes.take() {
            self.guests.keep(&bytes).map_err(refused)?;
        }
        let started = Shadow::start(setup).await;
        let shadow = started.map_err(|why| refused(Refused::new(Step::Settings, why)))?;
        let shadow = Arc::new(shadow);
        let status = shadow.status();
        self.end_shadow(managed);
        managed.active.set_shadow(Some(Arc::clone(&shadow)));
        *managed.compared.lock() = Some(Compared {
            shadow,
            candidate,
            reference: reference.to_string(),
            afresh,
        });
        self.write_down(managed, "shadow start", &reference.to_string(), "begun");
        Ok(status)
    }

    fn is_not_compared(&self, name: &str, program: &Program) -> Result<(), ManageError> {
        let same = |(_, compared): &(_, Compared)| compared.candidate.program.guest.digest == program.guest.digest;
        let Some((_, compared)) = self.compared(name).ok().filter(same) else {
            return Ok(());
        };
        let count = compared.shadow.status().compared;
        let why = format!(
            "{} runs in shadow already, and {count} of its calls are compared; to begin again: trueup guest shadow stop {name}",
            compared.reference
        );
        Err(ManageError::nothing(name, why))
    }

    /// The status of the comparison.
    ///
    /// # Errors
    /// If there is none.
    pub fn shadow_status(&self, name: &str) -> Result<shadow::Status, ManageError> {
        let (managed, compared) = self.compared(name)?;
        Ok(managed.compared_so_far(&compared.shadow))
    }

    /// Ends the comparison. Returns its last status.
    ///
    /// # Errors
    /// If there is none.
    pub fn shadow_stop(&self, name: &str) -> Result<shadow::Status, ManageError> {
        let managed = self.managed(name)?;
        let _changing = changing(managed)?;
        let (_, compared) = self.compared(name)?;
        self.end_shadow(managed);
        let status = compared.shadow.status();
        let outcome = format!("{} calls compared, {} the same", status.compared, status.same);
        self.write_down(managed, "shadow stop", &compared.reference, &outcome);
        Ok(status)
    }

    /// Makes the compared candidate the active version: at once, or when `after` calls in a row were the same.
    ///
    /// # Errors
    /// If there is none, or it did not become active now.
    pub async fn promote(self: &Arc<Self>, name: &str, after: Option<u64>) -> Result<Promotion, ManageError> {
        let managed = self.managed(name)?;
        let _changing = changing(managed)?;
        let (_, compared) = self.compared(name)?;
        compared.shadow.promotion_refused(None);
        let mut status = compared.shadow.watch();
        let reached = status.borrow_and_update().same_in_a_row;
        let Some(after) = after.filter(|after| *after > reached) else {
            let activated = self.promote_now(managed, &compared).await?;
            return Ok(Promotion::Done(Box::new(activated)));
        };
        let manager = Arc::clone(self);
        let name = managed.name;
        let task = tokio::spawn(async move {
            // Ending the comparison also aborts this task.
            if status.wait_for(|status| status.same_in_a_row >= after).await.is_ok() {
                manager.promote_reached(name, &compared).await;
            }
        });
        *managed.promotion.lock() = Some(Awaited { after, task });
        Ok(Promotion::Awaited {
            after,
            same_in_a_row: reached,
        })
    }

    /// The count was reached. Promotes the candidate once no other change is under way, if it is still compared then.
    async fn promote_reached(&self, name: &str, compared: &Compared) {
        let Ok(managed) = self.managed(name) else { return };
        let _changing = managed.changing.lock().await;
        let is_it = |current: &Compared| Arc::ptr_eq(&current.shadow, &compared.shadow);
        let is_current = managed.compared.lock().as_ref().is_some_and(is_it);
        if is_current && let Err(error) = self.promote_now(managed, compared).await {
            self.report_refused(&error);
            // It is not retried automatically. This aborts the task, which has nothing left to do.
            *managed.promotion.lock() = None;
        }
    }

    /// The caller must hold `changing`.
    async fn promote_now(&self, managed: &Managed, compared: &Compared) -> Result<Activated, ManageError> {
        let status = compared.shadow.status();
        let activation = Activation {
            reference: compared.reference.clone(),
            by: By::Promote,
            proof: Proof {
                afresh: compared.afresh || managed.config.proof.afresh,
                ..managed.config.proof.clone()
            },
            dry_run: false,
            note: Some(format!(
                "after {} calls in shadow, {} the same",
                status.compared, status.same
            )),
        };
        let activated = self.activate(managed, Ok(compared.candidate.clone()), activation).await;
        activated.inspect_err(|error| {
            let (at_ms, why) = (SystemClock.now_ms(), error.to_string());
            compared.shadow.promotion_refused(Some(PromotionRefused { at_ms, why }));
        })
    }

    fn compared(&self, name: &str) -> Result<(&Managed, Compared), ManageError> {
        let managed = self.managed(name)?;
        let compared = managed.compared.lock().clone().ok_or_else(|| {
            let next = format!("begin with `trueup guest shadow start {name} CANDIDATE`");
            ManageError::nothing(name, format!("nothing runs in shadow; {next}"))
        })?;
        Ok((managed, compared))
    }

    /// The candidate's thread ends when the last reference to the shadow is dropped.
    pub(super) fn end_shadow(&self, managed: &Managed) {
        *managed.promotion.lock() = None;
        managed.active.set_shadow(None);
        *managed.compared.lock() = None;
    }
}

/// A candidate beside the active version, both with the settings and limits of the active one.
fn shadow_setup(managed: &Managed, candidate: &Arc<Program>, strict: bool, afresh: bool) -> shadow::Setup {
    let active = Instances::clone(&managed.active.instances());
    shadow::Setup {
        candidate: Instances {
            program: Arc::clone(candidate),
            afresh,
            ..active.clone()
        },
        compare: gate::compares(if strict {
            Mode::Strict
        } else {
            managed.config.proof.gate
        }),
        folder: active.state_dir.join("shadow").join(managed.name),
        active,
        metrics: Arc::clone(&managed.metrics),
    }
}
