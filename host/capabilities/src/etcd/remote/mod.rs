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
mod watch;

use std::sync::Arc;

use etcd_client::{Client, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};

use self::connection::{Connection, Failed, Failure};
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

#[async_trait]
impl Api for Etcd {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        let ask = |mut client: Client| async move { client.get(key, None).await };
        let mut answer = self.connection.read(ask).await.map_err(Failed::of_read)?;
        let found = answer.take_kvs().into_iter().next().map(stored);
        found.map(Stored::into_text).transpose()
    }

    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        list(&self.connection, prefix, true).await?.into_keys()
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        list(&self.connection, prefix, false).await
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        let compares: Vec<etcd_client::Compare> = compares.iter().map(compare).collect();
        let operations = operations.iter().map(|operation| match operation {
            Operation::Put((key, value)) => TxnOp::put(key.as_bytes(), value.as_bytes(), None),
            Operation::Delete(key) => TxnOp::delete(key.as_bytes(), None),
        });
        let operations: Vec<TxnOp> = operations.collect();
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

/// The initial page size in keys. With a service's configuration of some kilobytes each, that is a message of a few
/// MiB.
const PAGE_KEYS: i64 = 1_000;

/// The maximum message size, four times gRPC's default. If a page exceeds it, the client halves the page, down to the
/// largest value that etcd takes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The maximum listing size: a guest gets a quarter of it at most.
const LISTING_BYTES_MAX: usize = 256 << 20;

/// How often a listing restarts because its revision was compacted meanwhile. Operators compact every few minutes.
const BEGINNINGS_MAX: u32 = 3;

/// Everything under a prefix, or only the names: in pages, all at the revision of the first page.
async fn list(connection: &Connection, prefix: &str, keys_only: bool) -> Result<Listing, Error> {
    for _ in 0..BEGINNINGS_MAX {
        match list_once(connection, prefix.as_bytes(), keys_only).await {
            Err(failed) if failed.failure == Failure::Compacted => {}
            listed => return listed.map_err(Failed::of_read),
        }
    }
    let text = format!("etcd was compacted in the middle of {BEGINNINGS_MAX} listings of `{prefix}`");
    Err(Error::Unavailable(text))
}

async fn list_once(connection: &Connection, prefix: &[u8], keys_only: bool) -> Result<Listing, Failed> {
    let mut listing = Listing::default();
    let mut bytes = 0;
    let mut limit = PAGE_KEYS;
    loop {
        let last = listing.entries.last();
        let from = last.map_or_else(|| first(prefix), |last| after(&last.key));
        let mut options = GetOptions::new().with_range(end(prefix)).with_limit(limit);
        options = options.with_revision(i64::try_from(listing.revision).unwrap_or_default());
        if keys_only {
            options = options.with_keys_only();
        }
        let ask = |client: Client| {
            let from = from.clone();
            let options = options.clone();
            async move {
                let mut kv = client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
                kv.get(from, Some(options)).await
            }
        };
        let mut page = match connection.read(ask).await {
            Err(failed) if failed.failure == Failure::TooLong && limit > 1 => {
                limit /= 2;
                continue;
            }
            page => page?,
        };
        if listing.revision == 0 {
            listing.revision = page.header().map_or(0, |header| unsigned(header.revision()));
        }
        let entries: Vec<_> = page.take_kvs().into_iter().map(stored).collect();
        bytes += entries.iter().map(Stored::bytes).sum::<usize>();
        if bytes > LISTING_BYTES_MAX {
            let prefix = String::from_utf8_lossy(prefix);
            let text = format!("what is under `{prefix}` has more than {LISTING_BYTES_MAX} bytes; list less at once");
            let failure = Failure::Refused(Error::Unavailable(text));
            let endpoint = String::new();
            return Err(Failed { failure, endpoint });
        }
        // An empty page that claims to have a successor would repeat forever.
        let is_last = !page.more() || entries.is_empty();
        listing.entries.extend(entries);
        if is_last {
            return Ok(listing);
        }
    }
}

/// The first key that a prefix may have. etcd has no empty key.
fn first(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

/// The first key after this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key after all keys with the prefix; `\0` if there is none.
fn end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_last_byte_is_one_more() {
        assert_eq!(end(b"/a/"), b"/a0");
        assert_eq!(end(b"a\xff\xff"), b"b");
        assert_eq!(end(b"\xff"), b"\0");
        assert_eq!(end(b""), b"\0");
        assert_eq!(first(b""), b"\0");
        assert_eq!(after(b"/a/1"), b"/a/1\0");
    }
}
