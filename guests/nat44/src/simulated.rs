//! A database in memory, with faults and a transcript: for native tests.
//!
//! Refuses what etcd refuses; the guest never asks for that, so such a request fails the test at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trueup_guest::bindings::trueup::etcd::kv::{Error, KeyValue, Operation};
use trueup_guest::testing::{Simulated, Transcript};

use crate::world::World;

/// The next answer to a call of that name.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) call: &'static str,
    pub(crate) answer: Result<bool, Error>,
    /// True if the database stored the commit, and only the answer got lost.
    pub(crate) is_stored: bool,
}

/// The guest's world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) etcd: BTreeMap<String, String>,
    /// The next answer to a call is its first fault.
    pub(crate) faults: VecDeque<Fault>,
    /// Calls in the form of a journal, including those with a fault.
    pub(crate) asked: Vec<Asked>,
    pub(crate) record: Transcript,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    ListPrefix(String),
    Commit(Vec<Operation>),
}

impl Simulation {
    /// Makes the next call of this name fail without effect.
    pub(crate) fn fail(&mut self, call: &'static str, error: Error) {
        let answer = Err(error);
        self.faults.push_back(Fault {
            call,
            answer,
            is_stored: false,
        });
    }

    /// The questions since the last call.
    pub(crate) fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    fn fault(&mut self, call: &str) -> Option<Fault> {
        let index = self.faults.iter().position(|fault| fault.call == call)?;
        self.faults.remove(index)
    }

    fn store(&mut self, operations: &[Operation]) {
        for operation in operations {
            match operation {
                Operation::Put((key, value)) => drop(self.etcd.insert(key.clone(), value.clone())),
                Operation::Delete(key) => drop(self.etcd.remove(key)),
            }
        }
    }
}

/// Checks for what etcd would refuse.
fn check(operations: &[Operation]) {
    assert!((1..=128).contains(&operations.len()), "{} operations", operations.len());
    let mut bytes = 0;
    let mut keys = BTreeSet::new();
    for operation in operations {
        let (key, value) = match operation {
            Operation::Put((key, value)) => (key, value.as_str()),
            Operation::Delete(key) => (key, ""),
        };
        assert!(!key.is_empty() && keys.insert(key), "{key} is there twice");
        bytes += key.len() + value.len();
    }
    assert!(bytes <= 1 << 20 || operations.len() == 1, "{bytes} bytes");
}

impl World for Simulation {
    fn list_prefix(&mut self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        self.asked.push(Asked::ListPrefix(prefix.to_owned()));
        if let Some(fault) = self.fault("kv.list-prefix") {
            return Err(fault.answer.unwrap_err());
        }
        let entry = |(key, value): (&String, &String)| KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: 1,
            mod_revision: 1,
            version: 1,
        };
        let found = self.etcd.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(found.map(entry).collect())
    }

    fn commit(&mut self, operations: &[Operation]) -> Result<bool, Error> {
        check(operations);
        self.asked.push(Asked::Commit(operations.to_vec()));
        let fault = self.fault("kv.commit");
        if fault.as_ref().is_none_or(|fault| fault.is_stored) {
            self.store(operations);
        }
        fault.map_or(Ok(true), |fault| fault.answer)
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}
