//! A store's guarantees for a guest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trueup_capabilities::etcd::{
    Api, Compare, Error, FIRST_REVISION, KeyValue, Listing, OPERATIONS_MAX, Operation, REQUEST_BYTES_MAX,
};

use super::store::{Store, delete, put};

fn kind<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    answer.unwrap_err().kind()
}

pub(crate) async fn every_change_is_the_next_revision_and_counts_for_its_key(store: Store) {
    let api = &store.api;
    let first = FIRST_REVISION;
    assert_eq!(store.revision().await, first);
    assert_eq!(api.get("/a").await, Ok(None));
    assert_eq!(api.put("/a", "1").await, Ok(first + 1));
    assert_eq!(api.put("/b", "").await, Ok(first + 2));
    assert_eq!(api.put("/a", "2").await, Ok(first + 3));
    assert_eq!(api.put("/a", "2").await, Ok(first + 4), "the same value is a change");
    let expected = |create_revision, mod_revision, version| {
        Ok(Some(KeyValue {
            key: "/a".to_owned(),
            value: "2".to_owned(),
            create_revision,
            mod_revision,
            version,
        }))
    };
    assert_eq!(api.get("/a").await, expected(first + 1, first + 4, 3));
    assert_eq!(api.delete("/a").await, Ok(true));
    assert_eq!(api.put("/a", "2").await, Ok(first + 6));
    assert_eq!(
        api.get("/a").await,
        expected(first + 6, first + 6, 1),
        "a key made anew"
    );
    let both = [put("/c", "1"), put("/d", "1"), delete("/b")];
    assert_eq!(api.commit(&[], &both).await, Ok(true));
    let listed = api.list_prefix("/").await.unwrap();
    let revisions: Vec<(&str, u64)> = listed.iter().map(|kv| (kv.key.as_str(), kv.mod_revision)).collect();
    assert_eq!(revisions, [("/a", first + 6), ("/c", first + 7), ("/d", first + 7)]);
}

pub(crate) async fn a_value_is_stored_where_there_is_none_and_only_once(store: Store) {
    let api = &store.api;
    assert_eq!(api.put_if_not_exists("/a", "1").await, Ok(true));
    assert_eq!(api.put_if_not_exists("/a", "1").await, Ok(false), "the same value too");
    assert_eq!(api.put_if_not_exists("/a", "2").await, Ok(false));
    assert_eq!(api.get("/a").await.unwrap().unwrap().value, "1");
    assert_eq!(api.delete("/a").await, Ok(true));
    assert_eq!(api.put_if_not_exists("/a", "2").await, Ok(true));
    assert_eq!(store.revision().await, FIRST_REVISION + 3);
}

pub(crate) async fn a_deletion_says_whether_there_was_anything(store: Store) {
    let api = &store.api;
    assert_eq!(api.delete("/a").await, Ok(false));
    assert_eq!(store.revision().await, FIRST_REVISION, "nothing changed");
    api.put("/a", "1").await.unwrap();
    api.put("/ab", "1").await.unwrap();
    assert_eq!(api.delete("/a").await, Ok(true));
    assert_eq!(api.delete("/a").await, Ok(false));
    assert_eq!(api.list_keys("").await.unwrap(), ["/ab"], "a key, not a prefix");
    assert_eq!(api.commit(&[], &[delete("/a"), delete("/b")]).await, Ok(true));
    assert_eq!(store.revision().await, FIRST_REVISION + 3);
}

pub(crate) async fn a_transaction_is_made_where_every_compare_holds(store: Store) {
    let api = &store.api;
    let revision = api.put("/a", "1").await.unwrap();
    let key = |key: &str| key.to_owned();
    let holds = [
        Compare::Exists(key("/a")),
        Compare::Absent(key("/b")),
        Compare::ModRevision((key("/a"), revision)),
        Compare::ModRevision((key("/b"), 0)),
        Compare::Value((key("/a"), "1".to_owned())),
    ];
    let fails = [
        Compare::Absent(key("/a")),
        Compare::Exists(key("/b")),
        Compare::ModRevision((key("/a"), revision + 1)),
        Compare::ModRevision((key("/b"), revision)),
        Compare::ModRevision((key("/b"), u64::MAX)),
        Compare::Value((key("/a"), "2".to_owned())),
        Compare::Value((key("/b"), String::new())),
    ];
    for compare in &holds {
        let alone = std::slice::from_ref(compare);
        assert_eq!(api.commit(alone, &[]).await, Ok(true), "{compare:?}");
    }
    for compare in &fails {
        let mut compares = holds.to_vec();
        compares.push(compare.clone());
        assert_eq!(api.commit(&compares, &[put("/c", "1")]).await, Ok(false), "{compare:?}");
    }
    assert_eq!(api.get("/c").await, Ok(None));
    assert_eq!(api.commit(&holds, &[put("/a", "2"), put("/b", "1")]).await, Ok(true));
    assert_eq!(api.commit(&holds, &[put("/a", "3")]).await, Ok(false), "no more");
    assert_eq!(api.commit(&[], &[]).await, Ok(true));
    assert_eq!(store.revision().await, revision + 1);
}

pub(crate) async fn a_transaction_that_is_not_made_changes_no_revision(store: Store) {
    let api = &store.api;
    let revision = api.put("/a", "1").await.unwrap();
    let absent = [Compare::Absent("/a".to_owned())];
    assert_eq!(api.commit(&absent, &[put("/a", "2"), put("/b", "2")]).await, Ok(false));
    assert_eq!(
        api.commit(&[], &[put("/c", "1"), put("/c", "2")])
            .await
            .map_err(|e| e.kind()),
        Err("invalid")
    );
    assert_eq!(store.revision().await, revision);
    let stored = api.get("/a").await.unwrap().unwrap();
    assert_eq!((stored.mod_revision, stored.version), (revision, 1));
    assert_eq!(api.list_keys("/").await.unwrap(), ["/a"]);
    assert_eq!(api.put("/a", "2").await, Ok(revision + 1), "no revision is left out");
}

pub(crate) async fn a_transaction_has_128_operations_and_128_compares(store: Store) {
    let api = &store.api;
    let puts = |count: usize| -> Vec<Operation> { (0..count).map(|n| put(&format!("/{n:03}"), "1")).collect() };
    let compares = |count: usize| -> Vec<Compare> {
        let name = |n| format!("/{n:03}");
        (0..count).map(|n| Compare::Absent(name(n))).collect()
    };
    let most = OPERATIONS_MAX;
    assert_eq!(most, 128);
    let too_many = Err(Error::TooManyOperations(128));
    assert_eq!(api.commit(&[], &puts(most + 1)).await, too_many);
    assert_eq!(api.commit(&compares(most + 1), &[]).await, too_many);
    assert_eq!(api.commit(&compares(most + 1), &puts(1)).await, too_many);
    assert_eq!(store.revision().await, FIRST_REVISION);
    assert_eq!(api.commit(&compares(most), &puts(most)).await, Ok(true));
    assert_eq!(api.list_keys("/").await.unwrap().len(), most);
    assert_eq!(store.revision().await, FIRST_REVISION + 1);
}

pub(crate) async fn a_key_is_changed_once_in_a_transaction_and_is_never_empty(store: Store) {
    let api = &store.api;
    for operations in [
        [put("/a", "1"), put("/a", "1")],
        [put("/a", "1"), delete("/a")],
        [delete("/a"), put("/a", "1")],
        [put("/b", "1"), put("", "1")],
        [put("/b", "1"), delete("")],
    ] {
        let answer = api.commit(&[], &operations).await;
        assert_eq!(kind(answer), "invalid", "{operations:?}");
    }
    let empty = [Compare::Exists(String::new())];
    assert_eq!(kind(api.commit(&empty, &[put("/b", "1")]).await), "invalid");
    assert_eq!(kind(api.get("").await), "invalid");
    assert_eq!(kind(api.put("", "1").await), "invalid");
    assert_eq!(kind(api.put_if_not_exists("", "1").await), "invalid");
    assert_eq!(kind(api.delete("").await), "invalid");
    assert_eq!(store.revision().await, FIRST_REVISION);
    api.put("/a", "1").await.unwrap();
    assert_eq!(
        api.commit(&[], &[delete("/a"), delete("/a")]).await,
        Ok(true),
        "two deletions pass"
    );
    // Several mistakes: there are too many operations.
    let many: Vec<Operation> = (0..=OPERATIONS_MAX).map(|_| put("", "1")).collect();
    assert_eq!(kind(api.commit(&[], &many).await), "too-many-operations");
}

pub(crate) async fn a_request_has_an_end(store: Store) {
    let api = &store.api;
    let value = |bytes| "v".repeat(bytes);
    let long = REQUEST_BYTES_MAX;
    assert_eq!(api.put("/a", &value(long - 1_000)).await, Ok(FIRST_REVISION + 1));
    assert_eq!(api.get("/a").await.unwrap().unwrap().value.len(), long - 1_000);
    // Above etcd's limit, and above gRPC's, which differs.
    for bytes in [long, 2 * long] {
        assert_eq!(kind(api.put("/b", &value(bytes)).await), "invalid", "{bytes}");
        assert_eq!(kind(api.put_if_not_exists("/b", &value(bytes)).await), "invalid");
    }
    let half = value(long / 2);
    let both = [put("/b", &half), put("/c", &half)];
    assert_eq!(
        kind(api.commit(&[], &both).await),
        "invalid",
        "together they are too long"
    );
    assert_eq!(api.commit(&[], &both[..1]).await, Ok(true));
    assert_eq!(api.commit(&[], &[put("/c", &half)]).await, Ok(true));
    // Together they exceed one message.
    for n in 0..12 {
        api.put(&format!("/many/{n}"), &value(long - 1_000)).await.unwrap();
    }
    assert_eq!(api.list_prefix("/many/").await.unwrap().len(), 12);
}

pub(crate) async fn a_prefix_is_listed_in_order_and_nothing_beside_it(store: Store) {
    let api = &store.api;
    for key in ["/b", "/a/2", "/a/10", "/a", "/a/", "/a0", "/a/\u{fc}", "z", "/a/1/x"] {
        api.put(key, "v").await.unwrap();
    }
    let listed = |prefix: &'static str| async move {
        let all = api.list_prefix(prefix).await.unwrap();
        let all: Vec<String> = all.into_iter().map(|kv| kv.key).collect();
        assert_eq!(api.list_keys(prefix).await.unwrap(), all);
        all
    };
    assert_eq!(listed("/a/").await, ["/a/", "/a/1/x", "/a/10", "/a/2", "/a/\u{fc}"]);
    assert_eq!(listed("/a/1").await, ["/a/1/x", "/a/10"]);
    assert_eq!(listed("/a/2").await, ["/a/2"]);
    assert_eq!(listed("/c").await, [""; 0]);
    assert_eq!(listed("").await.len(), 9);
    assert_eq!(listed("").await[0], "/a");
}

pub(crate) async fn what_is_no_text_is_told_by_its_key(store: Store) {
    let api = &store.api;
    store.put_bytes(b"/a", b"fine").await;
    store.put_bytes(b"/b", b"\xff\xfe").await;
    let not_text = |key: &str| Error::NotText(key.to_owned());
    assert_eq!(api.get("/b").await, Err(not_text("/b")));
    assert_eq!(api.list_prefix("/").await, Err(not_text("/b")));
    assert_eq!(api.list_keys("/").await.unwrap(), ["/a", "/b"], "its name is");
    assert_eq!(api.get("/a").await.unwrap().unwrap().value, "fine");
    let raw = api.listing("/b").await.unwrap();
    assert_eq!(raw.entries[0].value, b"\xff\xfe", "the host sees the bytes");
    store.put_bytes(b"/c\xff", b"fine").await;
    assert_eq!(api.list_keys("/c").await, Err(not_text("/c\u{fffd}")));
    assert_eq!(api.delete("/b").await, Ok(true));
    assert_eq!(api.list_keys("/b").await.unwrap(), [""; 0]);
}

const MANY: usize = 50_000;

fn many_key(n: usize) -> String {
    format!("/many/{n:05}")
}

/// Checks that the first and the last key of the listing come from one write, whatever a writer does meanwhile.
fn is_of_one_revision(listing: &Listing) {
    assert_eq!(listing.entries.len(), MANY);
    let (first, last) = (&listing.entries[0], &listing.entries[MANY - 1]);
    assert_eq!(first.value, last.value);
    assert_eq!(first.mod_revision, last.mod_revision);
    assert!(
        listing
            .entries
            .iter()
            .all(|stored| stored.mod_revision <= listing.revision)
    );
    assert!(listing.entries.is_sorted_by(|left, right| left.key < right.key));
}

pub(crate) async fn fifty_thousand_keys_are_listed_at_one_revision(store: Store) {
    let api = Arc::clone(&store.api);
    // As long as the shortest configuration of a service: all together exceed one message.
    let value = "v".repeat(200);
    let all: Vec<Operation> = (0..MANY).map(|n| put(&many_key(n), &value)).collect();
    for some in all.chunks(OPERATIONS_MAX) {
        assert_eq!(api.commit(&[], some).await, Ok(true));
    }
    api.put("/manz", "beside").await.unwrap();
    let both = |value: &str| [put(&many_key(0), value), put(&many_key(MANY - 1), value)];
    assert_eq!(api.commit(&[], &both("first")).await, Ok(true));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (api, stop) = (Arc::clone(&api), Arc::clone(&stop));
        async move {
            let mut n = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(api.commit(&[], &both(&n.to_string())).await, Ok(true));
                n += 1;
                // A store that answers at once would never yield.
                tokio::task::yield_now().await;
            }
            n
        }
    });
    for _ in 0..3 {
        is_of_one_revision(&api.listing("/many/").await.unwrap());
        assert_eq!(api.list_keys("/many/").await.unwrap().len(), MANY);
    }
    stop.store(true, Ordering::SeqCst);
    assert!(writer.await.unwrap() > 0, "somebody wrote meanwhile");
    assert_eq!(api.list_prefix("/many/").await.unwrap().len(), MANY);
}

/// Takes the smallest positive number without a key.
async fn take_number(api: Arc<dyn Api>, name: String) -> usize {
    loop {
        let keys: BTreeSet<String> = api.list_keys("/ids/").await.unwrap().into_iter().collect();
        let free = (1..).find(|n| !keys.contains(&format!("/ids/{n}"))).unwrap();
        if api.put_if_not_exists(&format!("/ids/{free}"), &name).await.unwrap() {
            return free;
        }
    }
}

pub(crate) async fn fifty_at_once_get_a_number_each(store: Store) {
    let asking: Vec<_> = (0..50)
        .map(|n| tokio::spawn(take_number(Arc::clone(&store.api), format!("node-{n}"))))
        .collect();
    let mut numbers = BTreeSet::new();
    for asked in asking {
        assert!(numbers.insert(asked.await.unwrap()));
    }
    assert_eq!(numbers, (1..=50).collect());
    let names: BTreeSet<String> = store
        .api
        .list_prefix("/ids/")
        .await
        .unwrap()
        .into_iter()
        .map(|kv| kv.value)
        .collect();
    assert_eq!(names.len(), 50);
}

pub(crate) async fn a_commit_whose_answer_is_lost_is_decided_by_reading_back(store: Store) {
    let api = &store.api;
    let absent = [Compare::Absent("/lock".to_owned())];
    let take = [put("/lock", "mine"), put("/log", "taken once")];
    if let Some(error) = store.commit_unheard(&absent, &take).await {
        let Error::Unavailable(text) = &error else {
            panic!("{error:?}")
        };
        assert!(
            text.ends_with("whether it was made is not known; read what is stored before you try again"),
            "{text}"
        );
    }
    // The caller stopped waiting; the write still happens, once.
    let read_back = async {
        loop {
            if let Some(stored) = api.get("/lock").await.unwrap() {
                return stored;
            }
            tokio::task::yield_now().await;
        }
    };
    let stored = tokio::time::timeout(std::time::Duration::from_secs(60), read_back)
        .await
        .unwrap();
    assert_eq!((stored.value.as_str(), stored.version), ("mine", 1));
    // A repeated request does not write again: the compare succeeded only the first time.
    assert_eq!(api.commit(&absent, &take).await, Ok(false));
    assert_eq!(store.revision().await, FIRST_REVISION + 1);
    let log = api.get("/log").await.unwrap().unwrap();
    assert_eq!((log.version, log.mod_revision), (1, stored.mod_revision));
}
