//! NEGs and operations, and how time and requests change them.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::neg::Neg;
use super::operation::{Failure, Operation, Work};
use super::target::Zone;

/// The whole state, as a state file holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    /// The last number given to an operation or a NEG.
    last_id: u64,
    /// By path from `projects/` on.
    pub(super) negs: BTreeMap<String, Neg>,
    pub(super) operations: BTreeMap<u64, Operation>,
    /// The operation that a call with a `requestId` began, by call and `requestId`.
    requests: BTreeMap<String, u64>,
    /// Operations that have not taken effect, by the time when they do.
    pub(super) pending: BTreeSet<(u64, u64)>,
}

impl World {
    pub(super) fn neg(&self, zone: &Zone, name: &str) -> Option<&Neg> {
        self.negs.get(&zone.neg_path(name))
    }

    /// The pending operations on a NEG.
    pub(super) fn pending_on(&self, zone: &Zone, name: &str) -> impl Iterator<Item = &Operation> {
        let pending = self.pending.iter().filter_map(|(_, id)| self.operations.get(id));
        pending.filter(move |operation| operation.zone == *zone && operation.neg == name)
    }

    /// How many endpoints a NEG will have once all pending attachments are done.
    pub(super) fn endpoints_ahead(&self, zone: &Zone, name: &str) -> usize {
        let there = self.neg(zone, name).map_or(0, |neg| neg.endpoints.len());
        let coming = self.pending_on(zone, name).map(|operation| match &operation.work {
            Work::Attach(endpoints) => endpoints.len(),
            _ => 0,
        });
        there + coming.sum::<usize>()
    }

    /// The operation that the first call with this key began.
    pub(super) fn repeated(&mut self, key: &str) -> Option<&Operation> {
        let operation = self.operations.get_mut(self.requests.get(key)?)?;
        operation.repeats += 1;
        Some(operation)
    }

    /// An operation by name or number; `None` if it is forgotten.
    pub(super) fn operation(&self, zone: &Zone, name: &str) -> Option<&Operation> {
        let id = name.strip_prefix("operation-").unwrap_or(name).parse().ok()?;
        let operation = self.operations.get(&id)?;
        (operation.zone == *zone && !operation.is_forgotten).then_some(operation)
    }

    /// Begins an operation, whose ids are new. `key`: of its call, if it has a `requestId`.
    pub(super) fn begin(&mut self, key: Option<String>, operation: Operation) -> &Operation {
        let id = operation.id;
        self.requests.extend(key.map(|key| (key, id)));
        self.pending.insert((operation.due_ms, id));
        self.operations.entry(id).or_insert(operation)
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Carries out the operations that are due, in order of time. Returns whether there were any.
    pub(super) fn settle(&mut self, now_ms: u64) -> bool {
        let mut settled = false;
        while let Some((due_ms, id)) = self.pending.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.pending.remove(&(due_ms, id));
            settled = true;
            let Some(operation) = self.operations.get_mut(&id) else {
                continue;
            };
            operation.is_done = true;
            let planned = operation.planned.take();
            operation.failure = planned.or_else(|| take_effect(&mut self.negs, operation).err());
        }
        settled
    }
}

fn take_effect(negs: &mut BTreeMap<String, Neg>, operation: &Operation) -> Result<(), Failure> {
    let path = operation.zone.neg_path(&operation.neg);
    let neg = negs.get_mut(&path);
    let message = || format!("The resource '{path}' was not found");
    let missing = || Failure::new(404, "RESOURCE_NOT_FOUND", message());
    match &operation.work {
        Work::Insert(_) if neg.is_some() => Ok(()),
        Work::Insert(spec) => {
            let neg = Neg::new(operation.target_id, operation.due_ms, spec.clone());
            negs.insert(path, neg);
            Ok(())
        }
        Work::Attach(endpoints) => neg.ok_or_else(missing)?.attach(endpoints),
        Work::Detach(endpoints) => neg.ok_or_else(missing)?.detach(endpoints),
    }
}
