//! The status as documents.

use std::collections::BTreeMap;

use super::histogram::Histogram;
use super::keys::{KeyState, Keys, line_of};
use super::shown::{
    HostShown, KeyShown, KeysShown, Measured, MemoryShown, NodeShown, SourceShown, Status, Times, Total,
};
use super::{HostStatus, PROBLEMS_MAX};

/// How many keys in trouble a [`Status`] contains. `/v1/keys?state=failed` has all of them.
const IN_TROUBLE_MAX: usize = 100;

impl HostStatus {
    /// Statistics for each guest that has or had a key, by name.
    pub fn measured(&self) -> BTreeMap<String, Measured> {
        self.inner.lock().keys.by_guest()
    }

    /// The number of keys of a guest that are set aside.
    pub fn set_aside_of(&self, guest: &str) -> usize {
        self.measured().get(guest).map_or(0, |measured| measured.set_aside)
    }

    /// The document of `/v1/status`. The caller adds the state of the file, guests, memory and problems.
    pub fn status(&self) -> Status {
        let now_ms = self.now_ms();
        let facts = self.facts();
        let inner = self.inner.lock();
        let keys = &inner.keys;
        Status {
            host: HostShown {
                now_ms,
                ..inner.host.clone()
            },
            source: facts.source.map(|kind| {
                let source = &inner.source;
                let problems = source.problems.iter().chain(&inner.on_node);
                SourceShown {
                    kind: kind.to_owned(),
                    problems: problems.take(PROBLEMS_MAX).cloned().collect(),
                    problem_count: source.problem_count + inner.on_node.len(),
                    ..source.clone()
                }
            }),
            queue: facts.source.map(|_| keys.queue(inner.sleeping, &inner.resting, now_ms)),
            keys: keys.counts(),
            in_trouble: keys.in_trouble("", IN_TROUBLE_MAX, now_ms),
            in_trouble_count: keys.in_trouble_count(),
            contested: keys.contested().take(IN_TROUBLE_MAX).map(str::to_owned).collect(),
            contested_count: keys.contested().count(),
            total: total(keys.by_guest().values()),
            guests: Vec::new(),
            negs: facts.negs.then(|| inner.negs.show()),
            node: facts.node.as_ref().map(|name| NodeShown {
                name: name.clone(),
                ..inner.node.clone()
            }),
            pods: facts.pods.as_ref().map(|instance| inner.pods.show(instance, now_ms)),
            memory: MemoryShown::default(),
            problems: Vec::new(),
        }
    }

    /// Keys after `after`, in order of `GUEST/KEY`, in one state or in any, at most `max`.
    pub fn keys(&self, state: Option<KeyState>, after: &str, max: usize) -> KeysShown {
        self.page(max, |keys, max, now_ms| keys.list(state, after, max, now_ms))
    }

    /// The same for keys with an error, in any state.
    pub fn keys_in_trouble(&self, after: &str, max: usize) -> KeysShown {
        self.page(max, |keys, max, now_ms| keys.in_trouble(after, max, now_ms))
    }

    /// At most `max` of the keys that `list` gives.
    fn page(&self, max: usize, list: impl FnOnce(&Keys, usize, u64) -> Vec<KeyShown>) -> KeysShown {
        let now_ms = self.now_ms();
        let mut keys = list(&self.inner.lock().keys, max.saturating_add(1), now_ms);
        let has_more = keys.len() > max;
        keys.truncate(max);
        let next = keys.last().filter(|_| has_more);
        let next = next.map(|last| line_of(&last.guest, &last.key));
        KeysShown { keys, next }
    }

    /// One key of a guest. `None` if it is unknown.
    pub fn key(&self, guest: &str, key: &str) -> Option<KeyShown> {
        let now_ms = self.now_ms();
        self.inner.lock().keys.one(&line_of(guest, key), now_ms)
    }

    /// The keys with that name, one for each guest that has one, by guest.
    pub fn keys_named(&self, key: &str) -> Vec<KeyShown> {
        let now_ms = self.now_ms();
        let inner = self.inner.lock();
        let guests = inner.keys.by_guest().into_keys();
        guests
            .filter_map(|guest| inner.keys.one(&line_of(&guest, key), now_ms))
            .collect()
    }
}

/// The total over all guests.
fn total<'a>(measured: impl Iterator<Item = &'a Measured>) -> Total {
    let mut total = Total::default();
    let add = |times: &mut Times, histogram: &Histogram| {
        times.count += histogram.count;
        times.seconds += histogram.sum;
    };
    for measured in measured {
        add(&mut total.took, &measured.took);
        add(&mut total.change_to_effect, &measured.to_effect);
        total.effects += measured.effects;
    }
    total.decisions = total.took.count;
    total
}
