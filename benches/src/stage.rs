//! The setup of benchmarks: the engine, the guest `lbaas` as it ships, and instances of it with various backends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;
use trueup_base::clock::VirtualClock;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::lbaas::Api;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{Engine, Guest, Options};
use trueup_guests_builtin::Builtin;
use trueup_instance::{Instance, Instances, Program, Start};
use trueup_journal::{Files, Journal, OPEN_FILES_MAX, Outcome, Segment, Tape};
use trueup_registry::Registry;
use trueup_worlds::lbaas::guest::Report;
use trueup_worlds::worlds;

/// No call here comes near this limit.
pub const CPU_MAX: Duration = Duration::from_secs(60);

/// Some time in 2025, in milliseconds since the Unix epoch.
pub const NOW_MS: u64 = 1_750_000_000_000;

/// The engine and the linked guest.
pub struct Stage {
    /// Drives every call.
    pub runtime: Runtime,
    /// Set up like a host's.
    pub engine: Engine,
    lbaas: Shipped,
}

impl Stage {
    /// Compiles the guest, without a cache.
    ///
    /// # Errors
    /// If the guest does not run here.
    pub fn new() -> anyhow::Result<Self> {
        let (runtime, engine) = begin()?;
        let lbaas = Shipped::new(&engine, "lbaas", json!({}))?;
        Ok(Self { runtime, engine, lbaas })
    }

    /// A host without a recording, with a clock on which a sleep takes no real time.
    #[must_use]
    pub fn host(&self, api: Arc<dyn Api>) -> Host {
        host(of_engine(api))
    }

    /// An instance without a recording.
    ///
    /// # Errors
    /// Why it did not start.
    pub async fn instance(&self, api: Arc<dyn Api>) -> anyhow::Result<Instance> {
        self.lbaas.instance(of_engine(api)).await
    }

    /// An instance that is recorded in `folder` with a host's defaults.
    ///
    /// # Errors
    /// Why it did not start, or can't be recorded.
    pub async fn recorded(&self, folder: &Path, api: Arc<dyn Api>) -> anyhow::Result<Instance> {
        let backends = of_engine(api);
        let instances = self.lbaas.recorded(folder, backends.clone()).await?;
        Ok(instances.open("default/web", backends).await?)
    }

    /// Replays the recording of [`Stage::recorded`].
    ///
    /// # Errors
    /// If it is not identical.
    pub async fn replay(&self, segment: Segment) -> anyhow::Result<()> {
        match trueup_instance::replay::replay(
            &self.engine,
            &self.lbaas.program,
            segment,
            trueup_instance::replay::Options::default(),
        )
        .await?
        {
            Outcome::Identical { .. } => Ok(()),
            other => bail!("the replay is not identical: {other}"),
        }
    }
}

/// The embedded guest.
///
/// # Errors
/// If this build embeds none.
pub fn lbaas() -> anyhow::Result<&'static Builtin> {
    builtin("lbaas")
}

fn builtin(name: &str) -> anyhow::Result<&'static Builtin> {
    trueup_guests_builtin::find(name, "1").with_context(|| format!("no guest `{name}@1` is built in"))
}

/// Threads, and an engine without a cache.
pub(crate) fn begin() -> anyhow::Result<(Runtime, Engine)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    Ok((runtime, Engine::new(&Options::default())?))
}

/// A guest as it ships, and how its instances are set up.
pub(crate) struct Shipped {
    name: &'static str,
    engine: Engine,
    pub(crate) program: Arc<Program>,
    settings: serde_json::Value,
    pub(crate) limits: Limits,
}

impl Shipped {
    /// Compiles version 1 of a built-in guest.
    ///
    /// # Errors
    /// If it does not run here.
    pub(crate) fn new(engine: &Engine, name: &'static str, settings: serde_json::Value) -> anyhow::Result<Self> {
        let guest = engine.load(builtin(name)?.bytes)?;
        let program = Program::new(engine, guest, worlds()).map_err(anyhow::Error::msg)?;
        Ok(Self {
            name,
            engine: engine.clone(),
            program: Arc::new(program),
            settings,
            limits: Limits::default(),
        })
    }

    /// An instance that is called like a host's, without a recording.
    ///
    /// # Errors
    /// Why it did not start.
    pub(crate) async fn instance(&self, backends: Backends) -> anyhow::Result<Instance> {
        let start = Start {
            settings: &self.settings,
            snapshot: None,
            cpu_max: CPU_MAX,
        };
        let mut host = host(backends);
        host.meter.limits = self.limits;
        let started = Instance::start(&self.engine, &self.program, host, start).await;
        started.map_err(|(_, error)| error.into())
    }

    /// What opens instances with a recording in `folder`, with a host's defaults. `backends` are those of an instance
    /// that gives the initial state.
    ///
    /// # Errors
    /// If the guest does not start.
    pub(crate) async fn recorded(&self, folder: &Path, backends: Backends) -> anyhow::Result<Instances> {
        let mut first = self.instance(backends).await?;
        Ok(Instances {
            afresh: false,
            name: self.name,
            engine: self.engine.clone(),
            program: Arc::clone(&self.program),
            recorded: Arc::new(|_| None),
            settings: self.settings.clone(),
            grants: Grants::everything(),
            limits: self.limits,
            initial: first.snapshot().await?,
            state_dir: folder.to_owned(),
            record: true,
            journal: trueup_journal::Options::default(),
            files: Files::new(OPEN_FILES_MAX),
        })
    }
}

/// A host without a recording, which grants everything.
#[must_use]
pub fn host(backends: Backends) -> Host {
    Host::new(
        Identity::default(),
        Tape::off(),
        Grants::everything(),
        backends,
        Limits::default(),
    )
}

/// The built-in guests, as a host knows them.
#[must_use]
pub fn registry() -> Registry {
    let builtins = trueup_guests_builtin::GUESTS
        .iter()
        .map(|guest| trueup_registry::Builtin {
            name: guest.name,
            version: guest.version,
            world: guest.world,
            bytes: guest.bytes,
        });
    Registry::new(builtins.collect())
}

/// Loads the guest with a compile cache in `folder`: compiles it the first time, reads the cache from then on.
///
/// # Errors
/// If it can't be loaded.
pub fn load_cached(folder: &Path) -> anyhow::Result<(Engine, Guest)> {
    let engine = Engine::new(&Options {
        cache_dir: Some(folder.to_owned()),
        ..Options::default()
    })?;
    let guest = engine.load(lbaas()?.bytes)?;
    Ok((engine, guest))
}

/// With a clock that moves only when a guest sleeps: that time is no cost of the host.
pub(crate) fn backends() -> Backends {
    Backends {
        clock: Arc::new(VirtualClock::new(NOW_MS)),
        random: Arc::new(Seeded::new(1, 1)),
        log: Arc::new(NoLog),
        ..Backends::default()
    }
}

fn of_engine(api: Arc<dyn Api>) -> Backends {
    Backends {
        lbaas: Some(api),
        ..backends()
    }
}

/// Runs `reconcile-check` on a service that is in sync.
///
/// # Errors
/// If the guest finds something to do.
pub async fn check(instance: &mut Instance, args: &RawValue) -> anyhow::Result<()> {
    let answer = instance.call("reconciliation.reconcile-check", args).await?;
    ensure!(
        answer.get() == r#"{"Ok":{"create":[],"destroy":[]}}"#,
        "not true already: {}",
        answer.get()
    );
    Ok(())
}

/// Runs `reconcile` on a service that has nothing yet.
///
/// # Errors
/// If it creates another number of objects.
pub async fn reconcile(instance: &mut Instance, args: &RawValue, objects: u32) -> anyhow::Result<()> {
    let answer = instance.call("reconciliation.reconcile", args).await?;
    let report: Result<Report, serde_json::Value> = serde_json::from_str(answer.get())?;
    let report = report.map_err(|error| anyhow::anyhow!("reconcile: {error}"))?;
    ensure!(
        report.created == objects,
        "created {} objects of {objects}",
        report.created
    );
    Ok(())
}

/// The file of the newest recorded segment of `instance`.
///
/// # Errors
/// If it was not recorded.
pub fn segment_file(instance: &Instance) -> anyhow::Result<&Path> {
    instance
        .host()
        .tape
        .journal()
        .and_then(Journal::segment_path)
        .context("nothing was recorded")
}

/// The newest recorded segment of `instance`.
///
/// # Errors
/// If it was not recorded, or can't be read.
pub fn segment(instance: &Instance) -> anyhow::Result<Segment> {
    Ok(Segment::read(segment_file(instance)?)?)
}
