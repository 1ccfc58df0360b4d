//! What changed for a key since its last job began: the causes of the next job.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cause::{Cause, ChangeKind, ChangedNodes, ChangedObject};

/// How many causes of one job are kept. Further ones are counted: of two hundred Nodes that arrive at once, sixteen are
/// listed.
pub const CAUSES_MAX: usize = 16;

/// A cause and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCause {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
}

/// The causes of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    pub(crate) causes: Vec<TimedCause>,
    pub(crate) more: usize,
}

/// Pending causes by key, for keys whose job has not begun.
#[derive(Debug)]
pub(crate) struct PendingCauses<K> {
    by_key: BTreeMap<K, Causes>,
    /// Whether a complete look at the source has happened: every later object is new.
    has_begun: bool,
    /// The cause of the first jobs.
    pub(crate) start: Cause,
}

impl<K: Ord + Clone> PendingCauses<K> {
    pub(crate) fn new(start: Cause) -> Self {
        Self {
            by_key: BTreeMap::new(),
            has_begun: false,
            start,
        }
    }

    /// Records a look at the source: the changes by key, the Nodes that changed for all keys, and all keys whose job
    /// will run. `whole`: everything was readable. At the start Nodes are left out, since there may be as many as keys.
    pub(crate) fn take_in(
        &mut self,
        now_ms: u64,
        (seen, nodes): (Vec<ChangedObject<K>>, ChangedNodes),
        affected: &BTreeSet<K>,
        whole: bool,
    ) {
        let is_first = !self.has_begun;
        self.has_begun |= whole;
        if is_first {
            for key in affected {
                self.because(key, now_ms, self.start.clone());
            }
        }
        let mut explained = BTreeSet::new();
        for ChangedObject { mut input, keys } in seen {
            if is_first && input.change == ChangeKind::Added {
                input.change = ChangeKind::Found;
            }
            for key in keys.into_iter().filter(|key| affected.contains(key)) {
                self.because(&key, now_ms, Cause::Input(input.clone()));
                explained.insert(key);
            }
        }
        if is_first {
            return;
        }
        for key in affected {
            for input in &nodes.inputs {
                self.because(key, now_ms, Cause::Input(input.clone()));
            }
            self.by_key.entry(key.clone()).or_default().more += nodes.more;
            if nodes.inputs.is_empty() && !explained.contains(key) {
                self.because(key, now_ms, Cause::Whole);
            }
        }
    }

    /// Adds a cause for a key.
    pub(crate) fn because(&mut self, key: &K, now_ms: u64, cause: Cause) {
        self.by_key.entry(key.clone()).or_default().add(now_ms, cause);
    }

    /// The job of a key begins. Takes all pending causes, or the fallback if there are none.
    pub(crate) fn begin(&mut self, key: &K, now_ms: u64, otherwise: impl FnOnce() -> Cause) -> Causes {
        let why = self.by_key.remove(key).filter(|why| !why.causes.is_empty());
        why.unwrap_or_else(|| {
            let mut why = Causes::default();
            why.add(now_ms, otherwise());
            why
        })
    }

    /// Forgets a key that is completely gone.
    pub(crate) fn forget(&mut self, key: &K) {
        self.by_key.remove(key);
    }
}

impl Causes {
    /// Adds a cause. A cause about an object that already has one is merged with it.
    pub(super) fn add(&mut self, at_ms: u64, cause: Cause) {
        if let Cause::Input(later) = &cause {
            let mut inputs = self.causes.iter_mut().enumerate();
            let earlier = inputs.find_map(|(at, timed)| match &mut timed.cause {
                Cause::Input(input) if input.is_of(later) => Some((at, input)),
                _ => None,
            });
            if let Some((at, earlier)) = earlier {
                match earlier.then(later) {
                    Some(both) => *earlier = both,
                    None => drop(self.causes.remove(at)),
                }
                return;
            }
        }
        if self.causes.iter().any(|timed| timed.cause == cause) {
            return;
        }
        if self.causes.len() >= CAUSES_MAX {
            self.more += 1;
        } else {
            self.causes.push(TimedCause { at_ms, cause });
        }
    }

    /// A short text for a trace.
    pub(crate) fn words(&self) -> String {
        let mut words: Vec<String> = self.causes.iter().map(|timed| timed.cause.words()).collect();
        if self.more > 0 {
            words.push(format!("{} more", self.more));
        }
        words.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::cause::Input;
    use super::*;
    use crate::objects::Id as Key;

    fn key(name: &str) -> Key {
        Key {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn seen(name: &str, change: ChangeKind, keys: &[&str]) -> ChangedObject<Key> {
        ChangedObject {
            input: Input {
                kind: "Node".to_owned(),
                namespace: String::new(),
                name: name.to_owned(),
                uid: None,
                resource_version: None,
                change,
                fields: super::super::Fields::default(),
            },
            keys: keys.iter().map(|name| key(name)).collect(),
        }
    }

    fn of(seen: Vec<ChangedObject<Key>>) -> (Vec<ChangedObject<Key>>, ChangedNodes) {
        (seen, ChangedNodes::default())
    }

    #[test]
    fn nodes_are_told_to_all_whom_they_concern_but_not_at_the_start() {
        let mut pending = PendingCauses::new(Cause::Start);
        let all = BTreeSet::from([key("a"), key("b")]);
        let nodes = |count: usize, more| ChangedNodes {
            inputs: (0..count)
                .map(|at| seen(&format!("n{at}"), ChangeKind::Gone, &[]).input)
                .collect(),
            more,
        };
        pending.take_in(1, (Vec::new(), nodes(2, 0)), &all, true);
        assert_eq!(begin(&mut pending, "a"), "start");
        pending.take_in(2, (Vec::new(), nodes(2, 7)), &BTreeSet::from([key("a")]), true);
        assert_eq!(begin(&mut pending, "a"), "Node n0 gone; Node n1 gone; 7 more");
        assert_eq!(begin(&mut pending, "b"), "start");
    }

    fn begin(pending: &mut PendingCauses<Key>, name: &str) -> String {
        pending
            .begin(&key(name), 9, || Cause::Resync { by_operator: false })
            .words()
    }

    #[test]
    fn what_is_there_at_the_start_is_found_and_what_comes_later_is_added() {
        let mut pending = PendingCauses::new(Cause::Start);
        let all = BTreeSet::from([key("a"), key("b")]);
        pending.take_in(1, of(vec![seen("n1", ChangeKind::Added, &["a"])]), &all, false);
        pending.take_in(
            2,
            of(vec![seen("n2", ChangeKind::Added, &["a"])]),
            &BTreeSet::from([key("a")]),
            true,
        );
        assert_eq!(begin(&mut pending, "a"), "start; Node n1 found; Node n2 found");
        assert_eq!(begin(&mut pending, "b"), "start");
        pending.take_in(
            3,
            of(vec![seen("n3", ChangeKind::Added, &["a", "b"])]),
            &BTreeSet::from([key("a")]),
            true,
        );
        assert_eq!(begin(&mut pending, "a"), "Node n3 added");
        assert_eq!(begin(&mut pending, "b"), "resync", "it is not affected");
        pending.take_in(4, of(Vec::new()), &BTreeSet::from([key("a")]), true);
        assert_eq!(begin(&mut pending, "a"), "source whole again");
    }

    #[test]
    fn many_reasons_are_counted_and_one_that_went_away_is_none() {
        let mut pending = PendingCauses::new(Cause::Start);
        let affected = BTreeSet::from([key("a")]);
        pending.take_in(1, of(Vec::new()), &BTreeSet::new(), true);
        let many = (0..CAUSES_MAX + 3).map(|at| seen(&format!("n{at:02}"), ChangeKind::Added, &["a"]));
        pending.take_in(2, of(many.collect()), &affected, true);
        let why = pending.begin(&key("a"), 9, || Cause::Resync { by_operator: false });
        assert_eq!((why.causes.len(), why.more), (CAUSES_MAX, 3));

        pending.take_in(3, of(vec![seen("n", ChangeKind::Added, &["a"])]), &affected, true);
        pending.take_in(4, of(vec![seen("n", ChangeKind::Gone, &["a"])]), &affected, true);
        assert_eq!(begin(&mut pending, "a"), "resync");
        pending.because(&key("a"), 5, Cause::Start);
        pending.forget(&key("a"));
        assert_eq!(begin(&mut pending, "a"), "resync");
    }
}
