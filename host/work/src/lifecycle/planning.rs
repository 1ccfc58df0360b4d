//! What a plan keeps of the calls of a guest's instances, in place of their recordings.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use trueup_capabilities::planned::{Orphan, Planned};
use trueup_capabilities::reading::Write;
use trueup_capabilities::{Backends, questions};
use trueup_instance::Instance;
use trueup_journal::{Entry, Event};

/// The plan of one guest.
#[derive(Default)]
pub struct PlannedCalls {
    by_key: Mutex<BTreeMap<String, OfKey>>,
}

#[derive(Default)]
struct OfKey {
    backends: Option<Planned>,
    entries: Vec<Entry>,
}

/// What the calls of one instance would do.
#[derive(Default)]
pub struct Found {
    pub writes: Vec<Write>,
    /// Objects that a run marks first.
    pub(crate) unmarked: Vec<Orphan>,
}

impl PlannedCalls {
    /// The backends of a plan in place of the real ones.
    pub(crate) fn backends(&self, key: &str, real: Backends) -> Backends {
        let planned = Planned::new(real);
        let backends = planned.backends.clone();
        self.by_key.lock().entry(key.to_owned()).or_default().backends = Some(planned);
        backends
    }

    /// Takes what an instance asked since the last time.
    pub(crate) fn keep(&self, key: &str, instance: &mut Instance) {
        let entries = instance.host_mut().tape.take_entries();
        let mut by_key = self.by_key.lock();
        by_key.entry(key.to_owned()).or_default().entries.extend(entries);
    }

    /// Leaves out the questions `name` of an instance if its calls `are_done` already.
    pub fn leave_out(&self, name: &str, key: &str, are_done: impl Fn(&[Entry]) -> bool) {
        if let Some(of) = self.by_key.lock().get_mut(key)
            && are_done(&of.entries)
        {
            of.entries
                .retain(|entry| !matches!(&entry.event, Event::Ask(ask) if ask.name == name));
        }
    }

    /// What the calls of an instance would do. They are then forgotten.
    pub fn take(&self, key: &str) -> Found {
        let Some(OfKey { backends, entries }) = self.by_key.lock().remove(key) else {
            return Found::default();
        };
        Found {
            writes: questions::planned(&entries),
            unmarked: backends.map(|backends| backends.unmarked()).unwrap_or_default(),
        }
    }
}
