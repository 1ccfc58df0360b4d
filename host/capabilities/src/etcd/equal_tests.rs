//! The store in memory and the store in a file give the same answers to any sequence of requests.

use std::sync::Arc;

use proptest::prelude::*;
use tokio::runtime::Builder;

use super::embedded::Embedded;
use super::simulated::Simulated;
use super::{Api, Compare, FIRST_REVISION, OPERATIONS_MAX, Operation, REQUEST_BYTES_MAX, WatchEnd};

/// One request, or one action of an operator.
#[derive(Debug, Clone)]
enum Step {
    Get(String),
    List(String),
    Keys(String),
    Put(String, String),
    PutIfNotExists(String, String),
    Delete(String),
    Commit(Vec<Compare>, Vec<Operation>),
    PutBytes(Vec<u8>),
    /// Compacts at this many revisions before the newest.
    Compact(u64),
    /// Reads everything after this many revisions before the newest.
    History(String, u64),
}

/// Few keys, so that they collide. The last ones are no keys, or not prefixes of any.
fn keys() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => proptest::sample::select(vec!["/a", "/a/1", "/a/2", "/b", "/b/1"]),
        1 => Just(""),
    ]
    .prop_map(str::to_owned)
}

fn prefixes() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["", "/", "/a", "/a/", "/b/1", "/c"]).prop_map(str::to_owned)
}

fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => proptest::sample::select(vec!["", "x", "y"]).prop_map(str::to_owned),
        1 => Just("z".repeat(REQUEST_BYTES_MAX)),
    ]
}

fn compares() -> impl Strategy<Value = Compare> {
    prop_oneof![
        keys().prop_map(Compare::Absent),
        keys().prop_map(Compare::Exists),
        (keys(), 0..12_u64).prop_map(Compare::ModRevision),
        (keys(), values()).prop_map(Compare::Value),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        (keys(), values()).prop_map(Operation::Put),
        keys().prop_map(Operation::Delete)
    ];
    let many = |count| {
        let put = move |n| Operation::Put((format!("/a/{n}"), "x".to_owned()));
        (0..count).map(put).collect::<Vec<_>>()
    };
    prop_oneof![
        20 => proptest::collection::vec(operation, 0..5),
        1 => Just(many(OPERATIONS_MAX)),
        1 => Just(many(OPERATIONS_MAX + 1)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => keys().prop_map(Step::Get),
        1 => prefixes().prop_map(Step::List),
        1 => prefixes().prop_map(Step::Keys),
        3 => (keys(), values()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (keys(), values()).prop_map(|(key, value)| Step::PutIfNotExists(key, value)),
        2 => keys().prop_map(Step::Delete),
        6 => (proptest::collection::vec(compares(), 0..3), operations())
            .prop_map(|(compares, operations)| Step::Commit(compares, operations)),
        1 => proptest::sample::select(vec![b"/a/\xff".to_vec(), b"/b".to_vec()]).prop_map(Step::PutBytes),
        1 => (0..8_u64).prop_map(Step::Compact),
        2 => (prefixes(), 0..12_u64).prop_map(|(prefix, back)| Step::History(prefix, back)),
    ]
}

/// Either of the two stores.
enum Store {
    Simulated(Simulated),
    Embedded(Embedded),
}

impl Store {
    fn api(&self) -> &dyn Api {
        match self {
            Self::Simulated(store) => store,
            Self::Embedded(store) => store,
        }
    }

    async fn revision(&self) -> u64 {
        self.api().listing("").await.unwrap().revision
    }

    /// The whole answer as text, for comparison.
    async fn answer(&self, step: &Step) -> String {
        let api = self.api();
        match step {
            Step::Get(key) => format!("{:?}", api.get(key).await),
            Step::List(prefix) => format!("{:?} {:?}", api.list_prefix(prefix).await, api.listing(prefix).await),
            Step::Keys(prefix) => format!("{:?}", api.list_keys(prefix).await),
            Step::Put(key, value) => format!("{:?}", api.put(key, value).await),
            Step::PutIfNotExists(key, value) => format!("{:?}", api.put_if_not_exists(key, value).await),
            Step::Delete(key) => format!("{:?}", api.delete(key).await),
            Step::Commit(compares, operations) => format!("{:?}", api.commit(compares, operations).await),
            Step::PutBytes(key) => match self {
                Self::Simulated(store) => store.put_bytes(key, b"\xff").to_string(),
                Self::Embedded(store) => store.put_bytes(key, b"\xff").await.unwrap().to_string(),
            },
            Step::Compact(back) => {
                let revision = self.revision().await.saturating_sub(*back);
                match self {
                    Self::Simulated(store) => store.compact(revision),
                    Self::Embedded(store) => store.compact(revision).await.unwrap(),
                }
                String::new()
            }
            Step::History(prefix, back) => {
                let after = self.revision().await.saturating_sub(*back);
                self.history(prefix, after).await
            }
        }
    }

    /// What a watch reports from there up to now.
    async fn history(&self, prefix: &str, after: u64) -> String {
        // A final change to wait for, which every prefix but one sees.
        let end = format!("{prefix}~end");
        let last = self.api().put(&end, "").await.unwrap();
        let mut watch = self.api().watch(prefix, after);
        let mut told = Vec::new();
        loop {
            match watch.next().await {
                Ok(changes) => {
                    let revision = changes.revision;
                    told.push(changes);
                    if revision == last {
                        return format!("{told:?}");
                    }
                }
                Err(end @ WatchEnd::Compacted { .. }) => return format!("{end:?}"),
                Err(end) => panic!("{end}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_store_in_a_file_answers_as_the_one_in_memory_does(steps in proptest::collection::vec(steps(), 1..40), reopen in 0..40_usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("etcd.redb");
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let simulated = Store::Simulated(Simulated::new(Arc::default(), [].into()));
            let mut embedded = Store::Embedded(Embedded::open(&path).unwrap());
            assert_eq!(embedded.revision().await, FIRST_REVISION);
            for (n, step) in steps.iter().enumerate() {
                if n == reopen {
                    // Close the store before opening it again.
                    embedded = Store::Simulated(Simulated::default());
                    drop(embedded);
                    embedded = Store::Embedded(Embedded::open(&path).unwrap());
                }
                let (left, right) = (simulated.answer(step).await, embedded.answer(step).await);
                assert_eq!(left, right, "step {n}: {step:?}");
            }
            assert_eq!(simulated.api().listing("").await, embedded.api().listing("").await);
            assert_eq!(simulated.history("", 0).await, embedded.history("", 0).await);
        });
    }
}
