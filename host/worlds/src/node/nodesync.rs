//! This node's number, and all nodes as the guest `nodesync` knows them: feeds it the changes of the store and of
//! Kubernetes one after another.
//!
//! If the guest fails, the host calls it again with a fresh listing each time and a growing pause, for ever: a
//! request that was cut may have stored something, which only a listing shows. If another node takes the number, that
//! ends it.
//!
//! ```text
//! store: listing, watch --+-> records --+
//! Kubernetes: Nodes ------+-> nodes ----+-> resync | update -> get-all-nodes -> the loop of Services
//! configuration: addresses --------------> publish-node-ips
//! ```

mod following;
mod publishing;
mod taking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Shared;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use trueup_capabilities::etcd::{self, Followed};
use trueup_config::Address;
use trueup_controller::{Controller, Outcome, Settings as ControllerSettings};
use trueup_journal::By;
use trueup_work::event::{Event, Message};
use trueup_work::lifecycle::active::{Handover, UrgentKey};
use trueup_work::lifecycle::failure::Failure;
use trueup_work::status::HostStatus;

use self::following::Following;
use super::ending::{ending, run_turns};
use super::{SYNC, Watched, finished, guest_of, ms_since, own, ticks};
use crate::node::guests::nodesync::{
    Change, ClusterState, Error, KubeNode, Node, NodeUpdate, Nothing, Resync, Update, VppNode,
};

/// The guest's setting of this name, and its default.
const KEY_PREFIX: (&str, &str) = ("key_prefix", "/vnf-agent/contiv-ksr/");

/// The part of each record's key after the prefix.
const ALLOCATED_IDS: &str = "allocatedIDs/";

/// The maximum number of waiting changes of Kubernetes' Nodes. Above it, the loop that sends them blocks.
pub(super) const CHANGES_WAITING_MAX: usize = 1_024;

/// All nodes with a number, and the entry of the recording from which they follow.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownNodes {
    pub(super) nodes: Vec<Node>,
    pub(super) by: Option<By>,
    /// Whether the guest had all of Kubernetes' Nodes. Without them, a node lacks the addresses that Kubernetes knows.
    pub(super) has_kube_nodes: bool,
}

/// The state of the numbering.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NumberState {
    /// There is no result yet.
    #[default]
    Pending,
    /// This node's number.
    Numbered(u32),
    /// Why the node has no number, or lost its correct one.
    Failed {
        /// One line.
        error: String,
        /// How often in a row it failed.
        failures: u32,
        /// This process does not try again.
        is_over: bool,
    },
}

/// The parts of the numbering.
pub struct Parts {
    /// The name of the node.
    pub node: String,
    /// The store of the records.
    pub api: Arc<dyn etcd::Api>,
    /// The node's addresses, to be published in its record.
    pub addresses: Vec<Address>,
    /// For the queue of listings.
    pub queue: ControllerSettings,
    /// Of the pauses after failures.
    pub seed: u64,
    /// Changes of Kubernetes' Nodes. The first ones are all of them.
    pub kube: mpsc::Receiver<Vec<Change>>,
    /// Shows the state to operators.
    pub host_status: Arc<HostStatus>,
    /// Where events go.
    pub events: mpsc::UnboundedSender<Event>,
    /// An operator's requests for a new listing.
    pub urgent_keys: mpsc::UnboundedReceiver<UrgentKey>,
}

/// The loop of the numbering.
pub struct Numbering {
    guest: Watched,
    parts: Parts,
    key: String,
    /// At rest while a pause is on, or if it is over for good.
    following: Following,
    prefix: String,
    /// With one key: the listing.
    controller: Controller<()>,
    started: Instant,
    /// All nodes with a number.
    pub(super) known: watch::Sender<KnownNodes>,
    state: watch::Sender<NumberState>,
    progress: Progress,
}

/// What the loop has found and done so far.
#[derive(Default)]
struct Progress {
    publish_at: Option<Instant>,
    is_synced: bool,
    /// The number belongs to another node: this instance gets no more calls.
    is_over: bool,
    id: u32,
    /// How another host last overwrote this node's record, as reported. `None` if it did not happen.
    overwritten: Option<String>,
    /// The number that was last reported. `None` if none was.
    reported: Option<u32>,
    records: BTreeMap<u32, VppNode>,
    /// By id: why the value of a key is not a valid record.
    unreadable: BTreeMap<u32, String>,
    /// Why this node's addresses are not in its record. `None` if they are, or nothing has failed so far.
    unpublished: Option<String>,
    kube_nodes: BTreeMap<String, KubeNode>,
    /// Whether the guest got them all.
    has_kube_nodes: bool,
}

impl Numbering {
    /// Ready to run. The settings of `guest` name the node.
    pub fn new(guest: Watched, parts: Parts) -> Self {
        let instances = guest.instance.slot.instances();
        let (setting, default) = KEY_PREFIX;
        let set = instances.settings.get(setting).and_then(serde_json::Value::as_str);
        let prefix = format!("{}{ALLOCATED_IDS}", set.unwrap_or(default));
        Self {
            key: guest.instance.name(),
            guest,
            following: Following::new(Arc::clone(&parts.api), prefix.clone()),
            prefix,
            controller: Controller::new(parts.queue, parts.seed),
            parts,
            started: Instant::now(),
            progress: Progress::default(),
            known: watch::Sender::default(),
            state: watch::Sender::default(),
        }
    }

    /// The state of the numbering. Observes changes.
    pub fn state(&self) -> watch::Receiver<NumberState> {
        self.state.subscribe()
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let beating = self.parts.host_status.begin_loop("nodesync");
        let ending = ending(stop);
        run_turns(self.turns(ending.clone()), ending, beating, "nodes").await;
        self.following.end().await;
        self.guest.instance.slot.sync();
    }

    async fn turns(&mut self, ending: Shared<impl Future<Output = Instant>>) {
        // The nodes that were known before, until there is a listing.
        if let Err(failure) = self.publish_nodes().await {
            tracing::warn!("the guest gets the nodes later: {}", failure.error);
            self.known.send_replace(KnownNodes::default());
        }
        self.enqueue();
        let mut sync = ticks();
        loop {
            self.take_ready().await;
            let pause = self.pause();
            tokio::select! {
                biased;
                _ = ending.clone() => return,
                Some(handover) = self.guest.handovers.recv() => self.hand_over(handover).await,
                // The operator may have gone; the host lists all the same.
                Some((_, reply)) = self.parts.urgent_keys.recv() => drop(reply.send(self.list_first())),
                Some(changes) = self.parts.kube.recv() => self.take_kube(changes).await,
                Some(followed) = self.following.next() => self.take_followed(followed).await,
                () = tokio::time::sleep(pause) => {}
                _ = sync.tick() => self.guest.instance.slot.tick(),
            }
        }
    }

    fn pause(&self) -> Duration {
        let due_ms = self.controller.next_due_ms().filter(|_| !self.progress.is_over);
        let resync = due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(ms_since(self.started))));
        let publish = self
            .progress
            .publish_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        resync.into_iter().chain(publish).min().unwrap_or(SYNC)
    }

    fn enqueue(&mut self) {
        // The queue can't overflow with a single key.
        _ = self.controller.changed(&(), ms_since(self.started));
    }

    /// Queues a new listing before all else, for the operator.
    fn list_first(&mut self) -> Result<(), String> {
        if self.progress.is_over {
            return Err("its number belongs to another node: it gets no more calls".to_owned());
        }
        self.enqueue();
        self.controller.first(&());
        self.parts.host_status.changed(guest_of(&self.key), &self.key);
        Ok(())
    }

    /// The running resync ended. Returns when the next one is due, if one is.
    fn done(&mut self, outcome: Outcome) -> Option<u64> {
        let now_ms = ms_since(self.started);
        let due_ms = self.controller.done(&(), outcome, now_ms)?;
        Some(due_ms.saturating_sub(now_ms))
    }

    async fn take_ready(&mut self) {
        if self.progress.is_over {
            return;
        }
        if self.controller.take_ready(ms_since(self.started)).is_some() {
            self.parts.host_status.began(guest_of(&self.key), &self.key);
            // The result of the listing ends this job.
            self.following.list_again();
        }
        if self.progress.publish_at.take_if(|at| *at <= Instant::now()).is_some() && self.progress.is_synced {
            self.publish().await;
            _ = self.nodes_are_published().await;
        }
    }

    async fn take_followed(&mut self, followed: Result<Followed, etcd::Error>) {
        match followed {
            Ok(Followed::Listed(listing)) => self.take_listing(listing).await,
            Ok(Followed::Changed(changes)) => self.take_changes(changes).await,
            Err(error) => {
                // The host lists again after the pause.
                self.begin();
                self.failed(format!("reading `{}`: {}", self.prefix, words(&error)));
            }
        }
    }

    /// Counts a listing or an error that arrives by itself as the running resync.
    fn begin(&mut self) {
        if self.controller.status(&()).is_none_or(|status| !status.running) {
            self.enqueue();
            self.controller.take_ready(ms_since(self.started));
        }
    }

    /// Calls the guest with everything known, then publishes the addresses.
    async fn resync(&mut self) {
        let state = ClusterState {
            vpp_nodes: self.progress.records.values().cloned().collect(),
            kube_nodes: self.progress.kube_nodes.values().cloned().collect(),
        };
        if let Err(failure) = self.give_up_anothers_number().await {
            return self.unanswered(failure);
        }
        if self.ask::<()>("node-sync.resync", &Resync { state }).await.is_none() {
            return;
        }
        self.progress.is_synced = true;
        match self.current_id().await {
            Ok(id) => self.progress.id = id,
            Err(failure) => return self.unanswered(failure),
        }
        self.publish().await;
        // Reports the number after the nodes, so that a loop that waits for the number also finds the nodes.
        if self.nodes_are_published().await {
            self.guest.supervisor.took_all();
            self.numbered();
        }
    }

    /// A number that an earlier process had, and that another node has by now, is not a claim: the node gets a new
    /// number. If this process has the number, it is a claim: two nodes then have one number.
    async fn give_up_anothers_number(&mut self) -> Result<(), Failure> {
        if self.progress.id != 0 || self.progress.is_over {
            return Ok(());
        }
        // The call is refused if the instance lost its state. Then it has no number either.
        let id = self.current_id().await.unwrap_or_default();
        match self.progress.records.get(&id) {
            Some(record) if record.name != self.parts.node => {
                tracing::warn!(
                    "the number {id} that this node had belongs to `{}` by now: it is numbered anew",
                    record.name
                );
                self.guest.instance.restart().await
            }
            _ => Ok(()),
        }
    }

    async fn current_id(&mut self) -> Result<u32, Failure> {
        let call = "node-sync.get-node-id";
        self.guest.instance.call(call, &Nothing {}, None).await
    }

    async fn update(&mut self, change: Change) {
        if !self.progress.is_synced || self.progress.is_over {
            return;
        }
        let updates = self.ask("node-sync.update", &Update { change }).await;
        if updates.is_some_and(|updates: Vec<NodeUpdate>| !updates.is_empty()) {
            _ = self.nodes_are_published().await;
        }
    }

    /// The result of a call. `None` if it failed: that is reported, and tried again with a fresh listing.
    async fn ask<R: DeserializeOwned>(&mut self, call: &str, args: &impl Serialize) -> Option<R> {
        match self.guest.instance.call(call, args, None).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(Error::IdTaken(name))) => self.over(&name).await,
            Ok(Err(error)) => self.resync_later(describe(&error)),
            Err(failure) => self.unanswered(failure),
        }
        None
    }

    fn unanswered(&mut self, failure: Failure) {
        if let Some(too_much) = self.guest.supervisor.failed(&self.key, &failure) {
            let instances = self.guest.instance.slot.instances();
            self.guest.supervisor.fall_back(&instances, &self.key, too_much);
        }
        self.resync_later(failure.error);
    }

    /// A call failed that may have stored something. The guest gets nothing before the next listing.
    fn resync_later(&mut self, error: String) {
        self.progress.is_synced = false;
        self.following.rest();
        self.begin();
        self.failed(error);
    }

    fn failed(&mut self, error: String) {
        let again_in_ms = self.done(Outcome::Failure);
        let failures = self.controller.status(&()).map_or(1, |status| status.failures);
        self.report_failed(error, failures, again_in_ms);
    }

    /// The number belongs to another node.
    async fn over(&mut self, name: &str) {
        self.progress.is_over = true;
        self.progress.is_synced = false;
        self.following.rest();
        // Otherwise it would be due for ever.
        self.progress.publish_at = None;
        let id = match self.progress.id {
            // An earlier process got the number, and this one has not asked for it yet.
            0 => self.current_id().await.ok(),
            id => Some(id),
        };
        let number = id.map(|id| format!(" {id}")).unwrap_or_default();
        let whose = if name.is_empty() { "something else" } else { name };
        let error = format!(
            "its number{number} belongs to `{whose}` now: the instance is stopped; find out why two nodes have one number, \
             then start the host of one of them again"
        );
        self.done(Outcome::Failure);
        self.parts.host_status.node(|node| node.number = None);
        self.report_failed(error, 1, None);
    }

    fn report_failed(&self, error: String, failures: u32, again_in_ms: Option<u64>) {
        self.show(Some(error.clone()), failures, again_in_ms);
        _ = self.parts.events.send(Event::Failed {
            key: self.key.clone(),
            error: error.clone(),
            again_in_ms,
        });
        self.state.send_replace(NumberState::Failed {
            error,
            failures,
            is_over: self.progress.is_over,
        });
    }

    fn numbered(&mut self) {
        let id = self.progress.id;
        self.done(Outcome::Success);
        self.parts.host_status.node(|node| node.number = Some(id));
        self.show_numbered();
        let content = json!({ "node": self.parts.node, "id": id });
        if self.progress.reported.replace(id) != Some(id) {
            let said = Message::outcome(&self.parts.node, "numbered", &id.to_string());
            _ = self.parts.events.send(own("numbered", content, said));
        } else if let NumberState::Failed { .. } = *self.state.borrow() {
            let said = Message::outcome(&self.key, "true", &format!("it has number {id}"));
            _ = self.parts.events.send(own("numbered_again", content, said));
        }
        let numbered = NumberState::Numbered(id);
        self.state
            .send_if_modified(|state| std::mem::replace(state, numbered.clone()) != numbered);
    }

    /// Whether the followers got the nodes. If not, that is an ordinary failure: they have outdated ones.
    async fn nodes_are_published(&mut self) -> bool {
        let published = self.publish_nodes().await;
        published.map_err(|failure| self.unanswered(failure)).is_ok()
    }

    async fn publish_nodes(&mut self) -> Result<(), Failure> {
        let call = "node-sync.get-all-nodes";
        let nodes: Vec<Node> = self.guest.instance.call(call, &Nothing {}, None).await?;
        let by = self.guest.instance.last_entry.clone();
        self.parts.host_status.node(|node| node.nodes = nodes.len());
        let has_kube_nodes = self.progress.has_kube_nodes;
        self.known.send_replace(KnownNodes {
            nodes,
            by,
            has_kube_nodes,
        });
        Ok(())
    }

    async fn hand_over(&mut self, handover: Handover) {
        if self.guest.instance.hand_over(handover).await {
            self.guest.supervisor.began_version();
            self.progress.is_over = false;
            self.following.rest();
            self.begin();
            self.done(Outcome::Interrupted(0));
        }
    }

    /// Shows that the node has its number, and whether its addresses are published.
    fn show_numbered(&self) {
        let is_wrong = self.progress.unpublished.is_some();
        let again_in_ms = self.publish_in_ms().filter(|_| is_wrong);
        self.show(self.progress.unpublished.clone(), is_wrong.into(), again_in_ms);
    }

    fn show(&self, error: Option<String>, failures: u32, again_in_ms: Option<u64>) {
        let finished = finished(self.guest.instance.slot.active(), error, failures, again_in_ms);
        let host_status = &self.parts.host_status;
        host_status.finished(guest_of(&self.key), &self.key, finished);
    }
}

fn words(error: &etcd::Error) -> String {
    match error {
        etcd::Error::Unavailable(text) => format!("unavailable: {text}"),
        etcd::Error::AccessDenied(text) => format!("access denied: {text}"),
        etcd::Error::NotText(key) => format!("not text: {key}"),
        etcd::Error::TooManyOperations(limit) => format!("too many operations: {limit}"),
        etcd::Error::Invalid(text) => format!("invalid: {text}"),
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Database(text) => format!("the store: {text}"),
        Error::AttemptsExhausted(attempts) => format!("others were faster in each of {attempts} attempts at a number"),
        Error::InvalidAddress(text) => {
            format!("`{text}` is no address with its network's prefix length, or of the other family")
        }
        Error::IdTaken(name) => format!("its number belongs to `{name}`"),
        Error::NotSynced => "the guest got nothing yet".to_owned(),
    }
}
