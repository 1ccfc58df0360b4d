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
    error: Option<ApiError>,
}

impl Doomed {
    fn words(&self) -> String {
        self.error.as_ref().map(outcome::api_words).unwrap_or_default()
    }
}

impl<W: World> Reconcile<'_, W> {
    /// Destroys all of these, each of a load balancer. The error ends the whole call.
    pub(crate) fn destroy(&mut self, mut objects: Vec<(usize, &Object)>) -> Result<(), ApiError> {
        objects.sort_by(|(_, left), (_, right)| order::destruction(left, right));
        let doomed = |(balancer, object)| Doomed {
            balancer,
            reference: order::reference(object),
            error: None,
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
    fn wait_for_still_listed(&mut self, mut doomed: Vec<Doomed>) -> Vec<Doomed> {
        let again = |doomed: &&Doomed| self.destroyed.contains(&doomed.reference);
        let again: Vec<(usize, ObjectRef)> = doomed
            .iter()
            .filter(again)
            .map(|doomed| (doomed.balancer, doomed.reference.clone()))
            .collect();
        if again.is_empty() {
            return doomed;
        }
        let n = self.still_listed;
        self.still_listed = n.saturating_add(1);
        if self.still_listed < self.desired.backoff_steps {
            self.pause(n);
            return doomed;
        }
        let words = |(balancer, reference)| (balancer, reference, "destroyed, but still listed".to_owned());
        self.give_up(again.into_iter().map(words).collect());
        doomed.retain(|doomed| self.is_open(doomed.balancer));
        doomed
    }

    fn passes(&mut self, mut left: Vec<Doomed>) -> Result<(), ApiError> {
        while !left.is_empty() {
            let before = left.len();
            self.pass(&mut left)?;
            left.retain(|doomed| doomed.error.is_some());
            if left.len() == before {
                let given_up = |doomed: Doomed| {
                    let words = doomed.words();
                    (doomed.balancer, doomed.reference, words)
                };
                self.give_up(left.into_iter().map(given_up).collect());
                return Ok(());
            }
        }
        Ok(())
    }

    /// One call for each kind. Those that are left have an error.
    fn pass(&mut self, all: &mut [Doomed]) -> Result<(), ApiError> {
        let mut pending = all.len();
        all.iter_mut().for_each(|doomed| doomed.error = None);
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
                        doomed.error = Some(error);
                    }
                }
            }
            self.report.destroyed = self.report.destroyed.saturating_add(gone.total());
            gone.send(self.world, metrics::DELETED);
            retries.send(self.world, metrics::DELETE_RETRIES);
            metrics::set_pending(self.world, "destroy", pending);
            if let Some(error) = end {
                for doomed in all.iter().filter(|doomed| doomed.error.is_some()) {
                    self.warn_left(&doomed.reference, &doomed.words());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Closes the load balancers of resources that can't be destroyed.
    fn give_up(&mut self, left: Vec<(usize, ObjectRef, String)>) {
        let mut errors = Tally::default();
        for (_, reference, error) in &left {
            errors.add(reference.kind);
            self.warn_left(reference, error);
        }
        errors.send(self.world, metrics::DELETE_ERRORS);
        self.close_each(
            left.into_iter().map(|(balancer, reference, _)| (balancer, reference)),
            Error::NotDestroyable,
        );
    }

    fn warn_left(&mut self, reference: &ObjectRef, error: &str) {
        let which = [
            ("kind", order::word(reference.kind)),
            ("identifier", reference.identifier.as_str()),
        ];
        self.warn("not destroyed", which, error);
    }
}
