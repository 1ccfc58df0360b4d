//! A guest that does nothing, in the engine and with the imports of every guest: the bare cost of a call.

use anyhow::Context as _;
use trueup_capabilities::Host;
use trueup_engine::{Data, Engine, Instance};

use crate::endpoints::Sets;
use crate::stage::CPU_MAX;

mod bindings {
    wasmtime::component::bindgen!({
        path: ["../wit/host", "../wit/guest", "../wit/lbaas", "../wit/neg"],
        inline: "
            package trueup:benches;
            world probe {
                import trueup:host/clock@0.1.0;
                import trueup:lbaas/api@0.1.0;
                export empty: func();
                export ask: func(times: u32) -> u64;
                export listed: func(tag: string) -> u32;
                use trueup:neg/types@0.1.0.{endpoint-group};
                export taken: func(
                    add: list<endpoint-group>, remove: list<endpoint-group>, committed: list<endpoint-group>, in-error-state: bool,
                ) -> u32;
            }
        ",
        world: "trueup:benches/probe",
        with: {
            "trueup:host": trueup_capabilities::bindings::host,
            "trueup:lbaas": trueup_capabilities::bindings::lbaas,
            "trueup:neg": trueup_capabilities::bindings::neg,
        },
        require_store_data_send: true,
        exports: { default: async },
    });
}

/// An instance of `probe.wat`.
pub struct Probe {
    instance: Instance<bindings::Probe>,
}

impl Probe {
    /// Compiles and instantiates it.
    ///
    /// # Errors
    /// If it no longer fits the host.
    pub async fn start(engine: &Engine, host: Host) -> anyhow::Result<Self> {
        let component = wat::parse_str(include_str!("probe.wat")).context("reading probe.wat")?;
        let guest = engine.load(&component)?;
        let mut linker = wasmtime::component::Linker::new(&engine.wasmtime);
        bindings::Probe::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data: &mut Data| {
            &mut data.host
        })?;
        let linked = bindings::ProbePre::new(linker.instantiate_pre(&guest.component)?)?;
        let instance = Instance::new(engine, host, CPU_MAX, async |store| {
            linked.instantiate_async(store).await
        })
        .await;
        Ok(Self {
            instance: instance.map_err(|(_, error)| error)?,
        })
    }

    /// Does nothing.
    ///
    /// # Errors
    /// If the call gave no result.
    pub async fn empty(&mut self) -> anyhow::Result<()> {
        let (store, bindings) = self.instance.enter();
        let result = bindings.call_empty(store).await;
        Ok(self.instance.leave("empty", result)?)
    }

    /// Asks `clock.now-ms` this many times, in one call.
    ///
    /// # Errors
    /// If the call gave no result.
    pub async fn ask(&mut self, times: u32) -> anyhow::Result<u64> {
        self.instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = self.instance.enter();
        let result = bindings.call_ask(store, times).await;
        Ok(self.instance.leave("ask", result)?)
    }

    /// Asks `api.list-tagged` once, drops the list and returns its length.
    ///
    /// # Errors
    /// If the call gave no result.
    pub async fn listed(&mut self, tag: &str) -> anyhow::Result<u32> {
        self.instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = self.instance.enter();
        let result = bindings.call_listed(store, tag).await;
        Ok(self.instance.leave("listed", result)?)
    }

    /// Takes the arguments of `migrator.filter`, drops them and returns the number of groups.
    ///
    /// # Errors
    /// If the call gave no result.
    pub async fn taken(&mut self, sets: &Sets) -> anyhow::Result<u32> {
        self.instance.host_mut().begin_unrecorded_call();
        let (store, bindings) = self.instance.enter();
        let Sets { add, remove, committed } = sets;
        let result = bindings.call_taken(store, add, remove, committed, false).await;
        Ok(self.instance.leave("taken", result)?)
    }
}
