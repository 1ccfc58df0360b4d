//! Properties of the file: it persists, only one process can open it, and it does not grow forever.

use super::*;
use crate::etcd::{FIRST_REVISION, Follow, Followed};

fn text(entries: &[KeyValue]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect()
}

#[tokio::test]
async fn answered_changes_survive_closing_the_file_or_a_copy_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/etcd.redb");
    let copy = folder.path().join("copy.redb");
    {
        let store = Embedded::open(&path).unwrap();
        assert_eq!(store.put("/a", "1").await, Ok(FIRST_REVISION + 1));
        assert_eq!(store.put("/b", "2").await, Ok(FIRST_REVISION + 2));
        assert_eq!(store.delete("/a").await, Ok(true));
        // The state after a crash of the machine: nothing was closed.
        std::fs::copy(&path, &copy).unwrap();
        assert_eq!(store.put("/c", "3").await, Ok(FIRST_REVISION + 4));
    }
    let crashed = Embedded::open(&copy).unwrap();
    assert_eq!(text(&crashed.list_prefix("/").await.unwrap()), [("/b", "2")]);
    assert_eq!(crashed.put("/d", "4").await, Ok(FIRST_REVISION + 4));

    let store = Embedded::open(&path).unwrap();
    let listed = store.list_prefix("/").await.unwrap();
    assert_eq!(text(&listed), [("/b", "2"), ("/c", "3")]);
    assert_eq!((listed[1].create_revision, listed[1].version), (FIRST_REVISION + 4, 1));
    // A watch begins after the newest revision.
    let mut watch = store.watch("/", FIRST_REVISION + 4);
    let next = store.put("/d", "4").await.unwrap();
    assert_eq!(watch.next().await.unwrap().revision, next);
}

#[tokio::test]
async fn one_process_has_the_file_and_a_damaged_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("etcd.redb");
    let store = Embedded::open(&path).unwrap();
    let error = Embedded::open(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("in use by another process; stop that one first, or choose another path"),
        "{error}"
    );
    drop(store);
    let link = folder.path().join("link.redb");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = Embedded::open(&link).unwrap_err().to_string();
    assert!(error.contains("a symbolic link, must be a regular file"), "{error}");
    std::fs::write(&path, "no database").unwrap();
    let error = Embedded::open(&path).unwrap_err().to_string();
    assert!(error.starts_with("etcd store `") && !error.contains('\n'), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"no database");
}

#[tokio::test]
async fn a_watch_that_waits_hears_of_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("etcd.redb")).unwrap();
    let mut follow = Follow::new(Arc::new(store.clone()), "/a/".to_owned());
    let Ok(Followed::Listed(listing)) = follow.next().await else {
        panic!("a listing is first");
    };
    assert_eq!(listing.entries, []);
    let waiting = tokio::spawn(async move { follow.next().await });
    store.put("/elsewhere", "1").await.unwrap();
    let revision = store.put("/a/1", "1").await.unwrap();
    let Followed::Changed(changes) = waiting.await.unwrap().unwrap() else {
        panic!("a change comes");
    };
    assert_eq!((changes.revision, changes.events.len()), (revision, 1));
}

#[test]
fn a_panic_of_the_database_is_caught_and_not_shown() {
    const IN_CHILD: &str = "TEST_PANICS";
    if std::env::var_os(IN_CHILD).is_some() {
        assert!(caught::<()>(|| panic!("foreign words")).is_none());
        return;
    }
    let name = "etcd::embedded::tests::a_panic_of_the_database_is_caught_and_not_shown";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let ran = child.args(["--exact", name, "--nocapture"]).env(IN_CHILD, "1").output();
    let ran = ran.unwrap();
    let shown = [ran.stdout, ran.stderr].concat();
    let shown = String::from_utf8_lossy(&shown);
    assert!(ran.status.success() && shown.contains("1 passed"), "{shown}");
    assert!(!shown.contains("foreign words"), "{shown}");
}

#[test]
fn history_goes_by_number_and_by_size_and_the_newest_revision_stays() {
    let changes = |revision, bytes| Changes {
        revision,
        events: vec![Event::Deleted(vec![0; bytes])],
    };
    let reaches = |history: &History, after| {
        let newer = history.newer(after);
        newer.map(|newer| newer.map(|changes| changes.revision).collect::<Vec<u64>>())
    };
    let mut history = History::after(7);
    assert_eq!(reaches(&history, 7), Some(vec![]));
    assert_eq!(reaches(&history, 8), None, "it never existed");
    let newest = 8 + HISTORY_REVISIONS_MAX as u64;
    for revision in 8..=newest {
        history.push(changes(revision, 1));
    }
    assert_eq!(reaches(&history, 7), None);
    assert_eq!(reaches(&history, 8).unwrap().len(), HISTORY_REVISIONS_MAX);
    assert_eq!(reaches(&history, newest - 2), Some(vec![newest - 1, newest]));
    history.push(changes(newest + 1, HISTORY_BYTES_MAX + 1));
    assert_eq!(reaches(&history, newest - 1), None);
    assert_eq!(reaches(&history, newest), Some(vec![newest + 1]));
    history.compact(newest + 1);
    assert_eq!(reaches(&history, newest), None);
    assert_eq!(reaches(&history, newest + 1), Some(vec![]));
    assert_eq!(history.bytes, 0);
}
