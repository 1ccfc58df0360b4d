//! Fifty nodes in one process share one embedded store: each gets its own number, keeps it, and publishes its addresses
//! to all others. Also one node whose store, or guest, misbehaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use trueup_capabilities::etcd::embedded::Embedded;
use trueup_capabilities::etcd::{Api, Applied, Compare, Error, KeyValue, Listing, Operation, Watch};
use trueup_capabilities::grants::Grants;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, async_trait};
use trueup_config::Address;
use trueup_instance::{Instances, Program};
use trueup_work::lifecycle::active::Active;
use trueup_work::status::{Facts, HostStatus};
use trueup_work::supervisor::Supervisor;
use trueup_worlds::node::Watched;
use trueup_worlds::node::guests::nodesync;
use trueup_worlds::node::instance::NodeInstance;
use trueup_worlds::node::nodesync::{NumberState, Numbering, Parts};

use crate::programs::{self, built_in};

const NODES: u32 = 50;

const PREFIX: &str = "/vnf-agent/contiv-ksr/allocatedIDs/";

/// All get their numbers long before; this allows for a machine with other work.
const GUARD: Duration = Duration::from_secs(120);

static NODESYNC: LazyLock<Arc<Program>> = LazyLock::new(|| built_in(nodesync::NAME));

async fn instances(node: &str, state_dir: &Path, limits: Limits) -> Arc<Instances> {
    let settings = json!({ "node_name": node });
    let folder = state_dir.join(node);
    let instances = programs::instances(&NODESYNC, nodesync::NAME, settings, Grants::everything(), &folder).await;
    Arc::new(Instances { limits, ..instances })
}

/// The numbering of one node without a cluster and without other versions.
fn alone(node: &str, instances: Arc<Instances>, store: &Arc<dyn Api>, addresses: Vec<Address>, seed: u64) -> Numbering {
    let backends = Backends {
        etcd: Some(Arc::clone(store)),
        ..Backends::default()
    };
    let guest = Watched {
        supervisor: Supervisor::alone(&instances),
        instance: NodeInstance::new(Active::new(instances), node, backends),
        handovers: mpsc::channel(1).1,
    };
    let parts = Parts {
        node: node.to_owned(),
        api: Arc::clone(store),
        addresses,
        queue: Default::default(),
        seed,
        kube: mpsc::channel(1).1,
        host_status: HostStatus::new(Facts::default()),
        events: mpsc::unbounded_channel().0,
        urgent_keys: mpsc::unbounded_channel().1,
    };
    Numbering::new(guest, parts)
}

/// Starts all nodes at once. Returns the numbers by node once each has one and its record has its address.
async fn number(nodes: &[String], state_dir: &Path, store: &Arc<dyn Api>) -> BTreeMap<String, u32> {
    let stop = watch::Sender::new(false);
    let mut running = JoinSet::new();
    let mut states = Vec::new();
    for (node, seed) in nodes.iter().zip(1..) {
        let instances = instances(node, state_dir, Limits::default()).await;
        let address = Address::parse(&format!("192.168.16.{seed}/24")).unwrap();
        let numbering = alone(node, instances, store, vec![address], seed);
        states.push((node.clone(), numbering.state()));
        let mut stop = stop.subscribe();
        running.spawn(async move {
            let stopped = async move { _ = stop.wait_for(|stop| *stop).await };
            numbering.run(stopped).await;
        });
    }
    let mut numbers = BTreeMap::new();
    for (node, mut state) in states {
        let numbered = state.wait_for(|state| matches!(state, NumberState::Numbered(_)));
        let numbered = tokio::time::timeout(GUARD, numbered).await;
        let NumberState::Numbered(id) = *numbered.unwrap().unwrap() else {
            unreachable!()
        };
        numbers.insert(node, id);
    }
    let published = async {
        loop {
            let records = store.list_prefix(PREFIX).await.unwrap();
            if records.iter().all(|record| record.value.contains("192.168.16.")) {
                return records;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let records = tokio::time::timeout(GUARD, published).await.unwrap();
    for record in records {
        let id: u32 = record.key.strip_prefix(PREFIX).unwrap().parse().unwrap();
        let value: Value = serde_json::from_str(&record.value).unwrap();
        let name = value.get("name").and_then(Value::as_str).unwrap();
        assert_eq!(numbers.get(name), Some(&id), "{record:?}");
    }
    stop.send_replace(true);
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_nodes_with_one_embedded_store_get_a_number_each_and_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Api> = Arc::new(Embedded::open(&folder.path().join("etcd.redb")).unwrap());
    let nodes: Vec<String> = (0..NODES).map(|n| format!("node-{n:02}")).collect();
    let first = number(&nodes, folder.path(), &store).await;
    let numbers: BTreeSet<u32> = first.values().copied().collect();
    assert_eq!(numbers, (1..=NODES).collect::<BTreeSet<u32>>());
    // As after a restart, and on a machine that has lost its state.
    let again = number(&nodes, folder.path(), &store).await;
    assert_eq!(again, first);
    let elsewhere = tempfile::tempdir().unwrap();
    let from_nothing = number(&nodes, elsewhere.path(), &store).await;
    assert_eq!(from_nothing, first);
}

/// A store that is slow, or does not carry out every request.
struct Poor {
    store: Embedded,
    /// How long each of the host's listings takes.
    listing_takes: Duration,
    is_listing_down: AtomicBool,
    is_put_down: AtomicBool,
}

impl Default for Poor {
    fn default() -> Self {
        Self {
            store: Embedded::in_memory().unwrap(),
            listing_takes: Duration::ZERO,
            is_listing_down: AtomicBool::default(),
            is_put_down: AtomicBool::default(),
        }
    }
}

impl Poor {
    async fn put_record(&self, id: u32, name: &str) {
        let value = json!({ "id": id, "name": name, "ip_addresses": [format!("192.168.16.{id}/24")] });
        let stored = self.store.put(&format!("{PREFIX}{id}"), &value.to_string()).await;
        stored.unwrap();
    }

    async fn delete_record(&self, id: u32) {
        assert!(self.store.delete(&format!("{PREFIX}{id}")).await.unwrap());
    }
}

fn down() -> Error {
    Error::Unavailable("down".to_owned())
}

#[async_trait]
impl Api for Poor {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, Error> {
        self.store.get(key).await
    }

    async fn list_prefix(&self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        self.store.list_prefix(prefix).await
    }

    async fn list_keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.store.list_keys(prefix).await
    }

    async fn put(&self, key: &str, value: &str) -> Result<u64, Error> {
        if self.is_put_down.load(Ordering::SeqCst) {
            return Err(down());
        }
        self.store.put(key, value).await
    }

    async fn transact(&self, compares: &[Compare], operations: &[Operation]) -> Result<Applied, Error> {
        self.store.transact(compares, operations).await
    }

    async fn listing(&self, prefix: &str) -> Result<Listing, Error> {
        tokio::time::sleep(self.listing_takes).await;
        if self.is_listing_down.load(Ordering::SeqCst) {
            return Err(down());
        }
        self.store.listing(prefix).await
    }

    fn watch(&self, prefix: &str, after: u64) -> Box<dyn Watch> {
        self.store.watch(prefix, after)
    }
}

/// One running node.
struct Node {
    state: watch::Receiver<NumberState>,
    /// How many turns its loop made.
    turns: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
    _state_dir: tempfile::TempDir,
}

impl Node {
    async fn start(store: &Arc<Poor>, limits: Limits) -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let instances = instances("node-a", state_dir.path(), limits).await;
        let addresses = vec![Address::parse("192.168.16.1/24").unwrap()];
        let api: Arc<dyn Api> = Arc::clone(store) as _;
        let numbering = alone("node-a", instances, &api, addresses, 1);
        let state = numbering.state();
        let (stop, turns) = (watch::Sender::new(false), Arc::new(AtomicUsize::new(0)));
        let (mut stopped, counted) = (stop.subscribe(), Arc::clone(&turns));
        let running = tokio::spawn(async move {
            let mut stopped = pin!(stopped.wait_for(|stop| *stop));
            // Each turn polls this first.
            let stopped = std::future::poll_fn(|context| {
                counted.fetch_add(1, Ordering::SeqCst);
                stopped.as_mut().poll(context).map(drop)
            });
            numbering.run(stopped).await;
        });
        Self {
            state,
            turns,
            stop,
            running,
            _state_dir: state_dir,
        }
    }

    async fn wait_for(&mut self, is_so: impl Fn(&NumberState) -> bool) -> NumberState {
        let waiting = tokio::time::timeout(GUARD, self.state.wait_for(|state| is_so(state)));
        waiting.await.unwrap().unwrap().clone()
    }

    async fn wait_for_number(&mut self) {
        self.wait_for(|state| *state == NumberState::Numbered(1)).await;
    }

    /// Waits until it has failed this often in a row; returns the failed work.
    async fn wait_for_failures(&mut self, wanted: u32) -> String {
        let is_enough =
            |state: &NumberState| matches!(state, NumberState::Failed { failures, .. } if *failures >= wanted);
        match self.wait_for(is_enough).await {
            NumberState::Failed { error, .. } => error,
            _ => unreachable!(),
        }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.running.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_slower_than_the_rest_of_the_loop_completes() {
    let store = Arc::new(Poor {
        listing_takes: Duration::from_millis(2_500),
        is_listing_down: AtomicBool::new(true),
        ..Poor::default()
    });
    let mut node = Node::start(&store, Limits::default()).await;
    let error = node.wait_for_failures(2).await;
    assert_eq!(error, format!("reading `{PREFIX}`: unavailable: down"));
    store.is_listing_down.store(false, Ordering::SeqCst);
    node.wait_for_number().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_could_not_be_told_are_a_failure_that_is_tried_again() {
    let store = Arc::new(Poor::default());
    for id in 11..=16 {
        store.put_record(id, &format!("node-{id}")).await;
    }
    // A change of one node is short enough, a list of all is not.
    let limits = Limits {
        answer_bytes: 500,
        ..Limits::default()
    };
    let mut node = Node::start(&store, limits).await;
    let first = node.wait_for(|state| *state != NumberState::Pending).await;
    assert!(matches!(&first, NumberState::Failed { .. }), "{first:?}");
    let error = node.wait_for_failures(2).await;
    assert!(error.contains("above the limit `answer_bytes` of 500"), "{error}");
    for id in 12..=16 {
        store.delete_record(id).await;
    }
    node.wait_for_number().await;

    // Events of the watch, too.
    for id in 12..=16 {
        store.put_record(id, &format!("node-{id}")).await;
    }
    let error = node.wait_for_failures(2).await;
    assert!(error.contains("above the limit `answer_bytes` of 500"), "{error}");
    for id in 12..=16 {
        store.delete_record(id).await;
    }
    node.wait_for_number().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_held_by_another_node_leaves_nothing_to_publish() {
    let store = Arc::new(Poor {
        is_put_down: AtomicBool::new(true),
        ..Poor::default()
    });
    let mut node = Node::start(&store, Limits::default()).await;
    node.wait_for_number().await;
    store.put_record(1, "node-z").await;
    let over = node
        .wait_for(|state| matches!(state, NumberState::Failed { is_over: true, .. }))
        .await;
    assert!(
        matches!(&over, NumberState::Failed { error, .. } if error.contains("its number 1 belongs to `node-z` now")),
        "{over:?}"
    );
    // By now it would have published them again.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = node.turns.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let turns = node.turns.load(Ordering::SeqCst) - before;
    assert!(turns < 50, "{turns} turns in 2 s");
    node.end().await;
}
