//! What the board says, as documents.

use super::histogram::Histogram;
use super::keys::{KeyState, Outcome, Worked, line_of};
use super::shown::{
    Effects, HostShown, KeyShown, KeysShown, Measured, MemoryShown, NodeShown, SourceShown, StandingShown, Status,
    Times, Total,
};
use super::{Board, PROBLEMS_MAX, Standing};

/// How many keys in trouble a [`Status`] contains. `/v1/keys?state=failed` has all of them.
const IN_TROUBLE_MAX: usize = 100;

impl Board {
    /// Statistics for each guest that has or had a key, by name.
    pub fn measured(&self) -> Vec<Measured> {
        let inner = self.inner();
        let measured = inner.keys.by_guest().iter().map(|(guest, worked)| {
            let count = |outcome| worked.outcomes.get(&outcome).copied().unwrap_or_default();
            Measured {
                guest: guest.clone(),
                outcomes: Outcome::ALL.map(|outcome| (outcome, count(outcome))).to_vec(),
                took: worked.took.clone(),
                to_effect: worked.to_effect.clone(),
                effects: worked.effects(),
            }
        });
        measured.collect()
    }

    /// The number of keys of a guest that are set aside.
    pub fn set_aside_of(&self, guest: &str) -> usize {
        self.inner().keys.set_aside_of(guest)
    }

    /// The content of the board. The caller adds the state of the file, guests, memory and problems.
    pub fn status(&self) -> Status {
        let now_ms = self.now_ms();
        let facts = self.facts();
        let inner = self.inner();
        let keys = &inner.keys;
        let source = facts.source.map(|kind| SourceShown {
            kind: kind.to_owned(),
            synced: inner.source.looks > 0,
            complete: inner.source.complete,
            objects: inner
                .source
                .objects
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect(),
            changes: inner.source.changes,
            changed_ms: inner.source.changed_ms,
            problems: [&inner.source.problems, &inner.source.on_node]
                .into_iter()
                .flatten()
                .take(PROBLEMS_MAX)
                .cloned()
                .collect(),
            problem_count: inner.source.problem_count + inner.source.on_node.len(),
            notes: inner.source.notes.clone(),
            note_count: inner.source.note_count,
            more: inner.source.more.clone(),
        });
        let (standing, leader) = match &inner.standing {
            Standing::Alone => (StandingShown::Alone, None),
            Standing::Leading => (StandingShown::Leading, None),
            Standing::Standby { leader } => (StandingShown::Standby, leader.clone()),
        };
        Status {
            host: HostShown {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                identity: inner.identity.clone(),
                config: facts.config.display().to_string(),
                state_dir: facts.state_dir.display().to_string(),
                started_ms: self.started_ms,
                now_ms,
                standing,
                leader,
                stopping: inner.stopping,
                admin: Vec::new(),
                config_changed: false,
                refused_reload: inner.refused_reload.clone(),
            },
            source,
            queue: facts.source.map(|_| keys.queue(inner.sleeping, now_ms)),
            keys: keys.counts(),
            in_trouble: keys.in_trouble("", IN_TROUBLE_MAX, now_ms),
            in_trouble_count: keys.in_trouble_count(),
            contested: inner.contested.keys().take(IN_TROUBLE_MAX).map(str::to_owned).collect(),
            contested_count: inner.contested.keys().count(),
            total: total(keys.by_guest().values()),
            guests: Vec::new(),
            negs: facts.negs.then(|| inner.negs.show()),
            node: facts.node.as_ref().map(|name| NodeShown {
                name: name.clone(),
                number: inner.node.number,
                nodes: inner.node.nodes,
                services: inner.node.services,
                problems: inner.node.problems.iter().take(PROBLEMS_MAX).cloned().collect(),
                problem_count: inner.node.problems.len(),
            }),
            pods: facts.pods.as_ref().map(|instance| inner.pods.show(instance, now_ms)),
            memory: MemoryShown::default(),
            problems: Vec::new(),
        }
    }

    /// Keys after `after`, in order of `GUEST/KEY`, in one state or in any, at most `max`.
    pub fn keys(&self, state: Option<KeyState>, after: &str, max: usize) -> KeysShown {
        let now_ms = self.now_ms();
        cut(self.inner().keys.list(state, after, max.saturating_add(1), now_ms), max)
    }

    /// The same for keys with an error, in any state.
    pub fn keys_in_trouble(&self, after: &str, max: usize) -> KeysShown {
        let now_ms = self.now_ms();
        cut(self.inner().keys.in_trouble(after, max.saturating_add(1), now_ms), max)
    }

    /// One key of a guest. `None` if it is unknown.
    pub fn key(&self, guest: &str, key: &str) -> Option<KeyShown> {
        let now_ms = self.now_ms();
        self.inner().keys.one(&line_of(guest, key), now_ms)
    }

    /// The keys with that name, one for each guest that has one, by guest.
    pub fn keys_named(&self, key: &str) -> Vec<KeyShown> {
        let now_ms = self.now_ms();
        let inner = self.inner();
        let guests = inner.keys.by_guest().keys();
        guests
            .filter_map(|guest| inner.keys.one(&line_of(guest, key), now_ms))
            .collect()
    }
}

impl Worked {
    fn effects(&self) -> Effects {
        Effects {
            created: self.created,
            destroyed: self.destroyed,
        }
    }
}

/// The total over all guests.
fn total<'a>(worked: impl Iterator<Item = &'a Worked>) -> Total {
    let mut total = Total::default();
    let add = |times: &mut Times, histogram: &Histogram| {
        times.count += histogram.count;
        times.seconds += histogram.sum;
    };
    for worked in worked {
        add(&mut total.took, &worked.took);
        add(&mut total.change_to_effect, &worked.to_effect);
        total.effects.created += worked.created;
        total.effects.destroyed += worked.destroyed;
    }
    total.decisions = total.took.count;
    total
}

fn cut(mut keys: Vec<KeyShown>, max: usize) -> KeysShown {
    let has_more = keys.len() > max;
    keys.truncate(max);
    let next = keys.last().filter(|_| has_more);
    let next = next.map(|last| line_of(&last.guest, &last.key));
    KeysShown { keys, next }
}
