//! The database in memory, with faults and a transcript: for native tests.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trueup_guest::bindings::trueup::etcd::kv::{Error, KeyValue};
use trueup_guest::testing::{Simulated, Transcript};

use crate::tests::questions::Questions;
use crate::world::World;

/// The guest's world.
#[derive(Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) store: BTreeMap<String, String>,
    pub(crate) questions: Questions,
    pub(crate) record: Transcript,
}

impl Simulation {
    fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        call: &str,
        args: &Value,
        answer: impl FnOnce(&mut BTreeMap<String, String>) -> T,
    ) -> Result<T, Error> {
        match self.questions.ask(call, args) {
            Some(fault) => serde_json::from_value(fault).unwrap(),
            None => Ok(answer(&mut self.store)),
        }
    }
}

impl World for Simulation {
    fn get(&mut self, key: &str) -> Result<Option<KeyValue>, Error> {
        self.ask("kv.get", &json!({"key": key}), |store| {
            let value = store.get(key)?;
            Some(KeyValue {
                key: key.to_owned(),
                value: value.clone(),
                create_revision: 1,
                mod_revision: 1,
                version: 1,
            })
        })
    }

    fn list_keys(&mut self, prefix: &str) -> Result<Vec<String>, Error> {
        self.ask("kv.list-keys", &json!({"prefix": prefix}), |store| {
            store.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
        })
    }

    fn put(&mut self, key: &str, value: &str) -> Result<u64, Error> {
        self.ask("kv.put", &json!({"key": key, "value": value}), |store| {
            store.insert(key.to_owned(), value.to_owned());
            1
        })
    }

    fn put_if_not_exists(&mut self, key: &str, value: &str) -> Result<bool, Error> {
        self.ask("kv.put-if-not-exists", &json!({"key": key, "value": value}), |store| {
            let is_new = !store.contains_key(key);
            store.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            is_new
        })
    }
}

impl Simulated for Simulation {
    fn record(&mut self) -> &mut Transcript {
        &mut self.record
    }
}
