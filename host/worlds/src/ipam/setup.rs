//! What serving pod addresses needs before it begins: the guest, its storage, and the container runtime.

use std::sync::Arc;

use trueup_capabilities::Backends;
use trueup_capabilities::checkpoint::tools::{self, ToolError, Verdict};
use trueup_capabilities::checkpoint::{OpenError, Simulated, Store, file, json_file};
use trueup_capabilities::cri::Runtime;
use trueup_capabilities::cri::remote::{self, Remote};
use trueup_capabilities::grants::{Access, OWN, SANDBOXES};
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::{AdminAt, CheckpointAt, Config, Guest, Ipam};
use trueup_work::host_context::{HostContext, Version};
use trueup_work::needs::{Needs, NoGrant, Probe, Problem};
use trueup_work::setup::SetupError;

use super::managed::guest_settings;
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
    pub(crate) async fn new(config: &Config, ipam: &Ipam, host_context: &HostContext) -> Result<Self, SetupError> {
        no_grants(ipam).iter().for_each(|missing| tracing::warn!("{missing}"));
        let version = Self::version(config, ipam, host_context).await?;
        let runtime: Arc<dyn Runtime> = Arc::new(container_runtime(ipam));
        let backends = Backends {
            checkpoint: Some(if host_context.plans() {
                copied(&ipam.checkpoint)?
            } else {
                open_store(&ipam.checkpoint, &host_context.metrics)?
            }),
            sandboxes: Some(Arc::clone(&runtime)),
            ..host_context.backends(config.seed, &ipam.adapter.instance, &Arc::default())
        };
        Ok(Self {
            version,
            backends,
            runtime,
        })
    }

    async fn version(config: &Config, ipam: &Ipam, host_context: &HostContext) -> Result<Version, SetupError> {
        let version = host_context
            .version(config, guest::NAME, guest::WORLDS, &called(ipam))
            .await?;
        // Its manager gets the settings as they are configured.
        let guest = ipam.guest.clone();
        Ok(Version { guest, ..version })
    }
}

/// The guest with the phase that the host adds to its settings.
fn called(ipam: &Ipam) -> Guest {
    Guest {
        settings: guest_settings(ipam.guest.settings.clone()),
        ..ipam.guest.clone()
    }
}

fn container_runtime(ipam: &Ipam) -> Remote {
    Remote::new(remote::Settings {
        socket: ipam.runtime_socket.clone(),
        ..remote::Settings::default()
    })
}

/// What serving pod addresses needs: its guest, its storage, and the container runtime if something asks it.
pub(super) fn needs(ipam: &Ipam) -> Needs<'_> {
    let mut looks = vec![Probe::new("checkpoint", async { whole_store(&ipam.checkpoint) })];
    if ipam.reads_from_runtime() || ipam.runtime_socket.is_some() {
        looks.push(Probe::new("container runtime", async {
            let known = container_runtime(ipam).list_ids().await;
            let next = "crictl info: if that fails too, start the runtime; or correct `socket` in [backend.cri]";
            known
                .map(|known| format!("answers, and knows {} sandboxes", known.len()))
                .map_err(|error| Problem::new(error, next))
        }));
    }
    Needs {
        guests: vec![(guest::NAME, guest::WORLDS, called(ipam))],
        no_grants: Some(no_grants(ipam)),
        looks,
        listens: vec![("adapter.ipam.socket", AdminAt::Unix(ipam.adapter.socket.clone()))],
        ..Needs::default()
    }
}

/// A guest without the grants it needs fails at each call.
fn no_grants(ipam: &Ipam) -> Vec<NoGrant> {
    let own = format!("\"{OWN}\"");
    let mut missing = Vec::new();
    for access in [Access::Read, Access::Write] {
        if !ipam.guest.grants.allow("checkpoint", access, OWN) {
            missing.push(NoGrant::new(
                guest::NAME,
                access,
                "its checkpoint",
                ("checkpoint", &own),
            ));
        }
    }
    if ipam.reads_from_runtime() && !ipam.guest.grants.allow("cri", Access::Read, SANDBOXES) {
        let what = "the container runtime, where phase 1 reads";
        let sandboxes = format!("\"{SANDBOXES}\"");
        missing.push(NoGrant::new(guest::NAME, Access::Read, what, ("cri", &sandboxes)));
    }
    missing
}

/// Where the store is, if it is whole or nothing was ever stored there.
pub(super) fn whole_store(at: &CheckpointAt) -> Result<String, Problem> {
    let path = match at {
        CheckpointAt::File { path, .. } | CheckpointAt::JsonFile { path, .. } => path,
        CheckpointAt::Simulated => return Ok("simulated, in memory".to_owned()),
    };
    let stored = path.display().to_string();
    let next = format!("trueup checkpoint verify {stored}; move a damaged one away, or restore an earlier generation");
    match tools::verify(path) {
        Ok((_, Verdict::Corrupt { text })) => Err(Problem::new(text, next)),
        Ok(_) | Err(ToolError::Misused(_)) => Ok(stored),
        Err(error) => Err(Problem::new(error, next)),
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
    Ok(Arc::new(Simulated::new(saved)))
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
            json_file::JsonFile::open(path, keep_generations).map(|store| Arc::new(store) as _)
        }
        CheckpointAt::Simulated => Ok(Arc::new(Simulated::new(None))),
    };
    store.map_err(SetupError::failed)
}
