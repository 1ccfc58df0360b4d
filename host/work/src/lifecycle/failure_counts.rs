//! Decides when an input is set aside: the guest failed with it too often in a row, or goes round in circles.
//!
//! Pure: takes how each job ended and what it changed, returns the decision. The loops act on it. An input is what
//! fails and is tried again as one: a key, an instance, an object, a request.
//!
//! ```text
//! succeeded, nothing to do           -> all is forgotten
//! the input is another one           -> counted anew
//! the guest failed so often in a row -> set aside
//! the same objects, round and round  -> set aside
//! ```

use std::collections::BTreeMap;

use trueup_capabilities::meter::Change;
use trueup_config::{FailurePolicy, OnFailure};

use super::cycles::Cycles;
use super::failure::{Blame, End};

/// With `--once`, the host gives up a key after this many failures.
pub const FAILURES_MAX_ONCE: u32 = 5;

/// Why an input is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooMuch {
    /// One line.
    pub error: String,
    /// How often in a row the guest failed, or the number of rounds.
    pub failures: u32,
}

/// What went wrong with each input, by name, since it last changed. One without failures takes no room.
pub(crate) struct FailureCounts {
    policy: FailurePolicy,
    by_name: BTreeMap<String, FailureCount>,
}

#[derive(Default)]
struct FailureCount {
    /// The digest of its last form.
    input: String,
    /// How often in a row the guest failed.
    faults: u32,
    cycles: Cycles,
}

impl FailureCounts {
    pub(crate) fn new(policy: FailurePolicy) -> Self {
        Self {
            policy,
            by_name: BTreeMap::new(),
        }
    }

    /// Takes in the end of a job. `input` is the digest of the form that it worked with. Returns why the input is to be
    /// set aside, and then counts anew.
    pub(crate) fn after(&mut self, name: &str, input: &str, end: &End, changes: &[Change]) -> Option<TooMuch> {
        let blame = end.as_ref().err().map(|failure| failure.blame);
        match blame {
            // Counts neither way: the next job is for another input, another version, or another process.
            Some(Blame::Cut) => return None,
            // The key was already in its desired state: recreating objects before was necessary.
            None if changes.is_empty() => {
                self.by_name.remove(name);
                return None;
            }
            Some(Blame::Host) if changes.is_empty() && !self.by_name.contains_key(name) => return None,
            _ => {}
        }
        let count = self.by_name.entry(name.to_owned()).or_default();
        if count.input != input {
            *count = FailureCount {
                input: input.to_owned(),
                ..FailureCount::default()
            };
        }
        let too_much = count.too_much(end, changes, &self.policy);
        if too_much.is_some() {
            self.by_name.remove(name);
        }
        too_much
    }

    /// The number of inputs with which something went wrong.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Returns the names of those with which the guest failed.
    pub(crate) fn forget_all(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.by_name).into_iter();
        all.filter(|(_, count)| count.faults > 0)
            .map(|(name, _)| name)
            .collect()
    }
}

impl FailureCount {
    fn too_much(&mut self, end: &End, changes: &[Change], policy: &FailurePolicy) -> Option<TooMuch> {
        if let Some(cycle) = self.cycles.take_in(changes, end.is_ok(), policy.cycles_max) {
            return Some(cycle);
        }
        let Some(fault) = end.as_ref().err().filter(|failure| failure.blame == Blame::Guest) else {
            self.faults = 0;
            return None;
        };
        self.faults += 1;
        (self.faults >= enough(policy)).then(|| TooMuch {
            error: fault.error.clone(),
            failures: self.faults,
        })
    }
}

/// After this many failures of the guest in a row, an input is set aside.
pub(crate) fn enough(policy: &FailurePolicy) -> u32 {
    match policy.on_failure {
        OnFailure::Hold => 1,
        OnFailure::Retry | OnFailure::FallBack(_) => policy.quarantine_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::failure::Failure;

    fn failures(on_failure: OnFailure) -> FailureCounts {
        FailureCounts::new(FailurePolicy {
            on_failure,
            quarantine_after: 3,
            cycles_max: 2,
        })
    }

    fn trap() -> End {
        Err(Failure::of_guest("it trapped"))
    }

    fn unavailable() -> End {
        Err(Failure::from("the Engine is not available".to_owned()))
    }

    const TRUE: End = Ok(false);

    /// What a guest did that recreated one object: it destroyed `a` and created it again.
    fn again(number: u32) -> Vec<Change> {
        vec![
            Change::Destroyed {
                kind: "server",
                identifier: format!("a{number}"),
            },
            Change::Created {
                kind: "server",
                name: "a".to_owned(),
                identifier: format!("a{}", number + 1),
            },
        ]
    }

    fn after(failures: &mut FailureCounts, input: &str, end: &End, changes: &[Change]) -> Option<u32> {
        let too_much = failures.after("web", input, end, changes);
        too_much.map(|too_much| too_much.failures)
    }

    #[test]
    fn a_key_is_set_aside_after_enough_failures_in_a_row_and_counted_anew() {
        let mut failures = failures(OnFailure::Retry);
        for _ in 0..2 {
            assert_eq!(after(&mut failures, "a", &trap(), &[]), None);
            assert_eq!(after(&mut failures, "a", &trap(), &[]), None);
            assert_eq!(
                failures.after("web", "a", &trap(), &[]),
                Some(TooMuch {
                    error: "it trapped".to_owned(),
                    failures: 3
                })
            );
        }
        assert!(failures.by_name.is_empty());
    }

    #[test]
    fn another_wish_an_answer_and_another_version_begin_a_new_row() {
        for (what, end) in [("an answer", unavailable()), ("all is well", TRUE)] {
            let mut failures = failures(OnFailure::Retry);
            for end in [trap(), trap(), end, trap(), trap()] {
                assert_eq!(after(&mut failures, "a", &end, &[]), None, "{what}");
            }
        }
        let mut failures = failures(OnFailure::Retry);
        for input in ["a", "a", "b", "b", "a", "a"] {
            assert_eq!(after(&mut failures, input, &trap(), &[]), None, "another input");
        }
        assert_eq!(failures.forget_all(), ["web"], "tried at once by another version");
        for _ in 0..2 {
            assert_eq!(after(&mut failures, "a", &trap(), &[]), None, "another version");
        }
    }

    #[test]
    fn an_interruption_neither_counts_nor_forgives() {
        let mut failures = failures(OnFailure::Retry);
        let cut = || Err(Failure::cut());
        let ends = [trap(), cut(), trap(), cut(), trap()];
        let ended: Vec<_> = ends.iter().map(|end| after(&mut failures, "a", end, &[])).collect();
        assert_eq!(ended, [None, None, None, None, Some(3)]);
    }

    #[test]
    fn keys_are_counted_apart() {
        let mut failures = failures(OnFailure::Retry);
        for name in ["a", "b", "a", "b"] {
            assert_eq!(failures.after(name, "", &trap(), &[]), None);
        }
        assert!(failures.after("a", "", &trap(), &[]).is_some());
        assert_eq!(failures.by_name.len(), 1);
    }

    #[test]
    fn hold_needs_one_failure_and_no_answer_of_the_engine_is_one() {
        let mut failures = failures(OnFailure::Hold);
        for _ in 0..10 {
            assert_eq!(after(&mut failures, "a", &unavailable(), &[]), None);
        }
        assert_eq!(after(&mut failures, "a", &trap(), &[]), Some(1));
    }

    #[test]
    fn recreating_an_object_is_a_cycle_whether_the_calls_fail_or_not() {
        for end in [TRUE, unavailable(), trap()] {
            let mut failures = failures(OnFailure::Retry);
            let ended: Vec<_> = (0..3)
                .map(|number| after(&mut failures, "a", &end, &again(number)))
                .collect();
            assert_eq!(
                ended,
                [None, None, Some(2)],
                "{end:?}: what was there before does not count"
            );
        }
    }

    #[test]
    fn recreating_for_another_input_or_after_a_good_job_is_no_cycle() {
        let mut failures = failures(OnFailure::Retry);
        for number in 0..20 {
            let input = if number % 2 == 0 { "a" } else { "b" };
            assert_eq!(after(&mut failures, input, &TRUE, &again(number)), None, "edited");
        }
        for number in 20..40 {
            assert_eq!(
                after(&mut failures, "a", &TRUE, &again(number)),
                None,
                "it fails now and then"
            );
            assert_eq!(after(&mut failures, "a", &TRUE, &[]), None);
        }
        assert!(failures.by_name.is_empty(), "what is well takes no room");
    }
}
