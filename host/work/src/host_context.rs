//! What all guests of one process share, and the version of each guest that decides.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use trueup_base::regular;
use trueup_base::replace::{Durable, replace_file};
use trueup_capabilities::audit::Audit;
use trueup_capabilities::grants::Access;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_capabilities::questions::granted_by;
use trueup_capabilities::quota::Quotas;
use trueup_capabilities::random::Seeded;
use trueup_capabilities::{Backends, etcd, nftables};
use trueup_config::{Config, Guest, Ipam, Neg, ThisNode};
use trueup_engine::{Engine, Options as EngineOptions, users_cache};
use trueup_instance::{Instances, Recorded, Worlds};
use trueup_journal::{Files, Kind, OPEN_FILES_MAX};
use trueup_registry::{NotLoaded, Registry, Store as GuestStore};
use trueup_sources::Source;

use crate::lifecycle::active::Handover;
use crate::lifecycle::quarantine::Quarantine;
use crate::load::Loader;
use crate::needs::{Named, NoGrant};
use crate::setup::SetupError;
use crate::status::{Facts, HostStatus};
pub use crate::swap::Version;
use crate::swap::{self, FallBack, GuestSection, Guests, Revisions};

/// The subfolder of the state folder for compiled guests.
const CACHE: &str = "cache";

/// What all guests of one process share.
pub struct HostContext {
    /// Compiles guests and enforces limits.
    pub engine: Engine,
    /// All metrics of this process.
    pub metrics: Arc<Metrics>,
    /// The open recordings.
    pub files: Files,
    pub(crate) guests: Guests,
    /// Whether this process may write the state folder. A plan may not.
    writes: bool,
    /// Records refusals and management actions. `None`, as in a plan, if they are not recorded.
    pub audit: Option<Arc<Audit>>,
    /// The status of this process.
    pub host_status: Arc<HostStatus>,
    /// `None` until a guest needs it.
    etcd: Mutex<Option<Arc<dyn etcd::Api>>>,
    /// In a plan: of each guest that was loaded and has not the version that the configuration names, which it has.
    other_versions: Mutex<Vec<String>>,
}

impl HostContext {
    /// For a process that leaves nothing behind: another user may own the state folder, or make it later. Uses its
    /// compiled and fetched guests only where these are there and the caller's own. A guest must implement one of
    /// `worlds`.
    ///
    /// # Errors
    /// If this machine can't run guests.
    pub fn of_trial(config: &Config, registry: &Registry, worlds: Worlds) -> Result<Self, SetupError> {
        let cache = Some(config.state_dir.join(CACHE)).filter(|cache| regular::is_own(cache));
        let options = EngineOptions {
            cache_dir: cache.or_else(users_cache),
            ..EngineOptions::default()
        };
        let store = GuestStore::at(&config.state_dir).of_trial();
        Self::new(config, &options, (registry, store), worlds)
    }

    fn new(
        config: &Config,
        options: &EngineOptions,
        (registry, store): (&Registry, GuestStore),
        worlds: Worlds,
    ) -> Result<Self, SetupError> {
        let engine = Engine::new(options).map_err(SetupError::misused)?;
        let loader = Loader {
            engine: engine.clone(),
            registry: registry.at(&config.file, store.clone()),
            worlds,
        };
        Ok(Self {
            guests: Guests::new(loader, store),
            engine,
            metrics: Arc::default(),
            files: Files::new(OPEN_FILES_MAX),
            writes: false,
            audit: None,
            host_status: HostStatus::new(Facts {
                config: config.file.clone(),
                state_dir: config.state_dir.clone(),
                source: config.source().map(Source::kind),
                pods: config.world::<Ipam>().map(|ipam| ipam.adapter.instance.clone()),
                negs: config.world::<Neg>().is_some(),
                node: config.world::<ThisNode>().map(|node| node.name.clone()),
            }),
            etcd: Mutex::default(),
            other_versions: Mutex::default(),
        })
    }

    /// The same for the process that holds the lock of the state folder: opens its audit log, lets it write the
    /// guests' revisions, and keeps compiled guests there.
    ///
    /// # Errors
    /// Also if the audit log can't be read or written.
    pub fn with_state(config: &Config, registry: &Registry, worlds: Worlds) -> Result<Self, SetupError> {
        let options = EngineOptions {
            cache_dir: Some(config.state_dir.join(CACHE)),
            tells_compiling: true,
            ..EngineOptions::default()
        };
        let mut host_context = Self::new(config, &options, (registry, GuestStore::at(&config.state_dir)), worlds)?;
        let audit = Audit::open(&config.state_dir.join("audit")).map_err(SetupError::failed)?;
        host_context.audit = Some(Arc::new(audit));
        host_context.writes = true;
        Ok(host_context)
    }

    /// Whether nothing may be written: neither to backends nor to the state folder.
    pub fn plans(&self) -> bool {
        !self.writes
    }

    /// In a plan: which versions decide in place of those that the configuration names, and why, of the guests that
    /// were loaded since the last time.
    pub fn other_versions(&self) -> Vec<String> {
        std::mem::take(&mut self.other_versions.lock())
    }

    /// The store that the configuration names; in a plan, one that keeps changes to itself. One store serves all guests
    /// of a process: the first call opens it.
    ///
    /// # Errors
    /// As [`crate::etcd::open`].
    pub fn etcd(&self, config: &Config) -> Result<Arc<dyn etcd::Api>, SetupError> {
        let mut opened = self.etcd.lock();
        if let Some(etcd) = &*opened {
            return Ok(Arc::clone(etcd));
        }
        let etcd = match self.writes {
            true => crate::etcd::open(&config.etcd),
            false => crate::etcd::planned(&config.etcd),
        };
        Ok(Arc::clone(opened.insert(etcd.map_err(SetupError::Misused)?)))
    }

    /// The packet filter that the configuration names; in a plan, one that accepts everything and does nothing.
    pub fn nftables(&self, config: &Config) -> Arc<dyn nftables::Api> {
        match self.writes {
            true => crate::nftables::open(&config.nftables, &config.state_dir),
            false => Arc::new(nftables::Simulated),
        }
    }

    /// Notes where a simulated server of this host listens, for a plan beside it. `sim`: as in `[sim.SIM]`.
    ///
    /// # Errors
    /// If the state folder can't be written.
    pub fn note_server(&self, config: &Config, sim: &str, address: SocketAddr) -> Result<(), SetupError> {
        if !self.writes {
            return Ok(());
        }
        let file = trueup_config::sim_address(&config.state_dir, sim);
        let noted = replace_file(&file, address.to_string().as_bytes(), Durable::No);
        noted.map_err(|error| SetupError::Failed(format!("{}: {error}", file.display())))
    }

    /// What an instance has without any capability. `key`: its own stream of random numbers.
    pub fn backends(&self, seed: u64, key: &str, quotas: &Arc<Quotas>) -> Backends {
        let others = match self.writes {
            true => Backends::default(),
            false => Instances::trial(),
        };
        Backends {
            random: Arc::new(Seeded::new(seed, stream_of(key))),
            metrics: Arc::clone(&self.metrics),
            quotas: Arc::clone(quotas),
            audit: self.audit.clone(),
            ..others
        }
    }

    /// The version of a guest that decides, or what to correct so that there is one.
    ///
    /// # Errors
    /// One line: why there is none.
    pub async fn usable(&self, config: &Config, (name, worlds, guest): &Named) -> Result<Version, Unusable> {
        let error = match self.version(config, name, worlds, guest).await {
            Ok(version) => return Ok(version),
            Err(error) => error.to_string(),
        };
        if let Err(error) = Revisions::load(&config.state_dir, name) {
            return Err(Unusable::Revisions(error));
        }
        // The guest alone, without the world and the settings of its section.
        Err(match self.guests.load(&guest.reference, &guest.verify).await {
            Err(NotLoaded::Failed(_)) => Unusable::Away(error),
            Err(NotLoaded::NoGuest(_)) => Unusable::Guest(error),
            Ok(_) => Unusable::Settings(error),
        })
    }

    /// The version of a guest that decides. It has accepted its settings.
    pub async fn version(
        &self,
        config: &Config,
        name: &'static str,
        worlds: Worlds,
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
        let section = GuestSection {
            guests: &self.guests,
            name,
            worlds,
            guest,
            state_dir: &config.state_dir,
            writes: self.writes,
        };
        let version = swap::begin(&section, &instances).await?;
        if self.plans() {
            let other = version.problem.iter().chain(&version.other).cloned();
            self.other_versions.lock().extend(other);
        }
        Ok(version)
    }
}

/// Why a guest can't be used: what to correct.
#[derive(Debug)]
pub enum Unusable {
    /// Its registry did not answer.
    Away(String),
    /// It is not there, not what it must be, or no guest of a world.
    Guest(String),
    /// It is there, and of another world, or refuses its settings.
    Settings(String),
    /// The list of its versions can't be read: see [`Revisions::load`].
    Revisions(String),
}

/// What connects one guest with its manager.
pub struct Supervision {
    /// What is set aside.
    pub quarantine: Arc<Quarantine>,
    /// Versions that are to become active.
    pub handovers: mpsc::Receiver<Handover>,
    /// Where requests for the version of the failure policy go.
    pub fall_back: mpsc::UnboundedSender<FallBack>,
}

impl Version {
    /// The same without a manager, for a plan: nothing replaces the version.
    pub fn unmanaged(&self) -> Supervision {
        let mut quarantine = Quarantine::load(&self.active.instances().state_dir, self.name);
        quarantine.is_unwritten = true;
        Supervision {
            quarantine: Arc::new(quarantine),
            handovers: mpsc::channel(1).1,
            fall_back: mpsc::unbounded_channel().0,
        }
    }

    /// Fails if the active version is not the one that the configuration names.
    pub fn check_configured(self) -> Result<(), SetupError> {
        self.problem.map_or(Ok(()), |problem| Err(SetupError::Misused(problem)))
    }

    /// What its calls will be refused, for lack of any grant, of what it may ask.
    pub fn no_grants(&self) -> Vec<NoGrant> {
        let instances = self.active.instances();
        let imports = instances.program.guest.imports.iter();
        let mut missing = Vec::new();
        for (capability, granted) in imports.filter_map(|import| granted_by(import)) {
            for (access, kind) in [(Access::Read, Kind::Read), (Access::Write, Kind::Write)] {
                let may_ask = capability.functions.iter().any(|of| of.question.kind == kind);
                if may_ask && !instances.grants.allow_some(granted.name, access) {
                    let what = format!("anything of {}", granted.name);
                    missing.push(NoGrant::new(self.name, access, what, (granted.name, granted.example)));
                }
            }
        }
        missing
    }

    /// A guest without any grant for what it may ask fails at each call. Warns once, at the start.
    pub fn warn_of_missing_grants(&self) {
        self.no_grants().iter().for_each(|missing| tracing::warn!("{missing}"));
    }
}

/// Each key has its own random stream (FNV-1a of the key), so that what one draws does not depend on the others.
pub fn stream_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
