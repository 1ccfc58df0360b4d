//! Which transactions reach the packet filter, and what the guest gets if none does.

use std::sync::{Arc, Mutex};

use super::*;
use crate::bindings::service::nftables::Host as _;
use crate::{Backends, testing};
use async_trait::async_trait;

/// Records the applied transactions.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

#[async_trait]
impl Api for Kept {
    async fn apply(&self, ruleset: &str) -> Result<(), String> {
        self.0.lock().unwrap().push(ruleset.to_owned());
        Ok(())
    }
}

fn granted(write: &[&str]) -> (Host, Arc<Kept>) {
    let grants = testing::grants(NFTABLES, &[], write);
    let kept = Arc::new(Kept::default());
    let backends = Backends {
        nftables: Some(Arc::clone(&kept) as Arc<dyn Api>),
        ..Backends::default()
    };
    (testing::host("nftables", grants, backends), kept)
}

fn add(tables: &[(&str, &str)]) -> String {
    let commands: Vec<String> = tables
        .iter()
        .map(|(family, name)| format!(r#"{{"add":{{"table":{{"family":"{family}","name":"{name}"}}}}}}"#))
        .collect();
    format!(r#"{{"nftables":[{}]}}"#, commands.join(","))
}

async fn told(host: &mut Host, ruleset: &str) -> Result<(), String> {
    host.apply(ruleset.to_owned()).await.unwrap()
}

#[tokio::test]
async fn tables_outside_the_granted_ones_are_refused_and_nothing_is_applied() {
    let (mut host, kept) = granted(&["ip trueup", "ip6 trueup"]);
    let fine = add(&[("ip", "trueup"), ("ip6", "trueup")]);
    assert_eq!(told(&mut host, &fine).await, Ok(()));
    for (ruleset, what) in [
        (
            add(&[("ip", "trueup"), ("ip", "filter")]),
            "no grant to write nftables' table `ip filter`",
        ),
        (
            add(&[("inet", "trueup")]),
            "no grant to write nftables' table `inet trueup`",
        ),
        (
            r#"{"nftables":[{"flush":{"ruleset":null}}]}"#.to_owned(),
            "a command of nftables that names no table: command 0, `flush ruleset`",
        ),
    ] {
        assert_eq!(told(&mut host, &ruleset).await, Err(format!("access denied: {what}")));
    }
    let error = told(&mut host, "add table ip trueup\n").await.unwrap_err();
    assert!(error.starts_with("the transaction is no JSON of nft: "), "{error}");
    assert_eq!(*kept.0.lock().unwrap(), [fine]);
}

#[tokio::test]
async fn where_every_table_is_granted_a_command_still_names_one() {
    let (mut host, kept) = granted(&["*"]);
    assert_eq!(told(&mut host, &add(&[("bridge", "a b")])).await, Ok(()));
    let error = told(&mut host, r#"{"nftables":[{"list":{"ruleset":null}}]}"#)
        .await
        .unwrap_err();
    assert_eq!(
        error,
        "access denied: a command of nftables that names no table: command 0, `list`"
    );
    assert_eq!(kept.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn without_a_grant_nothing_is_looked_at_and_without_a_backend_it_is_said() {
    let (mut host, kept) = granted(&[]);
    assert_eq!(
        told(&mut host, "{}").await,
        Err("access denied: no grant to write to nftables".to_owned())
    );
    assert_eq!(kept.0.lock().unwrap().len(), 0);
    let (mut host, _) = granted(&["*"]);
    host.backends.nftables = None;
    assert_eq!(
        told(&mut host, &add(&[("ip", "a")])).await,
        Err("this host has no packet filter".to_owned())
    );
}
