//! What all guests of one process share, and the version of each guest that decides.

use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_capabilities::audit::Audit;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_engine::{Engine, Options as EngineOptions};
use trueup_journal::{Files, OPEN_FILES_MAX};
use trueup_sources::Source;

use crate::board::{Board, Facts};
use crate::config::{Config, Guest, Ipam, Neg, ThisNode};
use crate::guests::Worlds;
use crate::guests::load::Loader;
use crate::instances::{Instances, Recorded};
use crate::lifecycle::active::{Active, Handover};
use crate::lifecycle::quarantine::Quarantine;
use crate::registry::{Registry, Store as GuestStore};
use crate::setup::SetupError;
use crate::swap::{self, Fallen, Guests, Revisions, Wish};

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
    /// An engine that caches compiled guests in the state folder. A guest must implement one of `worlds`.
    ///
    /// # Errors
    /// If this machine can't run guests.
    pub fn new(config: &Config, registry: &Registry, worlds: Worlds) -> Result<Self, SetupError> {
        let options = EngineOptions {
            cache_dir: Some(config.state_dir.join("cache")),
            ..EngineOptions::default()
        };
        let engine = Engine::new(&options).map_err(SetupError::misused)?;
        Ok(Self {
            guests: Guests::new(
                Loader {
                    engine: engine.clone(),
                    registry: registry.at(&config.file, &config.state_dir),
                    worlds,
                },
                GuestStore::at(&config.state_dir),
            ),
            engine,
            metrics: Arc::default(),
            files: Files::new(OPEN_FILES_MAX),
            writes: false,
            audit: None,
            board: Board::new(Facts {
                config: config.file.clone(),
                state_dir: config.state_dir.clone(),
                source: config.source().map(Source::kind),
                pods: config.world::<Ipam>().map(|ipam| ipam.adapter.instance.clone()),
                negs: config.world::<Neg>().is_some(),
                node: config.world::<ThisNode>().map(|node| node.name.clone()),
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
        let wish = Wish {
            name,
            worlds,
            guest,
            state_dir: &config.state_dir,
        };
        let begun = swap::begin(&self.guests, &wish, self.writes, &instances).await?;
        Ok(Version {
            name,
            worlds,
            guest: guest.clone(),
            active: if self.writes {
                Active::new(Arc::new(begun.instances))
            } else {
                Active::planning(Arc::new(begun.instances))
            },
            revisions: begun.revisions,
            problem: begun.problem,
        })
    }
}

/// The version of a guest that decides.
pub(crate) struct Version {
    /// The name in `[guests.NAME]`.
    pub(crate) name: &'static str,
    pub(crate) worlds: Worlds,
    pub(crate) guest: Guest,
    pub(crate) active: Arc<Active>,
    /// The versions that decided before.
    pub(crate) revisions: Revisions,
    /// Why the version that the configuration names was refused. `None` if it was not.
    pub(crate) problem: Option<String>,
}

/// What connects one guest with its manager.
pub(crate) struct Managing {
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) fall_back: mpsc::UnboundedSender<Fallen>,
}

impl Version {
    /// Fails if the active version is not the one that the configuration names.
    pub(crate) fn check_wish(self) -> Result<(), SetupError> {
        self.problem.map_or(Ok(()), |problem| Err(SetupError::Misused(problem)))
    }
}

/// Each key has its own random stream (FNV-1a of the key), so that what one draws does not depend on the others.
pub(crate) fn stream_of(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
