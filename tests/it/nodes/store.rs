//! The test's own etcd, for tests that are not async: what hosts stored in it, and its outages.

use std::collections::BTreeMap;

use etcd_client::{DeleteOptions, GetOptions};
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::server::Server;

/// The prefix of nodes' records.
pub(crate) const RECORDS: &str = "/vnf-agent/contiv-ksr/allocatedIDs/";

/// An etcd; see the module. Dropping the value ends it.
pub(crate) struct Etcd {
    runtime: Runtime,
    server: Server,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start());
        Self { runtime, server }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// From now on it neither answers nor refuses: the process is stopped.
    pub(crate) fn hang(&self) {
        self.server.signal(Signal::STOP);
    }

    /// It continues.
    pub(crate) fn go_on(&self) {
        self.server.signal(Signal::CONT);
    }

    pub(crate) fn stop(&mut self) {
        self.server.stop();
    }

    /// With its stored data, at the same address.
    pub(crate) fn start_again(&mut self) {
        self.runtime.block_on(self.server.start_again());
    }

    /// Keys under a prefix and their values, in the form of `etcdctl get --prefix`.
    pub(crate) fn under(&self, prefix: &str) -> BTreeMap<String, String> {
        let got = self.runtime.block_on(async {
            let mut client = self.server.client().await;
            client.get(prefix, Some(GetOptions::new().with_prefix())).await.unwrap()
        });
        let pairs = got.kvs().iter();
        pairs
            .map(|pair| (pair.key_str().unwrap().to_owned(), pair.value_str().unwrap().to_owned()))
            .collect()
    }

    /// The records of nodes, by number.
    pub(crate) fn records(&self) -> BTreeMap<u32, Value> {
        let all = self.under(RECORDS).into_iter();
        all.map(|(key, value)| {
            let id = key.strip_prefix(RECORDS).unwrap().parse().unwrap();
            (id, serde_json::from_str(&value).unwrap())
        })
        .collect()
    }

    /// The numbers of the records with this name.
    pub(crate) fn numbers_of(&self, name: &str) -> Vec<u32> {
        let records = self.records().into_iter();
        let its = records.filter(|(_, record)| record["name"] == name);
        its.map(|(id, _)| id).collect()
    }

    /// How many writes a key has had since its creation, and the revision of the last one.
    pub(crate) fn writes_of(&self, key: &str) -> (i64, i64) {
        let got = self.runtime.block_on(async {
            let mut client = self.server.client().await;
            client.get(key, None).await.unwrap()
        });
        let pair = &got.kvs()[0];
        (pair.version(), pair.mod_revision())
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.runtime.block_on(async {
            let mut client = self.server.client().await;
            client.put(key, value, None).await.unwrap();
        });
    }

    /// Deletes everything.
    pub(crate) fn clear(&self) {
        self.runtime.block_on(async {
            let mut client = self.server.client().await;
            let all = DeleteOptions::new().with_all_keys();
            client.delete("", Some(all)).await.unwrap();
        });
    }

    pub(crate) fn delete(&self, key: &str) {
        self.runtime.block_on(async {
            let mut client = self.server.client().await;
            assert_eq!(client.delete(key, None).await.unwrap().deleted(), 1, "{key}");
        });
    }
}
