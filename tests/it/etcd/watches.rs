//! A store's notifications to the host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trueup_capabilities::etcd::{
    Changes, Event, FIRST_REVISION, Follow, Followed, OPERATIONS_MAX, Operation, Watch, WatchEnd,
};

use super::store::{Store, delete, put};

/// Only a guard against a hang.
const PATIENCE: Duration = Duration::from_secs(120);

async fn next(watch: &mut dyn Watch) -> Result<Changes, WatchEnd> {
    tokio::time::timeout(PATIENCE, watch.next()).await.unwrap()
}

async fn followed(follow: &mut Follow) -> Followed {
    tokio::time::timeout(PATIENCE, follow.next()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A revision, and its events as `+key=value` and `-key`.
fn told(changes: &Changes) -> (u64, Vec<String>) {
    let event = |event: &Event| match event {
        Event::Put(stored) => {
            assert_eq!(stored.mod_revision, changes.revision);
            format!("+{}={}", text(&stored.key), text(&stored.value))
        }
        Event::Deleted(key) => format!("-{}", text(key)),
    };
    (changes.revision, changes.events.iter().map(event).collect())
}

pub(crate) async fn a_watch_tells_each_revision_once_and_whole(store: Store) {
    let api = &store.api;
    let first = FIRST_REVISION;
    api.put("/a/0", "before").await.unwrap();
    let mut watch = api.watch("/a/", first + 1);
    let mut everything = api.watch("", first);
    api.put("/b/1", "beside").await.unwrap();
    let several = [
        put("/a/2", "2"),
        put("/b/2", "2"),
        delete("/a/0"),
        put("/a/1", "1"),
        delete("/a/9"),
    ];
    api.commit(&[], &several).await.unwrap();
    api.delete("/a/2").await.unwrap();
    let two = next(&mut *watch).await.unwrap();
    assert_eq!(
        told(&two),
        (first + 3, ["+/a/2=2", "-/a/0", "+/a/1=1"].map(str::to_owned).into()),
        "in the order of the operations, without what changed nothing"
    );
    let Event::Put(stored) = &two.events[0] else {
        panic!("a put is first")
    };
    assert_eq!((stored.create_revision, stored.version), (first + 3, 1));
    assert_eq!(
        told(&next(&mut *watch).await.unwrap()),
        (first + 4, vec!["-/a/2".to_owned()])
    );
    // A pending watch gets the next change.
    let writing = tokio::spawn({
        let api = Arc::clone(api);
        async move { api.put("/a/1", "later").await }
    });
    let later = next(&mut *watch).await.unwrap();
    assert_eq!(told(&later), (first + 5, vec!["+/a/1=later".to_owned()]));
    writing.await.unwrap().unwrap();
    let mut revisions = Vec::new();
    for _ in 0..5 {
        revisions.push(next(&mut *everything).await.unwrap().revision);
    }
    assert_eq!(revisions, (first + 1..=first + 5).collect::<Vec<_>>());
}

pub(crate) async fn a_watch_goes_on_after_a_cut(store: Store) {
    let api = &store.api;
    let mut revision = FIRST_REVISION;
    let mut watch = api.watch("/a/", revision);
    for round in 0..5 {
        revision = api.put("/a/before", &round.to_string()).await.unwrap();
        assert_eq!(next(&mut *watch).await.unwrap().revision, revision);
        store.cut().await;
        // A write across the same cut: the store never sends a change twice, so the caller may have to ask for it
        // again.
        let before = store.revision().await;
        let deleted = api.commit(&[], &[delete("/a/before"), put("/a/after", "x")]).await;
        if deleted.is_err() {
            assert_eq!(store.revision().await, before, "nothing was on its way");
            api.commit(&[], &[delete("/a/before"), put("/a/after", "x")])
                .await
                .unwrap();
        }
        revision = store.revision().await;
        let after = next(&mut *watch).await.unwrap();
        assert_eq!(
            told(&after),
            (revision, ["-/a/before", "+/a/after=x"].map(str::to_owned).into()),
            "round {round}"
        );
    }
    // A new watch after the last reported revision gets the same as the running one.
    let next_revision = api.put("/a/1", "y").await.unwrap();
    let mut resumed = api.watch("/a/", revision);
    let (left, right) = (next(&mut *watch).await.unwrap(), next(&mut *resumed).await.unwrap());
    assert_eq!(left, right);
    assert_eq!(left.revision, next_revision);
}

pub(crate) async fn history_that_is_compacted_is_listed_again(store: Store) {
    let api = &store.api;
    let old = api.put("/a/1", "1").await.unwrap();
    let mut follow = Follow::new(Arc::clone(api), "/a/".to_owned());
    let Followed::Listed(listing) = followed(&mut follow).await else {
        panic!("a listing is first")
    };
    assert_eq!((listing.revision, listing.entries.len()), (old, 1));
    // Before the first look: changed, deleted, and forgotten.
    api.put("/a/2", "2").await.unwrap();
    let deleted_at = old + 2;
    api.delete("/a/1").await.unwrap();
    store.compact(deleted_at).await;
    for after in [FIRST_REVISION, old, deleted_at - 1] {
        let end = next(&mut *api.watch("/a/", after)).await;
        assert_eq!(end, Err(WatchEnd::Compacted { after }));
    }
    let Followed::Listed(listing) = followed(&mut follow).await else {
        panic!("the deletion is told by a listing")
    };
    assert_eq!(listing.revision, deleted_at);
    let keys: Vec<String> = listing.entries.iter().map(|stored| text(&stored.key)).collect();
    assert_eq!(keys, ["/a/2"]);
    // Keys written after the compaction are reported as usual.
    let revision = api.put("/a/3", "3").await.unwrap();
    assert_eq!(
        told(&next(&mut *api.watch("/a/", deleted_at)).await.unwrap()).0,
        revision
    );
    let Followed::Changed(changes) = followed(&mut follow).await else {
        panic!("then it goes on")
    };
    assert_eq!(told(&changes), (revision, vec!["+/a/3=3".to_owned()]));
    // A future revision belongs to another store.
    let after = revision + 100;
    let end = next(&mut *api.watch("/a/", after)).await;
    assert_eq!(end, Err(WatchEnd::Compacted { after }));
}

/// How many changes a writer makes while another follows.
const CHANGES: usize = 300;

pub(crate) async fn nothing_is_missed_between_a_listing_and_its_watch(store: Store) {
    let api = Arc::clone(&store.api);
    let writing = tokio::spawn({
        let api = Arc::clone(&api);
        async move {
            for n in 0..CHANGES {
                let key = format!("/a/{}", n % 7);
                if n % 5 == 4 {
                    api.delete(&key).await.unwrap();
                } else {
                    api.put(&key, &n.to_string()).await.unwrap();
                }
            }
            api.put("/a/end", "end").await.unwrap()
        }
    });
    let mut follow = Follow::new(Arc::clone(&api), "/a/".to_owned());
    let mut seen: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut revision = 0;
    let mut told = 0;
    while !seen.contains_key(b"/a/end".as_slice()) {
        match followed(&mut follow).await {
            Followed::Listed(listing) => {
                assert!(listing.revision >= revision);
                revision = listing.revision;
                seen = listing
                    .entries
                    .into_iter()
                    .map(|stored| (stored.key, stored.value))
                    .collect();
            }
            Followed::Changed(changes) => {
                assert!(changes.revision > revision, "revisions ascend, each once");
                revision = changes.revision;
                for event in changes.events {
                    match event {
                        Event::Put(stored) => drop(seen.insert(stored.key, stored.value)),
                        Event::Deleted(key) => assert!(seen.remove(&key).is_some(), "only what is there is deleted"),
                    }
                }
                told += 1;
                // Now and then restart from the beginning, in the middle of the changes.
                if told % 100 == 0 {
                    follow.list_again();
                }
            }
        }
    }
    assert_eq!(revision, writing.await.unwrap());
    let listed = api.listing("/a/").await.unwrap();
    let there: BTreeMap<Vec<u8>, Vec<u8>> = listed
        .entries
        .into_iter()
        .map(|stored| (stored.key, stored.value))
        .collect();
    assert_eq!(seen, there);
    // One transaction of the largest size is one revision.
    let many: Vec<Operation> = (0..OPERATIONS_MAX).map(|n| put(&format!("/b/{n}"), "x")).collect();
    let mut watch = api.watch("/b/", revision);
    api.commit(&[], &many).await.unwrap();
    let changes = next(&mut *watch).await.unwrap();
    assert_eq!((changes.revision, changes.events.len()), (revision + 1, OPERATIONS_MAX));
}
