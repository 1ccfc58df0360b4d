//! The guest that serves pods: its settings, and its connection with the manager of versions.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use trueup_capabilities::cri::Runtime;
use trueup_config::FailurePolicy;
use trueup_work::instances::Instances;
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::lifecycle::quarantine::{Quarantine, SetAside};
use trueup_work::swap::Fallen;

use super::failing::Failing;

/// The guest's setting that says from where it reads at its start.
pub(super) const PHASE: &str = "checkpoint_migration_phase";

/// The phase in which it reads from the container runtime.
pub(super) const PHASE_FROM_RUNTIME: u64 = 1;

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
pub struct Managing {
    pub(crate) active: Arc<Active>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) failing: Failing,
    /// Knows which containers exist. `None` if holders are not compared with it.
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
}

impl From<Instances> for Managing {
    fn from(mut instances: Instances) -> Self {
        instances.settings = guest_settings(instances.settings);
        // Without a sender there is never a version to hand over.
        let (_, handovers) = mpsc::channel(1);
        Self {
            active: Active::new(Arc::new(instances)),
            handovers,
            failing: Failing::default(),
            runtime: None,
        }
    }
}

/// The other end of [`Managing`], for use without a host and its commands: hands versions over, and shows what is set
/// aside.
pub struct Hand {
    handovers: mpsc::Sender<Handover>,
    quarantine: Arc<Quarantine>,
    fallen: mpsc::UnboundedReceiver<Fallen>,
}

impl Managing {
    /// A guest whose failing requests are set aside as the policy says: in the state folder of the instances, so that
    /// it survives this process. Only [`Hand::fallen`] handles requests to fall back.
    pub fn watched(instances: Instances, policy: FailurePolicy) -> (Self, Hand) {
        let quarantine = Arc::new(Quarantine::load(&instances.state_dir, instances.name));
        let (wishes, fallen) = mpsc::unbounded_channel();
        let (hand, handovers) = mpsc::channel(1);
        let this = Self {
            handovers,
            failing: Failing::new(Arc::clone(&quarantine), policy, wishes),
            ..Self::from(instances)
        };
        let hand = Hand {
            handovers: hand,
            quarantine,
            fallen,
        };
        (this, hand)
    }
}

impl Hand {
    /// Makes another version active, with the state of the one before.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn hand_over(&self, mut instances: Instances) -> Result<(), String> {
        instances.settings = guest_settings(instances.settings);
        let (reply, replied) = oneshot::channel();
        let handover = Handover {
            instances: Arc::new(instances),
            commit: Box::new(|| Ok(())),
            reply,
        };
        let gone = || "the instance is served no more".to_owned();
        self.handovers.send(handover).await.map_err(|_| gone())?;
        replied.await.map_err(|_| gone())?
    }

    /// The requests that are set aside, by name.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.quarantine.all()
    }

    /// Why another version is requested. Taking it answers the request. `None` if there is no request.
    pub fn fallen(&mut self) -> Option<String> {
        self.fallen.try_recv().ok().map(|fallen| fallen.why)
    }
}
