//! Shared by the adapters: new notes for the operator about objects.
//!
//! A note is reported when it begins to apply. When it no longer applies it is forgotten, so that it is reported again
//! if it returns.

use std::collections::{BTreeMap, BTreeSet};

use trueup_sources::ObjectRef;

/// The notes about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Remarks {
    /// What is left out while all is well.
    pub(crate) notes: BTreeSet<String>,
    /// Why an object is not rendered as requested.
    pub(crate) problems: BTreeSet<String>,
}

impl From<BTreeSet<String>> for Remarks {
    fn from(notes: BTreeSet<String>) -> Self {
        Self {
            notes,
            ..Self::default()
        }
    }
}

/// The current notes and problems by object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Notes {
    by_object: BTreeMap<ObjectRef, Remarks>,
    /// The number of objects with each note: the slices of one Service share the same note.
    times: BTreeMap<String, usize>,
}

impl Notes {
    /// Sets the notes of an object. Returns those that no object had before.
    pub(crate) fn set(&mut self, object: &ObjectRef, now: Remarks) -> Vec<String> {
        let was = self.by_object.remove(object).unwrap_or_default();
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
        if now != Remarks::default() {
            self.by_object.insert(object.clone(), now);
        }
        new
    }

    /// An object is gone.
    pub(crate) fn remove(&mut self, object: &ObjectRef) {
        self.set(object, Remarks::default());
    }

    /// All current notes, sorted, each once.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &str> {
        self.times.keys().map(String::as_str)
    }

    /// The problems among them.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &str> {
        let remarks = self.by_object.values();
        remarks.flat_map(|remarks| &remarks.problems).map(String::as_str)
    }
}

impl Remarks {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.problems)
    }
}
