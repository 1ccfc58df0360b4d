//! Destroys in passes, children before parents, and tries again as long as that helps.
//!
//! A conflict ends when the referring resource is gone; another failure may end too. After the passes the guest does
//! not wait: the next list shows what is gone.

use crate::bindings::exports::trueup::lbaas::reconciliation::Error;
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef};
use crate::metrics::{self, Tally};
use crate::order;
use crate::outcome;
use crate::reconcile::Reconcile;
use crate::world::{World, complete};

/// A resource to destroy.
struct Doomed {
    balancer: usize,
    reference: ObjectRef,
    /// why it still exists after the latest try
    why: Option<String>,
}

impl<W: World> Reconcile<'_, W> {
    /// Destroys all of these, each of a load balancer. The error ends the whole call.
    pub(crate) fn destroy(&mut self, mut objects: Vec<(usize, &Object)>) -> Result<(), ApiError> {
        objects.sort_by(|(_, left), (_, right)| order::destruction(left, right));
        let doomed = |(balancer, object)| Doomed {
            balancer,
            reference: order::reference(object),
            why: None,
        };
        let left = self.wait_for_still_listed(objects.into_iter().map(doomed).collect());
        if left.is_empty() {
            return Ok(());
        }
        metrics::set_pending(self.world, "destroy", left.len());
        let outcome = self.passes(left);
        metrics::set_pending(self.world, "destroy", 0);
        outcome
    }

    /// A list that again shows what this call has destroyed counts as one more look. Pauses before the next try; after
    /// the last look, closes the load balancers concerned and leaves theirs out of the answer.
    fn wait_for_still_listed(&mut self, doomed: Vec<Doomed>) -> Vec<Doomed> {
        if !doomed.iter().any(|doomed| self.destroyed.contains(&doomed.reference)) {
            return doomed;
        }
        let n = self.still_listed;
        self.still_listed = n.saturating_add(1);
        if self.still_listed < self.desired.backoff_steps {
            self.pause(n);
            return doomed;
        }
        let is_again = |doomed: &Doomed| self.destroyed.contains(&doomed.reference);
        let (mut again, mut others): (Vec<Doomed>, Vec<Doomed>) = doomed.into_iter().partition(is_again);
        for doomed in &mut again {
            doomed.why = Some("destroyed, but still listed".to_owned());
        }
        self.give_up(again);
        others.retain(|doomed| self.is_open(doomed.balancer));
        others
    }

    fn passes(&mut self, mut left: Vec<Doomed>) -> Result<(), ApiError> {
        while !left.is_empty() {
            let before = left.len();
            self.pass(&mut left)?;
            left.retain(|doomed| doomed.why.is_some());
            if left.len() == before {
                self.give_up(left);
                return Ok(());
            }
        }
        Ok(())
    }

    /// One call for each kind. Those that are left have an error.
    fn pass(&mut self, all: &mut [Doomed]) -> Result<(), ApiError> {
        let mut pending = all.len();
        all.iter_mut().for_each(|doomed| doomed.why = None);
        // The order of destruction sorts by kind first, so each kind is one run.
        for group in all.chunk_by_mut(|one, next| one.reference.kind == next.reference.kind) {
            let refs: Vec<ObjectRef> = group.iter().map(|doomed| doomed.reference.clone()).collect();
            let (answers, end) = complete(self.world.destroy(&refs), refs.len());
            let (mut gone, mut retries) = (Tally::default(), Tally::default());
            for (doomed, answer) in group.iter_mut().zip(answers) {
                let kind = doomed.reference.kind;
                match answer {
                    Ok(()) | Err(ApiError::NotFound) => {
                        pending = pending.saturating_sub(1);
                        self.touch(doomed.balancer, &doomed.reference);
                        if self.destroyed.insert(doomed.reference.clone()) {
                            gone.add(kind);
                        }
                    }
                    Err(error) => {
                        retries.add(kind);
                        doomed.why = Some(outcome::api_words(&error));
                    }
                }
            }
            self.report.destroyed = self.report.destroyed.saturating_add(gone.total());
            gone.send(self.world, ("trueup_lbaas_deleted_total", "kind"));
            retries.send(self.world, ("trueup_lbaas_delete_retries_total", "kind"));
            metrics::set_pending(self.world, "destroy", pending);
            if let Some(error) = end {
                for doomed in all.iter().filter(|doomed| doomed.why.is_some()) {
                    self.warn_left(doomed);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes the load balancers of resources that can't be destroyed.
    fn give_up(&mut self, left: Vec<Doomed>) {
        for doomed in &left {
            self.warn_left(doomed);
        }
        Tally::of(left.iter().map(|doomed| doomed.reference.kind))
            .send(self.world, ("trueup_lbaas_delete_errors_total", "kind"));
        let refs = left.into_iter().map(|doomed| (doomed.balancer, doomed.reference));
        self.close_each(refs, Error::NotDestroyable);
    }

    fn warn_left(&mut self, doomed: &Doomed) {
        let Doomed { reference, why, .. } = doomed;
        let which = [
            ("kind", order::word(reference.kind)),
            ("identifier", reference.identifier.as_str()),
        ];
        self.warn("not destroyed", which, why.as_deref().unwrap_or_default());
    }
}
