//! The Pods of one Node, and no others, as a source of that Node's host.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use trueup_sources::kubernetes::Subscription;
use trueup_sources::kubernetes::{Kubernetes, Settings};
use trueup_sources::{Batch, Kind};

use support::api_server::{ADMIN, ApiServer};

/// A guard against hanging, on a busy machine.
const GUARD: Duration = Duration::from_secs(120);

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    })
}

async fn next(batches: &mut Subscription) -> Batch {
    timeout(GUARD, batches.next()).await.unwrap()
}

/// The Pods of a batch: names, with a `-` before deleted ones.
fn pods(batch: &Batch) -> Vec<String> {
    let of_pods = batch.changes.iter().filter(|change| change.reference.kind == Kind::Pod);
    let name = of_pods.map(|change| match change.now {
        Some(_) => change.reference.name.clone(),
        None => format!("-{}", change.reference.name),
    });
    name.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_node_alone_pods_are_listed_and_watched() {
    let server = tokio::task::block_in_place(ApiServer::start);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(ADMIN, "admin")).unwrap();
    for (name, node) in [("a1", "node-a"), ("b1", "node-b"), ("a2", "node-a")] {
        server.apply(pod(name, node)).unwrap();
    }
    let settings = Settings {
        kubeconfig: Some(kubeconfig),
        pods_of: Some("node-a".to_owned()),
        watch: vec![Kind::Service, Kind::Pod],
        needed: vec![Kind::Service, Kind::Pod],
        ..Settings::default()
    };
    let once = Kubernetes::once(&settings).await.unwrap().known().unwrap();
    assert_eq!(pods(&once), ["a1", "a2"]);

    let cluster = Kubernetes::start(&settings, 1).await.unwrap();
    let mut batches = cluster.batches();
    assert_eq!(pods(&next(&mut batches).await), ["a1", "a2"]);
    server.apply(pod("b2", "node-b")).unwrap();
    server.apply(pod("a3", "node-a")).unwrap();
    assert_eq!(pods(&next(&mut batches).await), ["a3"]);
    server.delete("pods", "default", "b1").unwrap();
    server.delete("pods", "default", "a1").unwrap();
    // With a grace period: first it is deleted, and then it is gone at the end of that time.
    let mut said = pods(&next(&mut batches).await);
    while said != ["-a1"] {
        assert_eq!(said, ["a1"]);
        said = pods(&next(&mut batches).await);
    }

    // A list shows what happened without a watch.
    server.expire();
    server.cut_watches();
    server.apply(pod("b3", "node-b")).unwrap();
    server.apply(pod("a4", "node-a")).unwrap();
    assert_eq!(pods(&next(&mut batches).await), ["a4"]);
}
