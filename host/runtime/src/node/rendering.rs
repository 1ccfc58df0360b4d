//! The renderers of this node's service processor, each with its instance: every call goes to each in turn.
//!
//! Who is told what is decided in `steps.rs`; here instances are asked.

use std::sync::Arc;

use tokio::sync::Mutex;
use trueup_capabilities::Answer;
use trueup_capabilities::renderer::{Call, Renderers, ResyncEvent};
use trueup_journal::By;

use super::seat::Seat;
use super::steps::{Steps, Turn};
use crate::config::FailurePolicy;
use crate::run::active::Handover;
use crate::run::troubles::{TooMuch, enough};

/// All renderers, shared by the loop and the processor's questions. Never both at once: the loop asks nobody while the
/// processor is asked.
#[derive(Clone)]
pub(super) struct Rendering(Arc<Mutex<Inner>>);

struct Inner {
    steps: Steps,
    renderers: Vec<Renderer>,
}

struct Renderer {
    seat: Seat,
    policy: FailurePolicy,
    /// Calls in a row in which the guest itself failed.
    faults: u32,
    /// Why it failed last; none: it did not.
    error: Option<String>,
    /// It is to be set aside, and was not yet.
    too_much: Option<TooMuch>,
}

/// How a renderer stands, for those who show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RendererAt {
    pub(super) name: String,
    pub(super) is_in_step: bool,
    pub(super) is_set_aside: bool,
    /// Why it failed last; none: it did not.
    pub(super) error: Option<String>,
}

impl Rendering {
    pub(super) fn new(renderers: Vec<(Seat, FailurePolicy)>) -> Self {
        let steps = Steps::new(renderers.len());
        let renderers = renderers.into_iter().map(|(seat, policy)| Renderer {
            seat,
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

    /// The processor's own call ended: who is out of step from here on, by position.
    pub(super) async fn settle(&self) -> Vec<usize> {
        let mut inner = self.0.lock().await;
        inner.steps.settle();
        inner.steps.out_of_step()
    }

    /// Tells a renderer that is out of step everything.
    ///
    /// # Errors
    /// Why it did not take it, in one line.
    pub(super) async fn bring_into_step(&self, renderer: usize) -> Result<(), String> {
        let mut inner = self.0.lock().await;
        let Some(event) = inner.steps.event() else {
            return Ok(());
        };
        if inner.steps.is_in_step(renderer) || inner.steps.is_set_aside(renderer) {
            return Ok(());
        }
        let told = inner.ask(renderer, &Call::Resync { event }, None).await;
        match &told {
            Ok(()) => inner.steps.took_resync(renderer),
            Err(_) => _ = inner.steps.failed(renderer),
        }
        told
    }

    /// Those that failed so often in a row that they are to be set aside: each once, with its seat's version.
    pub(super) async fn take_too_much(&self) -> Vec<(usize, Arc<crate::run::Instances>, TooMuch)> {
        let mut inner = self.0.lock().await;
        let all = inner.renderers.iter_mut().enumerate();
        all.filter_map(|(at, renderer)| Some((at, renderer.seat.instances(), renderer.too_much.take()?)))
            .collect()
    }

    /// It is not called any more, until another version of it is active.
    pub(super) async fn set_aside(&self, renderer: usize) {
        self.0.lock().await.steps.set_aside(renderer);
    }

    /// Another version of a renderer becomes active; it is out of step then.
    pub(super) async fn hand_over(&self, renderer: usize, handover: Handover) -> bool {
        let mut inner = self.0.lock().await;
        let Some(its) = inner.renderers.get_mut(renderer) else {
            return false;
        };
        let is_active = its.seat.hand_over(handover).await;
        if is_active {
            (its.faults, its.error, its.too_much) = (0, None, None);
            inner.steps.is_new(renderer);
        }
        is_active
    }

    /// How each stands, in order.
    pub(super) async fn standing(&self) -> Vec<RendererAt> {
        let inner = self.0.lock().await;
        let all = inner.renderers.iter().enumerate();
        all.map(|(at, renderer)| RendererAt {
            name: renderer.seat.name(),
            is_in_step: inner.steps.is_in_step(at),
            is_set_aside: inner.steps.is_set_aside(at),
            error: renderer.error.clone(),
        })
        .collect()
    }

    /// How many services each should have.
    pub(super) async fn services(&self) -> usize {
        self.0.lock().await.steps.services()
    }

    /// Between calls.
    pub(super) async fn rest(&self) {
        self.each_seat(Seat::rest).await;
    }

    /// At the end.
    pub(super) async fn sync(&self) {
        self.each_seat(Seat::sync).await;
    }

    async fn each_seat(&self, what: impl Fn(&mut Seat)) {
        let mut inner = self.0.lock().await;
        inner.renderers.iter_mut().for_each(|renderer| what(&mut renderer.seat));
    }
}

impl Inner {
    async fn ask(&mut self, renderer: usize, call: &Call, by: Option<By>) -> Result<(), String> {
        let Some(renderer) = self.renderers.get_mut(renderer) else {
            return Ok(());
        };
        let answer = renderer.seat.ask::<Result<(), String>>(call.name(), call, by).await;
        let (answer, is_fault) = match answer {
            Ok(answer) => (answer, false),
            Err(no_answer) => (Err(no_answer.error), no_answer.is_fault),
        };
        let answer = answer.map_err(|error| format!("renderer `{}`: {error}", renderer.seat.instances().name));
        renderer.error = answer.as_ref().err().cloned();
        renderer.faults = if is_fault { renderer.faults.saturating_add(1) } else { 0 };
        if let (true, Some(error)) = (renderer.faults >= enough(&renderer.policy), &renderer.error) {
            renderer.too_much = Some(TooMuch {
                error: error.clone(),
                failures: renderer.faults,
            });
            renderer.faults = 0;
        }
        answer
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
                    self.steps.took_resync(renderer);
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
