//! A set of interfaces with use counts, and the part of it that the renderers have not acknowledged yet.

use std::collections::{BTreeMap, BTreeSet};

/// The set. A change costs only what it touches, however large the set is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interfaces {
    /// The use count of each, never 0.
    uses: BTreeMap<String, usize>,
    /// Those that are used and not acknowledged, or acknowledged and not used.
    differing: BTreeSet<String>,
}

impl Interfaces {
    /// Adds one use of each.
    pub(crate) fn hold(&mut self, names: impl IntoIterator<Item = impl AsRef<str>>) {
        self.change(names, 1);
    }

    /// Removes one use of each.
    pub(crate) fn release(&mut self, names: impl IntoIterator<Item = impl AsRef<str>>) {
        self.change(names, -1);
    }

    fn change(&mut self, names: impl IntoIterator<Item = impl AsRef<str>>, by: isize) {
        for name in names {
            let name = name.as_ref();
            let before = self.uses.get(name).copied().unwrap_or(0);
            match before.saturating_add_signed(by) {
                0 => _ = self.uses.remove(name),
                uses => _ = self.uses.insert(name.to_owned(), uses),
            }
            let is_used = self.uses.contains_key(name);
            // A use that started or ended makes it differ, or no longer differ.
            if is_used != (before > 0) && !self.differing.remove(name) {
                self.differing.insert(name.to_owned());
            }
        }
    }

    /// True if the renderers need another set than they have.
    pub(crate) fn differ(&self) -> bool {
        !self.differing.is_empty()
    }

    /// The set that the renderers need, ascending.
    pub(crate) fn wanted(&self) -> Vec<String> {
        self.uses.keys().cloned().collect()
    }

    /// The set that the renderers have, ascending.
    pub(crate) fn acknowledged(&self) -> Vec<String> {
        let wanted: BTreeSet<&String> = self.uses.keys().collect();
        let differing: BTreeSet<&String> = self.differing.iter().collect();
        (&wanted ^ &differing).into_iter().cloned().collect()
    }

    /// The renderers now have the set that they need.
    pub(crate) fn acknowledge(&mut self) {
        self.differing.clear();
    }

    /// The renderers have exactly these.
    pub(crate) fn set_acknowledged(&mut self, names: &BTreeSet<String>) {
        let wanted: BTreeSet<String> = self.uses.keys().cloned().collect();
        self.differing = &wanted ^ names;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Hold(u8),
        Release(usize),
        Acknowledge,
        SetAcknowledged(BTreeSet<u8>),
    }

    fn a_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..5_u8).prop_map(Step::Hold),
            3 => (0..9_usize).prop_map(Step::Release),
            1 => Just(Step::Acknowledge),
            1 => prop::collection::btree_set(0..5_u8, 0..4).prop_map(Step::SetAcknowledged),
        ]
    }

    proptest! {
        #[test]
        fn it_is_what_a_list_of_uses_and_a_copy_are(steps in prop::collection::vec(a_step(), 0..60)) {
            let (mut interfaces, mut uses, mut copy) = (Interfaces::default(), Vec::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Hold(name) => {
                        uses.push(name.to_string());
                        interfaces.hold([name.to_string()]);
                    }
                    Step::Release(index) if index < uses.len() => interfaces.release([uses.swap_remove(index)]),
                    Step::Release(_) => interfaces.release(["no pod uses it"]),
                    Step::Acknowledge => {
                        copy = uses.iter().cloned().collect();
                        interfaces.acknowledge();
                    }
                    Step::SetAcknowledged(names) => {
                        copy = names.iter().map(u8::to_string).collect();
                        interfaces.set_acknowledged(&copy);
                    }
                }
                let wanted: BTreeSet<String> = uses.iter().cloned().collect();
                prop_assert_eq!(interfaces.differ(), wanted != copy);
                prop_assert_eq!(interfaces.wanted(), wanted.into_iter().collect::<Vec<_>>());
                prop_assert_eq!(interfaces.acknowledged(), copy.iter().cloned().collect::<Vec<_>>());
            }
        }
    }
}
