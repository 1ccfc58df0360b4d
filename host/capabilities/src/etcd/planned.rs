//! The store of a plan: reads of the real store fill one in memory, which takes every write.
//!
//! A prefix is read from the real store when the plan first touches it, and never again. So what the plan wrote or
//! deleted stays as the plan left it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::embedded::Embedded;
use super::{Api, Applied, Compare, Error, KeyValue, Listing, Operation, Watch, rules};
use async_trait::async_trait;

/// A store that can only be read.
struct Reads(Arc<dyn Api>);

impl Reads {
    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        self.0.listing(prefix).await
    }
}

/// The store of a plan.
pub struct Planned {
    real: Reads,
    store: Embedded,
    /// The prefixes that `store` has as they were when the plan first touched them. A key counts as a prefix.
    touched: Mutex<BTreeSet<String>>,
}

impl Planned {
    /// A plan that has read nothing yet.
    ///
    /// # Errors
    /// If the store in memory can't be created.
    pub fn new(real: Arc<dyn Api>) -> Result<Self, Error> {
        Ok(Self {
            real: Reads(real),
            store: Embedded::in_memory()?,
            touched: Mutex::default(),
        })
    }

    /// Reads what begins with `prefix` from the real store, unless the plan has touched it before.
    async fn touch(&self, prefix: &str) -> Result<(), Error> {
        let mut touched = self.touched.lock().await;
        if touched.iter().any(|before| prefix.starts_with(before)) {
            return Ok(());
        }
        let mut listing = self.real.listing(prefix).await?;
        let is_new = |key: &[u8]| !touched.iter().any(|before| key.starts_with(before.as_bytes()));
        listing.entries.retain(|entry| is_new(&entry.key));
        self.store.take_over(listing).await?;
        touched.retain(|before| !before.starts_with(prefix));
        touched.insert(prefix.to_owned());
        Ok(())
    }
}

#[async_trait]
impl Api for Planned {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        rules::check_key(key)?;
        self.touch(key).await?;
        self.store.get(key).await
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        rules::check(compares, operations)?;
        let compared = compares.iter().map(Compare::key);
        for key in compared.chain(operations.iter().map(Operation::key)) {
            self.touch(key).await?;
        }
        self.store.transact(compares, operations).await
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        self.touch(prefix).await?;
        self.store.listing(prefix).await
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        // Only what the plan itself changes.
        self.store.watch(prefix, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Operation {
        Operation::Put((key.to_owned(), value.to_owned()))
    }

    async fn real() -> Embedded {
        let real = Embedded::in_memory().unwrap();
        let stored = [put("/a/1", "1"), put("/a/2", "2"), put("/b", "3")];
        assert_eq!(real.commit(&[], &stored).await, Ok(true));
        real
    }

    #[tokio::test]
    async fn writes_stay_in_the_plan_with_the_revisions_of_the_real_store() {
        let real = real().await;
        let before = real.listing("").await.unwrap();
        let plan = Planned::new(Arc::new(real.clone())).unwrap();
        assert_eq!(plan.get("/a/1").await, real.get("/a/1").await);
        assert_eq!(plan.put("/a/1", "x").await, Ok(before.revision + 1));
        assert_eq!(plan.delete("/a/2").await, Ok(true));
        assert_eq!(plan.put_if_not_exists("/b", "x").await, Ok(false));
        let unchanged = [Compare::ModRevision(("/b".to_owned(), 2))];
        assert_eq!(plan.commit(&unchanged, &[put("/c", "4")]).await, Ok(true));
        assert_eq!(
            plan.list_keys("").await.unwrap(),
            ["/a/1", "/b", "/c"],
            "deleted for good"
        );
        assert_eq!(plan.get("/a/1").await.unwrap().unwrap().value, "x");
        assert_eq!(real.listing("").await.unwrap(), before);
    }

    #[tokio::test]
    async fn each_prefix_is_read_once_and_an_error_is_no_read() {
        let real = real().await;
        let plan = Planned::new(Arc::new(real.clone())).unwrap();
        assert_eq!(plan.list_keys("/a").await.unwrap(), ["/a/1", "/a/2"]);
        real.put("/a/3", "later").await.unwrap();
        real.put_bytes(b"/b", b"\xff").await.unwrap();
        assert_eq!(plan.list_keys("/a/").await.unwrap(), ["/a/1", "/a/2"], "as at first");
        assert_eq!(plan.get("/b").await, Err(Error::NotText("/b".to_owned())));
        assert_eq!(plan.get("").await.unwrap_err().kind(), "invalid");
        assert_eq!(plan.put("/b", "text").await, Ok(5));
        assert_eq!(plan.get("/b").await.unwrap().unwrap().value, "text");
    }
}
