//! Fifty nodes in one process, with one embedded store between them: each gets a number of its own, keeps it, and lets all
//! others know its addresses.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use trueup_journal::{Files, OPEN_FILES_MAX, Options, Tape};
use trueup_runtime::capabilities::etcd::Api;
use trueup_runtime::capabilities::etcd::embedded::Embedded;
use trueup_runtime::capabilities::grants::Grants;
use trueup_runtime::capabilities::meter::Limits;
use trueup_runtime::capabilities::{Backends, Host, Identity};
use trueup_runtime::config::Address;
use trueup_runtime::guests::{Program, nodesync};
use trueup_runtime::instance::{Instance, Start};
use trueup_runtime::node::{Numbering, Standing};
use trueup_runtime::run::Instances;
use trueup_runtime::{Engine, EngineOptions};

const NODES: u32 = 50;

const PREFIX: &str = "/vnf-agent/contiv-ksr/allocatedIDs/";

/// All have their numbers long before; a machine that does other things too takes its time.
const GUARD: Duration = Duration::from_secs(120);

/// The engine and the guest, for all nodes.
struct Guest {
    engine: Engine,
    program: Arc<Program>,
}

impl Guest {
    fn new() -> Self {
        let engine = Engine::new(&EngineOptions::default()).unwrap();
        let builtin = trueup_guests_builtin::find("nodesync", "1").unwrap();
        let guest = engine.load(builtin.bytes).unwrap();
        let program = Arc::new(Program::new(&engine, guest).unwrap());
        Self { engine, program }
    }

    async fn instances(&self, node: &str, state_dir: &Path) -> Arc<Instances> {
        let settings = json!({ "node_name": node });
        Arc::new(Instances {
            name: nodesync::NAME,
            engine: self.engine.clone(),
            program: Arc::clone(&self.program),
            recorded: Arc::new(|_| None),
            initial: self.initial(&settings).await,
            settings,
            grants: Grants::everything(),
            limits: Limits::default(),
            state_dir: state_dir.join(node),
            record: true,
            journal: Options::default(),
            files: Files::new(OPEN_FILES_MAX),
        })
    }

    async fn initial(&self, settings: &Value) -> String {
        let host = Host::new(
            Identity::default(),
            Tape::off(),
            Grants::everything(),
            Backends::default(),
            Limits::default(),
        );
        let start = Start {
            settings,
            snapshot: None,
            cpu_max: Duration::from_secs(60),
        };
        let started = Instance::start(&self.engine, &self.program, host, start).await;
        let Ok(mut instance) = started else {
            panic!("the guest does not start")
        };
        instance.snapshot().await.unwrap()
    }

    /// All nodes begin at once; answers the numbers by node when each has one, and its record has its address.
    async fn number(&self, nodes: &[String], state_dir: &Path, store: &Arc<dyn Api>) -> BTreeMap<String, u32> {
        let stop = watch::Sender::new(false);
        let mut running = JoinSet::new();
        let mut standings = Vec::new();
        for (node, seed) in nodes.iter().zip(1..) {
            let instances = self.instances(node, state_dir).await;
            let address = Address::parse(&format!("192.168.16.{seed}/24")).unwrap();
            let backends = (instances, Backends::default());
            let numbering = Numbering::alone(node, backends, Arc::clone(store), vec![address], seed);
            standings.push((node.clone(), numbering.standing()));
            let mut stop = stop.subscribe();
            running.spawn(async move {
                let stopped = async move { _ = stop.wait_for(|stop| *stop).await };
                numbering.run(stopped).await;
            });
        }
        let mut numbers = BTreeMap::new();
        for (node, mut standing) in standings {
            let numbered = standing.wait_for(|standing| matches!(standing, Standing::Numbered(_)));
            let numbered = tokio::time::timeout(GUARD, numbered).await;
            let Standing::Numbered(id) = *numbered.unwrap().unwrap() else {
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_nodes_with_one_embedded_store_get_a_number_each_and_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Api> = Arc::new(Embedded::open(&folder.path().join("etcd.redb")).unwrap());
    let guest = Guest::new();
    let nodes: Vec<String> = (0..NODES).map(|n| format!("node-{n:02}")).collect();
    let first = guest.number(&nodes, folder.path(), &store).await;
    let numbers: BTreeSet<u32> = first.values().copied().collect();
    assert_eq!(numbers, (1..=NODES).collect::<BTreeSet<u32>>());
    // As after a restart, and on a machine that has lost its state.
    let again = guest.number(&nodes, folder.path(), &store).await;
    assert_eq!(again, first);
    let elsewhere = tempfile::tempdir().unwrap();
    let from_nothing = guest.number(&nodes, elsewhere.path(), &store).await;
    assert_eq!(from_nothing, first);
}
