//! Notices a guest that goes round in circles: it creates what it destroys, and destroys what it created.
//!
//! Knows objects by kind and name, since each creation gives another identifier. Pure: what was created and destroyed goes
//! in, the cycle comes out.

use std::collections::BTreeMap;

use trueup_capabilities::meter::Change;

/// So many objects of one key are watched: a guest that creates under ever new names goes round in no circle, and must not
/// fill the host's memory.
const OBJECTS_MAX: usize = 10_000;

/// What became of one object, by kind and name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Turns {
    created: u32,
    destroyed: u32,
}

/// The objects of one key since its wish changed last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cycles {
    turns: BTreeMap<(&'static str, String), Turns>,
    /// Names of the objects that were created here, by kind and identifier.
    names: BTreeMap<(&'static str, String), String>,
}

impl Cycles {
    /// Takes in what a call changed, in order. Where an object was created and destroyed again `max` times: the cycle, in
    /// words.
    pub(super) fn take_in(&mut self, changes: &[Change], max: u32) -> Option<String> {
        for change in changes {
            match change {
                Change::Created { kind, name, identifier } => {
                    if self.turns.len() >= OBJECTS_MAX {
                        return None;
                    }
                    self.names.insert((kind, identifier.clone()), name.clone());
                    self.turns.entry((kind, name.clone())).or_default().created += 1;
                }
                Change::Destroyed { kind, identifier } => {
                    // What was there before this process was not created by this guest in this state.
                    if let Some(name) = self.names.remove(&(*kind, identifier.clone())) {
                        self.turns.entry((kind, name)).or_default().destroyed += 1;
                    }
                }
            }
        }
        let rounds = |turns: &Turns| turns.created.min(turns.destroyed);
        let ((kind, name), turns) = self.turns.iter().find(|(_, turns)| rounds(turns) >= max)?;
        let others = self.turns.values().filter(|turns| rounds(turns) >= max).count() - 1;
        let more = match others {
            0 => String::new(),
            1 => ", and so 1 other object".to_owned(),
            others => format!(", and so {others} other objects"),
        };
        Some(format!(
            "a cycle: create {kind} `{name}`, destroy {kind} `{name}`, {} times with the same wish{more}",
            rounds(turns)
        ))
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

    #[test]
    fn the_same_object_created_and_destroyed_again_is_a_cycle() {
        let mut cycles = Cycles::default();
        assert_eq!(cycles.take_in(&[created("a", "1"), created("b", "2")], 2), None);
        assert_eq!(cycles.take_in(&[destroyed("1")], 2), None);
        assert_eq!(
            cycles.take_in(&[created("a", "3")], 2),
            None,
            "created twice, destroyed once"
        );
        assert_eq!(
            cycles.take_in(&[destroyed("3")], 2).as_deref(),
            Some("a cycle: create backend `a`, destroy backend `a`, 2 times with the same wish")
        );
    }

    #[test]
    fn what_is_destroyed_and_was_not_created_here_is_none() {
        let mut cycles = Cycles::default();
        for _ in 0..10 {
            assert_eq!(cycles.take_in(&[destroyed("old")], 2), None);
        }
    }

    #[test]
    fn a_cycle_within_one_call_is_one_too_and_names_how_many_take_part() {
        let mut cycles = Cycles::default();
        let round = |identifier: &str| {
            let (a, b) = (format!("a{identifier}"), format!("b{identifier}"));
            [created("a", &a), created("b", &b), destroyed(&a), destroyed(&b)]
        };
        let all: Vec<Change> = (0..3).flat_map(|number| round(&number.to_string())).collect();
        let cycle = cycles.take_in(&all, 3).unwrap_or_default();
        assert!(
            cycle.ends_with("3 times with the same wish, and so 1 other object"),
            "{cycle}"
        );
    }
}
