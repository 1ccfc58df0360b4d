//! Which interfaces may have an address to give out now, to find the first without walking over all.
//!
//! Only a hint: the caller checks an interface that is listed as open, and moves it to waiting if it has nothing. Each
//! interface with a free address is in one of the two lists, others in none.

use std::collections::{BTreeMap, BTreeSet};

use crate::eni::{Eni, EniKey};
use crate::rests::Cooling;

/// The two lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Openings {
    open: BTreeSet<EniKey>,
    /// Interfaces whose free addresses all rest, as far as known, with the time when the first of them was unassigned.
    waiting: BTreeMap<EniKey, u64>,
    by_time: BTreeSet<(u64, EniKey)>,
}

impl Openings {
    /// The first interface that may have an address.
    pub(crate) fn first(&self) -> Option<&EniKey> {
        self.open.first()
    }

    /// The interface's free addresses have changed.
    pub(crate) fn update(&mut self, key: &EniKey, eni: &Eni) {
        if eni.free_count() == 0 {
            self.close(key);
        } else if !self.open.contains(key) {
            self.close(key);
            self.open.insert(key.clone());
        }
    }

    /// The interface has nothing to give out now.
    pub(crate) fn wait(&mut self, key: &EniKey, eni: &Eni) {
        self.close(key);
        if let Some(time) = eni.oldest_rest() {
            self.waiting.insert(key.clone(), time);
            self.by_time.insert((time, key.clone()));
        }
    }

    /// The interface has no free address, or is gone.
    pub(crate) fn close(&mut self, key: &EniKey) {
        self.open.remove(key);
        if let Some(time) = self.waiting.remove(key) {
            self.by_time.remove(&(time, key.clone()));
        }
    }

    /// Those whose first address has come out of its rest may have one.
    pub(crate) fn open_after_rest(&mut self, cooling: Cooling, now_ms: u64) {
        while let Some((time, _)) = self.by_time.first() {
            if cooling.rests(*time, now_ms) {
                return;
            }
            if let Some((_, key)) = self.by_time.pop_first() {
                self.waiting.remove(&key);
                self.open.insert(key);
            }
        }
    }
}
