//! The operations in flight, and which of them belong to a migration.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bindings::trueup::neg::types::{Endpoint, Location};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `api.attach`
    Attach,
    /// `api.detach`
    Detach,
}

impl Kind {
    /// The name in labels.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
        }
    }
}

/// An operation that was started and has not ended; as JSON in the form of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The kind.
    #[serde(rename = "does")]
    pub kind: Kind,
    /// The location.
    #[serde(flatten)]
    pub location: Location,
    /// True if it contains an endpoint whose migration started with it.
    #[serde(rename = "migration")]
    pub is_migration: bool,
    /// The endpoints.
    #[serde(serialize_with = "rows")]
    pub endpoints: Vec<Endpoint>,
}

/// `ip`, `ipv6`, `port`, `node`: one row each, since there may be thousands. Serde reads a row as a record.
fn rows<S: Serializer>(endpoints: &[Endpoint], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(endpoints.iter().map(|one| [&one.ip, &one.ipv6, &one.port, &one.node]))
}

/// All of them, by number; as JSON in the form of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// In flight.
    #[serde(rename = "operations", serialize_with = "write_list", deserialize_with = "read_list")]
    pub by_number: BTreeMap<u64, Operation>,
    /// The first failure of the running migration, kept until the last of its operations ends.
    #[serde(rename = "migration_failure")]
    pub failure: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Numbered<O> {
    #[serde(rename = "operation")]
    number: u64,
    #[serde(flatten)]
    operation: O,
}

fn write_list<S: Serializer>(by_number: &BTreeMap<u64, Operation>, serializer: S) -> Result<S::Ok, S::Error> {
    let numbered = |(&number, operation)| Numbered { number, operation };
    serializer.collect_seq(by_number.iter().map(numbered))
}

fn read_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u64, Operation>, D::Error> {
    let list: Vec<Numbered<Operation>> = Vec::deserialize(deserializer)?;
    Ok(list.into_iter().map(|one| (one.number, one.operation)).collect())
}

impl Operations {
    /// Keeps the first failure.
    pub fn keep(&mut self, failure: String) {
        self.failure.get_or_insert(failure);
    }

    /// The operations of each location that has any.
    pub fn by_location(&self) -> BTreeMap<&Location, Vec<&Operation>> {
        let mut found: BTreeMap<&Location, Vec<&Operation>> = BTreeMap::new();
        for operation in self.by_number.values() {
            found.entry(&operation.location).or_default().push(operation);
        }
        found
    }
}
