//! Connects each guest of a run with the manager of versions.

use std::sync::Arc;

use tokio::sync::mpsc;
use trueup_config::{Config, Guest, OnFailure};

use crate::ground::{Ground, Managing, Version};
use crate::lifecycle::quarantine::Quarantine;
use crate::swap::{self, FallBack, Fallen, Managed, Manager};

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

/// What the manager needs of each guest, collected before the guests run.
pub struct Management<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// What all guests share.
    pub ground: &'a Ground,
    managed: Vec<Managed>,
    /// Why versions that the configuration names are not active.
    pub problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

impl<'a> Management<'a> {
    /// Also returns the requests for the versions that failure policies name.
    pub fn new(config: &'a Config, ground: &'a Ground) -> (Self, mpsc::UnboundedReceiver<FallBack>) {
        let (fall_back, wanted) = mpsc::unbounded_channel();
        let management = Self {
            config,
            ground,
            managed: Vec::new(),
            problems: Vec::new(),
            fall_back,
        };
        (management, wanted)
    }

    /// The manager of all these guests. It reports to `events`.
    pub fn manager(self, events: mpsc::UnboundedSender<swap::Event>) -> Arc<Manager> {
        let guests = self.ground.guests().clone();
        Manager::new(guests, self.managed, events, self.ground.audit.clone())
    }

    /// The sender of requests for the version that the failure policy names.
    fn wishes(&self, name: &'static str, guest: &Guest) -> mpsc::UnboundedSender<Fallen> {
        let (wish, mut wishes) = mpsc::unbounded_channel();
        if let OnFailure::FallBack(to) = &guest.failure.on_failure {
            let (all, to) = (self.fall_back.clone(), to.clone());
            tokio::spawn(async move {
                while let Some(fallen) = wishes.recv().await {
                    let to = to.clone();
                    let fall_back = FallBack {
                        guest: name,
                        to,
                        fallen,
                    };
                    // The manager ends with the host. The requester then sees its channel closed.
                    let _ = all.send(fall_back);
                }
            });
        }
        wish
    }

    /// Passes a guest with its revisions to the manager.
    pub fn connect(&mut self, version: Version) -> Managing {
        let name = version.name;
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let quarantine = Quarantine::load(&self.config.state_dir, name).audited(self.ground.audit.clone());
        let quarantine = Arc::new(quarantine);
        let fall_back = self.wishes(name, &version.guest);
        self.problems.extend(version.problem);
        self.managed.push(Managed::new(
            (name, version.worlds),
            version.guest,
            version.active,
            version.revisions,
            hand_over,
            Arc::clone(&quarantine),
            Arc::clone(&self.ground.metrics),
        ));
        Managing {
            quarantine,
            handovers,
            fall_back,
        }
    }
}
