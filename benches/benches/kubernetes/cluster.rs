//! An API server with Services, a host that reconciles them, and an Engine: the changes, and their effects.
//!
//! ```text
//! change -> ApiServer -> host (run::watch, elected) -> Engine -> its file
//!               ^         |    +-> told
//!               +- status +
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use trueup_benches::effects::{self, Effects, Made, Times};
use trueup_benches::measure;
use trueup_config::Config;
use trueup_runtime::run;
use trueup_worlds::sections;

use support::api_server::{ADMIN, ApiServer};

use crate::engine::Engine;

/// The number of nodes, and of servers behind each port.
const NODES: u32 = 3;

/// Anything slower counts as a hang: it allows for thousands of new Services, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(600);

/// The name of the host's threads, which separates their time from that of the servers.
const HOST: &str = "host";

/// The host reports a Service as in sync with these addresses.
struct Told {
    at: Instant,
    service: usize,
    changes: Vec<u32>,
}

/// A running cluster; see the module.
pub(crate) struct Cluster {
    server: ApiServer,
    engine: Engine,
    host: JoinHandle<anyhow::Result<()>>,
    stop: oneshot::Sender<()>,
    telling: Receiver<Told>,
    told: Vec<Told>,
    made: Vec<Made>,
    /// The last change of each Service, and the last one that the host reported as in sync.
    last: Vec<u32>,
    true_now: BTreeMap<usize, u32>,
    _folder: TempDir,
}

/// How long changes took to become visible.
pub(crate) struct Seen {
    /// The Engine has the requested address.
    pub(crate) engine: Times,
    /// The patch of the Service's status has arrived at the API server.
    pub(crate) status: Times,
    /// The host reports the Service as in sync.
    pub(crate) told: Times,
    /// How many such reports came for any Service, since the first of these changes.
    pub(crate) jobs: usize,
}

impl Cluster {
    /// Starts with this many Services of type LoadBalancer, not in sync yet, and others that no guest handles.
    pub(crate) fn start(services: usize, others: usize) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = ApiServer::start();
        let engine = Engine::start(folder.path())?;
        for number in 0..NODES {
            apply(&server, node(number))?;
        }
        for number in 0..others {
            apply(&server, other(number))?;
        }
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig(ADMIN, "admin"))?;
        std::fs::write(folder.path().join("token"), "simulated")?;
        std::fs::write(folder.path().join("trueup.toml"), configuration(&engine.url()))?;
        // The test's environment variables do not apply to the host.
        let config = Config::load_with(folder.path(), &BTreeMap::new(), &sections()).map_err(anyhow::Error::from)?;
        let (tell, telling) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let mut made = Vec::new();
        for service in 0..services {
            let change = u32::try_from(service)?;
            apply(&server, new_service(service, change))?;
            made.push(Made {
                service,
                at: Instant::now(),
            });
        }
        let host = std::thread::Builder::new()
            .name(HOST.to_owned())
            .spawn(move || host(config, stopped, &tell))?;
        Ok(Self {
            server,
            engine,
            host,
            stop,
            telling,
            told: Vec::new(),
            last: (0..u32::try_from(services)?).collect(),
            true_now: BTreeMap::new(),
            made,
            _folder: folder,
        })
    }

    /// How many changes were made, which is the number of the next one.
    pub(crate) fn made(&self) -> usize {
        self.made.len()
    }

    /// The processor time of the host with its clients, without the API server and the Engine.
    pub(crate) fn worked(&self) -> anyhow::Result<Duration> {
        measure::processor_time(HOST)
    }

    /// Requests another address for a Service.
    pub(crate) fn change(&mut self, service: usize) -> anyhow::Result<()> {
        let change = u32::try_from(self.made.len())?;
        ensure!(
            change < effects::CHANGES_MAX,
            "{change} changes are more than there are addresses"
        );
        // Take the time before the change is sent: an effect can't be earlier.
        let at = Instant::now();
        apply(&self.server, changed_service(service, change))?;
        self.made.push(Made { service, at });
        *self.last.get_mut(service).context("no such Service")? = change;
        Ok(())
    }

    /// Waits until the host reports each Service as in sync with its last change.
    pub(crate) fn wait_until_true(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        // The Services that are not in sync; nearly always few.
        let mut open: BTreeMap<usize, u32> = (0..).zip(self.last.iter().copied()).collect();
        open.retain(|service, last| self.true_now.get(service) != Some(last));
        while !open.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let told = match self.telling.recv_timeout(left) {
                Ok(told) => told,
                Err(_) if self.host.is_finished() => bail!("the host has ended"),
                Err(_) => bail!("{} services are not true after {} s", open.len(), PATIENCE.as_secs()),
            };
            for change in &told.changes {
                self.true_now.insert(told.service, *change);
                if open.get(&told.service) == Some(change) {
                    open.remove(&told.service);
                }
            }
            self.told.push(told);
        }
        Ok(())
    }

    /// Ends everything, and returns how long the changes from number `first` on took.
    ///
    /// # Errors
    /// If not everything matches its last change: at the Engine, in the API server, and in the host's reports.
    pub(crate) fn end(mut self, first: usize) -> anyhow::Result<Seen> {
        self.wait_until_true()?;
        let mut last = self.last.clone();
        last.sort_unstable();
        ensure!(
            self.engine.holds()? == last,
            "the Engine does not hold exactly what was asked for last"
        );
        for (service, last) in self.last.iter().enumerate() {
            let object = self.server.get("services", "default", &name(service));
            let object = object.with_context(|| format!("service {service} is gone"))?;
            let ip = object.pointer("/status/loadBalancer/ingress/0/ip");
            let shown = ip.and_then(Value::as_str).and_then(effects::change);
            ensure!(
                shown == Some(*last),
                "service {service} was changed last by change {last}, and shows {ip:?}"
            );
        }
        // Ignore the error: a host that no longer listens has ended with an error, which is reported below.
        _ = self.stop.send(());
        self.host.join().map_err(|_| anyhow::anyhow!("the host panicked"))??;
        let patched = patched(&self.server);
        let (mut status, mut told) = (Effects::default(), Effects::default());
        for Told { at, service, changes } in &self.told {
            let until_then = patched.get(service).map_or(&[][..], Vec::as_slice);
            let patch = until_then.iter().rev().find(|patch| *patch <= at);
            for change in changes {
                told.see(*change, *at);
                if let Some(patch) = patch {
                    status.see(*change, *patch);
                }
            }
        }
        let made = self.made.get(first..).unwrap_or_default();
        let begun = made.first().map(|made| made.at);
        let jobs = self.told.iter().filter(|told| Some(told.at) >= begun).count();
        let first = u32::try_from(first)?;
        Ok(Seen {
            jobs,
            engine: self.engine.end()?.times(first, made)?,
            status: status.times(first, made)?,
            told: told.times(first, made)?,
        })
    }
}

/// When the patches of each Service's status arrived.
fn patched(server: &ApiServer) -> BTreeMap<usize, Vec<Instant>> {
    let mut patched: BTreeMap<usize, Vec<Instant>> = BTreeMap::new();
    for request in server.requests() {
        let asked = &request.asked;
        if asked.is("patch", "services")
            && asked.subresource == "status"
            && request.status == 200
            && let Some(service) = number(&asked.name)
        {
            patched.entry(service).or_default().push(request.at);
        }
    }
    patched
}

/// Runs a host until it is stopped.
fn host(config: Config, stop: oneshot::Receiver<()>, tell: &mpsc::Sender<Told>) -> anyhow::Result<()> {
    let registry = trueup_benches::stage::registry();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(HOST)
        // A thread that ends takes its run time along, so keep them alive.
        .thread_keep_alive(PATIENCE)
        .enable_all()
        .build()?;
    let stopped = async {
        // Ignore the error: the sender may be gone.
        _ = stop.await;
    };
    let told = |event: trueup_work::event::Event| {
        let at = Instant::now();
        let event = serde_json::to_value(&event).unwrap_or_default();
        let service = event.pointer("/true/key").and_then(Value::as_str);
        if let Some(service) = service.and_then(|key| number(key.trim_start_matches("default/"))) {
            let in_service = event.pointer("/true/in_service").and_then(Value::as_array);
            let addresses = in_service
                .into_iter()
                .flatten()
                .filter_map(|serving| serving.pointer("/0").and_then(Value::as_str));
            let changes = addresses.filter_map(effects::change).collect();
            // Ignore the error: the receiver has stopped listening once it has seen enough.
            _ = tell.send(Told { at, service, changes });
        }
    };
    let ended = runtime.block_on(run::watch(config, &registry, None, stopped, told))?;
    let services = ended.of("summary").context("a host that has Services")?;
    if !services.is_true {
        bail!("{services:?}");
    }
    Ok(())
}

fn apply(server: &ApiServer, object: Value) -> anyhow::Result<()> {
    let applied = server.apply(object);
    applied.map(drop).map_err(|failure| anyhow::anyhow!("{failure:?}"))
}

fn name(service: usize) -> String {
    format!("s{service}")
}

fn number(name: &str) -> Option<usize> {
    name.strip_prefix('s')?.parse().ok()
}

/// With a node port that the API server picks.
fn new_service(service: usize, change: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(service, change),
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]},
    })
}

/// A patch to merge into the existing Service.
fn changed_service(service: usize, change: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(service, change)})
}

fn metadata(service: usize, change: u32) -> Value {
    json!({
        "name": name(service), "namespace": "default",
        "annotations": {"trueup.dev/addresses": effects::address(change).to_string()},
    })
}

/// A Service without a load balancer.
fn other(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("other-{number}"), "namespace": "default"},
        "spec": {"type": "ClusterIP", "ports": [{"port": 80}]},
    })
}

fn node(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", 11 + number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// Uses every default.
fn configuration(engine: &str) -> String {
    format!(
        r#"
[source]
kubernetes = {{ kubeconfig = "kubeconfig" }}
[guests.lbaas]
use = "builtin:lbaas@1"
grants = {{ lbaas = {{ read = ["lb-1"], write = ["lb-1"] }} }}
[adapter.lbaas]
cluster = "bench"
load_balancers = ["lb-1"]
[backend.lbaas]
kind = "anexia"
url = "{engine}"
token_file = "token"
"#
    )
}
