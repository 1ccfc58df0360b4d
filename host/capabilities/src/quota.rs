//! How often a guest may make requests, and how much one call may destroy.
//!
//! Decides and counts; `guard.rs` words and reports refusals. Times are arguments.
//!
//! ```text
//! Quotas: a guest's capability -> the times of its requests, over all its instances and versions   (calls_per_minute)
//! Blast:  the running call     -> what it has seen, what it had destroyed             (destroy_max, destroy_percent)
//! ```
//! `holdings.rs` limits what all calls of one round may destroy.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use trueup_base::text::counted;
use trueup_base::window::Window;

use crate::grants::Grant;
use crate::holdings::Holdings;
use crate::lbaas::{Object, ObjectRef, Owners};

/// The window of `calls_per_minute`, in milliseconds. It slides: there is no moment at which a whole quota becomes
/// available again.
pub const WINDOW_MS: u64 = 60_000;

/// The request times of one guest, as far as its quotas need them. One value for all instances of a configured guest,
/// whatever its versions call themselves, so that another name is no other quota.
#[derive(Default)]
pub struct Quotas {
    /// By capability.
    asked_at_ms: Mutex<BTreeMap<String, Window>>,
    /// What the guest holds, and how much of it may be destroyed.
    pub holdings: Holdings,
}

impl Quotas {
    /// Counts a request to `capability` at `now_ms`, by a monotonic clock. Returns false, without counting, if it has
    /// made `per_minute` requests within the last [`WINDOW_MS`].
    pub fn admit(&self, capability: &str, per_minute: u32, now_ms: u64) -> bool {
        let mut all = self.asked_at_ms.lock();
        let asked = all.entry(capability.to_owned()).or_default();
        let per_minute = usize::try_from(per_minute).unwrap_or(usize::MAX);
        asked.admit(per_minute, WINDOW_MS, now_ms).is_ok()
    }
}

/// Whether a grant limits what one call may destroy. `removing`: as [`Blast::above`].
pub(crate) fn limits(grant: Option<&Grant>, removing: bool) -> bool {
    grant.is_some_and(|grant| grant.destroy_max.is_some() || grant.destroy_percent.is_some() && !removing)
}

fn has_percentage(grant: Option<&Grant>) -> bool {
    grant.is_some_and(|grant| grant.destroy_percent.is_some())
}

/// What the running call has seen of an Engine, and what it has destroyed.
#[derive(Debug, Default)]
pub(crate) struct Blast {
    pub(crate) owners: Owners,
    /// The Engine's identifiers are unique within a kind.
    seen: BTreeSet<ObjectRef>,
    /// What the call itself created. It did not exist before, so it must not increase the base of the percentage.
    made: BTreeSet<ObjectRef>,
    sent: BTreeSet<ObjectRef>,
    /// The number of objects by the last list and the call's later changes; `None` without a list.
    pub(crate) left: Option<u64>,
}

impl Blast {
    /// Records objects that the guest has seen. Stored only if the grant limits the percentage to destroy.
    pub(crate) fn see<'o>(&mut self, grant: Option<&Grant>, objects: impl IntoIterator<Item = &'o Object>) {
        if has_percentage(grant) {
            let found = objects.into_iter().map(Object::reference);
            self.seen.extend(found.filter(|resource| !self.made.contains(resource)));
        }
    }

    /// Records objects that the guest created. Stored as above.
    pub(crate) fn make<'o>(&mut self, grant: Option<&Grant>, objects: impl IntoIterator<Item = &'o Object>) {
        if has_percentage(grant) {
            self.made.extend(objects.into_iter().map(Object::reference));
        }
    }

    /// Records the numbers of created and destroyed objects.
    pub(crate) fn changed(&mut self, made: u64, destroyed: u64) {
        self.left = self.left.map(|left| (left + made).saturating_sub(destroyed));
    }

    /// Counts objects sent to the Engine for destruction, whatever it answers: a request that timed out may have been
    /// carried out.
    pub(crate) fn send(&mut self, grant: Option<&Grant>, refs: &[ObjectRef]) {
        if limits(grant, false) {
            self.sent.extend(refs.iter().cloned());
        }
    }

    /// Whether destroying these, too, would exceed a limit; each object counts once per call. `foreseen`: how many the
    /// call destroys in all, if that is known: then a limit refuses it before it destroys any. `removing`: the key is
    /// to be removed, so all of it may be destroyed, and the percentage does not apply. Returns the limit's key in the
    /// configuration, and the excess.
    pub(crate) fn above(
        &self,
        grant: Option<&Grant>,
        refs: &[ObjectRef],
        (foreseen, removing): (Option<u64>, bool),
    ) -> Option<(&'static str, String)> {
        let grant = grant.filter(|grant| limits(Some(grant), removing))?;
        let new = refs.iter().filter(|reference| !self.sent.contains(reference));
        let new: BTreeSet<&ObjectRef> = new.collect();
        let foreseen = foreseen.map_or(0, |count| usize::try_from(count).unwrap_or_default());
        let destroyed = foreseen.max(self.sent.len() + new.len());
        if let Some(max) = grant.destroy_max.filter(|max| destroyed as u64 > u64::from(*max)) {
            let objects = counted(destroyed, "object", "objects");
            let why = format!("destroying {objects} in one call is above `destroy_max` of {max}");
            return Some(("destroy_max", why));
        }
        let found = |resource: &&ObjectRef| !self.made.contains(*resource);
        let destroyed = foreseen.max(self.sent.iter().chain(new).filter(found).count());
        let seen = self.seen.len();
        let percent = grant.destroy_percent.filter(|_| !removing)?;
        let objects = counted(seen, "object", "objects");
        let why = format!(
            "destroying {destroyed} of the {objects} that the call has seen is above `destroy_percent` of {percent}"
        );
        let is_above = destroyed as u128 * 100 > u128::from(percent) * seen as u128;
        is_above.then_some(("destroy_percent", why))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lbaas::{State, testing};

    #[test]
    fn a_quota_comes_back_as_its_questions_grow_old() {
        let quotas = Quotas::default();
        let ask = |now_ms| quotas.admit("lbaas", 2, now_ms);
        assert!(ask(0) && ask(10_000));
        assert!(!ask(20_000), "two within the last minute");
        assert!(!ask(59_999), "a refusal is not counted, and the first still is");
        assert!(ask(60_000), "the first is a minute old");
        assert!(!ask(69_999));
        assert!(ask(70_000));
    }

    #[test]
    fn each_capability_has_its_own() {
        let quotas = Quotas::default();
        assert!(quotas.admit("lbaas", 1, 0));
        assert!(quotas.admit("cri", 1, 0));
        assert!(!quotas.admit("lbaas", 1, 0));
    }

    #[test]
    fn times_out_of_order_give_no_quota_twice() {
        let quotas = Quotas::default();
        let ask = |now_ms| quotas.admit("lbaas", 1, now_ms);
        assert!(ask(100_000));
        assert!(!ask(99_999), "another thread read the clock earlier");
        assert!(!ask(159_999));
        assert!(ask(160_000));
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_its_quota(per_minute in 1u32..6, steps in prop::collection::vec(0u64..40_000, 1..60)) {
            let quotas = Quotas::default();
            let (mut now_ms, mut admitted) = (0, Vec::new());
            for step in steps {
                now_ms += step;
                let within = admitted.iter().filter(|at| **at + WINDOW_MS > now_ms).count();
                let admits = quotas.admit("c", per_minute, now_ms);
                prop_assert_eq!(admits, within < per_minute as usize);
                if admits {
                    admitted.push(now_ms);
                }
            }
        }
    }

    fn object(identifier: usize) -> Object {
        Object {
            identifier: identifier.to_string(),
            state: State::Ok,
            spec: testing::backend("b", "lb-1"),
        }
    }

    fn refs(identifiers: std::ops::Range<usize>) -> Vec<ObjectRef> {
        identifiers.map(|identifier| object(identifier).reference()).collect()
    }

    fn limits(destroy_max: Option<u32>, destroy_percent: Option<u8>) -> Grant {
        Grant {
            destroy_max,
            destroy_percent,
            ..Grant::default()
        }
    }

    #[test]
    fn both_limits_hold_over_all_batches_of_a_call() {
        let grant = limits(Some(5), Some(50));
        let grant = Some(&grant);
        let mut blast = Blast::default();
        let all: Vec<Object> = (0..8).map(object).collect();
        blast.see(grant, &all);
        blast.see(grant, &all[..4]);
        assert_eq!(
            blast.above(grant, &refs(0..4), (None, false)),
            None,
            "half of eight, each seen once"
        );
        blast.send(grant, &refs(0..3));
        assert_eq!(
            blast.above(grant, &refs(0..4), (None, false)),
            None,
            "three of them count already"
        );
        let above = blast.above(grant, &refs(3..5), (None, false)).unwrap();
        assert_eq!(
            (above.0, above.1.as_str()),
            (
                "destroy_percent",
                "destroying 5 of the 8 objects that the call has seen is above `destroy_percent` of 50"
            )
        );
        assert_eq!(
            blast.above(grant, &refs(3..5), (None, true)),
            None,
            "all of a key that is gone goes"
        );
        let above = blast.above(grant, &refs(3..6), (None, true)).unwrap();
        assert_eq!(
            (above.0, above.1.as_str()),
            (
                "destroy_max",
                "destroying 6 objects in one call is above `destroy_max` of 5"
            )
        );
        blast = Blast::default();
        assert!(
            blast.above(grant, &refs(0..1), (None, false)).is_some(),
            "nothing was seen by this call"
        );
    }

    #[test]
    fn what_the_call_made_is_no_part_of_what_it_may_destroy_a_part_of() {
        let grant = limits(None, Some(50));
        let grant = Some(&grant);
        let all: Vec<Object> = (0..100).map(object).collect();
        let mut blast = Blast::default();
        blast.see(grant, &all[..2]);
        blast.make(grant, &all[2..]);
        blast.see(grant, &all);
        let above = blast.above(grant, &refs(0..2), (None, false)).unwrap();
        assert_eq!(
            above.1,
            "destroying 2 of the 2 objects that the call has seen is above `destroy_percent` of 50"
        );
        assert_eq!(
            blast.above(grant, &refs(1..100), (None, false)),
            None,
            "it may take back what it made"
        );
        blast.send(grant, &refs(1..100));
        assert!(blast.above(grant, &refs(0..1), (None, false)).is_some());
    }

    #[test]
    fn nothing_is_kept_where_nothing_limits() {
        let mut blast = Blast::default();
        for grant in [None, Some(&Grant::default())] {
            blast.see(grant, &[object(1)]);
            blast.make(grant, &[object(2)]);
            blast.send(grant, &refs(0..3));
            assert_eq!(blast.above(grant, &refs(0..9), (None, false)), None);
        }
        assert!(blast.seen.is_empty() && blast.made.is_empty() && blast.sent.is_empty());
        let none = limits(Some(0), None);
        let above = blast.above(Some(&none), &refs(0..1), (None, true)).unwrap();
        assert_eq!(above.1, "destroying 1 object in one call is above `destroy_max` of 0");
    }
}
