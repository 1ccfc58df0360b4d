//! NEGs, as the keyed loop sees them. The keys that the source changes get a turn at once, or after a pause if more of
//! the same change may follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_capabilities::Backends;
use trueup_capabilities::meter::Effects;
use trueup_controller::Outcome;
use trueup_instance::Instances;
use trueup_sources::{Batch, Kind};
use trueup_work::decisions::Cause;
use trueup_work::event::{Event, Message, WorldEvent};
use trueup_work::files;
use trueup_work::keyed::turn::{CutCalls, Turn};
use trueup_work::keyed::{LastResults, Reconciler, Rules, SourceChanges, Turning, Wanted};
use trueup_work::leading::Leadership;
use trueup_work::lifecycle::failure::{self, Blame, End};
use trueup_work::lifecycle::quarantine::digest_of;
use trueup_work::objects::Id;
use trueup_work::slot::InstanceSlot;
use trueup_work::status::NegAt;

use super::operations::{Ended, Noted, Unknown};
use super::turn::{NegTurn, Out};
use super::{Inbox, KeySettings, Negs, SetErrorState, pop_due};
use crate::neg::adapter::{Desired, Key};
use crate::neg::guest::NAME;

/// A cluster reports one change in several parts in quick succession, such as the two EndpointSlices of a pod with
/// two addresses. The host waits this long after the last part. An endpoint that was attached with one address would
/// have to be detached again to get the second.
const GATHER_MS: u64 = 1_000;

/// A key that goes on changing is queued after this time all the same.
const GATHER_MAX_MS: u64 = 5_000;

/// What comes for a key beside the source.
pub(crate) enum Mail {
    Ended(Ended),
    ErrorState(SetErrorState),
}

impl Reconciler for Negs<'_> {
    type Key = Key;
    type Desired = Desired;
    type Out = Out;
    type Mail = Mail;

    const RULES: Rules = Rules {
        guest: NAME,
        name: "negs",
        word: "neg",
        unchanged: "nothing changed: every NEG was true already",
        // A call that sleeps is never cut, so the limit is higher than where it makes room. An instance takes 1 MiB or
        // two.
        jobs_max: 512,
        cut: CutCalls::Finished,
        left_behind: "calls about NEGs",
        counted: "endpoints each key",
    };

    fn look(&mut self, batch: &Batch) -> SourceChanges<Key> {
        let has_keys = self.known.keys().next().is_some();
        let unreadable = self.targets.take_in_unreadable(&batch.unreadable);
        let locations = self.targets.locations.clone();
        let mut changed = self.targets.take_in(&batch.changes, batch.complete, has_keys);
        changed.affected.extend(unreadable);
        changed.affected.extend(self.known_and_affected(&changed));
        if self.targets.locations != locations && !self.setup.keyed.host_context.plans() {
            let file = super::locations_file(&self.setup.keyed.config.state_dir);
            if let Err(error) = files::replace_json(&file, &self.targets.locations) {
                tracing::warn!("zones and subnets are not remembered for the next start: {error}");
            }
        }
        let completed = self.targets.completeness.completed();
        if completed {
            // Keys that were deleted while the host was down, or while something could not be read.
            changed.affected.extend(self.gone());
        } else if !changed.complete {
            changed.held = self.missing().collect();
        }
        changed.affected.retain(|key| self.is_news(key));
        let gathers = self.setup.neg.source.is_cluster() && !self.once && !completed;
        for key in &changed.affected {
            match gathers {
                true => self.gather(key),
                false => self.anew(key),
            }
        }
        changed
    }

    fn keys(&self) -> BTreeSet<Key> {
        let mut keys = self.targets.keys();
        if self.targets.completeness.is_complete() {
            keys.extend(self.gone());
        }
        keys
    }

    fn is_desired(&self, key: &Key) -> bool {
        self.targets.desired(key).is_some()
    }

    fn wanted(&mut self, key: &Key) -> Wanted<Desired> {
        match self.targets.desired(key) {
            Some(Err(error)) => Wanted::Refused(error),
            Some(Ok(desired)) => Wanted::Work(desired),
            None if self.targets.is_gone(key) => self.settings_left(key).map_or(Wanted::Forget, |settings| {
                let admitted = self.setup.keyed.active.quotas.holdings.admit_all(&key.to_string());
                let gone = Desired {
                    settings,
                    target: Vec::new(),
                    is_gone: true,
                };
                admitted.map_or_else(Wanted::Waits, |()| Wanted::Work(gone))
            }),
            None if self.known.get(key).is_some() => Wanted::Held,
            None => Wanted::Nothing,
        }
    }

    fn leaves(&self, key: &Key, has: u64) -> u64 {
        let goes = self.targets.is_gone(key) && self.settings_left(key).is_some();
        if goes { 0 } else { has }
    }

    async fn mail(&mut self) -> Mail {
        tokio::select! {
            biased;
            Some(ended) = self.ends.recv() => Mail::Ended(ended),
            Some(request) = self.error_states.recv() => Mail::ErrorState(request),
            else => std::future::pending().await,
        }
    }

    fn take_mail(&mut self, mail: Mail, may_act: bool, is_running: impl Fn(&Key) -> bool) -> Option<(Key, Cause)> {
        match mail {
            Mail::Ended(ended) => self.take_end(ended, is_running),
            Mail::ErrorState(request) => self.set_error_state(request, may_act),
        }
    }

    fn due(&mut self, steady_ms: u64) -> Vec<(Key, Option<Cause>)> {
        let mut due = Vec::new();
        // Their turns use the current instance or rebuild it.
        while let Some(key) = pop_due(&mut self.alarms, steady_ms) {
            due.push((key, Some(Cause::Timer)));
        }
        while let Some(key) = pop_due(&mut self.gathering, steady_ms) {
            self.entry(&key).gathers = None;
            self.anew(&key);
            due.push((key, None));
        }
        due
    }

    fn due_ms(&self) -> Option<u64> {
        let next = self.alarms.first().into_iter().chain(self.gathering.first());
        next.map(|(due_ms, _)| *due_ms).min()
    }

    fn is_gathering(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.gathers.is_some())
    }

    fn anew(&mut self, key: &Key) {
        self.entry(key).inbox.sync = true;
    }

    /// If others have acted since this host did, what it had begun before is not finished.
    fn begin_term(&mut self, leadership: &Leadership) {
        let transitions = leadership.term().and_then(|term| term.transitions);
        if transitions.is_some_and(|transitions| super::others_acted(&self.setup.keyed.config.state_dir, transitions)) {
            self.finishes_from_ms = SystemClock.now_ms();
        }
    }

    fn version(&self, active: Arc<Instances>, work: &Desired) -> Arc<Instances> {
        active.with_settings(&work.settings)
    }

    /// What is known of a key is on disk before anything is attached, so that it can be found again whatever happens
    /// next.
    fn prepare(&mut self, key: &Key, work: &Desired) -> Result<(), String> {
        if work.is_gone {
            return Ok(());
        }
        let record = KeySettings {
            key: key.to_string(),
            settings: work.settings.clone(),
        };
        self.known.put(key, record).map_err(|error| error.to_string())
    }

    fn turn(&mut self, key: &Key, work: Desired, mut turn: Turn) -> Turning<Self> {
        let now_ms = SystemClock.steady_ms();
        let entry = self.entry(key);
        let mut inbox = std::mem::take(&mut entry.inbox);
        if inbox == Inbox::default() && entry.timer_ms.is_none_or(|timer_ms| timer_ms > now_ms) {
            // Nothing happened since the last turn: sync all the same.
            inbox.sync = true;
        }
        turn.last_at_ms = entry.last_at_ms;
        let in_flight = Arc::clone(&entry.operations);
        let out = Out {
            inbox,
            operation_failure: entry.operation_failure.clone(),
            ..Out::default()
        };
        self.set_alarm(key, None);
        let (setup, instance) = (self.setup, turn.slot.key().to_owned());
        let noted = Arc::new(Noted {
            api: setup.operations.api(&instance),
            operations: Arc::clone(&setup.operations),
            fence: turn.fence.clone(),
            in_flight,
            unknown: Unknown::default(),
            instance,
        });
        turn.set_backends(Backends {
            neg: Some(Arc::<Noted>::clone(&noted)),
            ..setup.keyed.backends(&noted.instance)
        });
        let turn = NegTurn {
            key: key.clone(),
            turn,
            work,
            finishes_from_ms: self.finishes_from_ms,
            noted,
            out,
        };
        Box::pin(turn.run())
    }

    /// Of a turn that was lost, the backend sends the ends of operations again; the next turn opens the instance anew,
    /// and syncs its NEGs in any case.
    fn ended(&mut self, key: &Key, slot: Option<&InstanceSlot>, out: &mut Out) {
        self.attached += out.attached;
        self.detached += out.detached;
        let entry = self.entry(key);
        entry.inbox.put_back(std::mem::take(&mut out.inbox));
        entry.operation_failure.clone_from(&out.operation_failure);
        entry.last_at_ms = entry.last_at_ms.max(out.last_at_ms);
        self.set_alarm(key, slot.and_then(InstanceSlot::timer_ms));
        self.show(key, out);
    }

    /// The guest itself retries an error that it met and reported, by its timers: the next turn comes with those.
    fn outcome(&self, end: &End, out: &Out, is_open: bool) -> Outcome {
        match end {
            Err(failure) if failure.blame == Blame::Host && is_open && out.guest_retries().is_some() => {
                Outcome::Success
            }
            end => failure::outcome(end),
        }
    }

    fn retry(
        &mut self,
        key: &Key,
        end: &End,
        found: &Out,
        (outcome, (queued, by_queue)): (Outcome, (u32, Option<u64>)),
    ) -> (u32, Option<u64>) {
        let entry = self.entry(key);
        let now_ms = SystemClock.steady_ms();
        let by_timer = entry.timer_ms.map(|timer_ms| timer_ms.saturating_sub(now_ms));
        if found.operation_succeeded {
            entry.operation_failures = 0;
        }
        entry.operation_failures = entry.operation_failures.saturating_add(found.operation_failures);
        if found.synced {
            entry.sync_failures = 0;
        }
        let has_failed = match end.as_ref().map_err(|failure| failure.blame) {
            Err(Blame::Host) if found.error.is_some() => {
                entry.sync_failures = entry.sync_failures.saturating_add(1);
                0
            }
            Err(Blame::Host) if found.operation_failure.is_some() => 0,
            Err(Blame::Host | Blame::Guest) => queued,
            Ok(_) | Err(Blame::Cut) => 0,
        };
        let failures = has_failed.max(entry.sync_failures).max(entry.operation_failures);
        (failures, by_queue.filter(|_| outcome != Outcome::Success).or(by_timer))
    }

    fn succeeded(&mut self, key: &Key, gone: bool, _: Effects, found: Out) -> Result<Option<Event>, String> {
        if !found.synced && !gone {
            return Ok(None);
        }
        let holdings = &self.setup.keyed.active.quotas.holdings;
        let text = key.to_string();
        // Only keys that go count for approvals: endpoints of a key that stays come and go with its pods.
        match self.targets.desired(key) {
            _ if gone => holdings.emptied(&text),
            Some(Ok(desired)) => holdings.settled(&text, desired.endpoints()),
            // Its desired state went or became invalid: its next turn counts them. A key that goes loses its endpoints
            // over several turns, and an approval is for all of them.
            Some(Err(_)) | None => {}
        }
        let (attaching, detaching) = (found.attaching, found.detaching);
        let (state, did) = match attaching + detaching {
            _ if gone => ("gone", "nothing of it is left in any NEG".to_owned()),
            0 => ("true", "0 attaching, 0 detaching".to_owned()),
            // What has started must still end; a later look reports when nothing is left.
            _ => ("started", format!("{attaching} attaching, {detaching} detaching")),
        };
        let json = json!({ "key": text, "gone": gone, "attaching": attaching, "detaching": detaching });
        let said = Message::outcome(&text, state, &did);
        Ok(Some(Event::Own(WorldEvent::new("synced", &json, Some(said)))))
    }

    /// Operations in flight of a key that is given up end by themselves; the next process gets their ends.
    fn rest(&mut self, key: &Key, is_given_up: bool) {
        // The next turn fires the timers that were due.
        self.set_alarm(key, None);
        self.entry(key).given_up |= is_given_up;
    }

    fn forget(&mut self, key: &Key) {
        self.set_alarm(key, None);
        if let Some((_, until_ms)) = self.entry(key).gathers.take() {
            self.gathering.remove(&(until_ms, key.clone()));
        }
        if self.once {
            self.entry(key).inbox = Inbox::default();
            self.entry(key).operations.lock().clear();
        } else {
            self.entries.remove(key);
        }
        let host_status = &self.setup.keyed.host_context.host_status;
        host_status.neg(&key.to_string(), NegAt::default());
        if let Err(error) = self.known.remove(key) {
            tracing::warn!(%key, "it is looked for once more at the next start: {error}");
        }
    }

    /// Whether nothing waits or is in flight, and no timer is set, except for keys that were given up. Anything that
    /// came for a key since has queued it.
    fn is_settled(&self, last_results: &LastResults<Key>) -> bool {
        self.entries.iter().all(|(key, entry)| {
            // What is set aside or refused is not tried again; what the guest started again after a failure must end.
            let is_left = matches!(last_results.get(key), Some(Err(_))) && entry.operation_failure.is_none();
            entry.given_up || (entry.timer_ms.is_none() && (entry.operations.lock().is_empty() || is_left))
        })
    }

    fn did(&self, _effects: Effects) -> [(&'static str, u64); 2] {
        [("attached", self.attached), ("detached", self.detached)]
    }
}

impl Negs<'_> {
    /// The desired state of a key has changed, and more of the same change may follow.
    fn gather(&mut self, key: &Key) {
        let now_ms = SystemClock.steady_ms();
        let entry = self.entry(key);
        let since_ms = entry.gathers.map_or(now_ms, |(since_ms, _)| since_ms);
        let until_ms = (now_ms + GATHER_MS).min(since_ms + GATHER_MAX_MS);
        if let Some((_, before_ms)) = entry.gathers.replace((since_ms, until_ms)) {
            self.gathering.remove(&(before_ms, key.clone()));
        }
        self.gathering.insert((until_ms, key.clone()));
    }

    /// Known keys that a look may not name: those of Services that changed, and all keys once a look is complete
    /// again. Reads only the keys of those Services.
    fn known_and_affected(&self, changed: &SourceChanges<Key>) -> BTreeSet<Key> {
        if self.targets.completeness.completed() {
            return self.known.keys().chain(self.entries.keys()).cloned().collect();
        }
        let inputs = changed.seen.iter().map(|seen| &seen.input);
        let services = inputs.filter(|input| input.kind == Kind::Service.name());
        let keys = services.flat_map(|input| {
            let service = Id {
                namespace: input.namespace.clone(),
                name: input.name.clone(),
            };
            let ports = Key::of(&service, 0)..=Key::of(&service, u16::MAX);
            let known = self.known.range(ports.clone());
            known.chain(self.entries.range(ports).map(|(key, _)| key))
        });
        keys.cloned().collect()
    }

    /// Whether the desired state of a key changed, or is its first.
    fn is_news(&mut self, key: &Key) -> bool {
        let digest = match self.targets.desired(key) {
            Some(Ok(Desired { settings, target, .. })) => digest_of(&(settings, target)),
            Some(Err(error)) => error,
            None => String::new(),
        };
        let entry = self.entry(key);
        entry.digest.replace(digest.clone()) != Some(digest)
    }

    /// Keys that are not desired and may have endpoints in NEGs, or are set aside.
    fn missing(&self) -> impl Iterator<Item = Key> {
        let keys: BTreeSet<Key> = self.known.keys().cloned().chain(self.quarantine.keys()).collect();
        keys.into_iter().filter(|key| self.targets.desired(key).is_none())
    }

    /// The missing keys that are certainly gone.
    fn gone(&self) -> Vec<Key> {
        self.missing().filter(|key| self.targets.is_gone(key)).collect()
    }
}
