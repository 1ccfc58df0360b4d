//! Executes operators' commands about guests while the host runs: swap, roll back, compare in shadow, promote.
//!
//! Makes one change of a guest at a time. Only the loop or the actor changes the active version; this module proves
//! it, hands it over, and records it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::audit::Audit;
use trueup_capabilities::holdings::Waiting;
use trueup_config::Proof;
use trueup_instance::{Instances, Program};
use trueup_registry::Reference;

use super::managed::{Activated, Candidate, Compared, Event, FallBack, GuestStatus, ManageError, Managed, Promotion};
use super::proof::{Against, Fetched, Guests, Refused, Step, may_begin_afresh, of_world, trusted};
use super::revisions::{By, Revision, Revisions};
use crate::gate::{self, Mode};
use crate::lifecycle::active::Handover;
use crate::shadow::{self, PromotionRefused, Shadow};

/// How long a version that has just become active may take for its first calls before another one is refused because
/// there is nothing to compare it with. Every key is reconciled at once then.
const FIRST_CALLS_MAX: Duration = Duration::from_secs(5);

/// All guests of a running host.
pub struct Manager {
    pub(crate) guests: Guests,
    pub(crate) managed: BTreeMap<&'static str, Managed>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) audit: Option<Arc<Audit>>,
}

impl Manager {
    /// Writes a line of the audit log about an operator's action on a key of a guest. Does nothing without such a
    /// guest.
    pub fn audit(&self, name: &str, action: &str, key: &str, outcome: &str) {
        if let Some(managed) = self.managed.get(name) {
            self.write_down(managed, action, key, outcome);
        }
    }

    /// Writes a line of the audit log: the action on a guest, the version that it was about, and its outcome.
    pub(super) fn write_down(&self, managed: &Managed, action: &str, scope: &str, outcome: &str) {
        let Some(audit) = &self.audit else { return };
        let about = managed.active.instances().identity("");
        if let Err(error) = audit.managed(SystemClock.now_ms(), &about, action, scope, outcome) {
            tracing::error!(guest = managed.name, "audit: {:#}", anyhow::Error::from(error));
        }
    }

    pub(super) fn managed(&self, name: &str) -> Result<&Managed, ManageError> {
        self.managed.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.managed.keys().copied().collect();
            ManageError::NotFound(format!("no guest `{name}` runs here; there are: {}", known.join(", ")))
        })
    }

    /// The state of every guest, by name.
    pub fn statuses(&self) -> Vec<GuestStatus> {
        self.each().map(|(_, status)| status).collect()
    }

    /// Every guest and its state, by name.
    pub fn each(&self) -> impl Iterator<Item = (&Managed, GuestStatus)> {
        let status = |managed: &Managed| {
            let shadow = managed.active.shadow.read().clone();
            let shadow = shadow.map(|shadow| managed.compared_so_far(&shadow));
            GuestStatus {
                guest: managed.name.to_owned(),
                active: managed.revisions.lock().active().cloned(),
                quarantined: managed.quarantine.all(),
                promoted_after: shadow.as_ref().and_then(|shadow| shadow.promoted_after),
                shadow,
            }
        };
        self.managed.values().map(move |managed| (managed, status(managed)))
    }

    /// Approves what waits for an approval: of one guest, or of all. Returns it by guest.
    ///
    /// # Errors
    /// If there is no such guest.
    pub fn approve(&self, name: Option<&str>) -> Result<Vec<(String, Waiting)>, ManageError> {
        let guests = match name {
            Some(name) => vec![self.managed(name)?],
            None => self.managed.values().collect(),
        };
        let mut approved = Vec::new();
        for managed in guests {
            if let Some(waiting) = managed.active.quotas.holdings.approve() {
                managed.active.approved.notify_one();
                let outcome = format!("{} go", waiting.text("objects"));
                self.write_down(managed, "approve", &waiting.keys.join(", "), &outcome);
                approved.push((managed.name.to_owned(), waiting));
            }
        }
        Ok(approved)
    }

    /// Puts a key of a guest at the front of the guest's queue.
    ///
    /// # Errors
    /// If there is no such guest, or it has no such key.
    pub async fn reconcile(&self, name: &str, key: &str) -> Result<(), ManageError> {
        let managed = self.managed(name)?;
        let asked = managed.active.queue_first(key).await;
        let outcome = asked.as_ref().err().map_or("queued", |why| why);
        self.write_down(managed, "reconcile", key, outcome);
        asked.map_err(|why| ManageError::nothing(name, why))
    }

    /// The revisions of a guest, ascending.
    ///
    /// # Errors
    /// If there is no such guest.
    pub fn history(&self, name: &str) -> Result<Vec<Revision>, ManageError> {
        Ok(self.managed(name)?.revisions.lock().all().to_vec())
    }

    /// Makes a candidate the active version, all at once or not at all.
    ///
    /// # Errors
    /// Why it did not become active. Then nothing changed.
    pub async fn swap(&self, name: &str, candidate: Candidate) -> Result<Activated, ManageError> {
        let managed = self.managed(name)?;
        let _changing = changing(managed)?;
        let fetched = self.guests.named(&candidate.reference, &managed.config.verify).await;
        let activation = Activation {
            reference: candidate.reference.to_string(),
            by: By::Swap,
            proof: Proof {
                afresh: candidate.afresh || managed.config.proof.afresh,
                gate: candidate.gate.unwrap_or(managed.config.proof.gate),
                ..managed.config.proof.clone()
            },
            dry_run: candidate.dry_run,
            note: None,
        };
        self.activate(managed, fetched, activation).await
    }

    /// Goes back to the version before, or to the revision `to`. It was proven once, so there is no gate.
    ///
    /// # Errors
    /// Why it did not become active. Then nothing changed.
    pub async fn rollback(&self, name: &str, to: Option<u64>) -> Result<Activated, ManageError> {
        let managed = self.managed(name)?;
        let _changing = changing(managed)?;
        let (target, afresh) = {
            let revisions = managed.revisions.lock();
            let target = match to {
                None => revisions.previous().ok_or_else(|| no_previous(name, &revisions)),
                Some(number) => revisions
                    .numbered(number)
                    .ok_or_else(|| format!("there is no revision {number}; see `trueup guest history {name}`")),
            };
            let target = target.map_err(|missing| ManageError::nothing(name, missing))?;
            // If the state did not come here from that version, it does not go back there.
            let mut since = revisions.all().iter().filter(|it| it.revision >= target.revision);
            (target.clone(), since.any(|revision| revision.afresh))
        };
        let fetched = self.kept(managed, &target);
        let activation = Activation {
            note: Some(format!("to revision {}", target.revision)),
            reference: target.reference,
            by: By::Rollback,
            proof: trusted(afresh),
            dry_run: false,
        };
        self.activate(managed, fetched, activation).await
    }

    /// A version that was once active, if the keys that are now required allow it.
    fn kept(&self, managed: &Managed, target: &Revision) -> Result<Fetched, Refused> {
        let not = |why: &str| Refused::new(Step::Load, format!("revision {} {why}", target.revision));
        if !target.is_vouched_for(&managed.config.verify) {
            return Err(not("is signed by no key of `verify`"));
        }
        let program = self.guests.kept(&target.digest)?;
        Ok(Fetched {
            program: program.ok_or_else(|| not("is kept no more"))?,
            bytes: None,
            vouched: target.vouched.clone(),
        })
    }

    /// Makes the version of the failure policy active, in place of the one that failed. It is trusted, so there is no
    /// gate. Waits for a change that is under way. `None` if there is nothing to do: another version is active by
    /// now, or this one already is.
    ///
    /// # Errors
    /// Why it did not become active.
    pub(super) async fn fall_back(&self, request: &FallBack) -> Result<Option<Activated>, ManageError> {
        let managed = self.managed(request.guest)?;
        let _changing = managed.changing.lock().await;
        let is_active = |digest: &str| managed.active.instances().program.guest.digest.to_string() == digest;
        if !is_active(&request.digest) {
            return Ok(None);
        }
        let fetched = self.guests.named(&request.to, &managed.config.verify).await;
        if let Ok(fetched) = &fetched
            && is_active(&fetched.program.guest.digest.to_string())
        {
            return Ok(None);
        }
        let activation = Activation {
            reference: request.to.to_string(),
            by: By::FallBack,
            proof: trusted(managed.revisions.lock().active().is_some_and(|active| active.afresh)),
            dry_run: false,
            note: Some(request.why.clone()),
        };
        self.activate(managed, fetched, activation).await.map(Some)
    }

    /// Reports a change that has no waiting caller.
    pub(crate) fn report_refused(&self, error: &ManageError) {
        // The receiver may be gone.
        let _ = self.events.send(Event::Refused(error.to_string()));
    }

    pub(super) async fn activate(
        &self,
        managed: &Managed,
        fetched: Result<Fetched, Refused>,
        activation: Activation,
    ) -> Result<Activated, ManageError> {
        let refused = |mut refused: Refused| {
            if refused.step == Step::Settings {
                let location = &managed.config.location;
                let id = std::process::id();
                refused.why += &format!(
                    "; set the `use` and `settings` of this version together at {location}, with `gate = \"report\"` if \
                     the gate refuses it, then `kill -HUP {id}`"
                );
            }
            let named = |it: &Revision| format!("revision {} (`{}@{}`)", it.revision, it.name, it.version);
            let active = managed.revisions.lock().active().map(named).unwrap_or_default();
            ManageError::refused(managed.name, &activation.reference, &refused, &active)
        };
        let activated = self.try_activate(managed, fetched, &activation).await;
        if !activation.dry_run {
            let outcome = activated.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            self.write_down(managed, &activation.by.to_string(), &activation.reference, &outcome);
        }
        let activated = activated.map_err(refused)?;
        if activated.revision.is_some() {
            // Comparisons with the version before do not apply to this one.
            self.end_shadow(managed);
            let _ = self.events.send(Event::Activated(Box::new(activated.clone())));
        }
        Ok(activated)
    }

    async fn try_activate(
        &self,
        managed: &Managed,
        fetched: Result<Fetched, Refused>,
        activation: &Activation,
    ) -> Result<Activated, Refused> {
        let fetched = fetched?;
        let with = managed.active.instances();
        let against = Against {
            active: &with,
            proof: &activation.proof,
            reference: &activation.reference,
            config: managed.config.file(),
            patience: FIRST_CALLS_MAX,
            worlds: managed.worlds,
        };
        let (instances, report) = self.guests.prove(fetched.program, &against).await?;
        let guest = instances.program.guest.clone();
        let revision = Revision {
            vouched: fetched.vouched,
            note: activation.note.clone(),
            afresh: instances.afresh,
            ..Revision::new(&guest, activation.reference.clone(), activation.by)
        };
        let mut activated = Activated {
            guest: managed.name.to_owned(),
            revision: None,
            name: guest.name,
            version: guest.version,
            digest: guest.digest.to_string(),
            by: activation.by,
            note: activation.note.clone(),
            proof: report,
        };
        if !activation.dry_run {
            if let Some(bytes) = fetched.bytes {
                self.guests.keep(&bytes)?;
            }
            activated.revision = Some(hand_over(managed, instances, revision).await?);
        }
        Ok(activated)
    }

    // A comparison in shadow.

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
        if let Ok((_, before)) = self.compared(name)
            && before.candidate.program.guest.digest == program.guest.digest
        {
            let reference = &before.reference;
            let count = before.shadow.status().compared;
            let next = format!("to begin again: trueup guest shadow stop {name}");
            let why = format!("{reference} runs in shadow already, and {count} of its calls are compared; {next}");
            return Err(ManageError::nothing(name, why));
        }
        of_world(program, managed.worlds).map_err(refused)?;
        let afresh = afresh || managed.config.proof.afresh;
        may_begin_afresh(program, afresh).map_err(refused)?;
        let setup = shadow_setup(managed, program, strict, afresh);
        if let Some(bytes) = candidate.bytes.take() {
            self.guests.keep(&bytes).map_err(refused)?;
        }
        let started = Shadow::start(setup).await;
        let shadow = Arc::new(started.map_err(|why| refused(Refused::new(Step::Settings, why)))?);
        let status = shadow.status();
        self.end_shadow(managed);
        *managed.active.shadow.write() = Some(Arc::clone(&shadow));
        *managed.compared.lock() = Some(Compared {
            shadow,
            candidate,
            reference: reference.to_string(),
            afresh,
        });
        self.write_down(managed, "shadow start", &reference.to_string(), "begun");
        Ok(status)
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
        let same_in_a_row = status.borrow_and_update().same_in_a_row;
        let Some(after) = after.filter(|after| *after > same_in_a_row) else {
            return Ok(Promotion::Done(Box::new(self.promote_now(managed, &compared).await?)));
        };
        let manager = Arc::clone(self);
        let name = managed.name;
        let mut waiting = JoinSet::new();
        waiting.spawn(async move {
            // Ending the comparison also aborts this task.
            if status.wait_for(|status| status.same_in_a_row >= after).await.is_ok() {
                manager.promote_reached(name, &compared).await;
            }
        });
        *managed.promotion.lock() = Some((after, waiting));
        Ok(Promotion::Awaited { after, same_in_a_row })
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
        let shown = format!("after {} calls in shadow, {} the same", status.compared, status.same);
        let activation = Activation {
            reference: compared.reference.clone(),
            by: By::Promote,
            proof: Proof {
                afresh: compared.afresh || managed.config.proof.afresh,
                ..managed.config.proof.clone()
            },
            dry_run: false,
            note: Some(shown),
        };
        let activated = self.activate(managed, Ok(compared.candidate.clone()), activation).await;
        activated.inspect_err(|error| {
            let at_ms = SystemClock.now_ms();
            let why = error.to_string();
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
        *managed.active.shadow.write() = None;
        *managed.compared.lock() = None;
    }
}

/// Why a rollback names no version by itself.
fn no_previous(name: &str, revisions: &Revisions) -> String {
    let before = revisions.before().map(|before| {
        let guest = &before.name;
        let version = &before.version;
        let to = before.revision;
        format!("; for `{guest}@{version}`, which was active before: trueup guest rollback {name} --to {to}")
    });
    "there is no earlier version to go back to".to_owned() + &before.unwrap_or_default()
}

/// How a version becomes active.
pub(super) struct Activation {
    pub(super) reference: String,
    pub(super) by: By,
    pub(super) proof: Proof,
    pub(super) dry_run: bool,
    pub(super) note: Option<String>,
}

pub(super) fn changing(managed: &Managed) -> Result<tokio::sync::MutexGuard<'_, ()>, ManageError> {
    let changing = managed.changing.try_lock();
    changing.map_err(|_| ManageError::Busy(managed.name.to_owned()))
}

/// Hands a version over to the loop or actor of the guest. Returns its number when it is active.
async fn hand_over(managed: &Managed, instances: Instances, revision: Revision) -> Result<u64, Refused> {
    let revisions = Arc::clone(&managed.revisions);
    let number = managed.revisions.lock().next_number();
    let commit = Box::new(move || revisions.lock().push(revision).map(drop).map_err(|it| it.to_string()));
    let (reply, replied) = oneshot::channel();
    let handover = Handover {
        instances: Arc::new(instances),
        commit,
        reply,
    };
    // If the loop has ended, it drops the reply too.
    let _ = managed.handovers.send(handover).await;
    let replied = replied.await.unwrap_or_else(|_| Err("the host stops".to_owned()));
    replied.map(|()| number).map_err(|why| Refused::new(Step::State, why))
}

/// A candidate beside the active version, both with the settings and limits of the active one.
fn shadow_setup(managed: &Managed, candidate: &Arc<Program>, strict: bool, afresh: bool) -> shadow::Setup {
    let active = Instances::clone(&managed.active.instances());
    let gate = managed.config.proof.gate;
    shadow::Setup {
        candidate: Instances {
            program: Arc::clone(candidate),
            afresh,
            ..active.clone()
        },
        compare: gate::compares(if strict { Mode::Strict } else { gate }),
        folder: active.state_dir.join("shadow").join(managed.name),
        active,
        metrics: Arc::clone(&managed.metrics),
    }
}
