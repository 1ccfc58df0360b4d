//! The store of scenarios and tests of guests: the embedded store in memory behind a scenario's faults.
//!
//! A fault answers first, and then nothing happens here. Faults only affect guests' requests, not the host's own
//! listings and watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::embedded::Embedded;
use super::{Api, Compare, Error, KeyValue, Listing, Operation, Watch};
use crate::Answer;
use crate::faults::Faults;

/// A store in memory. Clones share the store.
#[derive(Debug, Clone)]
pub struct Simulated {
    faults: Arc<Faults>,
    store: Embedded,
}

impl Simulated {
    /// A store with these entries, each stored at a revision of its own, by key; `faults` answer first.
    ///
    /// # Errors
    /// If the database can't be created.
    pub fn new(faults: Arc<Faults>, entries: &BTreeMap<String, String>) -> Result<Self, Error> {
        let store = Embedded::in_memory()?;
        store.fill_memory(entries)?;
        Ok(Self { faults, store })
    }

    /// Everything stored, as text. Invalid text has replacement characters.
    ///
    /// # Errors
    /// If the database can't be read.
    pub fn entries(&self) -> Result<BTreeMap<String, String>, Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entries = self.store.all_in_memory()?.entries.into_iter();
        Ok(entries.map(|stored| (text(&stored.key), text(&stored.value))).collect())
    }

    /// The fault that a call meets, else the store's answer.
    fn answer<'a, R>(
        &self,
        call: &str,
        args: &impl Serialize,
        stored: Answer<'a, Result<R, Error>>,
    ) -> Answer<'a, Result<R, Error>>
    where
        Result<R, Error>: DeserializeOwned,
        R: Send + 'a,
    {
        match self.faults.whole(call, args) {
            Some(fault) => Box::pin(std::future::ready(fault)),
            None => stored,
        }
    }
}

impl Api for Simulated {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Result<Option<KeyValue>, Error>> {
        self.answer("kv.get", &json!({ "key": key }), self.store.get(key))
    }

    fn list_prefix<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<KeyValue>, Error>> {
        let args = json!({ "prefix": prefix });
        self.answer("kv.list-prefix", &args, self.store.list_prefix(prefix))
    }

    fn list_keys<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Vec<String>, Error>> {
        let args = json!({ "prefix": prefix });
        self.answer("kv.list-keys", &args, self.store.list_keys(prefix))
    }

    fn put<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<u64, Error>> {
        let args = json!({ "key": key, "value": value });
        self.answer("kv.put", &args, self.store.put(key, value))
    }

    fn put_if_not_exists<'a>(&'a self, key: &'a str, value: &'a str) -> Answer<'a, Result<bool, Error>> {
        let args = json!({ "key": key, "value": value });
        self.answer("kv.put-if-not-exists", &args, self.store.put_if_not_exists(key, value))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, Result<bool, Error>> {
        self.answer("kv.delete", &json!({ "key": key }), self.store.delete(key))
    }

    fn commit<'a>(&'a self, compares: &'a [Compare], operations: &'a [Operation]) -> Answer<'a, Result<bool, Error>> {
        let args = json!({ "compares": compares, "operations": operations });
        self.answer("kv.commit", &args, self.store.commit(compares, operations))
    }

    fn listing<'a>(&'a self, prefix: &'a str) -> Answer<'a, Result<Listing, Error>> {
        self.store.listing(prefix)
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        self.store.watch(prefix, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    #[tokio::test]
    async fn a_fault_answers_and_nothing_happens() {
        let faults = Arc::<Faults>::default();
        let store = Simulated::new(Arc::clone(&faults), &[("/a".to_owned(), "1".to_owned())].into()).unwrap();
        faults.add(Fault {
            call: "kv.commit".to_owned(),
            answer: json!({"Err": {"TooManyOperations": 64}}),
            times: Some(1),
            matching: Some(json!({"operations": [{"Delete": "/a"}]})),
        });
        faults.add(Fault {
            call: "kv.put".to_owned(),
            answer: json!({"Err": {"Unavailable": "no leader"}}),
            times: Some(1),
            matching: None,
        });
        let delete = [Operation::Delete("/a".to_owned())];
        assert_eq!(store.commit(&[], &delete).await, Err(Error::TooManyOperations(64)));
        assert_eq!(
            store.put("/a", "2").await,
            Err(Error::Unavailable("no leader".to_owned()))
        );
        assert_eq!(store.entries(), Ok([("/a".to_owned(), "1".to_owned())].into()));
        assert_eq!(store.listing("/").await.unwrap().revision, 2);
        assert_eq!(store.commit(&[], &delete).await, Ok(true));
        assert_eq!(store.entries(), Ok(BTreeMap::new()));
        assert_eq!(faults.take_misfits(), [""; 0]);
    }
}
