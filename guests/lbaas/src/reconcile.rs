//! The rounds of a `reconcile`: list, decide, reset, destroy, create, wait, until every load balancer is closed.
//!
//! Load balancers share lists and calls, but the trouble of one does not stop the others: each is open until it is in
//! sync or has an error. This file does the bookkeeping; `plan` decides, `destroy` and `create` carry out.

use std::collections::{BTreeMap, BTreeSet};

use trueup_guest::Level;

use crate::backoff;
use crate::bindings::exports::trueup::lbaas::reconciliation::{Error, Report};
use crate::bindings::trueup::lbaas::api::Error as ApiError;
use crate::bindings::trueup::lbaas::types::{Object, ObjectRef, Spec, State};
use crate::create::Awaited;
use crate::desired::DesiredState;
use crate::metrics::{self, Tally};
use crate::order;
use crate::outcome;
use crate::own;
use crate::plan::{self, Changes};
use crate::settings::Settings;
use crate::world::{World, complete};

/// The progress of one call of `reconcile`.
pub(crate) struct Reconcile<'c, W> {
    pub(crate) world: &'c mut W,
    pub(crate) settings: &'c Settings,
    pub(crate) desired: &'c DesiredState<'c>,
    pub(crate) report: Report,
    /// what this call has destroyed, to recognize it when it is listed again
    pub(crate) destroyed: BTreeSet<ObjectRef>,
    /// the number of rounds that listed something of that again
    pub(crate) still_listed: u32,
    /// how each load balancer that is in sync or failed ended, by its place in the order given; the others are open
    closed: BTreeMap<usize, Result<(), Error>>,
    /// what each created or destroyed in this round
    touched: BTreeMap<usize, Vec<ObjectRef>>,
}

/// The work of a round, each with its load balancer.
#[derive(Default)]
struct Work<'a> {
    resets: Vec<Reset>,
    destroy: Vec<(usize, &'a Object)>,
    create: Vec<(usize, Spec)>,
    progressing: Vec<Awaited>,
}

/// A load balancer, what of it failed, and what was reset earlier.
type Reset = (usize, Vec<ObjectRef>, Vec<ObjectRef>);

/// Reconciles every load balancer with the desired state.
///
/// # Errors
/// The error of the first load balancer that has one, or what ends the whole call.
pub fn reconcile<W: World>(world: &mut W, settings: &Settings, desired: &DesiredState<'_>) -> Result<Report, Error> {
    let mut call = Reconcile {
        world,
        settings,
        desired,
        report: Report {
            created: 0,
            destroyed: 0,
            rounds: 0,
        },
        destroyed: BTreeSet::new(),
        still_listed: 0,
        closed: BTreeMap::new(),
        touched: BTreeMap::new(),
    };
    while call.open().next().is_some() {
        if u64::from(call.report.rounds) >= settings.max_rounds {
            // A load balancer that is still open never converged.
            for balancer in call.open().collect::<Vec<_>>() {
                let touched = call.touched.remove(&balancer).unwrap_or_default();
                call.close(balancer, Error::TimedOut(touched));
            }
            break;
        }
        call.report.rounds = call.report.rounds.saturating_add(1);
        let start_ms = call.world.now_ms();
        let round = call.round();
        metrics::observe_since(call.world, "trueup_lbaas_total_duration_seconds", start_ms);
        round.map_err(Error::Api)?;
    }
    let errors = call.closed.into_values().filter_map(Result::err).collect();
    outcome::joined(errors).map_or(Ok(call.report), Err)
}

impl<W: World> Reconcile<'_, W> {
    /// The error ends the whole call.
    fn round(&mut self) -> Result<(), ApiError> {
        self.touched.clear();
        let listed = self.world.list_tagged(&self.desired.tag)?;
        let work = self.decide(&listed);
        let numbers = [self.report.rounds as usize, work.create.len(), work.destroy.len()].map(|n| n.to_string());
        let [round, create, destroy] = numbers.each_ref().map(String::as_str);
        let fields = [("round", round), ("create", create), ("destroy", destroy)];
        self.world.log(Level::Info, "a round", &fields);

        self.reset(work.resets)?;
        self.destroy(work.destroy)?;
        let mut awaited = work.progressing;
        awaited.extend(self.create(work.create)?);
        self.wait(awaited)
    }

    /// The work of each open load balancer in this round; closes one that has none.
    fn decide<'a>(&mut self, listed: &'a [Object]) -> Work<'a> {
        let identifiers = &self.desired.load_balancers;
        let owned = identifiers.iter().zip(own::split(identifiers, listed)).enumerate();
        let open: Vec<_> = owned.filter(|(balancer, _)| self.is_open(*balancer)).collect();
        let of_open = open.iter().flat_map(|(_, (_, own))| own);
        let retrieved = of_open.map(|found| order::kind(&found.object.spec));
        Tally::of(retrieved).send(self.world, metrics::RETRIEVED);

        let mut work = Work::default();
        for (balancer, (identifier, own)) in open {
            match plan::decide(self.settings, identifier, self.desired, &own) {
                Err(Error::Failed(failed)) => {
                    work.resets
                        .push((balancer, failed, plan::in_state(&own, State::Updating)));
                }
                Err(Error::Progressing(pending)) => {
                    let awaited = |reference| Awaited {
                        reference,
                        balancer,
                        created: false,
                    };
                    work.progressing.extend(pending.into_iter().map(awaited));
                }
                Err(error) => self.close(balancer, error),
                Ok(Changes { create, destroy }) if create.is_empty() && destroy.is_empty() => {
                    self.closed.insert(balancer, Ok(()));
                }
                // A new resource may clash with an old one: create nothing while something is left to destroy.
                Ok(Changes { create, destroy }) if destroy.is_empty() => {
                    work.create.extend(create.into_iter().map(|spec| (balancer, spec)));
                }
                Ok(Changes { destroy, .. }) => {
                    work.destroy
                        .extend(destroy.into_iter().map(|object| (balancer, object)));
                }
            }
        }
        work
    }

    /// Applies the failed ones once more. The next call sees whether that helped.
    fn reset(&mut self, resets: Vec<Reset>) -> Result<(), ApiError> {
        if resets.is_empty() {
            return Ok(());
        }
        let refs_of = |&(balancer, ref failed, _): &Reset| {
            let failed = failed.clone().into_iter();
            failed.map(move |reference| (reference, balancer))
        };
        let mut entries: Vec<(ObjectRef, usize)> = resets.iter().flat_map(refs_of).collect();
        entries.sort();
        let (refs, balancers): (Vec<ObjectRef>, Vec<usize>) = entries.into_iter().unzip();

        let (answers, end) = complete(self.world.reset(&refs), refs.len());
        let mut done = Tally::default();
        for ((reference, balancer), answer) in refs.iter().zip(balancers).zip(answers) {
            match answer {
                Ok(()) | Err(ApiError::NotFound) => done.add(reference.kind),
                Err(error) => self.close(balancer, Error::Api(error)),
            }
        }
        done.send(self.world, ("trueup_lbaas_reset_total", "kind"));
        end.map_or(Ok(()), Err)?;
        for (balancer, failed, updating) in resets {
            // One with an error keeps that.
            self.close(balancer, Error::RecoveryPending([failed, updating].concat()));
        }
        Ok(())
    }

    /// Sleeps for the `n`-th pause of a wait.
    pub(crate) fn pause(&mut self, n: u32) {
        let pause_ms = backoff::pause_ms(self.settings, n, || self.world.next_u64());
        self.world.sleep_ms(pause_ms);
    }

    pub(crate) fn is_open(&self, balancer: usize) -> bool {
        !self.closed.contains_key(&balancer)
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.desired.load_balancers.len()).filter(|&balancer| self.is_open(balancer))
    }

    /// Ends the work on this load balancer only. Its first error counts.
    pub(crate) fn close(&mut self, balancer: usize, error: Error) {
        self.closed.entry(balancer).or_insert(Err(error));
    }

    /// Closes each of these load balancers with an error that holds its refs.
    pub(crate) fn close_each(
        &mut self,
        refs: impl IntoIterator<Item = (usize, ObjectRef)>,
        error: impl Fn(Vec<ObjectRef>) -> Error,
    ) {
        let mut by_balancer: BTreeMap<usize, Vec<ObjectRef>> = BTreeMap::new();
        for (balancer, reference) in refs {
            by_balancer.entry(balancer).or_default().push(reference);
        }
        for (balancer, refs) in by_balancer {
            self.close(balancer, error(refs));
        }
    }

    /// Remembers that a load balancer created or destroyed this in the running round.
    pub(crate) fn touch(&mut self, balancer: usize, reference: &ObjectRef) {
        self.touched.entry(balancer).or_default().push(reference.clone());
    }

    /// Logs one warning for a resource that could not be created or destroyed.
    pub(crate) fn warn(&mut self, message: &str, fields: [(&str, &str); 2], error: &str) {
        let [kind, which] = fields;
        self.world.log(Level::Warn, message, &[kind, which, ("error", error)]);
    }
}
