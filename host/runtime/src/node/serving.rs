//! The loop of the service processor: what the source says, the nodes, versions and retries, one after another.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use trueup_controller::{Backoff, Controller, Outcome, Settings as ControllerSettings};

use super::failing::Failing;
use super::numbering::Known;
use super::rendering::{RendererAt, Rendering};
use super::seat::{NoAnswer, Seat};
use super::wiring::Wiring;
use super::{Event, SYNC, Summary};
use crate::board::{self, Beating, Board, Finished, Look};
use crate::guests::nodesync::Change;
use crate::guests::service::adapter::{Cluster, Told};
use crate::guests::service::{self, NodeContext, Resync, State, Update};
use crate::run::active::Handover;
use crate::run::input::{From, Input, next};
use crate::run::{FAILURES_MAX_ONCE, nothing_there};
use crate::sources::{Batch, Batches, Objects};

/// How long, once it is to end, what was begun may go on: a call of the processor, and renderers that are told everything.
const STOP_GRACE: Duration = Duration::from_secs(20);

/// Who combines Services with what is behind them.
pub(super) struct Processor {
    pub(super) wiring: Wiring,
    pub(super) handovers: mpsc::Receiver<Handover>,
    pub(super) failing: Failing,
}

/// What the loop is made of.
pub(super) struct Parts {
    pub(super) node: String,
    pub(super) context: NodeContext,
    pub(super) cluster: Cluster,
    pub(super) is_cluster: bool,
    /// None: Nodes alone are handed on.
    pub(super) processor: Option<Processor>,
    pub(super) rendering: Rendering,
    /// Of each renderer, in order.
    pub(super) renderers: Vec<(mpsc::Receiver<Handover>, Failing)>,
    /// None: nobody numbers nodes.
    pub(super) nodes: Option<watch::Receiver<Known>>,
    pub(super) feed: Option<mpsc::Sender<Vec<Change>>>,
    pub(super) backoff: Backoff,
    pub(super) resync_ms: u64,
    pub(super) seed: u64,
    pub(super) source_is_told: bool,
    pub(super) board: Arc<Board>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

/// What the queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// The processor: a resync, or what it still has to tell.
    Service,
    /// A renderer that is out of step.
    Renderer(usize),
    /// Everything is told again, though nothing changed.
    Again,
}

/// See the module.
pub(super) struct Serving {
    parts: Parts,
    objects: Objects,
    controller: Controller<Work>,
    started: Instant,
    /// The processor knows everything that was told to this loop.
    is_synced: bool,
    /// It answered an error: it still has something to tell.
    is_pending: bool,
    /// It was tried again because a renderer was back, and has not succeeded since.
    is_tried_anew: bool,
    /// Objects in whose events the processor failed since it took something, and the texts of what is set aside.
    suspects: BTreeMap<String, service::Event>,
    set_aside: BTreeMap<String, service::Event>,
    /// The nodes were told once: what an earlier process knew, at the least. Rendered without them, a node would lose what
    /// it has, for as long as the store takes to answer.
    knows_nodes: bool,
    /// Whoever follows Kubernetes' Nodes was told all of them.
    is_fed: bool,
    problems: Vec<String>,
    error: Option<String>,
    out_of_step: Vec<bool>,
    /// Renderers that are being told everything: by position, what came of it.
    retries: JoinSet<(usize, Result<(), String>)>,
    /// As the board has each renderer; none: it does not.
    shown: Vec<Option<RendererAt>>,
}

/// What the loop has to do next.
enum Step {
    HandOver(Option<usize>, Handover),
    Retried(Result<(usize, Result<(), String>), tokio::task::JoinError>),
    TakeIn(Batch),
    TakeNodes(Known),
    Rest,
    /// A pause is over, or the others settled.
    Look,
}

/// Why the loop ended.
enum LoopEnd {
    NothingLeft,
    Stopped,
    SourceEnded,
    NotOurs(String),
}

impl Serving {
    pub(super) fn new(parts: Parts) -> Self {
        let settings = ControllerSettings {
            backoff: parts.backoff,
            resync_ms: parts.resync_ms,
        };
        Self {
            controller: Controller::new(settings, parts.seed),
            out_of_step: vec![false; parts.renderers.len()],
            knows_nodes: parts.nodes.is_none(),
            shown: vec![None; parts.renderers.len()],
            retries: JoinSet::new(),
            parts,
            objects: Objects::default(),
            started: Instant::now(),
            is_synced: false,
            is_pending: false,
            is_tried_anew: false,
            suspects: BTreeMap::new(),
            set_aside: BTreeMap::new(),
            is_fed: false,
            problems: Vec::new(),
            error: None,
        }
    }

    /// Runs until `stop`; once, until `others` are settled and nothing is left to do here.
    pub(super) async fn run<E: std::fmt::Display>(
        mut self,
        input: Input,
        belongs: impl Future<Output = Result<(), E>>,
        stop: impl Future<Output = ()>,
        others: impl Future<Output = ()>,
        once: bool,
    ) -> Summary {
        let batches = match input.from {
            From::Once(all) => {
                self.take_in(all).await;
                None
            }
            From::Watched(batches) => Some(batches),
        };
        let mut until = None;
        let end = self.work(batches, belongs, stop, others, once, &mut until).await;
        self.drain(until.unwrap_or_else(|| Instant::now() + STOP_GRACE)).await;
        self.parts.rendering.sync().await;
        if let Some(processor) = &mut self.parts.processor {
            processor.wiring.processor.sync();
        }
        self.summary(end).await
    }

    async fn work<E: std::fmt::Display>(
        &mut self,
        mut batches: Option<Batches>,
        belongs: impl Future<Output = Result<(), E>>,
        stop: impl Future<Output = ()>,
        others: impl Future<Output = ()>,
        once: bool,
        until: &mut Option<Instant>,
    ) -> LoopEnd {
        let beating = self.parts.board.begin_loop("services on this node");
        let (mut belongs, mut is_ours) = (std::pin::pin!(belongs), false);
        let mut stop = std::pin::pin!(stop);
        let (mut others, mut others_settled) = (std::pin::pin!(others), false);
        let mut sync = tokio::time::interval(SYNC);
        sync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_step = Step::Look;
        loop {
            beating.beat();
            // Whatever a turn waits for has a limit of its own: a guest its time, etcd and nft theirs.
            tokio::select! {
                biased;
                () = self.turn(next_step) => {}
                () = beat_on(&beating) => {}
                () = too_long(stop.as_mut(), until) => {
                    tracing::warn!(
                        "a call about services did not end within {} s: its recording ends inside it",
                        STOP_GRACE.as_secs()
                    );
                }
            }
            if until.is_some() {
                return LoopEnd::Stopped;
            }
            if once && others_settled && self.is_settled() {
                return LoopEnd::NothingLeft;
            }
            let pause = self.pause();
            next_step = tokio::select! {
                biased;
                () = &mut stop => return LoopEnd::Stopped,
                (of, handover) = handed_over(&mut self.parts.processor, &mut self.parts.renderers) => Step::HandOver(of, handover),
                Some(retried) = self.retries.join_next() => Step::Retried(retried),
                ours = &mut belongs, if !is_ours => match ours {
                    Ok(()) => {
                        is_ours = true;
                        Step::Look
                    }
                    Err(why) => return LoopEnd::NotOurs(why.to_string()),
                },
                batch = next(&mut batches), if is_ours => match batch {
                    Some(batch) => Step::TakeIn(batch),
                    None => return LoopEnd::SourceEnded,
                },
                nodes = told_nodes(&mut self.parts.nodes) => Step::TakeNodes(nodes),
                () = &mut others, if !others_settled => {
                    others_settled = true;
                    Step::Look
                }
                () = tokio::time::sleep(pause) => Step::Look,
                _ = sync.tick() => Step::Rest,
            };
        }
    }

    /// Does it, and then what has become due.
    async fn turn(&mut self, step: Step) {
        match step {
            Step::HandOver(of, handover) => self.hand_over(of, handover).await,
            Step::Retried(Ok((renderer, told))) => self.retried(renderer, told).await,
            Step::Retried(Err(error)) => tracing::error!("a renderer is not told everything: {error}"),
            Step::TakeIn(batch) => self.take_in(batch).await,
            Step::TakeNodes(nodes) => self.take_nodes(nodes).await,
            Step::Rest => {
                self.parts.rendering.rest().await;
                if let Some(processor) = &mut self.parts.processor {
                    processor.wiring.processor.rest();
                }
            }
            Step::Look => {}
        }
        self.take_ready().await;
    }

    /// Lets renderers that are told everything take it, within limits; the next process tells the others again.
    async fn drain(&mut self, until: Instant) {
        while let Ok(Some(_)) = tokio::time::timeout_at(until, self.retries.join_next()).await {}
        if !self.retries.is_empty() {
            tracing::warn!(
                "{} renderers did not take everything within {} s: the next process tells them",
                self.retries.len(),
                STOP_GRACE.as_secs()
            );
            self.retries.shutdown().await;
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn pause(&self) -> Duration {
        let due_ms = self.controller.next_due_ms();
        let pause = due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(self.now_ms())));
        pause.unwrap_or(SYNC)
    }

    /// Nothing is left to do, or it failed too often. Where the source never was complete, nothing is done at all.
    fn is_settled(&self) -> bool {
        if self.parts.processor.is_none() || !self.parts.cluster.is_complete() {
            return true;
        }
        let given_up = |work| {
            let failures = self.controller.status(&work).map_or(0, |status| status.failures);
            failures >= FAILURES_MAX_ONCE
        };
        let is_done = |renderer: (usize, &bool)| !renderer.1 || given_up(Work::Renderer(renderer.0));
        let service = (self.is_synced && !self.is_pending) || given_up(Work::Service);
        service && self.out_of_step.iter().enumerate().all(is_done)
    }

    fn wish(&mut self, work: Work) {
        let now_ms = self.now_ms();
        // There are as many as renderers.
        _ = self.controller.changed(&work, now_ms);
    }

    async fn take_ready(&mut self) {
        while let Some(work) = self.controller.take_ready(self.now_ms()) {
            match work {
                Work::Service => self.tell_service().await,
                Work::Renderer(renderer) => {
                    let rendering = self.parts.rendering.clone();
                    self.retries
                        .spawn(async move { (renderer, rendering.bring_into_step(renderer).await) });
                }
                Work::Again => {
                    if self.is_synced {
                        self.is_synced = false;
                        self.wish(Work::Service);
                    }
                    let now_ms = self.now_ms();
                    self.controller.done(&Work::Again, Outcome::Success, now_ms);
                }
            }
        }
    }

    /// Takes in what the source says.
    async fn take_in(&mut self, batch: Batch) {
        let was_complete = self.parts.cluster.is_complete();
        let told = self.parts.cluster.take_in(&batch);
        for change in &batch.changes {
            self.objects.apply(change);
        }
        self.look(&batch, &told);
        for note in &told.notes {
            tracing::warn!("{note}");
        }
        if !self.parts.cluster.is_complete() {
            return;
        }
        self.feed(told.nodes).await;
        if self.parts.processor.is_none() {
            return;
        }
        if !was_complete {
            self.wish_resync();
            // From now on it comes by itself.
            self.wish_later(Work::Again, Outcome::Success);
        }
        for event in told.events {
            self.tell_event(event).await;
        }
    }

    fn look(&mut self, batch: &Batch, told: &Told) {
        self.problems = batch.problems.iter().map(ToString::to_string).collect();
        if told.is_empty {
            self.problems.push(nothing_there(self.parts.is_cluster));
        }
        if self.parts.source_is_told {
            return;
        }
        let news = batch.new_problems.iter().map(ToString::to_string);
        for problem in news.chain(told.is_empty.then(|| nothing_there(self.parts.is_cluster))) {
            _ = self.parts.events.send(Event::Problem(problem));
        }
        self.parts.board.looked(Look {
            objects: &self.objects.counts(),
            changes: batch.changes.len(),
            complete: batch.complete,
            problems: &self.problems,
        });
    }

    /// Kubernetes' Nodes go to whoever numbers them: all of them first.
    async fn feed(&mut self, changes: Vec<Change>) {
        let Some(feed) = &self.parts.feed else { return };
        let changes = if std::mem::replace(&mut self.is_fed, true) {
            changes
        } else {
            self.parts
                .cluster
                .kube_nodes()
                .into_iter()
                .map(Change::KubeNodePut)
                .collect()
        };
        if !changes.is_empty() {
            // Nobody follows once it is over.
            _ = feed.send(changes).await;
        }
    }

    async fn tell_event(&mut self, event: service::Event) {
        let Some(processor) = &self.parts.processor else { return };
        let what = what_of(&processor.wiring.processor, &event);
        if let Some(what) = &what
            && self.set_aside.remove(what).is_some()
        {
            processor.failing.release(what);
            // It changed: all of it is told again.
            self.is_synced = false;
        }
        if !self.is_synced {
            // A resync comes, which has it.
            self.wish_resync();
            return;
        }
        self.update(event, what).await;
    }

    /// At once, unless it failed: then it waits for its pause.
    fn wish_resync(&mut self) {
        if self.knows_nodes && self.controller.status(&Work::Service).is_none() {
            self.wish(Work::Service);
        }
    }

    async fn update(&mut self, event: service::Event, what: Option<String>) {
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let by = match &event {
            service::Event::Nodes(_) => self.parts.nodes.as_ref().and_then(|nodes| nodes.borrow().by.clone()),
            _ => None,
        };
        let args = Update { event };
        let answer = processor.wiring.ask("processor.update", &args, by).await;
        if processor.wiring.processor.take_is_blank() {
            self.is_synced = false;
            self.wish_retry(Work::Service);
        }
        let suspect = what.map(|what| (what, args.event));
        self.came(answer, suspect).await;
    }

    /// The processor is told everything, or once more the nodes, which has it tell what it still has to.
    async fn tell_service(&mut self) {
        if self.is_synced {
            let nodes = self.nodes();
            self.update(service::Event::Nodes(nodes), None).await;
        } else {
            self.resync().await;
        }
        let outcome = if self.is_synced && !self.is_pending {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        let now_ms = self.now_ms();
        let due_ms = self.controller.done(&Work::Service, outcome, now_ms);
        self.show();
        if outcome == Outcome::Success {
            // It rests until there is something to tell.
            self.controller.forget(&Work::Service);
            let services = self.parts.rendering.services().await;
            let all = self.parts.rendering.standing().await;
            let in_step = all.into_iter().filter(|renderer| renderer.is_in_step);
            _ = self.parts.events.send(Event::Rendered {
                node: self.parts.node.clone(),
                services,
                renderers: in_step.map(|renderer| renderer.name).collect(),
            });
            return;
        }
        _ = self.parts.events.send(Event::NotRendered {
            node: self.parts.node.clone(),
            error: self.error.clone().unwrap_or_default(),
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
        });
    }

    fn nodes(&self) -> Vec<crate::guests::nodesync::Node> {
        self.parts
            .nodes
            .as_ref()
            .map(|nodes| nodes.borrow().nodes.clone())
            .unwrap_or_default()
    }

    async fn resync(&mut self) {
        let nodes = self.nodes();
        let by = self.parts.nodes.as_ref().and_then(|nodes| nodes.borrow().by.clone());
        let cluster = &self.parts.cluster;
        let mut state = State {
            context: self.parts.context.clone(),
            nodes,
            local_pods: cluster.local_pods(),
            remote_pods: Vec::new(),
            endpoints: cluster.endpoints(),
            services: cluster.services(),
            ip_allocations: Vec::new(),
        };
        self.leave_out(&mut state);
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let answer = processor.wiring.ask("processor.resync", &Resync { state }, by).await;
        processor.wiring.processor.take_is_blank();
        // Whatever renderers answered, the processor has its inputs.
        self.is_synced = answer.is_ok();
        if self.is_synced {
            let set_aside = &self.set_aside;
            processor.failing.took_all_but(|what| set_aside.contains_key(what));
        }
        self.came(answer, None).await;
    }

    /// What is set aside is not told.
    fn leave_out(&self, state: &mut State) {
        for event in self.set_aside.values() {
            match event {
                service::Event::ServicePut(it) => state.services.retain(|other| other.id != it.id),
                service::Event::EndpointsPut(it) => state.endpoints.retain(|other| other.id != it.id),
                service::Event::PodAdded(it) => state.local_pods.retain(|other| other.id != it.id),
                _ => {}
            }
        }
    }

    /// What a call of the processor came to, and who is out of step since.
    async fn came(&mut self, answer: Result<Result<(), String>, NoAnswer>, suspect: Option<(String, service::Event)>) {
        let error = match answer {
            Ok(answer) => {
                if let Some(processor) = &mut self.parts.processor {
                    processor.failing.took();
                }
                self.suspects.clear();
                self.is_pending = answer.is_err();
                self.is_tried_anew &= self.is_pending;
                answer.err()
            }
            Err(no_answer) => {
                // Its instance is built again without this call, and told everything.
                self.is_synced = false;
                if no_answer.is_fault {
                    self.faulted(&no_answer.error, suspect);
                }
                Some(no_answer.error)
            }
        };
        let failed = error.is_some();
        self.error = error;
        // Here alone: a retry is no call of the processor, which did not have its chance to ask again.
        self.parts.rendering.settle().await;
        self.parts.board.renders(self.parts.rendering.services().await);
        self.follow_renderers().await;
        if failed {
            self.wish_retry(Work::Service);
        }
        // What the queue asked for is shown when the queue knows how it ended.
        let runs = self
            .controller
            .status(&Work::Service)
            .is_some_and(|status| status.running);
        if !runs {
            self.show();
        }
    }

    /// The processor failed: what it failed in is told no more where that was once too often.
    fn faulted(&mut self, error: &str, suspect: Option<(String, service::Event)>) {
        self.suspects.extend(suspect);
        let Some(processor) = &mut self.parts.processor else {
            return;
        };
        let instances = processor.wiring.processor.instances();
        let what = self
            .suspects
            .keys()
            .next()
            .cloned()
            .unwrap_or_else(|| processor.wiring.processor.name());
        let Some(entry) = processor.failing.failed(&instances, &what, error) else {
            return;
        };
        _ = self.parts.events.send(Event::SetAside {
            what,
            error: entry.error,
            failures: entry.failures,
        });
        self.set_aside.append(&mut self.suspects);
    }

    /// Who came out of step is told everything, at the latest when the queue says so.
    async fn follow_renderers(&mut self) {
        let out = self.parts.rendering.out_of_step().await;
        for (renderer, instances, too_much) in self.parts.rendering.take_too_much().await {
            let what = format!("{}/{}", instances.name, self.parts.node);
            let Some((_, failing)) = self.parts.renderers.get_mut(renderer) else {
                continue;
            };
            let entry = failing.set_aside(&instances, &what, too_much);
            self.parts.rendering.set_aside(renderer).await;
            self.controller.forget(&Work::Renderer(renderer));
            _ = self.parts.events.send(Event::SetAside {
                what,
                error: entry.error,
                failures: entry.failures,
            });
        }
        let standing = self.parts.rendering.standing().await;
        for (renderer, at) in standing.into_iter().enumerate() {
            let is_out = out.contains(&renderer) && !at.is_set_aside;
            let Some(was_out) = self.out_of_step.get_mut(renderer) else {
                continue;
            };
            let was_out = std::mem::replace(was_out, is_out);
            match (was_out, is_out) {
                (false, true) => {
                    self.wish_retry(Work::Renderer(renderer));
                    self.tell_out_of_step(renderer, &at);
                }
                (true, false) if !at.is_set_aside => {
                    self.controller.forget(&Work::Renderer(renderer));
                    let renderer = at.name.clone();
                    _ = self.parts.events.send(Event::InStep { renderer });
                }
                _ => {}
            }
            if self
                .shown
                .get(renderer)
                .is_some_and(|shown| shown.as_ref() != Some(&at))
            {
                if let (true, Some((_, failing))) = (at.is_in_step, self.parts.renderers.get_mut(renderer)) {
                    failing.took_all_but(|_| false);
                }
                self.show_renderer(renderer, &at);
                if let Some(shown) = self.shown.get_mut(renderer) {
                    *shown = Some(at);
                }
            }
        }
    }

    fn tell_out_of_step(&self, renderer: usize, at: &RendererAt) {
        let due_ms = self
            .controller
            .status(&Work::Renderer(renderer))
            .and_then(|status| status.due_ms);
        _ = self.parts.events.send(Event::OutOfStep {
            renderer: at.name.clone(),
            error: at.error.clone(),
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(self.now_ms())),
        });
    }

    /// It failed a moment ago: the first pause is as after any failure. What runs, or waits already, goes on as it is.
    fn wish_retry(&mut self, work: Work) {
        if self.controller.status(&work).is_none() {
            self.wish_later(work, Outcome::Failure);
        }
    }

    /// It comes when the queue has it come after such an outcome.
    fn wish_later(&mut self, work: Work, after: Outcome) {
        self.wish(work);
        let now_ms = self.now_ms();
        // Others that are due as well keep their turns.
        let mut others = Vec::new();
        while let Some(ready) = self.controller.take_ready(now_ms) {
            if ready == work {
                self.controller.done(&work, after, now_ms);
                break;
            }
            others.push(ready);
        }
        for other in others {
            self.controller.done(&other, Outcome::Interrupted, now_ms);
        }
    }

    async fn retried(&mut self, renderer: usize, told: Result<(), String>) {
        let outcome = if told.is_ok() {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        let now_ms = self.now_ms();
        self.controller.done(&Work::Renderer(renderer), outcome, now_ms);
        // Its next try is another one, whatever it answered.
        if let Some(shown) = self.shown.get_mut(renderer) {
            *shown = None;
        }
        self.follow_renderers().await;
        if let (Err(_), Some(Some(at))) = (&told, self.shown.get(renderer))
            && !at.is_set_aside
        {
            self.tell_out_of_step(renderer, at);
        }
        let is_out = self.out_of_step.get(renderer).copied().unwrap_or_default();
        if told.is_err() {
            if is_out {
                // It may have been forgotten meanwhile.
                self.wish_retry(Work::Renderer(renderer));
            }
            return;
        }
        // It rests until it is out of step again.
        self.controller.forget(&Work::Renderer(renderer));
        if is_out {
            // It became another one while it was told.
            self.wish(Work::Renderer(renderer));
        }
        // One that takes everything and then refuses one call is not told everything in each pause of its own: once.
        if self.is_pending && !std::mem::replace(&mut self.is_tried_anew, true) {
            self.wish(Work::Service);
        }
    }

    async fn take_nodes(&mut self, nodes: Known) {
        self.knows_nodes = true;
        if self.parts.processor.is_none() {
            return;
        }
        if self.is_synced {
            self.update(service::Event::Nodes(nodes.nodes), None).await;
        } else if self.parts.cluster.is_complete() {
            self.wish_resync();
        }
    }

    async fn hand_over(&mut self, of: Option<usize>, handover: Handover) {
        match of {
            None => {
                let Some(processor) = &mut self.parts.processor else {
                    return;
                };
                if processor.wiring.processor.hand_over(handover).await {
                    processor.failing.is_new();
                    self.set_aside.clear();
                    self.suspects.clear();
                    // Another version may combine the same otherwise.
                    self.is_synced = false;
                    if self.parts.cluster.is_complete() {
                        self.wish(Work::Service);
                    }
                }
            }
            Some(renderer) => {
                if self.parts.rendering.hand_over(renderer, handover).await {
                    if let Some((_, failing)) = self.parts.renderers.get_mut(renderer) {
                        failing.is_new();
                    }
                    self.follow_renderers().await;
                    // It is new, and failed in nothing.
                    self.controller.forget(&Work::Renderer(renderer));
                    if self.out_of_step.get(renderer).copied().unwrap_or_default() {
                        self.wish(Work::Renderer(renderer));
                    }
                }
            }
        }
    }

    fn show(&self) {
        let Some(processor) = &self.parts.processor else { return };
        let key = processor.wiring.processor.name();
        self.parts
            .board
            .finished(&key, self.finished(Work::Service, self.error.as_ref()));
    }

    fn show_renderer(&self, renderer: usize, at: &RendererAt) {
        let work = Work::Renderer(renderer);
        if at.is_set_aside {
            let failures = self.controller.status(&work).map_or(0, |status| status.failures);
            let error = at.error.clone().unwrap_or_default();
            self.parts.board.set_aside(&at.name, &error, failures);
        } else {
            let error = at.error.as_ref().filter(|_| !at.is_in_step);
            self.parts.board.finished(&at.name, self.finished(work, error));
        }
    }

    /// How it stands, as the board has it.
    fn finished(&self, work: Work, error: Option<&String>) -> Finished {
        let status = self.controller.status(&work);
        let due_ms = status
            .as_ref()
            .filter(|_| error.is_some())
            .and_then(|status| status.due_ms);
        Finished {
            outcome: if error.is_some() {
                board::Outcome::Failed
            } else {
                board::Outcome::True
            },
            error: error.cloned(),
            failures: status.map_or(0, |status| status.failures),
            again_in_ms: due_ms.map(|due_ms| due_ms.saturating_sub(self.now_ms())),
            created: 0,
            destroyed: 0,
            in_service: Vec::new(),
        }
    }

    async fn summary(self, end: LoopEnd) -> Summary {
        let standing = self.parts.rendering.standing().await;
        let mut summary = Summary {
            nodes: self.nodes().len(),
            services: self.parts.rendering.services().await,
            problems: self.problems,
            ..Summary::default()
        };
        for renderer in standing {
            if renderer.is_in_step {
                summary.rendered.push(renderer.name);
            } else {
                let why = renderer.error.unwrap_or_else(|| "it was told nothing".to_owned());
                summary.failed.push((renderer.name, why));
            }
        }
        if let (Some(processor), Some(error)) = (&self.parts.processor, self.error) {
            summary.failed.push((processor.wiring.processor.name(), error));
        }
        summary.cut_short = match end {
            LoopEnd::NothingLeft | LoopEnd::Stopped => None,
            LoopEnd::SourceEnded => Some("the source can't be watched any more".to_owned()),
            LoopEnd::NotOurs(why) => Some(why),
        };
        summary
    }
}

/// Says again and again that the loop is alive: it waits for an answer.
async fn beat_on(beating: &Beating) {
    loop {
        tokio::time::sleep(SYNC).await;
        beating.beat();
    }
}

/// Waits until it is to end, and then as long as what was begun may go on. `until`: when that is; none: it is not to end.
async fn too_long(stop: Pin<&mut impl Future<Output = ()>>, until: &mut Option<Instant>) {
    let until = match until {
        Some(until) => until,
        none => {
            stop.await;
            none.insert(Instant::now() + STOP_GRACE)
        }
    };
    tokio::time::sleep_until(*until).await;
}

/// What an event is about, as operators know it; none: about nothing that could be left out.
fn what_of(seat: &Seat, event: &service::Event) -> Option<String> {
    let (kind, id) = match event {
        service::Event::ServicePut(it) => ("Service", &it.id),
        service::Event::ServiceDeleted(id) => ("Service", id),
        service::Event::EndpointsPut(it) => ("endpoints", &it.id),
        service::Event::EndpointsDeleted(id) => ("endpoints", id),
        service::Event::PodAdded(it) => ("Pod", &it.id),
        service::Event::PodDeleted(id) => ("Pod", id),
        _ => return None,
    };
    Some(format!("{} {kind} {}/{}", seat.name(), id.namespace, id.name))
}

/// The next version of any of the guests: of the processor first, then of renderers in their order.
async fn handed_over(
    processor: &mut Option<Processor>,
    renderers: &mut [(mpsc::Receiver<Handover>, Failing)],
) -> (Option<usize>, Handover) {
    let processor = processor.iter_mut().map(|processor| (None, &mut processor.handovers));
    let renderers = renderers.iter_mut().enumerate();
    let mut all: Vec<_> = processor
        .chain(renderers.map(|(at, (handovers, _))| (Some(at), handovers)))
        .collect();
    std::future::poll_fn(move |context| {
        for (of, handovers) in &mut all {
            // Where nobody manages a guest any more, there is never one.
            if let std::task::Poll::Ready(Some(handover)) = handovers.poll_recv(context) {
                return std::task::Poll::Ready((*of, handover));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// All nodes, when they are others than before; never where nobody numbers them.
async fn told_nodes(nodes: &mut Option<watch::Receiver<Known>>) -> Known {
    if let Some(nodes) = nodes
        && nodes.changed().await.is_ok()
    {
        return nodes.borrow_and_update().clone();
    }
    std::future::pending().await
}
