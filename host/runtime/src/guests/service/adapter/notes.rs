//! What an operator should know of objects, and has not been told yet.
//!
//! A note is told when it begins to hold. Where it holds no more it is forgotten, so that it is told again when it comes
//! again.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::ObjectRef;

/// What is to be said of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// What is left out, while all is well.
    pub(super) notes: BTreeSet<String>,
    /// Because of which an object is not as it was asked for.
    pub(super) problems: BTreeSet<String>,
}

impl From<BTreeSet<String>> for Said {
    fn from(notes: BTreeSet<String>) -> Self {
        Self {
            notes,
            ..Self::default()
        }
    }
}

/// The notes and problems that hold, by whom they are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Notes {
    by_object: BTreeMap<ObjectRef, Said>,
    /// Of how many objects each is said: the slices of one Service say the same of it.
    times: BTreeMap<String, usize>,
    problems: BTreeMap<ObjectRef, BTreeSet<String>>,
}

impl Notes {
    /// What holds of an object from now on; answers what of it did not hold before, of any object.
    pub(super) fn set(&mut self, reference: &ObjectRef, now: Said) -> Vec<String> {
        let was = self.by_object.remove(reference).unwrap_or_default();
        self.problems.remove(reference);
        let mut new = Vec::new();
        for text in now.all() {
            let times = self.times.entry(text.clone()).or_default();
            if *times == 0 {
                new.push(text.clone());
            }
            *times += 1;
        }
        for text in was.all() {
            if let Some(times) = self.times.get_mut(text) {
                *times -= 1;
                if *times == 0 {
                    self.times.remove(text);
                }
            }
        }
        if !now.problems.is_empty() {
            self.problems.insert(reference.clone(), now.problems.clone());
        }
        if now != Said::default() {
            self.by_object.insert(reference.clone(), now);
        }
        new
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, reference: &ObjectRef) {
        self.set(reference, Said::default());
    }

    /// All that hold, in order, each once.
    pub(super) fn standing(&self) -> impl ExactSizeIterator<Item = &str> {
        self.times.keys().map(String::as_str)
    }

    /// Those of them that are problems.
    pub(super) fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.values().flatten().map(String::as_str)
    }
}

impl Said {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.problems)
    }
}
