//! The loop of the service processor: takes in the source, the nodes, versions, retries and approvals, one after
//! another.

mod processing;
mod renderers;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::Shared;
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use trueup_base::clock::SystemClock;
use trueup_capabilities::holdings::Kept;
use trueup_config::Guest;
use trueup_controller::{Controller, Outcome};
use trueup_sources::{Batch, Batches, Objects};
use trueup_work::event::Event;
use trueup_work::input::{From, Input, next};
use trueup_work::kubernetes::{Events, ObjectEvent};
use trueup_work::lifecycle::active::{Active, Handover, UrgentKey};
use trueup_work::lifecycle::failure_counts::FAILURES_MAX_ONCE;
use trueup_work::lifecycle::quarantine::SetAside;
use trueup_work::object_counts::ObjectCounts;
use trueup_work::slot::InstanceSlot;
use trueup_work::status::{Finished, HostStatus};

use super::ending::{STOP_GRACE, ending, run_turns};
use super::nodesync::KnownNodes;
use super::rendering::{RendererStatus, Rendering};
use super::{SYNC, Summary, Watched, finished, guest_of, ms_since, ticks};
use crate::node::guests::nodesync::Change;
use crate::node::guests::service::adapter::{Changes, Cluster};
use crate::node::guests::service::{self, NodeContext};

/// The keys of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// The processor: a resync, or pending changes.
    Service,
    /// A renderer that is out of step.
    Renderer(usize),
    /// The periodic full resync.
    Again,
}

/// The loop of the service processor.
pub(super) struct Serving {
    pub(super) node: String,
    pub(super) context: NodeContext,
    pub(super) cluster: Cluster,
    pub(super) is_cluster: bool,
    /// Holds back removals of many Services until an approval. `None` if nothing is rendered.
    pub(super) approval: Option<Approval>,
    /// `None` if the loop only passes on Nodes.
    pub(super) processor: Option<Watched>,
    pub(super) rendering: Rendering,
    /// The versions of each renderer, in order.
    pub(super) renderers: Vec<mpsc::Receiver<Handover>>,
    /// `None` if this node has no numbering.
    pub(super) nodes: Option<watch::Receiver<KnownNodes>>,
    pub(super) feed: Option<mpsc::Sender<Vec<Change>>>,
    pub(super) source_is_reported: bool,
    pub(super) host_status: Arc<HostStatus>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    /// For any of the guests.
    pub(super) urgent_keys: mpsc::UnboundedReceiver<UrgentKey>,
    pub(super) controller: Controller<Work>,
    pub(super) started: Instant,
    /// Whether the nodes are known, at least those of an earlier process, with what Kubernetes knows about them.
    /// Rendering without that would remove what a node has, until the store and Kubernetes were read.
    pub(super) knows_nodes: bool,
    pub(super) progress: Progress,
}

/// What the loop has found and done so far.
#[derive(Default)]
pub(super) struct Progress {
    objects: Objects,
    /// Whether the processor knows everything that this loop knows.
    is_synced: bool,
    /// Whether it answered with an error: it still has pending changes.
    is_pending: bool,
    /// Whether it was retried because a renderer recovered, and has not succeeded since.
    is_tried_anew: bool,
    /// The input with which the processor failed too often. `None` if it gets its input.
    set_aside: Option<SetAside>,
    /// The object of the change in which the processor began to fail. `None` if it began in a full resync.
    suspect: Option<String>,
    /// Whether the numbering got all of Kubernetes' Nodes.
    is_fed: bool,
    problems: Vec<String>,
    /// Writes notes as events of the Services that they are about. `None` if the source is a folder.
    kubernetes_events: Option<Events>,
    /// The last look at the source, without its changes.
    last: Batch,
    error: Option<String>,
    /// What the log said last that the Services wait for. `None` if it said nothing.
    logged_wait: Option<&'static str>,
    /// The renderers that need a full resync.
    out_of_step: BTreeSet<usize>,
    /// Full resyncs of renderers in progress: whether each was taken, and which renderer it is for.
    retries: JoinSet<bool>,
    resyncing: BTreeMap<task::Id, usize>,
    /// The last state of each renderer in the status, if it is there.
    shown: BTreeMap<usize, RendererStatus>,
}

impl Serving {
    /// Runs until `stop`; with `once`, until `others` are settled and nothing is left to do here.
    pub(super) async fn run(
        mut self,
        input: Input,
        belongs: impl Future<Output = Result<(), String>>,
        stop: impl Future<Output = ()>,
        others: impl Future<Output = ()>,
        once: bool,
    ) -> Summary {
        self.progress.kubernetes_events = input.events();
        // Each shows as queued until its first resync.
        let processor = self.processor.iter().map(|guest| guest.instance.name());
        let renderers = self.rendering.statuses().await.into_iter().map(|at| at.name);
        for name in processor.chain(renderers) {
            self.host_status.changed(guest_of(&name), &name);
        }
        let batches = match input.from {
            From::Once(all) => {
                self.take_in(all, || false).await;
                None
            }
            From::Watched(batches) => Some(batches),
        };
        let ending = ending(stop);
        let beating = self.host_status.begin_loop("services on this node");
        let turns = self.turns(batches, belongs, ending.clone(), others, once);
        let cut_short = run_turns(turns, ending.clone(), beating, "services").await.flatten();
        let until = ending.peek().copied();
        self.drain(until.unwrap_or_else(|| Instant::now() + STOP_GRACE)).await;
        self.rendering.each_slot(InstanceSlot::sync).await;
        if let Some(approval) = &mut self.approval {
            approval.keep(true);
        }
        if let Some(events) = &self.progress.kubernetes_events {
            events.flush().await;
        }
        if let Some(processor) = &mut self.processor {
            processor.instance.slot.sync();
        }
        self.summary(cut_short, until.is_some()).await
    }

    /// Returns why it ended early, if it was not asked to end.
    async fn turns(
        &mut self,
        mut batches: Option<Batches>,
        belongs: impl Future<Output = Result<(), String>>,
        ending: Shared<impl Future<Output = Instant>>,
        others: impl Future<Output = ()>,
        once: bool,
    ) -> Option<String> {
        let (mut belongs, mut is_ours) = (std::pin::pin!(belongs), false);
        let (mut others, mut others_settled) = (std::pin::pin!(others), false);
        let mut sync = ticks();
        loop {
            self.take_ready().await;
            self.show_wait();
            if once && others_settled && self.is_settled() {
                return None;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                _ = ending.clone() => return None,
                (of, handover) =
                    handed_over(&mut self.processor, &mut self.renderers, &self.progress.resyncing) => match of {
                    None => self.hand_over(handover).await,
                    Some(renderer) => self.hand_over_renderer(renderer, handover).await,
                },
                // The operator may have gone; the guests get the resync all the same.
                Some((key, reply)) = self.urgent_keys.recv() => drop(reply.send(self.resync_first(&key))),
                Some(retried) = self.progress.retries.join_next_with_id() => self.retry_ended(retried).await,
                ours = &mut belongs, if !is_ours => match ours {
                    Ok(()) => is_ours = true,
                    Err(why) => return Some(why),
                },
                batch = next(&mut batches), if is_ours => match batch {
                    Some(batch) => self.take_in(batch, || ending.peek().is_some()).await,
                    None => return Some("the source can't be watched any more".to_owned()),
                },
                Some(nodes) = next_nodes(&mut self.nodes) => self.take_nodes(nodes).await,
                () = &mut others, if !others_settled => others_settled = true,
                Some(()) = approved(self.approval.as_ref()) => {
                    self.take_in(self.progress.last.clone(), || ending.peek().is_some()).await;
                }
                () = tokio::time::sleep(pause) => {}
                _ = sync.tick() => {
                    self.rendering.each_slot(InstanceSlot::tick).await;
                    if let Some(processor) = &mut self.processor {
                        processor.instance.slot.tick();
                    }
                }
            }
        }
    }

    /// What the Services wait for before the processor gets them. `None` if it gets them.
    fn waits_for(&self) -> Option<&'static str> {
        self.processor.as_ref()?;
        let awaits_approval = || self.approval.as_ref().and_then(Approval::problem).is_some();
        match self.cluster.is_complete() {
            true => (!self.knows_nodes).then_some("guest `nodesync` to have all Nodes"),
            false if !self.progress.last.complete => Some("the whole source to be readable"),
            false if awaits_approval() => Some("an approval"),
            false => Some("an object in the source"),
        }
    }

    /// Shows what the Services wait for. The log says it if that lasts: each start waits for a moment.
    fn show_wait(&mut self) {
        let wait = self.waits_for();
        let host_status = &self.host_status;
        host_status.node(|node| node.waits_for = wait.map(str::to_owned));
        if let Some(what) = wait.filter(|_| self.started.elapsed() >= SYNC && wait != self.progress.logged_wait) {
            tracing::warn!("the Services on this node wait for {what}");
            self.progress.logged_wait = wait;
        }
    }

    /// Lets full resyncs of renderers end, within limits. The next process resyncs the others.
    async fn drain(&mut self, until: Instant) {
        while let Ok(Some(_)) = tokio::time::timeout_at(until, self.progress.retries.join_next()).await {}
        if !self.progress.retries.is_empty() {
            tracing::warn!(
                "{} renderers did not take everything within {} s: the next process tells them",
                self.progress.retries.len(),
                STOP_GRACE.as_secs()
            );
            self.progress.retries.shutdown().await;
        }
    }

    fn pause(&self) -> Duration {
        let due_ms = self.controller.next_due_ms();
        due_ms.map_or(SYNC, |due_ms| {
            Duration::from_millis(due_ms.saturating_sub(ms_since(self.started)))
        })
    }

    /// Whether nothing is left to do, or it failed too often. If the source never was complete, there is nothing to
    /// do.
    fn is_settled(&self) -> bool {
        if self.processor.is_none() || !self.cluster.is_complete() {
            return true;
        }
        let given_up = |work| self.failures(work) >= FAILURES_MAX_ONCE;
        let service = (self.progress.is_synced && !self.progress.is_pending)
            || self.progress.set_aside.is_some()
            || given_up(Work::Service);
        let mut renderers = self.progress.out_of_step.iter();
        service && renderers.all(|renderer| given_up(Work::Renderer(*renderer)))
    }

    fn enqueue(&mut self, work: Work) {
        // The queue can't overflow: it has one key per renderer and two more.
        _ = self.controller.changed(&work, ms_since(self.started));
    }

    /// Queues a full resync of all guests before all else, for the operator, who names the key of one of them.
    fn resync_first(&mut self, key: &str) -> Result<(), String> {
        if let Some(what) = self.waits_for() {
            return Err(format!("the Services on this node wait for {what}"));
        }
        self.progress.is_synced = false;
        self.enqueue(Work::Service);
        self.controller.first(&Work::Service);
        self.host_status.changed(guest_of(key), key);
        // The resync shows the state of this renderer anew, whatever it is.
        self.progress.shown.retain(|_, at| at.name != key);
        Ok(())
    }

    async fn take_ready(&mut self) {
        while let Some(work) = self.controller.take_ready(ms_since(self.started)) {
            match work {
                Work::Service => self.call_processor().await,
                Work::Renderer(renderer) => self.begin_resync(renderer),
                Work::Again => {
                    if self.progress.is_synced {
                        self.progress.is_synced = false;
                        self.enqueue(Work::Service);
                    }
                    self.done(Work::Again, Outcome::Success);
                }
            }
        }
    }

    /// Reports what an operator should know, in the log and as events of the Services.
    fn report_notes(&self, changes: &Changes) {
        for note in &changes.notes {
            tracing::warn!("{note}");
        }
        let Some(events) = &self.progress.kubernetes_events else {
            return;
        };
        for (service, note) in &changes.about {
            events.say(ObjectEvent {
                key: service.clone(),
                warning: true,
                reason: "NotHonoured",
                action: "RenderService",
                note: note.clone(),
            });
        }
    }

    /// Passes Kubernetes' Nodes to the numbering. The first time it passes all of them.
    async fn feed(&mut self, changes: Vec<Change>) {
        let Some(feed) = &self.feed else { return };
        let is_first = !std::mem::replace(&mut self.progress.is_fed, true);
        let all = || self.cluster.kube_nodes().into_iter().map(Change::KubeNodePut);
        let changes = if is_first { all().collect() } else { changes };
        if is_first || !changes.is_empty() {
            // Ignore the error: a numbering that has ended needs no Nodes.
            _ = feed.send(changes).await;
        }
    }

    /// Queues a key that just failed. Its first pause is that after any failure. A key that runs or already waits
    /// stays as it is.
    fn enqueue_retry(&mut self, work: Work) {
        if self.controller.status(&work).is_none() {
            self.enqueue_later(work, Outcome::Failure);
        }
    }

    /// Queues a key for when the queue would run it after this outcome.
    fn enqueue_later(&mut self, work: Work, after: Outcome) {
        self.enqueue(work);
        self.controller.take(&work);
        self.done(work, after);
    }

    async fn take_nodes(&mut self, nodes: KnownNodes) {
        self.knows_nodes |= nodes.has_kube_nodes;
        if self.processor.is_none() || !self.knows_nodes {
            return;
        }
        if self.progress.is_synced {
            self.update(service::Event::Nodes(nodes.nodes)).await;
        } else if self.cluster.is_complete() {
            self.enqueue_resync();
        }
    }

    /// Makes another version of the processor active.
    async fn hand_over(&mut self, handover: Handover) {
        let Some(guest) = &mut self.processor else { return };
        if guest.instance.hand_over(handover).await {
            guest.supervisor.began_version();
            if self.progress.set_aside.take().is_some() {
                // The quarantine was that of the version before.
                let name = guest.instance.name();
                self.host_status.changed(guest_of(&name), &name);
            }
            // Another version may combine the same input differently.
            self.progress.is_synced = false;
            if self.cluster.is_complete() && self.knows_nodes {
                self.enqueue(Work::Service);
            }
        }
    }

    fn show(&self) {
        let Some(processor) = &self.processor else { return };
        let key = processor.instance.name();
        let host_status = &self.host_status;
        // This ends the job for which it was queued.
        host_status.began(guest_of(&key), &key);
        let finished = self.finished(
            Work::Service,
            processor.instance.slot.active(),
            self.progress.error.as_ref(),
        );
        host_status.finished(guest_of(&key), &key, finished);
    }

    /// The state of a key for the host's status.
    fn finished(&self, work: Work, guest: &Active, error: Option<&String>) -> Finished {
        let again_in_ms = error.and_then(|_| self.again_in_ms(work));
        finished(guest, error.cloned(), self.failures(work), again_in_ms)
    }

    fn failures(&self, work: Work) -> u32 {
        self.controller.status(&work).map_or(0, |status| status.failures)
    }

    /// When a key is due. `None` if it does not wait.
    fn again_in_ms(&self, work: Work) -> Option<u64> {
        let due_ms = self.controller.status(&work)?.due_ms?;
        Some(due_ms.saturating_sub(ms_since(self.started)))
    }

    /// The work on a key ended.
    fn done(&mut self, work: Work, outcome: Outcome) {
        self.controller.done(&work, outcome, ms_since(self.started));
    }

    async fn summary(self, cut_short: Option<String>, is_stopped: bool) -> Summary {
        let statuses = self.rendering.statuses().await;
        let wait = self.waits_for();
        let mut summary = Summary {
            nodes: self.nodes().len(),
            services: self.rendering.services().await,
            problems: self.progress.problems,
            cut_short,
            ..Summary::default()
        };
        let not_received = || renderers::not_received(is_stopped, wait);
        for renderer in statuses {
            if renderer.is_in_step {
                summary.rendered.push(renderer.name);
            } else {
                let why = renderer.error.unwrap_or_else(not_received);
                summary.failed.push((renderer.name, why));
            }
        }
        if let (Some(processor), Some(error)) = (&self.processor, self.progress.error) {
            summary.failed.push((processor.instance.name(), error));
        }
        summary
    }
}

/// The next version of any of the guests: of the processor first, then of renderers in their order. That of a renderer
/// in a full resync waits until the resync has ended.
async fn handed_over(
    processor: &mut Option<Watched>,
    renderers: &mut [mpsc::Receiver<Handover>],
    resyncing: &BTreeMap<task::Id, usize>,
) -> (Option<usize>, Handover) {
    let processor = processor.iter_mut().map(|processor| (None, &mut processor.handovers));
    let is_free = |(at, _): &(usize, _)| !resyncing.values().any(|of| of == at);
    let renderers = renderers.iter_mut().enumerate().filter(is_free);
    let renderers = renderers.map(|(at, handovers)| (Some(at), handovers));
    let mut all: Vec<_> = processor.chain(renderers).collect();
    std::future::poll_fn(move |context| {
        // A guest without a manager never gets one.
        let mut all = all.iter_mut();
        let next = all.find_map(|(of, handovers)| match handovers.poll_recv(context) {
            Poll::Ready(handover) => Some((*of, handover?)),
            Poll::Pending => None,
        });
        next.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// All nodes, when they change. `None` if this node has no numbering, or it has ended.
async fn next_nodes(nodes: &mut Option<watch::Receiver<KnownNodes>>) -> Option<KnownNodes> {
    let nodes = nodes.as_mut()?;
    nodes.changed().await.ok()?;
    Some(nodes.borrow_and_update().clone())
}

/// Services that the source no longer shows stay rendered until an operator approves their removal.
///
/// The part of the processor that approvals need.
pub(super) struct Approval {
    active: Arc<Active>,
    held: Option<ObjectCounts>,
}

impl Approval {
    /// Continues from what the last process rendered, if that can be read.
    pub(super) fn new(active: Arc<Active>, state_dir: &Path, guest: &Guest) -> Self {
        let held = ObjectCounts::open(state_dir, service::NAME);
        let held = held.inspect_err(|error| tracing::warn!("which Services were rendered is not known: {error}"));
        let held = held.ok();
        active.quotas.holdings.guard(guest.approve_above, Arc::new(SystemClock));
        let kept = held.as_ref().map_or_else(Kept::default, |held| held.kept.clone());
        active.quotas.holdings.restore(kept);
        let held = held.filter(|_| active.plan.is_none());
        Self { active, held }
    }

    /// Keeps what is rendered for the next process: immediately if `now`, else when it is due.
    fn keep(&mut self, now: bool) {
        let Some(held) = &mut self.held else { return };
        if let Err(error) = held.keep(&self.active.quotas.holdings, now) {
            tracing::warn!("which Services are rendered is not kept for the next start: {error}");
        }
    }

    /// One line if Services wait.
    fn problem(&self) -> Option<String> {
        let waiting = self.active.quotas.holdings.waiting()?;
        Some(format!(
            "{} are gone from the source: they stay rendered until that is approved, or they are back; type: trueup approve \
             {}, or run it with --once --approve",
            waiting.text("Services"),
            service::NAME
        ))
    }
}

/// Waits until an operator approves what waits. `None` without an `approval`.
async fn approved(approval: Option<&Approval>) -> Option<()> {
    approval?.active.approved.notified().await;
    Some(())
}
