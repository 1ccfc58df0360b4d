//! Notices a guest that goes round in circles: it creates what it destroys, and destroys what it created.
//!
//! Identifies objects by kind and name, since each creation gives another identifier. Pure: takes what was created
//! and destroyed, returns the cycle.

use std::collections::BTreeMap;

use trueup_capabilities::meter::Change;

use super::failure_counts::TooMuch;

/// The maximum number of objects watched per key, by name and by identifier. A guest that creates under ever new
/// names does not go round in circles, and must not fill the host's memory.
const OBJECTS_MAX: usize = 10_000;

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

/// The objects of one key since its desired input last changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cycles {
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
    pub(crate) fn take_in(&mut self, changes: &[Change], is_true: bool, max: u32) -> Option<TooMuch> {
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
        let more = match cycle.count() {
            0 => String::new(),
            1 => ", and so 1 other object".to_owned(),
            others => format!(", and so {others} other objects"),
        };
        let rounds = turns.rounds();
        Some(TooMuch {
            error: format!(
                "a cycle: create {kind} `{name}`, destroy {kind} `{name}`, {rounds} times with the same \
                 desired state{more}"
            ),
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
            let (a, b) = (format!("a{number}"), format!("b{number}"));
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
