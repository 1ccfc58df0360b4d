//! The key-value database: an object of texts by key.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::Error as _;
use serde_json::{Value, json};
use trueup_capabilities::etcd::embedded::Embedded;

use super::{Capability, Problem, Simulation, fits};
use crate::compare;

pub(super) const CAPABILITY: Capability = Capability {
    given: Some(fits::<BTreeMap<String, String>>),
    expected: Some(fits::<BTreeMap<String, String>>),
    ..Capability::new("etcd", |world, given| {
        let entries: Option<BTreeMap<String, String>> = serde_json::from_value(given)?;
        let etcd = Embedded::in_memory_with(&entries.unwrap_or_default());
        let etcd = Arc::new(etcd.map_err(serde_json::Error::custom)?);
        world.backends.etcd = Some(etcd.clone());
        Ok(etcd)
    })
};

impl Simulation for Embedded {
    fn compare(&self, expected: Value) -> Option<Problem> {
        compare::state("etcd", &expected, &json!(self.entries().unwrap_or_default()))
    }
}
