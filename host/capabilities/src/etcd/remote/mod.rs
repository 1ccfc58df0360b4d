//! A real etcd, through the `etcd-client` crate.
//!
//! The client asks one member at a time, and the next one on failure. It repeats reads until the request times out. It
//! repeats a change only if it was certainly not made; otherwise the answer is `unavailable`, with that explanation.
//!
//! ```text
//! request -> connection (members, pauses, deadline) -> etcd
//! watch   -> connection -> stream; a broken stream resumes after the last reported revision
//! ```

mod connection;
mod failure;
mod pages;
mod watch;

use std::sync::Arc;

use etcd_client::{Client, CompareOp, Txn, TxnOp, TxnOpResponse};

use self::connection::{Connection, Failed};
pub use self::connection::{REQUEST_TIMEOUT, Settings, Tls};
use super::{Api, Applied, Compare, Error, KeyValue, Listing, Operation, Stored, Watch};
use async_trait::async_trait;

/// An etcd cluster. Connects at the first request. Clones share the connection.
#[derive(Clone)]
pub struct Etcd {
    connection: Arc<Connection>,
}

impl Etcd {
    /// The cluster with these settings.
    pub fn new(settings: Settings) -> Self {
        let connection = Connection::new(settings);
        Self { connection }
    }
}

/// etcd uses signed numbers, but never below zero.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn stored(found: etcd_client::KeyValue) -> Stored {
    let (create_revision, mod_revision) = (unsigned(found.create_revision()), unsigned(found.mod_revision()));
    let version = unsigned(found.version());
    let (key, value) = found.into_key_value();
    Stored {
        key,
        value,
        create_revision,
        mod_revision,
        version,
    }
}

fn compare(compare: &Compare) -> etcd_client::Compare {
    use etcd_client::Compare as Theirs;
    match compare {
        Compare::Absent(key) => Theirs::version(key.as_bytes(), CompareOp::Equal, 0),
        Compare::Exists(key) => Theirs::version(key.as_bytes(), CompareOp::Greater, 0),
        Compare::ModRevision((key, revision)) => {
            // No key, missing or not, has a revision that etcd never reaches.
            let revision = i64::try_from(*revision).unwrap_or(-1);
            Theirs::mod_revision(key.as_bytes(), CompareOp::Equal, revision)
        }
        Compare::Value((key, value)) => Theirs::value(key.as_bytes(), CompareOp::Equal, value.as_bytes()),
    }
}

fn operation(operation: &Operation) -> TxnOp {
    match operation {
        Operation::Put((key, value)) => TxnOp::put(key.as_bytes(), value.as_bytes(), None),
        Operation::Delete(key) => TxnOp::delete(key.as_bytes(), None),
    }
}

#[async_trait]
impl Api for Etcd {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        let ask = |mut client: Client| async move { client.get(key, None).await };
        let mut answer = self.connection.read(ask).await.map_err(Failed::of_read)?;
        let found = answer.take_kvs().into_iter().next().map(stored);
        found.map(Stored::into_text).transpose()
    }

    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        pages::list(&self.connection, prefix, true).await?.into_keys()
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        pages::list(&self.connection, prefix, false).await
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        let compares: Vec<etcd_client::Compare> = compares.iter().map(compare).collect();
        let operations: Vec<TxnOp> = operations.iter().map(operation).collect();
        let txn = Txn::new().when(compares).and_then(operations);
        let ask = |mut client: Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        let answer = self.connection.write(ask).await?;
        let changed = |response: TxnOpResponse| match response {
            TxnOpResponse::Delete(deleted) => deleted.deleted() > 0,
            _ => true,
        };
        Ok(Applied {
            held: answer.succeeded(),
            changed: answer.op_responses().into_iter().any(changed),
            revision: answer.header().map_or(0, |header| unsigned(header.revision())),
        })
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        Box::new(watch::Stream::new(Arc::clone(&self.connection), prefix, after))
    }
}
