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

use trueup_base::text::counted;
use trueup_capabilities::meter::Change;
use trueup_config::{FailurePolicy, OnFailure};

use super::failure::{Blame, End};

/// With `--once`, the host gives up a key after this many failures.
pub const FAILURES_MAX_ONCE: u32 = 5;

/// The maximum number of objects watched per key, by name and by identifier. A guest that creates under ever new
/// names does not go round in circles, and must not fill the host's memory.
const OBJECTS_MAX: usize = 10_000;

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
    pub(crate) by_name: BTreeMap<String, FailureCount>,
}

/// What went wrong with one input.
#[derive(Default)]
pub(crate) struct FailureCount {
    /// The digest of its last form.
    input: String,
    /// How often in a row the guest failed.
    faults: u32,
    cycles: Cycles,
}

impl FailureCounts {
    pub(crate) fn new(policy: FailurePolicy) -> Self {
        let by_name = BTreeMap::new();
        Self { policy, by_name }
    }

    /// Takes in the end of a job. `input` is the digest of the form that it worked with. Returns why the input is to be
    /// set aside, and then counts anew.
    pub(crate) fn after(&mut self, name: &str, input: &str, end: &End, changes: &[Change]) -> Option<TooMuch> {
        match end.as_ref().err().map(|failure| failure.blame) {
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

    /// Forgets all. Returns the names of those with which the guest failed.
    pub(crate) fn forget_all(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.by_name).into_iter();
        all.filter_map(|(name, it)| (it.faults > 0).then_some(name)).collect()
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
        let error = fault.error.clone();
        let failures = self.faults;
        (failures >= enough(policy)).then_some(TooMuch { error, failures })
    }
}

/// After this many failures of the guest in a row, an input is set aside.
pub(crate) fn enough(policy: &FailurePolicy) -> u32 {
    match policy.on_failure {
        OnFailure::Hold => 1,
        OnFailure::Retry | OnFailure::FallBack(_) => policy.quarantine_after,
    }
}

/// How often one object was created and destroyed. Objects are identified by kind and name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Turns {
    created: u32,
    destroyed: u32,
}

impl Turns {
    fn rounds(self) -> u32 {
        self.created.min(self.destroyed)
    }
}

type Object = (&'static str, String);

/// Notices a guest that goes round in circles: it creates what it destroys, and destroys what it created. Holds the
/// objects of one key since its desired input last changed. Identifies them by kind and name, since each creation
/// gives another identifier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Cycles {
    turns: BTreeMap<Object, Turns>,
    /// Names of the objects that were created here and still exist, by kind and identifier.
    names: BTreeMap<Object, String>,
}

impl Cycles {
    /// Takes in what a job changed, in order. Returns the cycle if an object was created and destroyed again `max`
    /// times.
    ///
    /// `is_true`: the job succeeded. Its retries then led somewhere, so they count as one turn at most. A key whose
    /// jobs keep succeeding without ever having nothing to do is still a cycle.
    fn take_in(&mut self, changes: &[Change], is_true: bool, max: u32) -> Option<TooMuch> {
        for (object, made) in self.made(changes) {
            if self.turns.len() >= OBJECTS_MAX && !self.turns.contains_key(&object) {
                continue;
            }
            let most = if is_true { 1 } else { u32::MAX };
            let turns = self.turns.entry(object).or_default();
            turns.created = turns.created.saturating_add(made.created.min(most));
            turns.destroyed = turns.destroyed.saturating_add(made.destroyed.min(most));
        }
        let mut cycle = self.turns.iter().filter(|(_, turns)| turns.rounds() >= max);
        let ((kind, name), turns) = cycle.next()?;
        let rounds = turns.rounds();
        let others = cycle.count() as u64;
        let mut error = format!("a cycle: create {kind} `{name}`, destroy {kind} `{name}`, {rounds} times");
        error += " with the same desired state";
        if others > 0 {
            error += &format!(", and so {}", counted(others, "other object", "other objects"));
        }
        Some(TooMuch {
            error,
            failures: rounds,
        })
    }

    /// The changes of each object that was created here.
    fn made(&mut self, changes: &[Change]) -> BTreeMap<Object, Turns> {
        let mut made: BTreeMap<Object, Turns> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Created { kind, name, identifier } => {
                    if self.names.len() < OBJECTS_MAX {
                        self.names.insert((kind, identifier.clone()), name.clone());
                    }
                    made.entry((kind, name.clone())).or_default().created += 1;
                }
                Change::Destroyed { kind, identifier } => {
                    // An object that existed before was not created by this guest for this input.
                    if let Some(name) = self.names.remove(&(*kind, identifier.clone())) {
                        made.entry((kind, name)).or_default().destroyed += 1;
                    }
                }
            }
        }
        made
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

    fn created(name: &str, identifier: &str) -> Change {
        Change::Created {
            kind: "backend",
            name: name.to_owned(),
            identifier: identifier.to_owned(),
        }
    }

    fn destroyed(identifier: &str) -> Change {
        Change::Destroyed {
            kind: "backend",
            identifier: identifier.to_owned(),
        }
    }

    /// `a` and `b` are created and destroyed again, `times` times.
    fn rounds(times: u32) -> Vec<Change> {
        let round = |number: u32| {
            let a = format!("a{number}");
            let b = format!("b{number}");
            [created("a", &a), created("b", &b), destroyed(&a), destroyed(&b)]
        };
        (0..times).flat_map(round).collect()
    }

    #[test]
    fn the_same_object_created_and_destroyed_again_is_a_cycle() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.take_in(&[created("a", "1"), created("b", "2")], true, 2), None);
        assert_eq!(cycles.take_in(&[destroyed("1")], true, 2), None);
        assert_eq!(
            cycles.take_in(&[created("a", "3")], true, 2),
            None,
            "created twice, destroyed once"
        );
        assert_eq!(
            cycles.take_in(&[destroyed("3")], true, 2),
            Some(TooMuch {
                error: "a cycle: create backend `a`, destroy backend `a`, 2 times with the same desired state"
                    .to_owned(),
                failures: 2,
            })
        );
    }

    #[test]
    fn what_is_destroyed_and_was_not_created_here_is_none() {
        let mut cycles = Cycles::default();
        for _ in 0..10 {
            assert_eq!(cycles.take_in(&[destroyed("old"), created("a", "1")], false, 2), None);
            cycles = Cycles::default();
        }
    }

    #[test]
    fn a_cycle_within_one_failed_call_counts_and_names_how_many_take_part() {
        let mut cycles = Cycles::default();
        let cycle = cycles.take_in(&rounds(4), false, 3).unwrap();
        assert_eq!(cycle.failures, 4, "as often as it was, not as often as is allowed");
        assert!(
            cycle
                .error
                .ends_with("4 times with the same desired state, and so 1 other object"),
            "{}",
            cycle.error
        );
    }

    #[test]
    fn a_call_that_ended_as_it_should_is_one_turn_however_often_it_tried() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.take_in(&rounds(9), true, 3), None);
        assert_eq!(cycles.take_in(&rounds(9), true, 3), None);
        assert_eq!(cycles.take_in(&rounds(9), true, 3).map(|cycle| cycle.failures), Some(3));
    }

    #[test]
    fn ever_new_names_fill_no_memory_and_hide_no_cycle() {
        let mut cycles = Cycles::default();
        cycles.take_in(&rounds(1), false, 3);
        let flood: Vec<Change> = (0..2 * OBJECTS_MAX)
            .map(|number| created(&format!("x{number}"), &format!("x{number}")))
            .collect();
        assert_eq!(cycles.take_in(&flood, false, 3), None);
        assert_eq!((cycles.turns.len(), cycles.names.len()), (OBJECTS_MAX, OBJECTS_MAX));
        // Something else removed the object from the Engine over and over. The guest does not go in circles.
        let again: Vec<Change> = (0..OBJECTS_MAX)
            .map(|number| created("a", &format!("again{number}")))
            .collect();
        assert_eq!(cycles.take_in(&again, false, 3), None);
        assert_eq!(cycles.names.len(), OBJECTS_MAX);
        // Removing some of the flood makes room again.
        cycles.take_in(&[destroyed("x0"), destroyed("x1")], false, 3);
        assert_eq!(
            cycles.take_in(&rounds(2), false, 3).map(|cycle| cycle.failures),
            Some(3)
        );
    }
}
