//! What gives keys a turn: looks at the source, mail, time, the beginning of a term, and approvals.

use std::collections::BTreeSet;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::holdings::Holdings;
use trueup_sources::Batch;

use super::{Keyed, Reconciler};
use crate::decisions::Cause;
use crate::event::Event;
use crate::keyed::turn::CutCalls;

impl<W: Reconciler> Keyed<'_, W> {
    /// Takes in what the source says, including what can't be read.
    pub(super) fn take_in(&mut self, batch: &Batch) {
        if !self.context.source_is_reported {
            for problem in &batch.new_problems {
                (self.context.report)(Event::Problem(problem.to_string()));
            }
        }
        self.problems = batch.problems.iter().map(ToString::to_string).collect();
        let looked = self.world.look(batch);
        if let Some(problem) = looked.lost(&self.source) {
            if !self.context.source_is_reported {
                (self.context.report)(Event::Problem(problem.clone()));
            }
            self.problems.push(problem);
        }
        for note in &looked.notes {
            tracing::warn!("{note}");
        }
        for key in looked.held {
            self.hold(key);
        }
        if !self.context.source_is_reported {
            self.host_status
                .looked(&looked.objects, batch.changes.len(), looked.complete, &self.problems);
        }
        let now_ms = SystemClock.now_ms();
        let seen = (looked.seen, looked.nodes);
        self.pending.take_in(now_ms, seen, &looked.affected, looked.complete);
        self.expect(&looked.affected);
        // Before that, a key that was not counted is expected to have as many objects as those that are gone had.
        if looked.complete && !std::mem::replace(&mut self.counts_are_checked, true) {
            self.forget_unknown_counts();
        }
        for key in looked.affected {
            if let Some(running) = self.running.get(&key)
                && self.world.is_outdated(&key, &running.desired)
            {
                running.interrupt.want();
            }
            self.queue(&key);
        }
    }

    /// Queues a key: now, or when it has gathered what belongs together.
    pub(super) fn queue(&mut self, key: &W::Key) {
        self.host_status.changed(W::RULES.guest, &key.to_string());
        if self.world.is_gathering(key) {
            return;
        }
        if let Err(error) = self.controller.changed(key, self.now_ms()) {
            tracing::error!(%key, "{error}");
            let error = error.to_string();
            self.host_status.refused(W::RULES.guest, &key.to_string(), &error);
            self.last_results.insert(key.clone(), Err(error));
        }
    }

    /// Queues a key for a turn that looks at everything.
    pub(super) fn queue_anew(&mut self, key: &W::Key) {
        self.world.anew(key);
        self.queue(key);
    }

    /// Puts a key that the operator asks for at the front of the queue.
    pub(super) fn queue_first(&mut self, text: &str) -> Result<(), String> {
        if !self.context.leadership.may_act() {
            return Err("this host does not act now: another one leads, or the lease is lost".to_owned());
        }
        let known = |key: &W::Key| self.controller.status(key).is_some() || self.world.is_desired(key);
        let key = text.parse::<W::Key>().ok().filter(known);
        let unknown = || format!("no key `{text}` is in its queue: it is gone, or the source never named it");
        let key = key.ok_or_else(unknown)?;
        self.because(&key, Cause::Resync { by_operator: true });
        self.queue_anew(&key);
        self.controller.first(&key);
        Ok(())
    }

    /// Keeps the objects of a key while something that can't be read may name it.
    pub(super) fn hold(&mut self, key: W::Key) {
        let name = key.to_string();
        let why = self.source.hidden();
        self.host_status.held(W::RULES.guest, &name);
        if self.held.insert(key) {
            (self.context.report)(Event::Held { key: name, why });
        }
    }

    pub(super) fn take_mail(&mut self, mail: W::Mail) {
        let may_act = self.context.leadership.may_act();
        let is_running = |key: &W::Key| self.running.contains_key(key);
        if let Some((key, cause)) = self.world.take_mail(mail, may_act, is_running) {
            self.because(&key, cause);
            self.queue(&key);
        }
    }

    /// Notes why the next turn of a key runs.
    pub(super) fn because(&mut self, key: &W::Key, cause: Cause) {
        self.pending.because(key, SystemClock.now_ms(), cause);
    }

    /// Queues the keys that the world has due.
    pub(super) fn take_due(&mut self) {
        for (key, cause) in self.world.due(SystemClock.steady_ms()) {
            if let Some(cause) = cause {
                self.because(&key, cause);
            }
            self.queue(&key);
        }
    }

    /// This host begins to act, or stops acting. Calls that may be cut begin anew. Another host that acted in between
    /// may have left anything half-done, so it reconciles every key.
    pub(super) fn take_term(&mut self) {
        self.cut_calls();
        self.show_acting();
        if self.context.leadership.term().is_some() {
            self.world.begin_term(&self.context.leadership);
            // What goes may have gone from the source while another host acted.
            self.expect(&self.world.keys());
            self.all_again(&Cause::Acts);
        }
    }

    /// Shows whether this host acts. While it does not, its earlier failures say nothing, and nothing waits here for an
    /// approval.
    pub(super) fn show_acting(&self) {
        let acts = self.context.leadership.term().is_some();
        self.host_status.set_acting(W::RULES.guest, acts);
        if !acts {
            self.shared.active.quotas.holdings.pause();
        }
    }

    /// Ends the running calls at their next sleep, if they may be cut.
    pub(super) fn cut_calls(&self) {
        if W::RULES.cut == CutCalls::Dropped {
            for running in self.running.values() {
                running.interrupt.want();
            }
        }
    }

    /// Reconciles every key, if this host acts.
    pub(super) fn all_again(&mut self, cause: &Cause) {
        if self.context.leadership.term().is_none() {
            return;
        }
        for key in self.world.keys() {
            self.because(&key, cause.clone());
            self.queue_anew(&key);
        }
    }

    // Keys whose objects are destroyed only after an approval: how much a change of the source is to destroy, and when
    // these keys are tried again.

    pub(super) fn holdings(&self) -> &Holdings {
        &self.shared.active.quotas.holdings
    }

    /// Before anything is destroyed: how much these keys are to lose, so that either all of it waits or nothing.
    pub(super) fn expect(&mut self, affected: &BTreeSet<W::Key>) {
        let holdings = self.holdings();
        for key in affected {
            let text = key.to_string();
            if !self.world.is_desired(key) && self.world.leaves(key, 1) == 0 {
                holdings.foresee(&text, holdings.held_by_gone(&text));
            } else {
                let has = holdings.held(&text);
                let going = has.saturating_sub(self.world.leaves(key, has));
                match self.world.loses_no_others(key) {
                    true => holdings.foresee(&text, going),
                    false => holdings.guess(&text, going),
                }
            }
        }
        for key in holdings.freed().iter().filter_map(|key| key.parse().ok()) {
            self.queue_anew(&key);
        }
    }

    /// Forgets how many objects the keys have that are neither in the source nor to be removed.
    pub(super) fn forget_unknown_counts(&self) {
        let keys = self.world.keys();
        let known: BTreeSet<String> = keys.iter().chain(&self.held).map(ToString::to_string).collect();
        let holdings = self.holdings();
        for key in holdings.without(|key| known.contains(key)) {
            holdings.forget(&key);
        }
    }

    /// The operator approved what waits.
    pub(super) fn try_waiting(&mut self) {
        let failed = self.last_results.iter().filter(|(_, result)| result.is_err());
        let keys: Vec<W::Key> = failed.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.because(key, Cause::Resync { by_operator: true });
            self.queue_anew(key);
        }
        self.keep_held(true);
    }

    /// Why a key waits for an approval, with what to type next.
    pub(super) fn with_hint(&self, why: &str) -> String {
        let name = self.shared.active.instances().name;
        let once = self.context.once.then_some(", or run it with --once --approve");
        format!("{why} {name}{}", once.unwrap_or_default())
    }

    /// Keeps for the next process how many objects each key has: `now`, or when it is time.
    pub(super) fn keep_held(&mut self, now: bool) {
        if let Err(error) = self.object_counts.keep(&self.shared.active.quotas.holdings, now) {
            let what = W::RULES.counted;
            tracing::warn!("how many {what} has is not kept for the next start: {error}");
        }
    }
}
