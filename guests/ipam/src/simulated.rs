//! The store, the runtime and the clock in memory, with faults and a transcript, for native tests.
//!
//! Behaves like the simulated capabilities of scenario files.

use std::collections::VecDeque;

use trueup_guest::testing::{Simulated, Transcript};
use trueup_guest::{Clock, Level};

use crate::bindings::trueup::checkpoint::store::{Error as StoreError, Saved};
use crate::bindings::trueup::cri::sandboxes::Sandbox;
use crate::world::World;

/// A call of the store, by its function's name in `wit/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Checkpoint(String),
    Append(String),
    Restore,
    ListRunning,
}

/// A call that is to fail, and whether the store gets the text all the same: a failed write may have reached it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// `checkpoint`, `append`, `restore` or `list-running`
    pub(crate) call: &'static str,
    pub(crate) error: StoreError,
    pub(crate) has_effect: bool,
}

/// The guest's world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) now_ms: u64,
    /// How often a call read the clock.
    pub(crate) readings: u32,
    pub(crate) stored: Option<Saved>,
    pub(crate) sandboxes: Vec<Sandbox>,
    /// The next answer to a call is its first fault.
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) record: Transcript,
}

impl Simulation {
    /// A store that holds this.
    pub(crate) fn storing(data: &str, entries: &[&str]) -> Self {
        Self {
            stored: Some(Saved {
                data: data.to_owned(),
                entries: entries.iter().map(|&entry| entry.to_owned()).collect(),
            }),
            ..Self::default()
        }
    }

    /// Makes the next call of this name fail without effect.
    pub(crate) fn fail(&mut self, call: &'static str, error: StoreError) {
        self.faults.push_back(Fault {
            call,
            error,
            has_effect: false,
        });
    }

    /// The questions since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    /// The log lines since the last call, each with its fields.
    pub(crate) fn take_lines(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.record.lines)
    }

    fn fault(&mut self, call: &str) -> Option<Fault> {
        let at = self.faults.iter().position(|fault| fault.call == call)?;
        self.faults.remove(at)
    }

    /// Applies the effect, returns the fault, or both.
    fn write(&mut self, call: &str, effect: impl FnOnce(&mut Option<Saved>)) -> Result<(), StoreError> {
        let fault = self.fault(call);
        if fault.as_ref().is_none_or(|fault| fault.has_effect) {
            effect(&mut self.stored);
        }
        fault.map_or(Ok(()), |fault| Err(fault.error))
    }
}

impl World for Simulation {
    fn checkpoint(&mut self, data: &str) -> Result<(), StoreError> {
        self.asked.push(Asked::Checkpoint(data.to_owned()));
        self.write("checkpoint", |stored| {
            *stored = Some(Saved {
                data: data.to_owned(),
                entries: Vec::new(),
            });
        })
    }

    fn append(&mut self, entry: &str) -> Result<(), StoreError> {
        self.asked.push(Asked::Append(entry.to_owned()));
        if self.stored.is_none() {
            return Err(StoreError::Unavailable("nothing to append to".to_owned()));
        }
        self.write("append", |stored| {
            if let Some(saved) = stored {
                saved.entries.push(entry.to_owned());
            }
        })
    }

    fn restore(&mut self) -> Result<Option<Saved>, StoreError> {
        self.asked.push(Asked::Restore);
        match self.fault("restore") {
            Some(fault) => Err(fault.error),
            None => Ok(self.stored.clone()),
        }
    }

    fn list_running(&mut self) -> Result<Vec<Sandbox>, String> {
        self.asked.push(Asked::ListRunning);
        match self.fault("list-running") {
            Some(fault) => Err(crate::world::words(&fault.error)),
            None => Ok(self.sandboxes.clone()),
        }
    }
}

impl Clock for Simulation {
    fn now_ms(&mut self) -> u64 {
        self.readings += 1;
        self.now_ms
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}
