//! Runs the loops side by side in one task, until each has ended.
//!
//! Decides nothing about what a loop does: only when they may take objects in, and that they stop together.

use std::path::Path;

use tokio::sync::{OnceCell, watch as channel};

use super::pods::Pods;
use super::{Ended, Extent};
use crate::event::Event;
use crate::lbaas::Services;
use crate::neg::Negs;
use crate::node::OnNode;
use crate::work::cluster::{self, NotOurs};
use crate::work::input::Input;
use crate::work::keyed::Keyed;

/// The loops of a run, ready to run, each with its own reading of the source.
pub(super) struct Loops<'a, T> {
    pub(super) services: Option<(Keyed<Services<'a>, T>, Input)>,
    pub(super) negs: Option<(Keyed<Negs<'a>, T>, Input)>,
    pub(super) node: Option<(OnNode, Input)>,
    pub(super) pods: Option<Pods>,
}

impl<T> Default for Loops<'_, T> {
    fn default() -> Self {
        Self {
            services: None,
            negs: None,
            node: None,
            pods: None,
        }
    }
}

impl<T: Fn(Event) + Copy> Loops<'_, T> {
    /// Runs all loops to their ends. If the run was to go on, the end of one stops the others.
    pub(super) async fn run(self, belongs: &Belongs<'_>, stopping: &Stopping, tell: T) -> Ended {
        let Self {
            services,
            negs,
            node,
            pods,
        } = self;
        let services = async {
            let (services, input) = services?;
            // Each of these futures is large and one task runs them all, so each is boxed.
            let summary = Box::pin(services.run(input, belongs.confirmed(), stopping.wanted())).await;
            stopping.one_ended();
            Some(summary)
        };
        let negs = async {
            let (negs, input) = negs?;
            let summary = Box::pin(negs.run(input, belongs.confirmed(), stopping.wanted())).await;
            stopping.one_ended();
            Some(summary)
        };
        let node = async {
            let (on_node, input) = node?;
            let tell = |event| tell(Event::Node(event));
            let summary = Box::pin(on_node.run(input, belongs.confirmed(), stopping.wanted(), tell)).await;
            stopping.one_ended();
            Some(summary)
        };
        let addresses = async {
            let ended = Box::pin(pods?.run(stopping.wanted(), tell)).await;
            stopping.one_ended();
            Some(ended)
        };
        let (services, negs, node, addresses) = tokio::join!(services, negs, node, addresses);
        let (addresses, error) = match addresses {
            Some(Ok(summary)) => (summary, None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Ended {
            services,
            negs,
            node,
            addresses,
            error,
        }
    }
}

/// Whether the state folder belongs to the cluster of the source. Asked once, and all loops wait for the answer.
pub(super) struct Belongs<'a> {
    state_dir: &'a Path,
    /// `None` if there is no cluster, or the check ran before anything was listed.
    client: Option<&'a kube::Client>,
    answer: OnceCell<Result<(), NotOurs>>,
}

impl<'a> Belongs<'a> {
    pub(super) fn new(state_dir: &'a Path, client: Option<&'a kube::Client>) -> Self {
        Self {
            state_dir,
            client,
            answer: OnceCell::new(),
        }
    }

    async fn confirmed(&self) -> Result<(), NotOurs> {
        let ask = async || match self.client {
            Some(client) => cluster::belongs(self.state_dir, client).await,
            None => Ok(()),
        };
        self.answer.get_or_init(ask).await.clone()
    }
}

/// The stop that all loops of a run wait for.
pub(super) struct Stopping {
    extent: Extent,
    wanted: channel::Sender<bool>,
}

impl Stopping {
    pub(super) fn new(extent: Extent) -> Self {
        Self {
            extent,
            wanted: channel::Sender::new(false),
        }
    }

    pub(super) fn stop(&self) {
        self.wanted.send_replace(true);
    }

    /// A loop that can't go on ends the others too, unless each was to end by itself.
    fn one_ended(&self) {
        if self.extent == Extent::UntilStopped {
            self.stop();
        }
    }

    async fn wanted(&self) {
        // The sender outlives the loops.
        _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }
}
