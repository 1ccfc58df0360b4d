//! The promises of `shared_sync` to waiting callers.

use std::path::Path;
use std::sync::Arc;

use trueup_capabilities::checkpoint::Store as _;
use trueup_capabilities::checkpoint::file::File;

use super::{Scratch, content, file, file_with, holds, stored};

fn sharing(path: &Path) -> File {
    file_with(path, |it| it.shared_sync = true)
}

#[tokio::test]
async fn without_shared_sync_no_writer_counts() {
    let scratch = Scratch::new();
    let store = file(&scratch.path("ipam.checkpoint"));
    store.checkpoint("data").await.unwrap();
    store.append("entry").await.unwrap();
    assert_eq!(store.written(), 0);
    store.durable(7).await.unwrap();
}

#[tokio::test]
async fn changes_are_counted_and_a_checkpoint_is_durable_when_it_is_answered() {
    let scratch = Scratch::new();
    let store = sharing(&scratch.path("ipam.checkpoint"));
    assert_eq!(store.written(), 0);
    store.durable(0).await.unwrap();
    store.checkpoint("data").await.unwrap();
    assert_eq!(store.written(), 1);
    assert!(store.append("x".repeat((1 << 20) + 1).as_str()).await.is_err());
    assert_eq!(store.written(), 1, "a refused change is none");
    store.append("one").await.unwrap();
    store.append("two").await.unwrap();
    assert_eq!(store.written(), 3);
    store.durable(2).await.unwrap();
    store.durable(3).await.unwrap();
    store.append("three").await.unwrap();
    store.checkpoint("data").await.unwrap();
    assert_eq!(store.written(), 5);
    store.durable(5).await.unwrap();
    assert_eq!(stored(&store).await, holds("data", &[]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_at_once_and_each_is_answered() {
    let scratch = Scratch::new();
    let path = scratch.path("ipam.checkpoint");
    let store = Arc::new(sharing(&path));
    store.checkpoint("data").await.unwrap();
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in 0..50 {
                    store.append(&format!("{client}/{number}")).await.unwrap();
                    store.durable(store.written()).await.unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(store.written(), 801);
    drop(store);
    let entries = content(&file(&path)).await.entries;
    assert_eq!(entries.len(), 800);
    for client in 0..16 {
        let own: Vec<&String> = entries
            .iter()
            .filter(|entry| entry.starts_with(&format!("{client}/")))
            .collect();
        let expected: Vec<String> = (0..50).map(|number| format!("{client}/{number}")).collect();
        assert!(own.into_iter().eq(&expected));
    }
}
