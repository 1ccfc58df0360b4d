//! Creates missing resources, and waits until they, and those not deployed before, are ready.

use std::collections::BTreeSet;

use trueup_guest::Level;

use crate::bindings::exports::trueup::lbaas::reconciliation::Error;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{ObjectRef, Spec, State};
use crate::metrics::{self, Tally};
use crate::order;
use crate::outcome;
use crate::reconcile::Reconcile;
use crate::world::{World, complete};

/// A resource that a load balancer waits for.
pub(crate) struct Awaited {
    pub(crate) reference: ObjectRef,
    pub(crate) balancer: usize,
    /// True if this round created it; otherwise it was found progressing
    pub(crate) created: bool,
}

impl<W: World> Reconcile<'_, W> {
    /// Creates all of these with one call, and returns what to wait for. A failed entry closes its load balancer;
    /// created resources remain, and the next call finds them by their tag. The error ends the whole call.
    pub(crate) fn create(&mut self, mut creations: Vec<(usize, Spec)>) -> Result<Vec<Awaited>, ApiError> {
        if creations.is_empty() {
            return Ok(Vec::new());
        }
        creations.sort_by(|(_, left), (_, right)| order::specs(left, right));
        let (balancers, specs): (Vec<usize>, Vec<Spec>) = creations.into_iter().unzip();
        metrics::set_pending(self.world, "create", specs.len());
        let answers = self.world.create(&specs, std::slice::from_ref(&self.desired.tag));
        let (answers, end) = complete(answers, specs.len());
        metrics::set_pending(self.world, "create", 0);

        let mut awaited = Vec::with_capacity(specs.len());
        let (mut created, mut failed) = (Tally::default(), Tally::default());
        for ((spec, balancer), answer) in specs.iter().zip(balancers).zip(answers) {
            let kind = order::kind(spec);
            match answer {
                Ok(object) => {
                    created.add(kind);
                    let reference = ObjectRef {
                        kind,
                        identifier: object.identifier,
                    };
                    self.touch(balancer, &reference);
                    awaited.push(Awaited {
                        reference,
                        balancer,
                        created: true,
                    });
                }
                Err(error) => {
                    failed.add(kind);
                    let which = [("kind", order::word(kind)), ("name", order::name(spec))];
                    self.warn("not created", which, &outcome::api_words(&error));
                    self.close(balancer, Error::Api(error));
                }
            }
        }
        self.report.created = self.report.created.saturating_add(created.total());
        created.send(self.world, ("trueup_lbaas_created_total", "kind"));
        failed.send(self.world, metrics::CREATE_ERRORS);
        end.map_or(Ok(()), Err)?;
        awaited.retain(|awaited| self.is_open(awaited.balancer));
        Ok(awaited)
    }

    /// Looks until all of these are ready, or failed, or `backoff-steps` looks are used up. The first look comes at
    /// once, and includes what the creation reported as ready. The error ends the whole call.
    pub(crate) fn wait(&mut self, mut awaited: Vec<Awaited>) -> Result<(), ApiError> {
        if awaited.is_empty() {
            return Ok(());
        }
        awaited.sort_by(|left, right| left.reference.cmp(&right.reference));
        self.world
            .log(Level::Info, "a wait", &[("resources", &awaited.len().to_string())]);
        if !awaited.iter().any(|awaited| awaited.created) {
            return self.looks(awaited);
        }
        let start_ms = self.world.now_ms();
        let outcome = self.looks(awaited);
        metrics::observe_since(self.world, "trueup_lbaas_create_resources_duration_seconds", start_ms);
        outcome
    }

    fn looks(&mut self, mut awaited: Vec<Awaited>) -> Result<(), ApiError> {
        for look in 0..self.desired.backoff_steps {
            if let Some(pauses) = look.checked_sub(1) {
                self.pause(pauses);
            }
            awaited = self.look(awaited)?;
            if awaited.is_empty() {
                return Ok(());
            }
        }
        let late = awaited.iter().filter(|awaited| awaited.created);
        Tally::of(late.map(|awaited| awaited.reference.kind)).send(self.world, metrics::CREATE_ERRORS);
        let refs = awaited.into_iter().map(|awaited| (awaited.balancer, awaited.reference));
        self.close_each(refs, Error::TimedOut);
        Ok(())
    }

    /// One look at all of them. Returns what is left to wait for, in the same order.
    fn look(&mut self, awaited: Vec<Awaited>) -> Result<Vec<Awaited>, ApiError> {
        let refs: Vec<ObjectRef> = awaited.iter().map(|awaited| awaited.reference.clone()).collect();
        let (answers, end) = complete(self.world.get(&refs), refs.len());
        end.map_or(Ok(()), Err)?;
        let mut left = Vec::new();
        let mut failed = Vec::new();
        for (awaited, answer) in awaited.into_iter().zip(answers) {
            match answer {
                Ok(object) if object.state == State::Ok => {}
                // It serves while it is updated: only a guest that resets waits for that.
                Ok(object) if object.state == State::Updating && !self.settings.resets_failed => {}
                Ok(object) if object.state != State::Failed => left.push(awaited),
                Ok(_) | Err(_) => failed.push(awaited),
            }
        }
        // Its load balancer stops waiting: if it created resources, the next round sees the result; if it only had
        // progressing ones, this call can do nothing for it.
        let leaving: BTreeSet<usize> = failed.iter().map(|awaited| awaited.balancer).collect();
        left.retain(|awaited| !leaving.contains(&awaited.balancer));
        let progressing = failed.into_iter().filter(|awaited| !awaited.created);
        let refs = progressing.map(|awaited| (awaited.balancer, awaited.reference));
        self.close_each(refs, Error::Failed);
        Ok(left)
    }
}
