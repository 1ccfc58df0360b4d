//! The setup of the benchmarks of Services on a node: the guests `service`, `nftables` and `nat44` as they ship, alone
//! and wired together as in a host, with or without the kernel behind them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{anyhow, ensure};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::renderer::{Call, Renderers};
use trueup_capabilities::{Backends, async_trait, etcd, nftables, renderer};
use trueup_engine::Engine;
use trueup_instance::{Instance, Instances};
use trueup_journal::By;
use trueup_work::lifecycle::active::Active;
use trueup_work::supervisor::Supervisor;
use trueup_worlds::node::guests::service::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Event, NodeContext, ObjectId, Protocol, Resync, Service,
    ServicePort, State, Update,
};

use trueup_worlds::node::instance::NodeInstance;
use trueup_worlds::node::rendering::Rendering;

use crate::stage::{self, Shipped};

/// The guest `service` keeps inputs and acknowledged state: 50,000 services take more than the default of 256 MiB.
const MEMORY_BYTES: u64 = 2 << 30;

/// One call of a resync with 50,000 services may take longer than the default.
const CPU_MS: u64 = 60_000;

/// The key of every instance.
const NODE: &str = "node-a";

/// Services of one namespace.
const PER_NAMESPACE: usize = 1_000;

/// The engine and the linked guests.
pub struct Stage {
    /// Drives every call.
    pub runtime: Runtime,
    engine: Engine,
}

impl Stage {
    /// An engine, without a cache.
    ///
    /// # Errors
    /// If guests do not run here.
    pub fn new() -> anyhow::Result<Self> {
        let (runtime, engine) = stage::begin()?;
        Ok(Self { runtime, engine })
    }

    /// An instance of a guest, without a recording.
    ///
    /// # Errors
    /// Why it did not start.
    pub async fn alone(&self, name: &'static str, backends: Backends) -> anyhow::Result<Alone> {
        Ok(Alone(self.shipped(name)?.instance(backends).await?))
    }

    /// `service` with the renderer `nftables`, recorded in `folder` like a host's.
    ///
    /// # Errors
    /// If a guest does not start.
    pub async fn wired(&self, folder: &Path, filter: Arc<dyn nftables::Api>) -> anyhow::Result<Wired> {
        let renderer = self.instances("nftables", folder).await?;
        let supervisor = Supervisor::alone(&renderer);
        let with_filter = Backends {
            nftables: Some(filter),
            ..backends()?
        };
        let renderer = NodeInstance::new(Active::new(renderer), NODE, with_filter);
        let rendering = Rendering::new(vec![(renderer, supervisor)]);
        let backends = Backends {
            renderers: Some(Arc::new(rendering.clone())),
            ..backends()?
        };
        let processor = self.instances("service", folder).await?;
        Ok(Wired {
            processor: NodeInstance::new(Active::new(processor), NODE, backends),
            rendering,
        })
    }

    async fn instances(&self, name: &'static str, folder: &Path) -> anyhow::Result<Arc<Instances>> {
        Ok(Arc::new(self.shipped(name)?.recorded(folder, backends()?).await?))
    }

    fn shipped(&self, name: &'static str) -> anyhow::Result<Shipped> {
        let mut shipped = Shipped::new(&self.engine, name, settings(name))?;
        shipped.limits = limits();
        Ok(shipped)
    }
}

/// `service` with its renderers.
pub struct Wired {
    processor: NodeInstance,
    rendering: Rendering,
}

impl Wired {
    /// Makes a full resync. The inner result is what the renderers answered.
    ///
    /// # Errors
    /// One line: the processor gave no answer.
    pub async fn resync(&mut self, state: State) -> Result<Result<(), String>, String> {
        let answer = self.processor.call("processor.resync", &Resync { state }, None).await;
        self.rendering.settle().await;
        answer.map_err(|failure| failure.error)
    }

    /// Makes a change. The inner result is as in [`Wired::resync`].
    ///
    /// # Errors
    /// As [`Wired::resync`].
    pub async fn update(&mut self, event: Event) -> Result<Result<(), String>, String> {
        let answer = self.processor.call("processor.update", &Update { event }, None).await;
        self.rendering.settle().await;
        answer.map_err(|failure| failure.error)
    }
}

/// One instance, called by the names of its exports.
pub struct Alone(Instance);

impl Alone {
    /// Makes a call that must answer ok.
    ///
    /// # Errors
    /// If it does not.
    pub async fn call(&mut self, name: &str, args: &RawValue) -> anyhow::Result<()> {
        let answer = self.0.call(name, args).await?;
        ensure!(answer.get().starts_with(r#"{"Ok":"#), "{name}: {}", answer.get());
        Ok(())
    }
}

/// What a guest gave to a backend: the calls of a processor to its renderers, or the transactions of a renderer to the
/// packet filter.
pub struct Given<T>(Mutex<Vec<T>>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Given<T> {
    fn push(&self, given: T) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(given);
        Ok(())
    }

    /// Everything since the last call.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Renderers for Given<Call> {
    async fn render(&self, _by: By, call: Call) -> Result<(), String> {
        self.push(call)
    }
}

#[async_trait]
impl nftables::Api for Given<String> {
    async fn apply(&self, ruleset: &str) -> Result<(), String> {
        self.push(ruleset.to_owned())
    }
}

/// With backends that do nothing.
///
/// # Errors
/// If the store in memory can't be created.
pub fn backends() -> anyhow::Result<Backends> {
    Ok(Backends {
        renderers: Some(Arc::new(renderer::Simulated)),
        nftables: Some(Arc::new(nftables::Simulated)),
        etcd: Some(Arc::new(etcd::embedded::Embedded::in_memory()?)),
        ..stage::backends()
    })
}

fn limits() -> Limits {
    Limits {
        memory_bytes: MEMORY_BYTES,
        cpu_ms: CPU_MS,
        ..Limits::default()
    }
}

fn settings(name: &str) -> Value {
    match name {
        "nftables" => json!({ "pod_subnets": ["10.0.0.0/9"] }),
        "nat44" => json!({ "agent_label": NODE, "nat_loopback_ip": "10.0.0.254" }),
        _ => json!({}),
    }
}

/// This many services, each with the given number of endpoints and one port.
#[must_use]
pub fn state(services: usize, endpoints: usize) -> State {
    State {
        context: NodeContext {
            node_ip: "192.168.16.1".to_owned(),
            host_ips: Vec::new(),
            pod_subnet_this_node: "10.0.0.0/24".to_owned(),
            pod_subnet_all_nodes: "10.0.0.0/9".to_owned(),
            main_interface: String::new(),
            other_interfaces: Vec::new(),
            vxlan_bvi_interface: String::new(),
            host_interconnect_interface: String::new(),
        },
        nodes: Vec::new(),
        local_pods: Vec::new(),
        remote_pods: Vec::new(),
        endpoints: (0..services).map(|n| endpoints_of(n, endpoints)).collect(),
        services: (0..services).map(service).collect(),
        ip_allocations: Vec::new(),
    }
}

/// Sets the number of a service's endpoints.
#[must_use]
pub fn change(service: usize, endpoints: usize) -> Event {
    Event::EndpointsPut(endpoints_of(service, endpoints))
}

/// The arguments of `processor.resync`.
///
/// # Errors
/// Never: it is JSON.
pub fn resync_args(state: State) -> anyhow::Result<Box<RawValue>> {
    Ok(to_raw_value(&Resync { state })?)
}

/// The arguments of `processor.update`.
///
/// # Errors
/// Never: it is JSON.
pub fn update_args(event: Event) -> anyhow::Result<Box<RawValue>> {
    Ok(to_raw_value(&Update { event })?)
}

/// The name and the arguments of a renderer's call.
///
/// # Errors
/// Never: it is JSON.
pub fn renderer_args(call: &Call) -> anyhow::Result<(&'static str, Box<RawValue>)> {
    Ok((call.name(), to_raw_value(call)?))
}

/// Checks that the answer is ok.
///
/// # Errors
/// The refusal.
pub fn taken(answer: Result<Result<(), String>, String>) -> anyhow::Result<()> {
    answer.and_then(|answer| answer).map_err(|error| anyhow!(error))
}

fn id(n: usize) -> ObjectId {
    ObjectId {
        namespace: format!("shop-{}", n / PER_NAMESPACE),
        name: format!("web-{}", n % PER_NAMESPACE),
    }
}

fn service(n: usize) -> Service {
    Service {
        id: id(n),
        service_type: "ClusterIP".to_owned(),
        cluster_ip: format!("10.{}.{}.{}", 128 + (n >> 16), (n >> 8) & 0xff, n & 0xff),
        external_ips: Vec::new(),
        lb_ingress_ips: Vec::new(),
        external_traffic_policy: "Cluster".to_owned(),
        session_affinity: "None".to_owned(),
        session_affinity_timeout_s: 0,
        ports: vec![ServicePort {
            name: "http".to_owned(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
    }
}

fn endpoints_of(n: usize, count: usize) -> Endpoints {
    let address = |k: usize| {
        let number = n * 16 + k;
        EndpointAddress {
            ip: format!("10.{}.{}.{}", number >> 16, (number >> 8) & 0xff, number & 0xff),
            node_name: "node-b".to_owned(),
            target_pod: None,
        }
    };
    Endpoints {
        id: id(n),
        subsets: vec![EndpointSubset {
            addresses: (0..count).map(address).collect(),
            ports: vec![EndpointPort {
                name: "http".to_owned(),
                protocol: Protocol::Tcp,
                port: 8080,
            }],
        }],
    }
}
