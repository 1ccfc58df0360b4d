//! A loop before its first batch: what it begins with, from the configuration and the state folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use trueup_base::clock::SystemClock;
use trueup_capabilities::Backends;
use trueup_capabilities::meter::Effects;
use trueup_config::{Config, Guest};
use trueup_controller::{Backoff, Controller, Settings as ControllerSettings};
use trueup_instance::Worlds;
use trueup_sources::Source;

use super::turn::Shared;
use super::{IDLE_INSTANCES_MAX, Keyed, LoopContext, Reconciler};
use crate::decisions::{Cause, PendingCauses};
use crate::host_context::{HostContext, Version};
use crate::lifecycle::active::Active;
use crate::object_counts::ObjectCounts;
use crate::setup::SetupError;
use crate::supervisor::Supervisor;

/// A guest with a loop of keys, loaded as its section says: what a run or a plan works with, beside its world.
pub struct KeyedSetup<'c> {
    /// The configuration.
    pub config: &'c Config,
    /// What all guests of this process share.
    pub host_context: &'c HostContext,
    /// Its section of the configuration.
    pub guest: &'c Guest,
    /// Where the objects come from.
    pub source: &'c Source,
    /// The version that decides.
    pub active: Arc<Active>,
    /// The same, until it is connected with its manager.
    pub(crate) version: Mutex<Option<Version>>,
}

impl<'c> KeyedSetup<'c> {
    /// Loads the guest, and has it accept its settings.
    ///
    /// # Errors
    /// One line: why it can't be used.
    pub async fn new(
        (config, host_context): (&'c Config, &'c HostContext),
        (name, worlds): (&'static str, Worlds),
        (guest, source): (&'c Guest, &'c Source),
    ) -> Result<Self, SetupError> {
        let version = host_context.version(config, name, worlds, guest).await?;
        Ok(Self {
            config,
            host_context,
            guest,
            source,
            active: Arc::clone(&version.active),
            version: Mutex::new(Some(version)),
        })
    }

    /// A guest without any grant for what it may ask fails at each call. Warns once, at the start.
    pub fn warn_of_missing_grants(&self) {
        self.version.lock().iter().for_each(Version::warn_of_missing_grants);
    }

    /// What the instance of `key` has without any capability.
    pub fn backends(&self, key: &str) -> Backends {
        self.host_context.backends(self.config.seed, key, &self.active.quotas)
    }
}

impl<'a, W: Reconciler> Keyed<'a, W> {
    /// Ready to run.
    ///
    /// # Errors
    /// If the state folder can't be read.
    pub(crate) fn new(setup: &KeyedSetup<'_>, world: W, context: LoopContext<'a>) -> Result<Self, SetupError> {
        let (config, host_context, active) = (setup.config, setup.host_context, &setup.active);
        let (quarantine, fall_back) = (&context.supervision.quarantine, &context.supervision.fall_back);
        let supervisor = Supervisor::new(Arc::clone(quarantine), setup.guest.failure.clone(), fall_back.clone());
        let (urgent, urgent_keys) = mpsc::unbounded_channel();
        active.send_urgent_to(&urgent);
        let held = ObjectCounts::open(&config.state_dir, W::RULES.guest).map_err(SetupError::misused)?;
        let holdings = &active.quotas.holdings;
        holdings.guard(setup.guest.approve_above, Arc::new(SystemClock));
        holdings.restore(held.kept.clone());
        let workers = usize::try_from(config.run.workers).unwrap_or(usize::MAX);
        let is_reloaded = host_context.host_status.is_reloaded();
        let first_cause = if is_reloaded { Cause::Reloaded } else { Cause::Start };
        Ok(Self {
            world,
            shared: Shared::new(active, workers, W::RULES.cut),
            host_status: Arc::clone(&host_context.host_status),
            metrics: Arc::clone(&host_context.metrics),
            workers,
            started: Instant::now(),
            controller: Controller::new(queue_settings(config, context.once), config.seed),
            object_counts: held,
            counts_are_checked: false,
            problems: Vec::new(),
            source: setup.source.clone(),
            held: BTreeSet::new(),
            jobs: JoinSet::new(),
            tasks: HashMap::new(),
            running: BTreeMap::new(),
            idle: LruCache::new(NonZeroUsize::new(IDLE_INSTANCES_MAX).unwrap_or(NonZeroUsize::MIN)),
            last_results: BTreeMap::new(),
            effects: Effects::default(),
            unreported: BTreeMap::new(),
            supervisor,
            pending: PendingCauses::new(first_cause),
            became_active: None,
            urgent_keys,
            versions: 0,
            context,
        })
    }
}

/// How a queue retries and looks again. With `once` it does not look again.
pub fn queue_settings(config: &Config, once: bool) -> ControllerSettings {
    let run = &config.run;
    ControllerSettings {
        backoff: Backoff {
            initial_ms: run.backoff_initial_ms,
            max_ms: run.backoff_max_ms,
            ..Backoff::default()
        },
        resync_ms: if once { 0 } else { run.resync_ms },
    }
}
