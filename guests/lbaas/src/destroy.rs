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
use crate::reconcile::{Reconcile, note_end};
use crate::world::{World, complete};

/// A resource to destroy.
struct Doomed {
    balancer: usize,
    reference: ObjectRef,
    /// why it still exists after a try
    error: Option<ApiError>,
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
            left = self.pass(left)?;
            if left.len() == before {
                let words = |error: Option<ApiError>| error.as_ref().map(outcome::api_words).unwrap_or_default();
                let given_up = left
                    .into_iter()
                    .map(|doomed| (doomed.balancer, doomed.reference, words(doomed.error)));
                self.give_up(given_up.collect());
                return Ok(());
            }
        }
        Ok(())
    }

    /// One call for each kind. Returns what is left, in the same order.
    fn pass(&mut self, all: Vec<Doomed>) -> Result<Vec<Doomed>, ApiError> {
        let mut pending = all.len();
        let mut left = Vec::new();
        // The order of destruction sorts by kind first, so each kind is one run.
        for group in runs_by_kind(all) {
            let refs: Vec<ObjectRef> = group.iter().map(|doomed| doomed.reference.clone()).collect();
            let answers = self.world.destroy(&refs);
            let (mut gone, mut retries) = (Tally::default(), Tally::default());
            let mut end = None;
            for (mut doomed, answer) in group.into_iter().zip(complete(answers, refs.len())) {
                match answer {
                    Ok(()) | Err(ApiError::NotFound) => {
                        pending = pending.saturating_sub(1);
                        self.touch(doomed.balancer, &doomed.reference);
                        let kind = doomed.reference.kind;
                        if self.destroyed.insert(doomed.reference) {
                            gone.add(kind);
                        }
                    }
                    Err(error) => {
                        note_end(&mut end, &error);
                        retries.add(doomed.reference.kind);
                        doomed.error = Some(error);
                        left.push(doomed);
                    }
                }
            }
            self.report.destroyed = self.report.destroyed.saturating_add(gone.total());
            gone.send(self.world, metrics::DELETED);
            retries.send(self.world, metrics::DELETE_RETRIES);
            metrics::set_pending(self.world, "destroy", pending);
            if let Some(error) = end {
                for doomed in &left {
                    let words = doomed.error.as_ref().map(outcome::api_words).unwrap_or_default();
                    self.warn_left(&doomed.reference, &words);
                }
                return Err(error);
            }
        }
        Ok(left)
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

/// Splits the list where the kind changes.
fn runs_by_kind(all: Vec<Doomed>) -> Vec<Vec<Doomed>> {
    let mut runs: Vec<Vec<Doomed>> = Vec::new();
    for doomed in all {
        match runs.last_mut() {
            Some(run)
                if run
                    .last()
                    .is_some_and(|last| last.reference.kind == doomed.reference.kind) =>
            {
                run.push(doomed)
            }
            _ => runs.push(vec![doomed]),
        }
    }
    runs
}
