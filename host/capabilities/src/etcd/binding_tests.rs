//! Which requests reach a store, what the guest gets if none does, and what its tape records.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::bindings::etcd::kv::Host as _;
use crate::etcd::embedded::Embedded;
use crate::grants::{Grant, Grants};
use crate::{Backends, testing};

fn grants(read: &[&str], write: &[&str]) -> Grants {
    testing::grants(ETCD, read, write)
}

fn host(grants: Grants) -> (Host, Embedded) {
    let entries = [("/a/1", "one"), ("/b/1", "two")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let store = Embedded::in_memory_with(&entries.into()).unwrap();
    let backends = Backends {
        etcd: Some(Arc::new(store.clone())),
        ..Backends::default()
    };
    (testing::host("nodesync", grants, backends), store)
}

fn denied<T>(what: &str) -> Result<T, Error> {
    Err(Error::AccessDenied(what.to_owned()))
}

fn put(key: &str) -> Operation {
    Operation::Put((key.to_owned(), "x".to_owned()))
}

#[tokio::test]
async fn keys_and_prefixes_without_a_grant_are_refused_without_a_request() {
    let (mut host, store) = host(grants(&["/a/"], &["/a/", "/c/"]));
    assert_eq!(host.get("/a/1".into()).await.unwrap().unwrap().unwrap().value, "one");
    assert_eq!(host.list_keys("/a/".into()).await.unwrap(), Ok(vec!["/a/1".to_owned()]));
    assert_eq!(
        host.get("/b/1".into()).await.unwrap(),
        denied("no grant to read etcd's key `/b/1`")
    );
    assert_eq!(
        host.list_keys("/".into()).await.unwrap(),
        denied("no grant to read etcd's prefix `/`")
    );
    assert_eq!(
        host.list_prefix("/a".into()).await.unwrap(),
        denied("no grant to read etcd's prefix `/a`")
    );
    let write = "no grant to write etcd's key `/b/1`";
    assert_eq!(host.put("/b/1".into(), "x".into()).await.unwrap(), denied(write));
    assert_eq!(
        host.put_if_not_exists("/b/1".into(), "x".into()).await.unwrap(),
        denied(write)
    );
    assert_eq!(host.delete("/b/1".into()).await.unwrap(), denied(write));
    let mixed = vec![put("/a/2"), Operation::Delete("/b/1".to_owned())];
    assert_eq!(host.commit(vec![], mixed).await.unwrap(), denied(write));
    let compare = vec![Compare::Absent("/c/1".to_owned())];
    assert_eq!(
        host.commit(compare, vec![put("/c/1")]).await.unwrap(),
        denied("no grant to read etcd's key `/c/1`"),
        "what is compared is read"
    );
    assert_eq!(host.commit(vec![], vec![put("/c/1")]).await.unwrap(), Ok(true));
    assert_eq!(
        store.entries().unwrap().into_keys().collect::<Vec<_>>(),
        ["/a/1", "/b/1", "/c/1"]
    );
    let counted = ["kv.put", "kv.commit"].map(|call| testing::refusals(&host, call));
    assert_eq!(counted, [Some(1.0), Some(2.0)]);
}

#[tokio::test]
async fn a_guest_without_a_grant_is_refused_even_nothing() {
    let (mut host, _) = host(Grants::default());
    assert_eq!(
        host.commit(vec![], vec![]).await.unwrap(),
        denied("no grant to write to etcd")
    );
    assert_eq!(
        host.list_keys(String::new()).await.unwrap(),
        denied("no grant to read etcd's prefix ``")
    );
}

#[tokio::test]
async fn questions_above_the_quota_are_refused() {
    let grant = Grant {
        read: ["*".to_owned()].into(),
        calls_per_minute: Some(1),
        ..Grant::default()
    };
    let (mut host, _) = host(Grants::new([(ETCD.to_owned(), grant)].into()));
    assert!(host.get("/a/1".into()).await.unwrap().is_ok());
    assert_eq!(
        host.get("/a/1".into()).await.unwrap(),
        denied("`etcd` was asked once within a minute, the limit `calls_per_minute`")
    );
}

#[tokio::test]
async fn without_a_store_it_is_unavailable() {
    let (mut host, _) = host(Grants::everything());
    host.backends.etcd = None;
    let text = "this host has no store for etcd; configure `[backend.etcd]`";
    assert_eq!(
        host.get("/a/1".into()).await.unwrap(),
        Err(Error::Unavailable(text.to_owned()))
    );
}

#[test]
fn arguments_and_answers_are_written_as_scenarios_have_them() {
    let compares = vec![
        Compare::Absent("/k".to_owned()),
        Compare::ModRevision(("/k".to_owned(), 7)),
    ];
    let operations = vec![put("/k"), Operation::Delete("/l".to_owned())];
    assert_eq!(
        serde_json::to_value(args!(compares: Vec<Compare>, operations: Vec<Operation>)).unwrap(),
        json!({
            "compares": [{"Absent": "/k"}, {"ModRevision": ["/k", 7]}],
            "operations": [{"Put": ["/k", "x"]}, {"Delete": "/l"}],
        })
    );
    let errors: [Result<bool, Error>; 3] = [
        Err(Error::Unavailable("no leader".to_owned())),
        Err(Error::TooManyOperations(128)),
        Err(Error::NotText("/k".to_owned())),
    ];
    assert_eq!(
        serde_json::to_value(errors).unwrap(),
        json!([
            {"Err": {"Unavailable": "no leader"}}, {"Err": {"TooManyOperations": 128}}, {"Err": {"NotText": "/k"}},
        ])
    );
}

#[tokio::test]
async fn questions_and_answers_are_on_the_tape_refusals_too() {
    let (mut host, _) = host(grants(&["/a/"], &[]));
    testing::begin(&mut host, 1, "node-sync.resync");
    host.list_keys("/a/".into()).await.unwrap().unwrap();
    host.put_if_not_exists("/a/2".into(), "x".into())
        .await
        .unwrap()
        .unwrap_err();
    let entries = host.tape.take_entries();
    let entries: Vec<Value> = entries
        .iter()
        .map(|entry| serde_json::from_str(&entry.to_line()).unwrap())
        .collect();
    let denied = json!({"Err": {"AccessDenied": "no grant to write etcd's key `/a/2`"}});
    assert_eq!(
        Value::from(entries),
        json!([
            {"n": 1, "at_ms": 1, "call": "node-sync.resync", "args": {}},
            {"n": 2, "ask": "kv.list-keys", "args": {"prefix": "/a/"}, "answer": {"Ok": ["/a/1"]}},
            {"n": 3, "ask": "kv.put-if-not-exists", "args": {"key": "/a/2", "value": "x"}, "answer": denied},
        ])
    );
}
