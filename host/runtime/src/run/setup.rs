//! What a run and a plan need before they begin: guests, the Engine, the storage of pod addresses, and the state
//! folder.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use trueup_base::clock::SystemClock;
use trueup_base::fence::Fence;
use trueup_base::regular;
use trueup_capabilities::audit::Audit;
use trueup_capabilities::bindings::host::metrics::Label;
use trueup_capabilities::checkpoint::{OpenError, Store, file, json_file, simulated};
use trueup_capabilities::cri::Runtime;
use trueup_capabilities::cri::remote::{self, Remote};
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::{Access, OWN, SANDBOXES};
use trueup_capabilities::lbaas::anexia::{Anexia, Owned, RequestMetrics, Token};
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::lbaas::{Api, State};
use trueup_capabilities::metrics::{HOST, Line, Registry as Metrics};
use trueup_capabilities::quota::Quotas;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::{Backends, Host};
use trueup_engine::{Engine, Options as EngineOptions};
use trueup_journal::{Event, Files, OPEN_FILES_MAX, Tape};
use trueup_sims::Server;

use super::active::Active;
use super::instances::{Instances, Recorded};
use crate::board::{Board, Facts};
use crate::config::{CheckpointAt, Config, Guest, Ipam, Lbaas, LbaasBackend, LbaasSim, Source, TokenAt};
use crate::guests::{ipam, lbaas};
use crate::instance::{Instance, Start};
use crate::registry::{Registry, Store as GuestStore};
use crate::swap::{self, Guests, Revisions, Wish};

/// The subfolder of the state folder that holds intents: what is about to be created, by guest name.
const INTENTS: &str = "intents";

/// Why nothing could begin: one line.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The operator gave something that can't be used, and must correct it.
    #[error("{0}")]
    Misused(String),
    /// The settings are usable, but it failed now.
    #[error("{0}")]
    Failed(String),
}

impl SetupError {
    /// Something given can't be used; includes the causes.
    pub(crate) fn misused(error: impl Into<anyhow::Error>) -> Self {
        Self::Misused(format!("{:#}", error.into()))
    }

    /// It failed now; includes the causes.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(format!("{:#}", error.into()))
    }
}

/// What all guests of one process share.
pub struct Ground {
    /// Compiles guests and enforces limits.
    pub engine: Engine,
    /// All metrics of this process.
    pub metrics: Arc<Metrics>,
    /// The open recordings.
    pub files: Files,
    guests: Guests,
    /// Whether this process may write the state folder. A plan may not.
    writes: bool,
    /// Records refusals and management actions. `None`, as in a plan, if they are not recorded.
    pub audit: Option<Arc<Audit>>,
    /// The status of this process.
    pub board: Arc<Board>,
}

impl Ground {
    /// An engine that caches compiled guests in the state folder.
    ///
    /// # Errors
    /// If this machine can't run guests.
    pub fn new(config: &Config, registry: &Registry) -> Result<Self, SetupError> {
        let options = EngineOptions {
            cache_dir: Some(config.state_dir.join("cache")),
            ..EngineOptions::default()
        };
        let engine = Engine::new(&options).map_err(SetupError::misused)?;
        Ok(Self {
            guests: Guests::new(engine.clone(), registry.at(config), GuestStore::at(&config.state_dir)),
            engine,
            metrics: Arc::default(),
            files: Files::new(OPEN_FILES_MAX),
            writes: false,
            audit: None,
            board: Board::new(Facts {
                config: config.file.clone(),
                state_dir: config.state_dir.clone(),
                source: config.source().map(Source::kind),
                pods: config.ipam.as_ref().map(|ipam| ipam.adapter.instance.clone()),
                negs: config.neg.is_some(),
                node: config.node.as_ref().map(|node| node.name.clone()),
            }),
        })
    }

    /// The same for the process that holds the lock of the state folder: opens its audit log and lets it write the
    /// guests' revisions.
    ///
    /// # Errors
    /// If the audit log can't be read or written.
    pub fn with_state(mut self, config: &Config) -> Result<Self, SetupError> {
        let audit = Audit::open(&config.state_dir.join("audit")).map_err(SetupError::failed)?;
        self.audit = Some(Arc::new(audit));
        crate::telemetry::count_in(&self.metrics);
        self.writes = true;
        Ok(self)
    }

    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    /// The version of a guest that decides. It has accepted its settings.
    pub(crate) async fn version(
        &self,
        config: &Config,
        name: &'static str,
        worlds: &'static [&'static str],
        guest: &Guest,
    ) -> Result<Version, SetupError> {
        let guests = self.guests.clone();
        let recorded: Recorded = Arc::new(move |digest| {
            guests.kept(digest).unwrap_or_else(|refused| {
                tracing::warn!("a guest that recorded is not to be had: {}", refused.why);
                None
            })
        });
        let instances = |program| Instances {
            engine: self.engine.clone(),
            program,
            recorded: Arc::clone(&recorded),
            settings: guest.settings.clone(),
            afresh: false,
            grants: guest.grants.clone(),
            limits: guest.limits,
            initial: String::new(),
            state_dir: config.state_dir.clone(),
            name,
            record: config.journal.record,
            journal: config.journal.options,
            files: self.files.clone(),
        };
        let wish = Wish {
            name,
            worlds,
            guest,
            state_dir: &config.state_dir,
        };
        let begun = swap::begin(&self.guests, &wish, self.writes, &instances).await?;
        Ok(Version {
            instances: begun.instances,
            revisions: begun.revisions,
            problem: begun.problem,
        })
    }
}

/// The version of a guest that decides.
pub(crate) struct Version {
    pub(crate) instances: Instances,
    pub(crate) revisions: Revisions,
    pub(crate) problem: Option<String>,
}

impl Version {
    /// Fails if the active version is not the one that the configuration names.
    pub(crate) fn check_wish(self) -> Result<(), SetupError> {
        self.problem.map_or(Ok(()), |problem| Err(SetupError::Misused(problem)))
    }
}

/// Everything that a run or a plan of Services needs.
pub struct Setup {
    /// The version of the guest that decides.
    pub(crate) active: Arc<Active>,
    /// The versions that decided before.
    pub(crate) revisions: Revisions,
    /// Why the version that the configuration names was refused, if it was.
    pub(crate) problem: Option<String>,
    /// The Engine.
    pub api: Arc<dyn Api>,
    /// The same, if it is an Engine over HTTP, which can list orphans.
    pub anexia: Option<Arc<Anexia>>,
    /// All metrics of this process.
    pub metrics: Arc<Metrics>,
    /// The simulated Engine that was started for this run.
    pub simulated_engine: Option<Server>,
    /// Request counts of this guest, over all its instances.
    pub quotas: Arc<Quotas>,
    /// From [`Ground::audit`].
    pub audit: Option<Arc<Audit>>,
    /// From [`Ground::board`].
    pub board: Arc<Board>,
}

impl Setup {
    /// Loads the guest, has it accept its settings, and connects to the Engine. Starts a simulated Engine first.
    /// `fence` decides how long requests are let through.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub async fn new(config: &Config, lbaas: &Lbaas, ground: &Ground, fence: Fence) -> Result<Self, SetupError> {
        warn_of_missing_grants(lbaas);
        let Version {
            instances,
            revisions,
            problem,
        } = ground.version(config, lbaas::NAME, lbaas::WORLDS, &lbaas.guest).await?;
        let simulated_engine = match &lbaas.sim {
            Some(sim) => Some(start_engine(sim).await?),
            None => None,
        };
        let address = simulated_engine.as_ref().map(Server::local_addr);
        let intents = config.state_dir.join(INTENTS).join(lbaas::NAME);
        let (api, anexia) = connect(lbaas, address, &ground.metrics, fence, Some(&intents))?;
        let active = Active::new(Arc::new(instances));
        Ok(Self {
            quotas: Arc::clone(&active.quotas),
            active,
            revisions,
            problem,
            api,
            anexia,
            metrics: Arc::clone(&ground.metrics),
            simulated_engine,
            audit: ground.audit.clone(),
            board: Arc::clone(&ground.board),
        })
    }

    /// Checks whether it could be created, beside one that runs: the guest is available and passes, and the backend's
    /// settings are valid.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn check(config: &Config, lbaas: &Lbaas, ground: &Ground) -> Result<(), SetupError> {
        let version = ground.version(config, lbaas::NAME, lbaas::WORLDS, &lbaas.guest).await?;
        version.check_wish()?;
        if let Some(sim) = &lbaas.sim {
            read_token(&sim.token, SIMULATED_ENGINES_TOKEN)?;
        }
        let somewhere = lbaas.sim.as_ref().map(|sim| sim.listen);
        connect(lbaas, somewhere, &Arc::default(), Fence::closed(), None).map(drop)
    }

    /// The Engine for the job of this Service. It accepts no more requests of the job once another host may have
    /// acted.
    pub fn api_of(&self, mut owned: Owned) -> Arc<dyn Api> {
        let grants = &self.active.instances().grants;
        owned
            .load_balancers
            .retain(|identifier| grants.allow(lbaas::NAME, Access::Write, identifier));
        match &self.anexia {
            Some(anexia) => Arc::new(anexia.of_this_epoch(owned)),
            None => Arc::clone(&self.api),
        }
    }

    /// The backends of the instance of `key` for its next decisions.
    pub fn backends(&self, seed: u64, key: &str, api: Arc<dyn Api>) -> Backends {
        Backends {
            random: Arc::new(Seeded::new(seed, stream_of(key))),
            metrics: Arc::clone(&self.metrics),
            lbaas: Some(api),
            quotas: Arc::clone(&self.quotas),
            audit: self.audit.clone(),
            usage: Arc::clone(&self.active.usage),
            ..Backends::default()
        }
    }
}

/// Each key has its own random stream (FNV-1a of the key), so that what one draws does not depend on the others.
pub(crate) fn stream_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A guest without the grants it needs fails at each call. Warns once, at the start.
fn warn_of_missing_grants(lbaas: &Lbaas) {
    for load_balancer in &lbaas.adapter.load_balancers {
        for access in [Access::Read, Access::Write] {
            if !lbaas.guest.grants.allow(lbaas::NAME, access, load_balancer) {
                tracing::warn!(
                    "[guests.lbaas] has no grant to {access} load balancer `{load_balancer}` of [adapter.lbaas]: its calls will be refused"
                );
            }
        }
    }
}

/// The state of an instance that received only its settings. If the guest refuses its settings, this fails once,
/// before anything runs.
pub(crate) async fn initial_state(instances: &Instances) -> Result<String, SetupError> {
    let host = Host::new(
        instances.identity("setup"),
        Tape::memory(),
        instances.grants.clone(),
        Instances::trial(),
        instances.limits,
    );
    let start = Start {
        settings: &instances.settings,
        snapshot: None,
        cpu_max: Duration::from_millis(instances.limits.cpu_ms),
    };
    let started = Instance::start(&instances.engine, &instances.program, host, start).await;
    let mut instance = started.map_err(|(_, error)| SetupError::misused(error))?;
    instance.host_mut().tape.take_entries();
    let snapshot = instance.snapshot().await.map_err(SetupError::misused)?;
    // A snapshot is taken between calls, where a recording has no place for questions.
    if let Some(Event::Ask(ask)) = instance
        .host_mut()
        .tape
        .take_entries()
        .into_iter()
        .map(|entry| entry.event)
        .next()
    {
        let guest = &instances.program.guest;
        return Err(SetupError::Misused(format!(
            "guest `{}@{}` asks `{}` in `lifecycle.snapshot`, which may use nothing but log and metrics",
            guest.name, guest.version, ask.name
        )));
    }
    Ok(snapshot)
}

/// What serves pod addresses: the guest and its backends.
pub(super) struct Addresses {
    pub(super) active: Arc<Active>,
    pub(super) revisions: Revisions,
    pub(super) problem: Option<String>,
    pub(super) backends: Backends,
    /// The container runtime, which the host itself also queries.
    pub(super) runtime: Arc<dyn Runtime>,
}

impl Addresses {
    /// Loads the guest, has it accept its settings, and opens its storage.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn new(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<Self, SetupError> {
        warn_of_missing_ipam_grants(ipam);
        let Version {
            instances,
            revisions,
            problem,
        } = Self::version(config, ipam, ground).await?;
        let active = Active::new(Arc::new(instances));
        let runtime: Arc<dyn Runtime> = Arc::new(Remote::new(remote::Settings {
            socket: ipam.runtime_socket.clone(),
            ..remote::Settings::default()
        }));
        let backends = Backends {
            random: Arc::new(Seeded::new(config.seed, stream_of(&ipam.adapter.instance))),
            metrics: Arc::clone(&ground.metrics),
            checkpoint: Some(open_store(&ipam.checkpoint, &ground.metrics)?),
            sandboxes: Some(Arc::clone(&runtime)),
            quotas: Arc::default(),
            audit: ground.audit.clone(),
            usage: Arc::clone(&active.usage),
            ..Backends::default()
        };
        Ok(Self {
            active,
            revisions,
            problem,
            backends,
            runtime,
        })
    }

    /// Checks whether it could be created, beside one that runs and holds the storage.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(super) async fn check(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<(), SetupError> {
        Self::version(config, ipam, ground).await?.check_wish()
    }

    async fn version(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<Version, SetupError> {
        let guest = Guest {
            settings: crate::ipam::guest_settings(ipam.guest.settings.clone()),
            ..ipam.guest.clone()
        };
        ground.version(config, ipam::NAME, ipam::WORLDS, &guest).await
    }
}

/// A guest without the grants it needs fails at each call. Warns once, at the start.
fn warn_of_missing_ipam_grants(ipam: &Ipam) {
    let grants = &ipam.guest.grants;
    for access in [Access::Read, Access::Write] {
        if !grants.allow("checkpoint", access, OWN) {
            tracing::warn!(
                "[guests.ipam] has no grant to {access} its checkpoint (`checkpoint = {{ {access} = [\"{OWN}\"] }}`): its calls will be refused"
            );
        }
    }
    if ipam.reads_from_runtime() && !grants.allow("cri", Access::Read, SANDBOXES) {
        tracing::warn!(
            "[guests.ipam] has no grant to read the container runtime (`cri = {{ read = [\"{SANDBOXES}\"] }}`), where \
             phase 1 reads: its calls will be refused"
        );
    }
}

/// Opens a store. It is exclusive until it is dropped.
fn open_store(at: &CheckpointAt, metrics: &Arc<Metrics>) -> Result<Arc<dyn Store>, SetupError> {
    let store: Result<Arc<dyn Store>, OpenError> = match at.clone() {
        CheckpointAt::File {
            path,
            shared_sync,
            keep_generations,
        } => {
            let settings = file::Settings {
                path,
                keep_generations,
                shared_sync,
            };
            file::File::open(settings, Arc::clone(metrics)).map(|store| Arc::new(store) as _)
        }
        CheckpointAt::JsonFile { path, keep_generations } => {
            let settings = json_file::Settings { path, keep_generations };
            json_file::JsonFile::open(settings).map(|store| Arc::new(store) as _)
        }
        CheckpointAt::Simulated => Ok(Arc::new(simulated::Simulated::new(Arc::default(), None))),
    };
    store.map_err(SetupError::failed)
}

/// The Engine, and the same again if it is one over HTTP.
type Connected = (Arc<dyn Api>, Option<Arc<Anexia>>);

fn connect(
    lbaas: &Lbaas,
    simulated: Option<SocketAddr>,
    metrics: &Arc<Metrics>,
    fence: Fence,
    intents: Option<&Path>,
) -> Result<Connected, SetupError> {
    match &lbaas.backend {
        LbaasBackend::Anexia(backend) => {
            let settings = backend.settings(simulated);
            let token = Token::read(&settings).map_err(SetupError::misused)?;
            let metrics = EngineMetrics {
                metrics: Arc::clone(metrics),
                in_flight: AtomicI64::new(0),
            };
            let anexia =
                Anexia::new(settings, token, Arc::new(metrics), fence, intents).map_err(SetupError::misused)?;
            let anexia = Arc::new(anexia);
            Ok((Arc::<Anexia>::clone(&anexia), Some(anexia)))
        }
        LbaasBackend::Simulated => {
            let engine = Simulated::new(Arc::new(SystemClock), Arc::new(Faults::default()), 0);
            for identifier in &lbaas.adapter.load_balancers {
                engine.put_load_balancer(identifier.clone(), State::Ok);
            }
            Ok((Arc::new(engine), None))
        }
    }
}

/// Reads a token, unchanged.
///
/// # Errors
/// If it can't be read. The error says whose token it is.
pub(crate) fn read_token(at: &TokenAt, whose: &str) -> Result<String, SetupError> {
    let token = match at {
        TokenAt::File(file) => regular::read_text(file, regular::SMALL).map_err(|error| error.to_string()),
        TokenAt::Variable(name) => std::env::var(name).map_err(|error| error.to_string()),
    };
    token.map_err(|error| SetupError::Misused(format!("{whose}: can't read {at}: {error}")))
}

/// The name of the simulated Engine's token in messages.
const SIMULATED_ENGINES_TOKEN: &str = "the simulated Engine's token";

async fn start_engine(sim: &LbaasSim) -> Result<Server, SetupError> {
    let token = read_token(&sim.token, SIMULATED_ENGINES_TOKEN)?;
    let engine = trueup_sims::lbaas::start(sim.server(token.trim()), sim.listen)
        .await
        .map_err(SetupError::failed)?;
    tracing::info!("simulated Engine listens on http://{}", engine.local_addr());
    Ok(engine)
}

/// Exports the backend's requests as metrics of the host.
struct EngineMetrics {
    metrics: Arc<Metrics>,
    in_flight: AtomicI64,
}

impl RequestMetrics for EngineMetrics {
    fn request(&self, resource: &str, method: &str, status: &str) {
        let label = |key: &str, value: &str| Label {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let labels = [
            label("resource", resource),
            label("method", method),
            label("status", status),
        ];
        self.metrics
            .take(HOST, "trueup_engine_requests_total", &labels, Line::CounterAdd(1));
    }

    fn in_flight(&self, delta: i64) {
        let now = self.in_flight.fetch_add(delta, Ordering::Relaxed) + delta;
        #[expect(clippy::cast_precision_loss, reason = "at most as many as may run at once")]
        self.metrics.take(
            HOST,
            "trueup_engine_requests_in_flight",
            &[],
            Line::GaugeSet(now as f64),
        );
    }
}
