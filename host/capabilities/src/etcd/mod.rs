//! `trueup:etcd/kv`: a key-value database with etcd's semantics, and listings and watches of it for the host alone.
//!
//! Every change of a store gets the next *revision*. A listing states its revision, and a watch reports the changes
//! after it; [`Follow`] combines the two. This module knows nothing of the stored data.
//!
//! ```text
//! guest -> binding (tape, quota, grant) -> Api: embedded (redb) | remote (etcd)
//!                                               | planned (embedded, filled from one of the others)
//! host  -> Follow: listing, then watch after its revision; listing again where the history is gone
//! ```

pub(crate) mod binding;
pub mod embedded;
pub mod planned;
pub mod remote;
mod rules;

use std::sync::Arc;

use async_trait::async_trait;

pub use crate::bindings::etcd::kv::{Compare, Error, KeyValue, Operation};
pub use rules::{OPERATIONS_MAX, REQUEST_BYTES_MAX};

/// The revision of an unchanged store: etcd counts from here.
pub const FIRST_REVISION: u64 = 1;

/// The result of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Whether its compares held.
    pub held: bool,
    /// Whether anything changed.
    pub changed: bool,
    /// The store's revision after it.
    pub revision: u64,
}

/// A store, real or simulated. `get`, `list_prefix`, `list_keys`, `put`, `put_if_not_exists`, `delete` and `commit`
/// have the names and promises of the WIT functions; the rest is for the host alone.
///
/// A change is never sent twice. If its answer is lost, the error is `unavailable` and says that the outcome is
/// unknown. Before a retry, the caller must read back, or use a compare that only holds the first time.
#[async_trait]
pub trait Api: Send + Sync {
    /// The value of the key; `None` if there is none.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error>;

    /// Everything under the prefix, sorted by key, all of one revision, with values of any kind.
    async fn listing(&self, prefix: &str) -> Result<Listing, Error>;

    /// Applies all operations atomically if every compare holds. Otherwise does nothing.
    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error>;

    /// The changes under the prefix in revisions above `after`, as they come. Sends no request before [`Watch::next`].
    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch>;

    /// As [`Api::listing`]. A single value that is not text fails the whole call.
    async fn list_prefix(&self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        self.listing(prefix).await?.into_texts()
    }

    /// The names only.
    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.listing(prefix).await?.into_keys()
    }

    /// Stores a value and returns its revision.
    async fn put(&self, key: &str, value: &str) -> Result<u64, Error> {
        let put = [Operation::Put((key.to_owned(), value.to_owned()))];
        Ok(self.transact(&[], &put).await?.revision)
    }

    /// Atomically stores a value if there is none. Returns true if this call stored it.
    async fn put_if_not_exists(&self, key: &str, value: &str) -> Result<bool, Error> {
        let absent = [Compare::Absent(key.to_owned())];
        let put = [Operation::Put((key.to_owned(), value.to_owned()))];
        Ok(self.transact(&absent, &put).await?.held)
    }

    /// Returns true if the key existed.
    async fn delete(&self, key: &str) -> Result<bool, Error> {
        let delete = [Operation::Delete(key.to_owned())];
        Ok(self.transact(&[], &delete).await?.changed)
    }

    /// As [`Api::transact`]. Returns false if a compare did not hold.
    async fn commit(&self, compares: &[Compare], operations: &[Operation]) -> Result<bool, Error> {
        Ok(self.transact(compares, operations).await?.held)
    }
}

/// The changes under one prefix, one revision after the other.
///
/// Watches of all stores behave alike: revisions ascend, each comes once and whole, and its events have the order of
/// the operations that made them.
#[async_trait]
pub trait Watch: Send {
    /// The next revision that changed something under the prefix. Waits while the store is unreachable. Cancel-safe:
    /// dropping it loses nothing.
    ///
    /// # Errors
    /// If this watch has ended: list again, and watch after that.
    async fn next(&mut self) -> Result<Changes, WatchEnd>;
}

/// Why a watch has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEnd {
    /// The history after the last reported revision no longer exists, or never did.
    Compacted {
        /// The revision up to which everything was reported.
        after: u64,
    },
    /// The store denies this host the watch, or can't be read.
    Failed(Error),
}

impl Error {
    /// The error's case, as guests and operators read it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::AccessDenied(_) => "access-denied",
            Self::NotText(_) => "not-text",
            Self::TooManyOperations(_) => "too-many-operations",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// A key and its value, as bytes, because other programs than guests write there, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// Its name.
    pub key: Vec<u8>,
    /// What is stored.
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    pub create_revision: u64,
    /// The revision at which it was last changed.
    pub mod_revision: u64,
    /// Number of changes since it was created, from 1.
    pub version: u64,
}

impl Stored {
    /// Converts it to the guests' form.
    ///
    /// # Errors
    /// `not-text` if its name or its value is not UTF-8.
    pub fn into_text(self) -> Result<KeyValue, Error> {
        let key = text_of(self.key)?;
        Ok(KeyValue {
            value: String::from_utf8(self.value).map_err(|_| Error::NotText(key.clone()))?,
            key,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
        })
    }

    /// Its approximate size.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.value.len()
    }
}

/// A key as text; the error has the readable part of it.
fn text_of(key: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(key).map_err(|error| Error::NotText(String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Everything under a prefix at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The store's revision at that moment: a watch after it misses nothing.
    pub revision: u64,
    /// By key.
    pub entries: Vec<Stored>,
}

impl Listing {
    /// Converts all entries to the guests' form.
    ///
    /// # Errors
    /// `not-text` for the first one that is not text.
    pub fn into_texts(self) -> Result<Vec<KeyValue>, Error> {
        self.entries.into_iter().map(Stored::into_text).collect()
    }

    /// The names of all entries.
    ///
    /// # Errors
    /// `not-text` for the first one whose name is not text.
    pub fn into_keys(self) -> Result<Vec<String>, Error> {
        self.entries.into_iter().map(|stored| text_of(stored.key)).collect()
    }
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The key was stored and has this value now.
    Put(Stored),
    /// The key was deleted.
    Deleted(Vec<u8>),
}

impl Event {
    /// The changed key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(stored) => &stored.key,
            Self::Deleted(key) => key,
        }
    }
}

/// The changes of one revision under a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: u64,
    /// In the order of the operations; never empty, no key twice.
    pub events: Vec<Event>,
}

/// Follows everything under one prefix: a listing, then the changes after it, as long as the caller asks.
///
/// Has no timing: if a listing fails, the caller decides when to repeat it.
pub struct Follow {
    api: Arc<dyn Api>,
    prefix: String,
    /// `None` if a listing comes next.
    watch: Option<Box<dyn Watch>>,
}

/// The next item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// Everything under the prefix. Replaces all earlier items.
    Listed(Listing),
    /// The changes since then.
    Changed(Changes),
}

impl Follow {
    /// Follows `prefix`, beginning with a listing.
    pub fn new(api: Arc<dyn Api>, prefix: String) -> Self {
        Self {
            api,
            prefix,
            watch: None,
        }
    }

    /// Makes a listing come next.
    pub fn list_again(&mut self) {
        self.watch = None;
    }

    /// Waits for the next item. Cancel-safe: dropping it loses nothing.
    ///
    /// # Errors
    /// If the listing fails, or the store allows no watch. The next call lists again.
    pub async fn next(&mut self) -> Result<Followed, Error> {
        if let Some(watch) = &mut self.watch {
            let ended = match watch.next().await {
                Ok(changes) => return Ok(Followed::Changed(changes)),
                Err(ended) => ended,
            };
            self.watch = None;
            // After a compaction it lists: changes are lost, the current state is not.
            if let WatchEnd::Failed(error) = ended {
                return Err(error);
            }
        }
        let listing = self.api.listing(&self.prefix).await?;
        self.watch = Some(self.api.watch(&self.prefix, listing.revision));
        Ok(Followed::Listed(listing))
    }
}

#[cfg(test)]
mod tests {
    use super::embedded::Embedded;
    use super::*;

    fn stored(key: &[u8], value: &[u8]) -> Stored {
        Stored {
            key: key.to_vec(),
            value: value.to_vec(),
            create_revision: 2,
            mod_revision: 5,
            version: 3,
        }
    }

    #[test]
    fn what_is_no_text_is_named_by_its_key() {
        let listing = |entries: &[Stored]| Listing {
            revision: 5,
            entries: entries.to_vec(),
        };
        let fine = stored(b"/a", b"1");
        let value = stored(b"/b", b"\xff");
        let key = stored(b"/c\xff", b"1");
        assert_eq!(fine.clone().into_text().unwrap().version, 3);
        assert_eq!(
            listing(&[fine.clone(), value.clone(), key.clone()]).into_texts(),
            Err(Error::NotText("/b".to_owned()))
        );
        assert_eq!(
            listing(&[fine.clone(), value.clone()]).into_keys(),
            Ok(vec!["/a".into(), "/b".into()])
        );
        assert_eq!(
            listing(&[fine, key]).into_keys(),
            Err(Error::NotText("/c\u{fffd}".to_owned()))
        );
    }

    fn names(listing: &Listing) -> Vec<&[u8]> {
        listing.entries.iter().map(|stored| stored.key.as_slice()).collect()
    }

    #[tokio::test]
    async fn a_listing_then_each_revision_and_a_listing_again_where_history_is_gone() {
        let store = Embedded::in_memory().unwrap();
        store.put_bytes(b"/a/1", b"x").await.unwrap();
        let mut follow = Follow::new(Arc::new(store.clone()), "/a/".to_owned());
        let Followed::Listed(listing) = follow.next().await.unwrap() else {
            panic!("a listing is first");
        };
        assert_eq!((listing.revision, names(&listing)), (2, vec![b"/a/1".as_slice()]));
        store.put_bytes(b"/b", b"elsewhere").await.unwrap();
        store.put_bytes(b"/a/2", b"y").await.unwrap();
        let Followed::Changed(changes) = follow.next().await.unwrap() else {
            panic!("then a change");
        };
        assert_eq!(changes.revision, 4);
        let revision = store.put_bytes(b"/a/3", b"z").await.unwrap();
        store.compact(revision);
        let Followed::Listed(listing) = follow.next().await.unwrap() else {
            panic!("the change is gone");
        };
        assert_eq!((listing.revision, listing.entries.len()), (5, 3));
        follow.list_again();
        assert_eq!(follow.next().await.unwrap(), Followed::Listed(listing));
    }
}
