//! The guest that serves pods: its settings, and its connection with the manager of versions.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;
use trueup_capabilities::cri::Runtime;
use trueup_config::FailurePolicy;
use trueup_instance::Instances;
use trueup_work::host_context;
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::supervisor::Supervisor;

use super::failing::Failing;

/// The guest's setting that says from where it reads at its start.
const PHASE: &str = "checkpoint_migration_phase";

/// The guest's settings, with `checkpoint_migration_phase: 2` if they name no phase: a node that never ran the
/// original has nothing to migrate. [`Instances::settings`] must hold this; [`super::serve`] and
/// [`super::once`] set it themselves.
#[must_use]
pub fn guest_settings(mut settings: Value) -> Value {
    if settings.get(PHASE).is_none() {
        set_phase(&mut settings, PHASE_STORE);
    }
    settings
}

/// The phase in which it reads the store.
pub(super) const PHASE_STORE: u32 = 2;

pub(super) fn set_phase(settings: &mut Value, phase: u32) {
    if let Some(settings) = settings.as_object_mut() {
        settings.insert(PHASE.to_owned(), Value::from(phase));
    }
}

/// The guest that serves pods, and what connects it with its manager. A bare [`Instances`] converts to a guest
/// without a manager.
pub struct ManagedGuest {
    pub(super) active: Arc<Active>,
    pub(super) handovers: mpsc::Receiver<Handover>,
    pub(super) failing: Failing,
    /// Knows which containers exist. `None` if holders are not compared with it.
    pub(super) runtime: Option<Arc<dyn Runtime>>,
}

impl ManagedGuest {
    /// A guest whose failing requests are set aside as the policy says. Nothing compares holders with the container
    /// runtime.
    pub fn new(active: Arc<Active>, of: host_context::Supervision, policy: FailurePolicy) -> Self {
        Self {
            active,
            handovers: of.handovers,
            failing: Failing(Supervisor::new(of.quarantine, policy, of.fall_back)),
            runtime: None,
        }
    }
}

impl From<Instances> for ManagedGuest {
    fn from(mut instances: Instances) -> Self {
        instances.settings = guest_settings(instances.settings);
        Self {
            failing: Failing(Supervisor::alone(&instances)),
            active: Active::new(Arc::new(instances)),
            // Without a sender there is never a version to hand over.
            handovers: mpsc::channel(1).1,
            runtime: None,
        }
    }
}
