//! What serving pod addresses needs before it begins: the guest, its storage, and the container runtime.

use std::sync::Arc;

use trueup_capabilities::Backends;
use trueup_capabilities::checkpoint::{OpenError, Store, file, json_file, simulated, tools};
use trueup_capabilities::cri::Runtime;
use trueup_capabilities::cri::remote::{self, Remote};
use trueup_capabilities::grants::{Access, OWN, SANDBOXES};
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::{CheckpointAt, Config, Guest, Ipam};
use trueup_work::ground::{Ground, Version};
use trueup_work::setup::SetupError;

use super::managing::guest_settings;
use crate::ipam::guest;

/// What serves pod addresses: the guest and its backends.
pub(crate) struct Addresses {
    pub(crate) version: Version,
    pub(crate) backends: Backends,
    /// The container runtime, which the host itself also queries.
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl Addresses {
    /// Loads the guest, has it accept its settings, and opens its storage.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn new(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<Self, SetupError> {
        warn_of_missing_ipam_grants(ipam);
        let version = Self::version(config, ipam, ground).await?;
        let runtime: Arc<dyn Runtime> = Arc::new(Remote::new(remote::Settings {
            socket: ipam.runtime_socket.clone(),
            ..remote::Settings::default()
        }));
        let backends = Backends {
            checkpoint: Some(if ground.plans() {
                copied(&ipam.checkpoint)?
            } else {
                open_store(&ipam.checkpoint, &ground.metrics)?
            }),
            sandboxes: Some(Arc::clone(&runtime)),
            ..ground.backends(config.seed, &ipam.adapter.instance, &Arc::default())
        };
        Ok(Self {
            version,
            backends,
            runtime,
        })
    }

    /// Checks whether it could be created, beside one that runs and holds the storage.
    ///
    /// # Errors
    /// One line: what can't be used.
    pub(crate) async fn check(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<(), SetupError> {
        Self::version(config, ipam, ground).await?.check_wish()
    }

    async fn version(config: &Config, ipam: &Ipam, ground: &Ground) -> Result<Version, SetupError> {
        let guest = Guest {
            settings: guest_settings(ipam.guest.settings.clone()),
            ..ipam.guest.clone()
        };
        let version = ground.version(config, guest::NAME, guest::WORLDS, &guest).await?;
        // Its manager gets the settings as they are configured.
        let guest = ipam.guest.clone();
        Ok(Version { guest, ..version })
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

/// A store in memory with what the configured one has. Another process may have that one open.
fn copied(at: &CheckpointAt) -> Result<Arc<dyn Store>, SetupError> {
    let saved = match at {
        CheckpointAt::File { path, .. } | CheckpointAt::JsonFile { path, .. } => {
            let kind = tools::kind_of(path).map_err(SetupError::failed)?;
            let looked = kind.map(|_| tools::look(path)).transpose();
            looked.map_err(SetupError::failed)?.map(|picture| picture.saved)
        }
        CheckpointAt::Simulated => None,
    };
    Ok(Arc::new(simulated::Simulated::new(Arc::default(), saved)))
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
