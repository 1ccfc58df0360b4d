//! The setup of the pod benchmarks: the guest `ipam` as it ships, with one of several stores behind it, and a host
//! around it that answers requests like those of the CNI plugin.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use trueup_capabilities::Backends;
use trueup_capabilities::checkpoint::Simulated;
use trueup_capabilities::checkpoint::Store;
use trueup_capabilities::checkpoint::file::{File, Settings as FileSettings};
use trueup_instance::{Instance, Instances};
use trueup_sources::enis::{Eni, Enis};
use trueup_worlds::ipam::guest as ipam;
use trueup_worlds::ipam::{Served, Serving, Settings};

use crate::stage::{self, Shipped};

/// Addresses of an interface, as on the larger instance types.
const ADDRESSES_PER_ENI: usize = 100;

/// Pods that come and go in one network.
pub const NETWORK: &str = "net";

/// The engine and the linked guest.
pub struct Stage {
    /// Drives every call.
    pub runtime: Runtime,
    ipam: Shipped,
}

impl Stage {
    /// Compiles the guest, without a cache.
    ///
    /// # Errors
    /// If the guest does not run here.
    pub fn new() -> anyhow::Result<Self> {
        let (runtime, engine) = stage::begin()?;
        let ipam = Shipped::new(&engine, ipam::NAME, settings())?;
        Ok(Self { runtime, ipam })
    }

    /// An instance without a recording, with `addresses`, half of them assigned.
    ///
    /// # Errors
    /// Why it did not start, or what it refused.
    pub async fn half_used(&self, addresses: usize, store: Arc<dyn Store>) -> anyhow::Result<Instance> {
        let mut instance = self.ipam.instance(backends(store)).await?;
        for eni in enis(addresses).enis {
            let args = json!({
                "eni_id": eni.id, "device_number": eni.device_number, "is_primary": false, "is_trunk": false,
            });
            call(&mut instance, "datastore.add-eni", &args).await?;
            for ipv4 in eni.addresses {
                let args = json!({ "eni_id": eni.id, "ipv4": ipv4 });
                call(&mut instance, "datastore.add-ipv4-address-to-store", &args).await?;
            }
        }
        for n in 0..addresses / 2 {
            call(&mut instance, ASSIGN, &of_key(&format!("resident-{n}"))).await?;
        }
        Ok(instance)
    }

    /// A host's whole side of pod requests except the socket, recorded in `folder`.
    ///
    /// # Errors
    /// Why it can't start.
    pub fn served(&self, folder: &Path, addresses: usize, store: Arc<dyn Store>) -> anyhow::Result<Arc<Served>> {
        let (events, _told) = mpsc::unbounded_channel();
        let (_list, enis) = watch::channel(enis(addresses));
        let (settings, instances, backends) = self.parts(folder, store)?;
        self.runtime.block_on(async {
            let managed = instances.into();
            let serving = Serving {
                settings,
                managed,
                backends,
                enis,
            };
            let mut served = Served::start(serving, events)?;
            served.is_up().await;
            Ok(Arc::new(served))
        })
    }

    /// What a host needs to serve pods, with its socket and journals in `folder`.
    ///
    /// # Errors
    /// If the guest does not start.
    pub fn parts(&self, folder: &Path, store: Arc<dyn Store>) -> anyhow::Result<(Settings, Instances, Backends)> {
        let empty = backends(Arc::new(Simulated::default()));
        let instances = self.runtime.block_on(self.ipam.recorded(folder, empty))?;
        let adapter = Settings {
            instance: ipam::NAME.to_owned(),
            socket: folder.join("cni.sock"),
            spool_dir: None,
            released_file: folder.join("released.json"),
            warm: None,
        };
        Ok((adapter, instances, backends(store)))
    }
}

/// A store in a file of `folder`, with a host's defaults.
///
/// # Errors
/// If it can't be opened.
pub fn file(folder: &Path, shared_sync: bool) -> anyhow::Result<Arc<dyn Store>> {
    let settings = FileSettings {
        path: folder.join("checkpoint"),
        keep_generations: 3,
        shared_sync,
    };
    Ok(Arc::new(File::open(settings, Arc::default())?))
}

/// This many addresses on as few interfaces as possible.
#[must_use]
pub fn enis(addresses: usize) -> Enis {
    let all: Vec<String> = (0..addresses)
        .map(|n| format!("10.{}.{}.{}", n >> 16, (n >> 8) & 0xff, n & 0xff))
        .collect();
    let enis = all
        .chunks(ADDRESSES_PER_ENI)
        .zip(0..)
        .map(|(addresses, device_number)| Eni {
            id: format!("eni-{device_number}"),
            device_number,
            is_primary: false,
            is_trunk: false,
            addresses: addresses.to_vec(),
        });
    Enis { enis: enis.collect() }
}

/// Without rests, so that an address can go out again at once.
fn settings() -> Value {
    json!({ "cooling_period_ms": 0, "checkpoint_migration_phase": 2 })
}

fn backends(store: Arc<dyn Store>) -> Backends {
    Backends {
        checkpoint: Some(store),
        ..stage::backends()
    }
}

const ASSIGN: &str = "datastore.assign-pod-ipv4-address";
const UNASSIGN: &str = "datastore.unassign-pod-ipv4-address";

fn of_key(container: &str) -> Value {
    json!({ "key": { "network_name": NETWORK, "container_id": container, "if_name": "eth0" } })
}

async fn call(instance: &mut Instance, name: &str, args: &Value) -> anyhow::Result<()> {
    done(instance, name, &to_raw_value(args)?).await
}

async fn done(instance: &mut Instance, name: &str, args: &RawValue) -> anyhow::Result<()> {
    let answer = instance.call(name, args).await?;
    ensure!(answer.get().starts_with(r#"{"Ok":"#), "{name}: {}", answer.get());
    Ok(())
}

/// Assigns an address and releases it, this many times.
///
/// # Errors
/// If the guest refuses.
pub async fn pairs(instance: &mut Instance, times: u32) -> anyhow::Result<()> {
    let args = to_raw_value(&of_key("guest"))?;
    for _ in 0..times {
        done(instance, ASSIGN, &args).await?;
        done(instance, UNASSIGN, &args).await?;
    }
    Ok(())
}

/// This many pods come, and stay.
///
/// # Errors
/// If one is refused.
pub async fn residents(served: &Served, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        ask(served, "ADD", &format!("resident-{n}")).await?;
    }
    Ok(())
}

async fn ask(served: &Served, command: &str, container: &str) -> anyhow::Result<()> {
    let request = json!({
        "v": 1, "command": command, "instance": null, "network": NETWORK, "containerId": container, "ifName": "eth0",
    });
    let answer = served.answer(request.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_slice(&answer)?;
    ensure!(answer.get("ok").is_some(), "{command}: {answer}");
    Ok(())
}

/// This many pods at once; each gets an address and releases it, this many times.
///
/// # Errors
/// If one is refused.
pub async fn pods(served: &Arc<Served>, at_once: u32, times: u32) -> anyhow::Result<()> {
    let mut pods = JoinSet::new();
    for n in 0..at_once {
        pods.spawn(pod(Arc::clone(served), format!("pod-{n}"), times));
    }
    while let Some(ended) = pods.join_next().await {
        ended??;
    }
    Ok(())
}

async fn pod(served: Arc<Served>, container: String, times: u32) -> anyhow::Result<()> {
    for command in (0..times).flat_map(|_| ["ADD", "DEL"]) {
        ask(&served, command, &container).await?;
    }
    Ok(())
}

/// Appends and syncs like a store, and nothing else: the disk's share of this many operations.
///
/// # Errors
/// If the file can't be written.
pub fn syncs(folder: &Path, times: u32) -> anyhow::Result<Duration> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(folder.join("syncs"))?;
    // As long as the record of one assignment.
    let record = [b'x'; 150];
    crate::measure::timed(|| {
        for _ in 0..times {
            file.write_all(&record)?;
            file.sync_data()?;
        }
        Ok(())
    })
}
