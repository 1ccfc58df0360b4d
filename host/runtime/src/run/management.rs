//! Connects each guest of a run with the manager of versions.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Extent;
use crate::config::{Config, Guest, Ipam, OnFailure};
use crate::guests;
use crate::ipam::{self, setup::Addresses};
use crate::lifecycle::active::Active;
use crate::lifecycle::quarantine::Quarantine;
use crate::node::{self, NodeSetup};
use crate::swap::{self, FallBack, Fallen, Managed, Manager, Revisions};
use crate::work::ground::Ground;
use crate::work::keyed;
use crate::work::leading::Acts;

/// The maximum number of versions that wait to be handed over. Changes of one guest come one after another.
const HANDOVERS_MAX: usize = 1;

/// What the manager needs of each guest, collected before the guests run.
pub(super) struct Management<'a> {
    pub(super) config: &'a Config,
    pub(super) ground: &'a Ground,
    pub(super) extent: Extent,
    managed: Vec<Managed>,
    /// Why versions that the configuration names are not active.
    pub(super) problems: Vec<String>,
    fall_back: mpsc::UnboundedSender<FallBack>,
}

/// A guest of the configuration, loaded.
struct Loaded<'g> {
    name: &'static str,
    worlds: &'static [&'static str],
    guest: &'g Guest,
    active: &'g Arc<Active>,
    revisions: Revisions,
    problem: Option<String>,
}

impl<'a> Management<'a> {
    /// Also returns the requests for the versions that failure policies name.
    pub(super) fn new(
        config: &'a Config,
        ground: &'a Ground,
        extent: Extent,
    ) -> (Self, mpsc::UnboundedReceiver<FallBack>) {
        let (fall_back, wanted) = mpsc::unbounded_channel();
        let management = Self {
            config,
            ground,
            extent,
            managed: Vec::new(),
            problems: Vec::new(),
            fall_back,
        };
        (management, wanted)
    }

    /// The manager of all these guests. It reports to `events`.
    pub(super) fn manager(self, events: mpsc::UnboundedSender<swap::Event>) -> Arc<Manager> {
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
    fn connect(&mut self, loaded: Loaded<'_>) -> node::Managing {
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
        node::Managing {
            quarantine,
            handovers,
            fall_back,
        }
    }

    /// For a guest that works by key.
    pub(super) fn keyed(
        &mut self,
        (name, worlds): (&'static str, &'static [&'static str]),
        guest: &Guest,
        (active, revisions, problem): (&Arc<Active>, &mut Revisions, &mut Option<String>),
        (acts, source_is_reported): (Acts, bool),
    ) -> keyed::Managing {
        let node::Managing {
            quarantine,
            handovers,
            fall_back,
        } = self.connect(Loaded {
            name,
            worlds,
            guest,
            active,
            revisions: std::mem::take(revisions),
            problem: problem.take(),
        });
        keyed::Managing {
            quarantine,
            handovers,
            fall_back,
            acts,
            source_is_reported,
            once: self.extent == Extent::Once,
        }
    }

    pub(super) fn node(&mut self, setup: &mut NodeSetup) -> node::AllManaging {
        let mut managing = |seated: &mut node::Seated| {
            self.connect(Loaded {
                name: seated.name,
                worlds: seated.worlds,
                guest: &seated.guest,
                active: &seated.active,
                revisions: std::mem::take(&mut seated.revisions),
                problem: seated.problem.take(),
            })
        };
        node::AllManaging {
            nodesync: setup.nodesync.as_mut().map(&mut managing),
            service: setup.service.as_mut().map(&mut managing),
            renderers: setup.renderers.iter_mut().map(&mut managing).collect(),
            source_is_reported: self.config.lbaas.is_some() || self.config.neg.is_some(),
            once: self.extent == Extent::Once,
        }
    }

    pub(super) fn addresses(&mut self, ipam: &Ipam, addresses: Addresses) -> ipam::Managing {
        let node::Managing {
            quarantine,
            handovers,
            fall_back,
        } = self.connect(Loaded {
            name: guests::ipam::NAME,
            worlds: guests::ipam::WORLDS,
            guest: &ipam.guest,
            active: &addresses.active,
            revisions: addresses.revisions,
            problem: addresses.problem,
        });
        ipam::Managing {
            active: addresses.active,
            handovers,
            failing: ipam::Failing::new(quarantine, ipam.guest.failure.clone(), fall_back),
            runtime: ipam.runtime_socket.as_ref().map(|_| addresses.runtime),
        }
    }
}
