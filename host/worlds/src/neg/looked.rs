//! Takes in what the source says, and queues the keys that it changes: at once, or after a pause if more of the same
//! change may follow.

use std::collections::BTreeSet;

use trueup_base::clock::{Clock as _, SystemClock};
use trueup_sources::{Batch, Kind};
use trueup_work::files;
use trueup_work::keyed::SourceChanges;
use trueup_work::lifecycle::quarantine::digest_of;
use trueup_work::objects::Id;

use super::{Negs, pop_due};
use crate::neg::adapter::{Desired, Key};

/// A cluster reports one change in several parts in quick succession, such as the two EndpointSlices of a pod with
/// two addresses. The host waits this long after the last part. An endpoint that was attached with one address would
/// have to be detached again to get the second.
const GATHER_MS: u64 = 1_000;

/// A key that goes on changing is queued after this time all the same.
const GATHER_MAX_MS: u64 = 5_000;

impl Negs<'_> {
    /// Takes in what the source says, including what can't be read.
    pub(super) fn take_in(&mut self, batch: &Batch) -> SourceChanges<Key> {
        let has_keys = self.known.keys().next().is_some();
        let unreadable = self.targets.take_in_unreadable(&batch.unreadable);
        let locations = self.targets.locations().clone();
        let mut changed = self.targets.take_in(&batch.changes, batch.complete, has_keys);
        changed.affected.extend(unreadable);
        changed.affected.extend(self.known_and_affected(&changed));
        if *self.targets.locations() != locations
            && !self.setup.keyed.host_context.plans()
            && let Err(error) = files::replace_json(&self.locations_file, self.targets.locations())
        {
            tracing::warn!("zones and subnets are not remembered for the next start: {error}");
        }
        let completed = self.targets.completed();
        if completed {
            // Keys that were deleted while the host was down, or while something could not be read.
            changed.affected.extend(self.gone());
        } else if !changed.complete {
            changed.held = self.missing();
        }
        changed.affected.retain(|key| self.is_news(key));
        let gathers = self.setup.neg.source.is_cluster() && !self.once && !completed;
        for key in &changed.affected {
            if gathers {
                self.gather(key);
            } else {
                self.entry(key).inbox.sync = true;
            }
        }
        changed
    }

    /// The desired state of a key has changed, and more of the same change may follow.
    fn gather(&mut self, key: &Key) {
        let now_ms = SystemClock.steady_ms();
        let entry = self.entry(key);
        let since_ms = entry.gathers.map_or(now_ms, |(since_ms, _)| since_ms);
        let until_ms = now_ms
            .saturating_add(GATHER_MS)
            .min(since_ms.saturating_add(GATHER_MAX_MS));
        if let Some((_, before_ms)) = entry.gathers.replace((since_ms, until_ms)) {
            self.gathering.remove(&(before_ms, key.clone()));
        }
        self.gathering.insert((until_ms, key.clone()));
    }

    /// The keys that have gathered for long enough.
    pub(super) fn take_gathered(&mut self, now_ms: u64) -> Vec<Key> {
        let mut gathered = Vec::new();
        while let Some(key) = pop_due(&mut self.gathering, now_ms) {
            let entry = self.entry(&key);
            entry.gathers = None;
            entry.inbox.sync = true;
            gathered.push(key);
        }
        gathered
    }

    /// Known keys that a look may not name: those of Services that changed, and all keys once a look is complete
    /// again. Reads only the keys of those Services.
    fn known_and_affected(&self, changed: &SourceChanges<Key>) -> BTreeSet<Key> {
        if self.targets.completed() {
            return self.known.keys().chain(self.entries.keys()).cloned().collect();
        }
        let inputs = changed.seen.iter().map(|seen| &seen.input);
        let services = inputs.filter(|input| input.kind == Kind::Service.name());
        let keys = services.flat_map(|input| {
            let service = Id {
                namespace: input.namespace.clone(),
                name: input.name.clone(),
            };
            let at = |port| Key {
                service: service.clone(),
                port,
            };
            let ports = at(0)..=at(u16::MAX);
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
    fn missing(&self) -> Vec<Key> {
        let keys: BTreeSet<Key> = self.known.keys().cloned().chain(self.quarantine.keys()).collect();
        keys.into_iter()
            .filter(|key| self.targets.desired(key).is_none())
            .collect()
    }

    /// The missing keys that are certainly gone.
    pub(super) fn gone(&self) -> Vec<Key> {
        let missing = self.missing().into_iter();
        missing.filter(|key| self.targets.is_gone(key)).collect()
    }
}
