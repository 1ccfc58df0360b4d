//! Connects each guest of a run with the manager of versions.

use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_config::Config;

use crate::host_context::{HostContext, Supervision, Version};
use crate::lifecycle::quarantine::Quarantine;
use crate::swap::{self, FallBack, Managed, Manager};

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

/// What the manager needs of each guest, collected before the guests run.
pub struct Management<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// What all guests share.
    pub host_context: &'a HostContext,
    managed: Vec<Managed>,
    /// Why versions that the configuration names are not active.
    pub problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

impl<'a> Management<'a> {
    /// Also returns the requests for the versions that failure policies name.
    pub fn new(config: &'a Config, host_context: &'a HostContext) -> (Self, mpsc::UnboundedReceiver<FallBack>) {
        let (fall_back, wanted) = mpsc::unbounded_channel();
        let management = Self {
            config,
            host_context,
            managed: Vec::new(),
            problems: Vec::new(),
            fall_back,
        };
        (management, wanted)
    }

    /// The manager of all these guests. It reports to `events`.
    pub fn manager(self, events: mpsc::UnboundedSender<swap::Event>) -> Arc<Manager> {
        let guests = self.host_context.guests().clone();
        Manager::new(guests, self.managed, events, self.host_context.audit.clone())
    }

    /// Passes a guest with its revisions to the manager.
    pub fn connect(&mut self, version: Version) -> Supervision {
        let name = version.name;
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let quarantine = Quarantine::load(&self.config.state_dir, name).audited(self.host_context.audit.clone());
        for entry in quarantine.all() {
            let host_status = &self.host_context.host_status;
            host_status.failed_before(name, &entry.instance, entry.at_ms);
        }
        let quarantine = Arc::new(quarantine);
        self.problems.extend(version.problem);
        self.managed.push(Managed {
            name,
            worlds: version.worlds,
            config: version.guest,
            state_dir: self.config.state_dir.clone(),
            active: version.active,
            revisions: Arc::new(version.revisions.into()),
            handovers: hand_over,
            quarantine: Arc::clone(&quarantine),
            metrics: Arc::clone(&self.host_context.metrics),
            changing: tokio::sync::Mutex::default(),
            compared: parking_lot::Mutex::default(),
            promotion: parking_lot::Mutex::default(),
        });
        Supervision {
            quarantine,
            handovers,
            fall_back: self.fall_back.clone(),
        }
    }
}
