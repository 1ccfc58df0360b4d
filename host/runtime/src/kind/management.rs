//! Connects each guest of a run with the manager of versions.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::config::{Config, Guest, OnFailure};
use crate::lifecycle::active::{Active, Handover};
use crate::lifecycle::quarantine::Quarantine;
use crate::swap::{self, FallBack, Fallen, Managed, Manager, Revisions};
use crate::work::ground::Ground;

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

/// What the manager needs of each guest, collected before the guests run.
pub(crate) struct Management<'a> {
    pub(crate) config: &'a Config,
    pub(crate) ground: &'a Ground,
    managed: Vec<Managed>,
    /// Why versions that the configuration names are not active.
    pub(crate) problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

/// A guest of the configuration, loaded.
pub(crate) struct Loaded<'g> {
    pub(crate) name: &'static str,
    pub(crate) worlds: &'static [&'static str],
    pub(crate) guest: &'g Guest,
    pub(crate) active: &'g Arc<Active>,
    pub(crate) revisions: Revisions,
    /// Why the version that the configuration names is not active. `None` if it is.
    pub(crate) problem: Option<String>,
}

/// What connects one guest with its manager.
pub(crate) struct Managing {
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) fall_back: mpsc::UnboundedSender<Fallen>,
}

impl<'a> Management<'a> {
    /// Also returns the requests for the versions that failure policies name.
    pub(crate) fn new(config: &'a Config, ground: &'a Ground) -> (Self, mpsc::UnboundedReceiver<FallBack>) {
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
    pub(crate) fn manager(self, events: mpsc::UnboundedSender<swap::Event>) -> Arc<Manager> {
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
    pub(crate) fn connect(&mut self, loaded: Loaded<'_>) -> Managing {
        let Loaded {
            name,
            worlds,
            guest,
            active,
            revisions,
            problem,
        } = loaded;
        let (hand_over, handovers) = mpsc::channel(HANDOVERS_MAX);
        let quarantine = Quarantine::load(&self.config.state_dir, name).audited(self.ground.audit.clone());
        let quarantine = Arc::new(quarantine);
        let fall_back = self.wishes(name, guest);
        self.problems.extend(problem);
        self.managed.push(Managed::new(
            (name, worlds),
            guest.clone(),
            Arc::clone(active),
            revisions,
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
