//! The renderers of this node's service processor, each with its instance. Each call goes to all of them in turn.
//!
//! `steps.rs` decides which renderer gets what; this module calls the instances. A renderer that is out of step gets
//! a full resync beside the loop, so that one that waits for its store or its kernel holds up no other. Calls skip it
//! meanwhile, and it then gets what it missed.

use std::sync::Arc;

use tokio::sync::Mutex;
use trueup_capabilities::Answer;
use trueup_capabilities::renderer::{Call, Renderers, ResyncEvent};
use trueup_journal::By;

use super::seat::{NoAnswer, Seat};
use super::steps::{Steps, Turn};
use crate::config::FailurePolicy;
use crate::lifecycle::active::{Active, Handover};
use crate::lifecycle::troubles::{TooMuch, enough};

/// How often a renderer catches up beside the loop after its resync. After that it gets what it still missed while
/// all others wait: changes may come faster than it takes them.
const CATCHING_UP_MAX: usize = 4;

/// A renderer that missed no more calls than this gets them while all others wait.
const MISSED_FEW: usize = 8;

/// All renderers, shared by the loop, the processor's calls, and retries. Each renderer runs at most one call at a
/// time.
#[derive(Clone)]
pub(super) struct Rendering(Arc<Mutex<Inner>>);

struct Inner {
    steps: Steps,
    renderers: Vec<Renderer>,
}

struct Renderer {
    /// `NAME/NODE`.
    name: String,
    active: Arc<Active>,
    /// Locked by the current call. Code that holds the lock of all renderers never waits for one that gets a full
    /// resync.
    seat: Arc<Mutex<Seat>>,
    policy: FailurePolicy,
    /// Calls in a row in which the guest itself failed.
    faults: u32,
    /// The last error. `None` if it did not fail.
    error: Option<String>,
    /// Set if it is to be set aside and has not been yet.
    too_much: Option<TooMuch>,
}

/// The state of a renderer, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RendererAt {
    pub(super) name: String,
    pub(super) is_in_step: bool,
    pub(super) is_being_told: bool,
    pub(super) is_set_aside: bool,
    /// The last error. `None` if it did not fail.
    pub(super) error: Option<String>,
}

impl Rendering {
    pub(super) fn new(renderers: Vec<(Seat, FailurePolicy)>) -> Self {
        let steps = Steps::new(renderers.len());
        let renderers = renderers.into_iter().map(|(seat, policy)| Renderer {
            name: seat.name(),
            active: seat.active(),
            seat: Arc::new(Mutex::new(seat)),
            policy,
            faults: 0,
            error: None,
            too_much: None,
        });
        Self(Arc::new(Mutex::new(Inner {
            steps,
            renderers: renderers.collect(),
        })))
    }

    /// Call once after each of the processor's own calls: what it did not request again counts from then on.
    pub(super) async fn settle(&self) {
        self.0.lock().await.steps.settle();
    }

    /// The positions of renderers that need a full resync.
    pub(super) async fn out_of_step(&self) -> Vec<usize> {
        self.0.lock().await.steps.out_of_step()
    }

    /// Resyncs a renderer that is out of step, and then gives it what the others got meanwhile.
    ///
    /// # Errors
    /// Why it did not take it, in one line.
    pub(super) async fn bring_into_step(&self, renderer: usize) -> Result<(), String> {
        let (seat, event) = {
            let mut inner = self.0.lock().await;
            let Some(event) = inner.steps.begin_telling(renderer) else {
                return Ok(());
            };
            let Some(its) = inner.renderers.get(renderer) else {
                return Ok(());
            };
            (Arc::clone(&its.seat), event)
        };
        // A handover to another version waits until this is done.
        let mut seat = seat.lock().await;
        let mut calls = vec![Call::Resync { event }];
        let mut all_wait = None;
        for times in 1.. {
            let told = tell(&mut seat, &calls).await;
            let mut inner = match all_wait.take() {
                Some(inner) => inner,
                None => self.0.lock().await,
            };
            if let Err(error) = inner.came(renderer, told) {
                inner.steps.not_told(renderer);
                return Err(error);
            }
            calls = inner.steps.tell_next(renderer);
            if calls.is_empty() {
                break;
            }
            let is_short = |calls: &[Call]| {
                calls.len() <= MISSED_FEW && !calls.iter().any(|call| matches!(call, Call::Resync { .. }))
            };
            if times > CATCHING_UP_MAX || is_short(&calls) {
                all_wait = Some(inner);
            }
        }
        Ok(())
    }

    /// The resync was aborted.
    pub(super) async fn broke_off(&self, renderer: usize) {
        self.0.lock().await.steps.not_told(renderer);
    }

    /// Those that failed so often in a row that they are to be set aside. Returns each once, with its active version.
    pub(super) async fn take_too_much(&self) -> Vec<(usize, Arc<crate::instances::Instances>, TooMuch)> {
        let mut inner = self.0.lock().await;
        let all = inner.renderers.iter_mut().enumerate();
        all.filter_map(|(at, renderer)| Some((at, renderer.active.instances(), renderer.too_much.take()?)))
            .collect()
    }

    /// Stops calling it until another version of it is active.
    pub(super) async fn set_aside(&self, renderer: usize) {
        self.0.lock().await.steps.set_aside(renderer);
    }

    /// Makes another version of a renderer active; it is then out of step.
    pub(super) async fn hand_over(&self, renderer: usize, handover: Handover) -> bool {
        let seat = {
            let inner = self.0.lock().await;
            match inner.renderers.get(renderer) {
                Some(its) => Arc::clone(&its.seat),
                None => return false,
            }
        };
        let is_active = seat.lock().await.hand_over(handover).await;
        let mut inner = self.0.lock().await;
        if let (true, Some(its)) = (is_active, inner.renderers.get_mut(renderer)) {
            (its.faults, its.error, its.too_much) = (0, None, None);
            inner.steps.is_new(renderer);
        }
        is_active
    }

    /// The state of each renderer, in order.
    pub(super) async fn standing(&self) -> Vec<RendererAt> {
        let inner = self.0.lock().await;
        let all = inner.renderers.iter().enumerate();
        all.map(|(at, renderer)| RendererAt {
            name: renderer.name.clone(),
            is_in_step: inner.steps.is_in_step(at),
            is_being_told: inner.steps.is_being_told(at),
            is_set_aside: inner.steps.is_set_aside(at),
            error: renderer.error.clone(),
        })
        .collect()
    }

    /// How many services each should have.
    pub(super) async fn services(&self) -> usize {
        self.0.lock().await.steps.services()
    }

    /// Call between calls: syncs recordings to disk if they are due.
    pub(super) async fn rest(&self) {
        self.each_seat(Seat::rest).await;
    }

    /// Call at the end: syncs all recordings to disk.
    pub(super) async fn sync(&self) {
        self.each_seat(Seat::sync).await;
    }

    /// Skips a renderer that is in a call.
    async fn each_seat(&self, what: impl Fn(&mut Seat)) {
        let inner = self.0.lock().await;
        let seats = inner.renderers.iter().map(|renderer| &renderer.seat);
        seats
            .filter_map(|seat| seat.try_lock().ok())
            .for_each(|mut seat| what(&mut seat));
    }
}

impl Renderer {
    /// Takes in the result of a call. Errors get the renderer's name.
    fn came(&mut self, answer: Result<Result<(), String>, NoAnswer>) -> Result<(), String> {
        let (answer, is_fault) = match answer {
            Ok(answer) => (answer, false),
            Err(no_answer) => (Err(no_answer.error), no_answer.is_fault),
        };
        let answer = answer.map_err(|error| format!("renderer `{}`: {error}", self.active.instances().name));
        self.error = answer.as_ref().err().cloned();
        self.faults = if is_fault { self.faults.saturating_add(1) } else { 0 };
        if let (true, Some(error)) = (self.faults >= enough(&self.policy), &self.error) {
            self.too_much = Some(TooMuch {
                error: error.clone(),
                failures: self.faults,
            });
            self.faults = 0;
        }
        answer
    }
}

/// Makes several calls, until one is refused.
async fn tell(seat: &mut Seat, calls: &[Call]) -> Result<Result<(), String>, NoAnswer> {
    for call in calls {
        match put(seat, call, None).await {
            Ok(Ok(())) => {}
            other => return other,
        }
    }
    Ok(Ok(()))
}

/// Makes one call. All but a resync depend on what the renderer got before.
async fn put(seat: &mut Seat, call: &Call, by: Option<By>) -> Result<Result<(), String>, NoAnswer> {
    match call {
        Call::Resync { .. } => seat.tell_all(call.name(), call, by).await,
        _ => seat.ask(call.name(), call, by).await,
    }
}

impl Inner {
    async fn ask(&mut self, renderer: usize, call: &Call, by: Option<By>) -> Result<(), String> {
        let Some(its) = self.renderers.get(renderer) else {
            return Ok(());
        };
        let seat = Arc::clone(&its.seat);
        let answer = put(&mut *seat.lock().await, call, by).await;
        self.came(renderer, answer)
    }

    fn came(&mut self, renderer: usize, answer: Result<Result<(), String>, NoAnswer>) -> Result<(), String> {
        let its = self.renderers.get_mut(renderer);
        its.map_or(Ok(()), |its| its.came(answer))
    }

    async fn render(&mut self, by: By, call: Call) -> Result<(), String> {
        let mut round = self.steps.begin(&call);
        for renderer in 0..self.renderers.len() {
            match self.steps.turn(renderer, &round) {
                Turn::PassOver => continue,
                Turn::ResyncThenCall(event) => {
                    if let Err(error) = self.resync(renderer, event, by.clone()).await {
                        self.steps.refused(renderer, &mut round, &error);
                        continue;
                    }
                    self.steps.took_resync_first(renderer);
                }
                Turn::Call => {}
            }
            match self.ask(renderer, &call, Some(by.clone())).await {
                Ok(()) => self.steps.took(renderer, &mut round),
                Err(error) => self.steps.refused(renderer, &mut round, &error),
            }
        }
        self.steps.end(&call, round)
    }

    async fn resync(&mut self, renderer: usize, event: ResyncEvent, by: By) -> Result<(), String> {
        self.ask(renderer, &Call::Resync { event }, Some(by)).await
    }
}

impl Renderers for Rendering {
    fn render<'a>(&'a self, by: By, call: Call) -> Answer<'a, Result<(), String>> {
        Box::pin(async move { self.0.lock().await.render(by, call).await })
    }
}
