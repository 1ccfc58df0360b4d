//! This node: its number, and the Services on it. The loops call the guests `nodesync` and `service` and the
//! renderers one call after another, each in its one instance.
//!
//! The loop takes its inputs in a fixed order: the request to stop, versions, the source, nodes, then what is due. It
//! completes a call and everything that follows from it before it takes the next input. The recordings of the guests,
//! which name each other's entries, therefore show everything in its order.
//!
//! ```text
//! source -> Cluster (adapter) --+-> events -> service -> Rendering -> each renderer
//!                               +-> Nodes --> Numbering (nodesync, store) -> nodes -> service
//! ```

mod ending;
pub mod guests;
pub mod instance;
pub(crate) mod kind;
pub mod nodesync;
mod plan;
mod renderer_states;
pub mod rendering;
mod serving;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use trueup_capabilities::meter::Effects;
use trueup_controller::{Controller, Settings as ControllerSettings};
use trueup_work::event::{Event, Message, WorldEvent};
use trueup_work::host_context::{Supervision, Version, stream_of};
use trueup_work::input::Input;
use trueup_work::keyed::queue_settings;
use trueup_work::lifecycle::active::{Active, Handover, UrgentKey};
use trueup_work::lifecycle::failure_counts::FAILURES_MAX_ONCE;
use trueup_work::status::{Finished, Outcome};
use trueup_work::supervisor::Supervisor;

use self::instance::NodeInstance;
use self::nodesync::{CHANGES_WAITING_MAX, NumberState, Numbering};
use self::rendering::Rendering;
use self::serving::{Approval, Serving};
use self::setup::{LoadedGuest, NodeSetup};
use crate::node::guests::nodesync::NAME;
use crate::node::guests::service::adapter::Cluster;

/// How often the host checks whether the journals of idle instances need a sync to disk.
const SYNC: Duration = Duration::from_secs(1);

/// At these times the host does.
fn ticks() -> Interval {
    let mut sync = tokio::time::interval(SYNC);
    sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sync
}

/// The milliseconds since a loop started.
fn ms_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The guest in the name of an instance, `NAME/NODE`.
fn guest_of(what: &str) -> &str {
    what.split_once('/').map_or(what, |(guest, _)| guest)
}

/// How work on an input ended, as the status shows it. It took as long as the calls of its guest since the last time.
fn finished(guest: &Active, error: Option<String>, failures: u32, again_in_ms: Option<u64>) -> Finished {
    Finished {
        outcome: error.as_ref().map_or(Outcome::True, |_| Outcome::Failed),
        took: Some(guest.calls.take_time()),
        error,
        failures,
        again_in_ms,
        effects: Effects::default(),
        in_service: Vec::new(),
    }
}

/// An event that only this kind of work has: its name and content for programs, and the line about it.
fn own(name: &str, content: Value, said: Message) -> Event {
    Event::Own(WorldEvent::new("node", &json!({ name: content }), Some(said)))
}

/// The names of renderers, for people.
fn names(renderers: &[String]) -> String {
    match renderers {
        [] => "no renderer".to_owned(),
        renderers => renderers.join(", "),
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// This node's number. `None` if it has none, or should not have one.
    pub id: Option<u32>,
    /// The number of nodes that have a number, including this one.
    pub nodes: usize,
    /// The number of Services that each renderer should have.
    pub services: usize,
    /// The names of renderers that have them.
    pub rendered: Vec<String>,
    /// What is not in its desired state, and why.
    pub failed: Vec<(String, String)>,
    /// What could not be read, or is not used.
    pub problems: Vec<String>,
    /// Why it ended early. `None` if it did not.
    pub cut_short: Option<String>,
}

impl Summary {
    fn number(&mut self, numbered: Option<watch::Receiver<NumberState>>, node: &str, once: bool) {
        match numbered.map(|numbered| numbered.borrow().clone()) {
            Some(NumberState::Numbered(id)) => self.id = Some(id),
            Some(NumberState::Failed { error, .. }) => self.failed.push((format!("{NAME}/{node}"), error)),
            Some(NumberState::Pending) if once => {
                self.failed.push((NAME.to_owned(), "it has no number yet".to_owned()));
            }
            Some(NumberState::Pending) | None => {}
        }
    }
}

/// The instance of a guest, and what watches it.
pub struct Watched {
    /// The instance.
    pub instance: NodeInstance,
    /// Handles repeated failures of it.
    pub supervisor: Supervisor,
    /// Versions that are to become active.
    pub handovers: mpsc::Receiver<Handover>,
}

/// The loops of this node.
pub(crate) struct OnNode {
    node: String,
    numbering: Option<Numbering>,
    serving: Serving,
    numbered: Option<watch::Receiver<NumberState>>,
    events: mpsc::UnboundedReceiver<Event>,
    once: bool,
}

impl OnNode {
    /// Ready to run. `connect`: connects each version with its manager. `source_is_reported`: another loop reads the
    /// same source and reports its problems. With `once` the run ends when nothing is left to do, and gives up what
    /// fails too often.
    pub(crate) fn new(
        setup: NodeSetup<'_>,
        mut connect: impl FnMut(Version) -> Supervision,
        source_is_reported: bool,
        once: bool,
    ) -> Self {
        let (config, node, host_status) = (setup.config, setup.node, setup.host_status);
        let mut watched = |(version, backends): LoadedGuest, urgent: &mpsc::UnboundedSender<UrgentKey>| {
            version.active.send_urgent_to(urgent);
            let policy = version.guest.failure.clone();
            let instance = NodeInstance::new(Arc::clone(&version.active), &node.name, backends);
            let managing = connect(version);
            Watched {
                supervisor: Supervisor::new(managing.quarantine, policy, managing.fall_back),
                instance,
                handovers: managing.handovers,
            }
        };
        // Hosts that lost one store must not come back to it all at once.
        let seed = config.seed ^ stream_of(&node.name);
        let (report, events) = mpsc::unbounded_channel();
        let (feed, kube) = mpsc::channel(CHANGES_WAITING_MAX);
        let numbering = setup.nodesync.map(|loaded| {
            let (urgent, urgent_keys) = mpsc::unbounded_channel();
            let parts = nodesync::Parts {
                node: node.name.clone(),
                api: setup.etcd,
                addresses: node.addresses.clone(),
                queue: queue_settings(config, once),
                seed,
                kube,
                host_status: Arc::clone(host_status),
                events: report.clone(),
                urgent_keys,
            };
            Numbering::new(watched(loaded, &urgent), parts)
        });
        let (urgent, urgent_keys) = mpsc::unbounded_channel();
        let renderers = setup.renderers.into_iter().map(|loaded| watched(loaded, &urgent));
        let (instances, renderers) = renderers.map(|of| ((of.instance, of.supervisor), of.handovers)).unzip();
        let rendering = Rendering::new(instances);
        let mut cluster = Cluster::new(&node.name, setup.interfaces, node.source.is_cluster());
        let (mut approval, mut processor) = (None, None);
        if let Some((version, mut backends)) = setup.service {
            let active = Arc::clone(&version.active);
            cluster.quotas = Some(Arc::clone(&active.quotas));
            approval = Some(Approval::new(active, &config.state_dir, &version.guest));
            backends.renderers = Some(Arc::new(rendering.clone()));
            processor = Some(watched((version, backends), &urgent));
        }
        let repeats = node.service.as_ref().filter(|_| !once);
        let queue = ControllerSettings {
            resync_ms: repeats.map_or(0, |service| service.resync_ms),
            ..queue_settings(config, once)
        };
        let serving = Serving {
            node: node.name.clone(),
            context: node.context.clone().into(),
            cluster,
            approval,
            is_cluster: node.source.is_cluster(),
            processor,
            rendering,
            renderers,
            nodes: numbering.as_ref().map(|numbering| numbering.known.subscribe()),
            feed: numbering.as_ref().map(|_| feed),
            source_is_reported,
            host_status: Arc::clone(host_status),
            events: report,
            urgent_keys,
            controller: Controller::new(queue, seed.wrapping_add(1)),
            started: Instant::now(),
            knows_nodes: numbering.is_none(),
            progress: serving::Progress::default(),
        };
        Self {
            node: node.name.clone(),
            numbered: numbering.as_ref().map(Numbering::state),
            numbering,
            serving,
            events,
            once,
        }
    }

    /// Reconciles what the source says, to its end or until `stop`. Takes nothing in before `belongs` confirms that
    /// the state folder belongs to this cluster.
    pub(crate) async fn run(
        self,
        input: Input,
        belongs: impl Future<Output = Result<(), String>>,
        stop: impl Future<Output = ()>,
        tell: impl Fn(Event),
    ) -> Summary {
        let ending = watch::Sender::new(false);
        let mut ended = ending.subscribe();
        let numbers = async {
            if let Some(numbering) = self.numbering {
                // The sender outlives both loops.
                numbering.run(ended.wait_for(|ending| *ending).map(drop)).await;
            }
        };
        // Both loops hear of it at once. Each may then go on for a limited time.
        let stop = async {
            stop.await;
            ending.send_replace(true);
        };
        let serves = async {
            let numbered = settled(self.numbered.clone());
            let summary = self.serving.run(input, belongs, stop, numbered, self.once).await;
            ending.send_replace(true);
            summary
        };
        let both = async { tokio::join!(serves, numbers).0 };
        let mut summary = crate::reporting(self.events, tell, both).await;
        summary.number(self.numbered, &self.node, self.once);
        summary
    }
}

/// Returns when the number exists, or assigning it failed too often.
async fn settled(numbered: Option<watch::Receiver<NumberState>>) {
    let Some(mut numbered) = numbered else { return };
    let is_settled = |state: &NumberState| match state {
        NumberState::Pending => false,
        NumberState::Numbered(_) => true,
        NumberState::Failed { failures, is_over, .. } => *is_over || *failures >= FAILURES_MAX_ONCE,
    };
    // The sender outlives this.
    _ = numbered.wait_for(is_settled).await;
}
