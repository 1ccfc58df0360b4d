//! NEGs and operations, and how time and requests change them.
//!
//! Pure: time is an argument, and nothing is awaited.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::neg::{Neg, NegSpec};
use super::operation::{Failure, Operation, Work};
use super::target::Zone;

/// The whole state, as a state file holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    /// The last number given to an operation or a NEG.
    last_id: u64,
    /// By path from `projects/` on.
    negs: BTreeMap<String, Neg>,
    operations: BTreeMap<u64, Operation>,
    /// The operation that a call with a `requestId` began, by call and `requestId`.
    requests: BTreeMap<String, u64>,
    /// Operations that have not taken effect, by the time when they do.
    pending: BTreeSet<(u64, u64)>,
}

/// An operation to begin.
pub(super) struct Start<'a> {
    pub(super) zone: &'a Zone,
    pub(super) neg: &'a str,
    pub(super) work: Work,
    pub(super) request_id: Option<String>,
    pub(super) now_ms: u64,
    /// The time until it takes effect.
    pub(super) operation_ms: u64,
}

impl World {
    pub(super) fn neg(&self, zone: &Zone, name: &str) -> Option<&Neg> {
        self.negs.get(&zone.neg_path(name))
    }

    /// The NEGs of a zone, by name.
    pub(super) fn negs(&self, zone: &Zone) -> impl Iterator<Item = &Neg> {
        let prefix = zone.neg_path("");
        let named = self.negs.range(prefix.clone()..);
        let named = named.take_while(move |(path, _)| path.starts_with(&prefix));
        named.map(|(_, neg)| neg)
    }

    /// Whether an insertion of this NEG is pending.
    pub(super) fn is_inserting(&self, zone: &Zone, name: &str) -> bool {
        let mut pending = self.pending_on(zone, name);
        pending.any(|operation| matches!(operation.work, Work::Insert(_)))
    }

    fn pending_on(&self, zone: &Zone, name: &str) -> impl Iterator<Item = &Operation> {
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

    /// The operation that the first of these calls began.
    pub(super) fn repeated(&mut self, call: &str, request_id: &str) -> Option<&Operation> {
        let id = self.requests.get(&request_key(call, request_id))?;
        let operation = self.operations.get_mut(id)?;
        operation.repeats += 1;
        Some(operation)
    }

    /// An operation by name or number; `None` if it is forgotten.
    pub(super) fn operation(&self, zone: &Zone, name: &str) -> Option<&Operation> {
        let id = name.strip_prefix("operation-").unwrap_or(name).parse().ok()?;
        let operation = self.operations.get(&id)?;
        (operation.zone == *zone && !operation.is_forgotten).then_some(operation)
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations.values()
    }

    /// Begins an operation. `planned` is its failure, if it is to fail.
    pub(super) fn begin(&mut self, call: &str, start: Start<'_>, planned: Option<Failure>) -> &Operation {
        let target_id = match self.neg(start.zone, start.neg) {
            Some(neg) => neg.id,
            None => self.next_id(),
        };
        let id = self.next_id();
        let due_ms = start.now_ms + start.operation_ms;
        if let Some(request_id) = &start.request_id {
            self.requests.insert(request_key(call, request_id), id);
        }
        self.pending.insert((due_ms, id));
        self.operations.entry(id).or_insert(Operation {
            id,
            zone: start.zone.clone(),
            neg: start.neg.to_owned(),
            target_id,
            request_id: start.request_id,
            repeats: 0,
            work: start.work,
            received_ms: start.now_ms,
            start_ms: start.now_ms + start.operation_ms / 2,
            due_ms,
            is_done: false,
            planned,
            failure: None,
            is_forgotten: false,
        })
    }

    fn next_id(&mut self) -> u64 {
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
            operation.failure = match operation.planned.take() {
                Some(failure) => Some(failure),
                None => take_effect(&mut self.negs, operation).err(),
            };
        }
        settled
    }

    /// Forgets the finished operations. Returns how many.
    pub(super) fn forget_finished(&mut self) -> usize {
        let is_finished = |operation: &&mut Operation| operation.is_done && !operation.is_forgotten;
        let finished = self.operations.values_mut().filter(is_finished);
        finished.map(|operation| operation.is_forgotten = true).count()
    }

    /// A NEG, for changes without an operation.
    pub(super) fn neg_mut(&mut self, zone: &Zone, name: &str) -> Option<&mut Neg> {
        self.negs.get_mut(&zone.neg_path(name))
    }

    /// Creates or replaces a NEG without an operation.
    pub(super) fn put_neg(&mut self, zone: &Zone, spec: NegSpec, now_ms: u64) {
        let id = self.next_id();
        let path = zone.neg_path(&spec.name);
        self.negs.insert(path, Neg::new(id, now_ms, spec));
    }

    /// Deletes a NEG without an operation. Returns whether it existed.
    pub(super) fn delete_neg(&mut self, zone: &Zone, name: &str) -> bool {
        self.negs.remove(&zone.neg_path(name)).is_some()
    }

    /// Every NEG with its endpoints, for people and tests.
    pub(super) fn overview(&self) -> Value {
        let negs = self.negs.iter().map(|(path, neg)| {
            let endpoints: Vec<_> = neg.endpoints.values().map(|endpoint| endpoint.json(false)).collect();
            (path.clone(), json!({"id": neg.id, "endpoints": endpoints}))
        });
        let negs: serde_json::Map<String, Value> = negs.collect();
        json!({"negs": negs, "operations_pending": self.pending.len()})
    }
}

fn request_key(call: &str, request_id: &str) -> String {
    format!("{call} {request_id}")
}

fn take_effect(negs: &mut BTreeMap<String, Neg>, operation: &Operation) -> Result<(), Failure> {
    let path = operation.zone.neg_path(&operation.neg);
    if let Work::Insert(spec) = &operation.work {
        negs.entry(path)
            .or_insert_with(|| Neg::new(operation.target_id, operation.due_ms, spec.clone()));
        return Ok(());
    }
    let Some(neg) = negs.get_mut(&path) else {
        let message = format!("The resource '{path}' was not found");
        return Err(Failure::new(404, "RESOURCE_NOT_FOUND", message));
    };
    match &operation.work {
        Work::Attach(endpoints) => neg.attach(endpoints),
        Work::Detach(endpoints) => neg.detach(endpoints),
        Work::Insert(_) => Ok(()),
    }
}
