//! The setup of the NEG benchmarks: the guest `neg` as it ships, with NEGs in memory behind it, called by typed exports
//! or by names as a host does; and the same guest compiled natively, with a world that only lists.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trueup_capabilities::Backends;
use trueup_capabilities::neg::simulated::{Neg, Simulated};
use trueup_capabilities::neg::{Api, EndpointGroup};
use trueup_engine::Engine;
use trueup_guest::{Clock, Guest as _, Level, Telemetry};
use trueup_guest_neg::bindings::exports::trueup::neg::syncer as native_syncer;
use trueup_guest_neg::bindings::trueup::neg::{api as native_api, types as native_types};
use trueup_guest_neg::neg::Neg as NativeNeg;
use trueup_guest_neg::world::World;
use trueup_instance::{Instance, Instances};
use trueup_worlds::neg::guest as neg;
use trueup_worlds::neg::guest::{Filtered, NegSyncer, NegSyncerPre, OnOperation, Sync, SyncReport};

use crate::endpoints::{SUBNET, Sets, ZONES, groups, native_groups};
use crate::stage::{self, CPU_MAX, NOW_MS, Shipped};

/// The NEGs' name, the same in each zone.
const NAME: &str = "web";

/// The engine and the linked guest.
pub struct Stage {
    /// Drives every call.
    pub runtime: Runtime,
    /// Set up like a host's.
    pub engine: Engine,
    neg: Shipped,
    typed: NegSyncerPre,
}

impl Stage {
    /// Compiles the guest, without a cache.
    ///
    /// # Errors
    /// If the guest does not run here.
    pub fn new() -> anyhow::Result<Self> {
        let (runtime, engine) = stage::begin()?;
        let neg = Shipped::new(&engine, neg::NAME, settings())?;
        let typed = neg::link(&engine, &neg.program.guest)?;
        Ok(Self {
            runtime,
            engine,
            neg,
            typed,
        })
    }

    /// An instance whose exports take Rust values: its cost is that of the component's boundary alone.
    ///
    /// # Errors
    /// Why it did not start.
    pub async fn typed(&self, api: Arc<dyn Api>) -> anyhow::Result<Typed> {
        let host = stage::host(backends(api));
        let started = trueup_engine::Instance::new(&self.engine, host, CPU_MAX, async |store| {
            self.typed.instantiate_async(store).await
        });
        let mut instance = started.await.map_err(|(_, error)| error)?;
        let config = settings().to_string();
        instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = instance.enter();
        let lifecycle = bindings.trueup_guest_lifecycle();
        let result = lifecycle.call_init(store, &config).await;
        let init = instance.leave("lifecycle.init", result)?;
        init.map_err(|error| anyhow::anyhow!("init: {error}"))?;
        Ok(Typed { instance })
    }

    /// An instance that is called like a host's, without a recording.
    ///
    /// # Errors
    /// Why it did not start.
    pub async fn instance(&self, api: Arc<dyn Api>) -> anyhow::Result<Instance> {
        self.neg.instance(backends(api)).await
    }

    /// What is needed to open instances with a recording in `folder`.
    ///
    /// # Errors
    /// If the guest does not start.
    pub async fn recorded(&self, folder: &Path) -> anyhow::Result<Instances> {
        self.neg.recorded(folder, backends(holding(&[]))).await
    }
}

/// With a clock that never moves.
#[must_use]
pub fn backends(api: Arc<dyn Api>) -> Backends {
    Backends {
        neg: Some(api),
        ..stage::backends()
    }
}

fn settings() -> Value {
    json!({ "neg_names": { SUBNET: NAME }, "zones": ZONES })
}

/// NEGs in memory with these contents.
#[must_use]
pub fn holding(groups: &[EndpointGroup]) -> Arc<Simulated> {
    let simulated = Simulated::default();
    put(&simulated, groups);
    Arc::new(simulated)
}

fn put(simulated: &Simulated, groups: &[EndpointGroup]) {
    for EndpointGroup { location, endpoints } in groups {
        simulated.put(Neg {
            name: NAME.to_owned(),
            zone: location.zone.clone(),
            subnet: location.subnet.clone(),
            endpoints: endpoints.iter().cloned().collect(),
        });
    }
}

/// An instance of the guest with typed exports.
pub struct Typed {
    instance: trueup_engine::Instance<NegSyncer>,
}

impl Typed {
    /// `migrator.filter`, not in the error state.
    ///
    /// # Errors
    /// If the call gave no result.
    pub async fn filter(&mut self, sets: &Sets) -> anyhow::Result<Filtered> {
        self.instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = self.instance.enter();
        let Sets { add, remove, committed } = sets;
        let result = bindings
            .migrator()
            .call_filter(store, add, remove, committed, false)
            .await;
        Ok(self.instance.leave("migrator.filter", result)?)
    }

    /// `syncer.sync`
    ///
    /// # Errors
    /// If the call gave no result, or found anything to do.
    pub async fn sync(&mut self, target: &[EndpointGroup]) -> anyhow::Result<()> {
        self.instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = self.instance.enter();
        let result = bindings.syncer().call_sync(store, target).await;
        let report = self.instance.leave("syncer.sync", result)?;
        let report = report.map_err(|error| anyhow::anyhow!("sync: {error:?}"))?;
        ensure!(report == NOTHING, "not there already: {report:?}");
        Ok(())
    }
}

/// The report of a sync with nothing to do.
const NOTHING: SyncReport = SyncReport {
    attaching: 0,
    detaching: 0,
    in_flight: 0,
    migration: None,
};

/// The guest compiled natively, and a world that answers every listing with a copy of its initial contents.
pub struct Native {
    neg: NativeNeg,
    world: Listed,
}

impl Native {
    /// One with these endpoints in the NEGs.
    ///
    /// # Errors
    /// If the guest refuses the settings.
    pub fn holding(groups: &[EndpointGroup]) -> anyhow::Result<Self> {
        let neg = NativeNeg::init(&settings().to_string()).map_err(anyhow::Error::msg)?;
        let there = native_groups(groups).into_iter();
        Ok(Self {
            neg,
            world: Listed(there.map(|group| (group.location.zone, group.endpoints)).collect()),
        })
    }

    /// `syncer.sync`
    ///
    /// # Errors
    /// If it finds anything to do.
    pub fn sync(&mut self, target: Vec<native_types::EndpointGroup>) -> anyhow::Result<()> {
        let report = self.neg.sync(&mut self.world, target);
        let report = report.map_err(|error: native_syncer::Error| anyhow::anyhow!("sync: {error:?}"))?;
        ensure!(
            (report.attaching, report.detaching, report.in_flight) == (0, 0, 0),
            "not there already: {report:?}"
        );
        Ok(())
    }
}

struct Listed(BTreeMap<String, Vec<native_types::Endpoint>>);

impl World for Listed {
    fn ensure(&mut self, _: &native_api::NegRef, _: &str) -> Result<bool, native_api::Error> {
        Ok(false)
    }

    fn list_endpoints(&mut self, neg: &native_api::NegRef) -> Result<Vec<native_types::Endpoint>, native_api::Error> {
        self.0.get(&neg.zone).cloned().ok_or(native_api::Error::NotFound)
    }

    fn attach(&mut self, _: &native_api::NegRef, _: &[native_types::Endpoint]) -> Result<u64, native_api::Error> {
        Err(native_api::Error::Unauthorized)
    }

    fn detach(&mut self, _: &native_api::NegRef, _: &[native_types::Endpoint]) -> Result<u64, native_api::Error> {
        Err(native_api::Error::Unauthorized)
    }

    fn schedule(&mut self, _: u64) -> u64 {
        0
    }

    fn cancel(&mut self, _: u64) -> bool {
        false
    }
}

impl Clock for Listed {
    fn now_ms(&mut self) -> u64 {
        NOW_MS
    }
}

impl Telemetry for Listed {
    fn log(&mut self, _: Level, _: &str, _: &[(&str, &str)]) {}

    fn counter_add(&mut self, _: &str, _: &[(&str, &str)], _: u64) {}

    fn gauge_set(&mut self, _: &str, _: &[(&str, &str)], _: f64) {}

    fn histogram_observe(&mut self, _: &str, _: &[(&str, &str)], _: f64) {}
}

/// Makes instances reach a target from nothing, one after another, and empties the NEGs for each. So the contents of
/// the NEGs are no instance's memory, and do not grow with the number of instances.
pub struct Filling {
    negs: Arc<Simulated>,
    empty: Vec<EndpointGroup>,
    sync: Box<RawValue>,
    endpoints_per_zone: u32,
    /// The newest operation's number.
    last: u64,
}

impl Filling {
    /// This many endpoints in each zone.
    ///
    /// # Errors
    /// Never: this has a JSON form.
    pub fn new(endpoints_per_zone: u32) -> anyhow::Result<Self> {
        let empty = groups(0, 0, crate::endpoints::Stack::Dual);
        let count = endpoints_per_zone * u32::try_from(ZONES.len())?;
        let target = groups(0, count, crate::endpoints::Stack::Dual);
        Ok(Self {
            negs: holding(&empty),
            empty,
            sync: to_raw_value(&Sync { target })?,
            endpoints_per_zone,
            last: 0,
        })
    }

    /// The NEGs behind the instances.
    #[must_use]
    pub fn negs(&self) -> Arc<dyn Api> {
        Arc::clone(&self.negs) as Arc<dyn Api>
    }

    /// Syncs, ends the operations that this started, and syncs again.
    ///
    /// # Errors
    /// If there is more or less to do than the target has.
    pub async fn fill(&mut self, instance: &mut Instance) -> anyhow::Result<()> {
        put(&self.negs, &self.empty);
        let zones = u32::try_from(ZONES.len())?;
        let started = sync(instance, &self.sync).await?;
        ensure!(started.attaching == self.endpoints_per_zone * zones, "{started:?}");
        if started.attaching > 0 {
            for _ in 0..zones {
                self.last += 1;
                ensure!(self.negs.end(self.last, true), "no operation {} was started", self.last);
                let ended = OnOperation {
                    operation: self.last,
                    failure: None,
                };
                let answer = instance.call("syncer.on-operation", &to_raw_value(&ended)?).await?;
                ensure!(answer.get() == "true", "the end of an operation: {}", answer.get());
            }
        }
        let again = sync(instance, &self.sync).await?;
        ensure!(again == NOTHING, "not there already: {again:?}");
        Ok(())
    }
}

async fn sync(instance: &mut Instance, args: &RawValue) -> anyhow::Result<SyncReport> {
    let answer = instance.call("syncer.sync", args).await?;
    let report: Result<SyncReport, Value> = serde_json::from_str(answer.get())?;
    report.map_err(|error| anyhow::anyhow!("sync: {error}"))
}
