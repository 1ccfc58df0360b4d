//! The renderers of this node's service processor, each with its instance. Each call goes to all of them in turn.
//!
//! `renderer_states.rs` decides which renderer gets what; this module calls the instances. A renderer that is out of
//! step gets a full resync beside the loop, so that one that waits for its store or its kernel holds up no other. Calls
//! skip it meanwhile, and it then gets what it missed.

use std::sync::Arc;

use tokio::sync::Mutex;
use trueup_capabilities::async_trait;
use trueup_capabilities::renderer::{Call, Renderers, Resync};
use trueup_journal::By;
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::lifecycle::failure::{Blame, Failure};
use trueup_work::lifecycle::failure_counts::TooMuch;
use trueup_work::lifecycle::quarantine::SetAside;
use trueup_work::slot::InstanceSlot;
use trueup_work::supervisor::Supervisor;

use super::instance::NodeInstance;
use super::renderer_states::{Action, RendererStates};

/// How often a renderer catches up beside the loop after its resync. After that it gets what it still missed while
/// all others wait: changes may come faster than it takes them.
const CATCHING_UP_MAX: usize = 4;

/// A renderer that missed no more calls than this gets them while all others wait.
const MISSED_FEW: usize = 8;

/// All renderers, shared by the loop, the processor's calls, and retries. Each renderer runs at most one call at a
/// time.
#[derive(Clone)]
pub struct Rendering(Arc<Mutex<Inner>>);

struct Inner {
    states: RendererStates,
    renderers: Vec<Renderer>,
}

struct Renderer {
    /// `NAME/NODE`.
    name: String,
    active: Arc<Active>,
    /// Locked by the current call. Code that holds the lock of all renderers never waits for one that gets a full
    /// resync.
    instance: Arc<Mutex<NodeInstance>>,
    supervisor: Supervisor,
    /// The last error. `None` if it did not fail.
    error: Option<String>,
    /// Set if it is to be set aside and has not been yet.
    too_much: Option<TooMuch>,
}

/// The state of a renderer, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RendererStatus {
    pub(super) name: String,
    pub(super) is_in_step: bool,
    /// It needs a full resync, and gets calls.
    pub(super) is_out_of_step: bool,
    pub(super) is_resyncing: bool,
    pub(super) is_set_aside: bool,
    /// The last error. `None` if it did not fail.
    pub(super) error: Option<String>,
}

impl Rendering {
    /// The renderers in calling order, each with what handles its failures.
    pub fn new(renderers: Vec<(NodeInstance, Supervisor)>) -> Self {
        let states = RendererStates::new(renderers.len());
        let renderers = renderers.into_iter().map(|(instance, supervisor)| Renderer {
            name: instance.name(),
            active: Arc::clone(instance.slot.active()),
            instance: Arc::new(Mutex::new(instance)),
            supervisor,
            error: None,
            too_much: None,
        });
        let renderers = renderers.collect();
        Self(Arc::new(Mutex::new(Inner { states, renderers })))
    }

    /// Call once after each of the processor's own calls: what it did not request again counts from then on.
    pub async fn settle(&self) {
        self.0.lock().await.states.settle();
    }

    /// The positions of renderers that need a full resync.
    pub async fn out_of_step(&self) -> Vec<usize> {
        self.0.lock().await.states.out_of_step()
    }

    /// Resyncs a renderer that is out of step, and then gives it what the others got meanwhile.
    ///
    /// # Errors
    /// Why it did not take it, in one line.
    pub async fn resync_beside(&self, renderer: usize) -> Result<(), String> {
        let Some(instance) = self.instance(renderer).await else {
            return Ok(());
        };
        let Some(event) = self.0.lock().await.states.begin_resync(renderer) else {
            return Ok(());
        };
        let mut instance = instance.lock().await;
        let mut calls = vec![Call::Resync(Resync { event })];
        let mut all_wait = None;
        for times in 1.. {
            let answered = call_all(&mut instance, &calls).await;
            let mut inner = match all_wait.take() {
                Some(inner) => inner,
                None => self.0.lock().await,
            };
            if let Err(error) = inner.came(renderer, answered) {
                inner.states.resync_failed(renderer);
                return Err(error);
            }
            calls = inner.states.next_missed(renderer);
            if calls.is_empty() {
                break;
            }
            let is_short =
                |calls: &[Call]| calls.len() <= MISSED_FEW && !calls.iter().any(|call| matches!(call, Call::Resync(_)));
            if times > CATCHING_UP_MAX || is_short(&calls) {
                all_wait = Some(inner);
            }
        }
        Ok(())
    }

    /// The resync was aborted.
    pub(super) async fn resync_aborted(&self, renderer: usize) {
        self.0.lock().await.states.resync_failed(renderer);
    }

    /// Sets aside those that failed too often in a row: they are not called until another version is active.
    pub(super) async fn set_aside(&self) -> Vec<(usize, SetAside)> {
        let mut inner = self.0.lock().await;
        let Inner { states, renderers } = &mut *inner;
        let mut set_aside = Vec::new();
        for (at, its) in renderers.iter_mut().enumerate() {
            let Some(too_much) = its.too_much.take() else { continue };
            let name = &its.name;
            let instances = its.active.instances();
            let entry = its.supervisor.set_aside(&instances, name, name, name, too_much);
            states.set_aside(at);
            set_aside.push((at, entry));
        }
        set_aside
    }

    /// A renderer is in step: releases it.
    pub(super) async fn took_all(&self, renderer: usize) {
        if let Some(its) = self.0.lock().await.renderers.get_mut(renderer) {
            its.supervisor.took_all();
        }
    }

    /// Makes another version of a renderer active; it is then out of step.
    pub(super) async fn hand_over(&self, renderer: usize, handover: Handover) -> bool {
        let Some(instance) = self.instance(renderer).await else {
            return false;
        };
        let is_active = instance.lock().await.hand_over(handover).await;
        let mut inner = self.0.lock().await;
        if let (true, Some(its)) = (is_active, inner.renderers.get_mut(renderer)) {
            (its.error, its.too_much) = (None, None);
            its.supervisor.began_version();
            inner.states.is_new(renderer);
        }
        is_active
    }

    /// The state of each renderer, in order.
    pub(super) async fn statuses(&self) -> Vec<RendererStatus> {
        let inner = self.0.lock().await;
        let all = inner.renderers.iter().zip(inner.states.all());
        all.map(|(renderer, state)| RendererStatus {
            name: renderer.name.clone(),
            is_in_step: state.in_step,
            is_out_of_step: inner.states.is_out_of_step(state),
            is_resyncing: state.resyncing.is_some(),
            is_set_aside: state.is_set_aside,
            error: renderer.error.clone(),
        })
        .collect()
    }

    /// Holds the active version of a renderer.
    pub(super) async fn active(&self, renderer: usize) -> Option<Arc<Active>> {
        let inner = self.0.lock().await;
        Some(Arc::clone(&inner.renderers.get(renderer)?.active))
    }

    /// How many services each should have.
    pub(super) async fn services(&self) -> usize {
        self.0.lock().await.states.services()
    }

    /// Call between calls, for what each instance is to do. Skips a renderer that is in a call.
    pub(super) async fn each_slot(&self, what: impl Fn(&mut InstanceSlot)) {
        for its in &self.0.lock().await.renderers {
            if let Ok(mut instance) = its.instance.try_lock() {
                what(&mut instance.slot);
            }
        }
    }

    async fn instance(&self, renderer: usize) -> Option<Arc<Mutex<NodeInstance>>> {
        let inner = self.0.lock().await;
        Some(Arc::clone(&inner.renderers.get(renderer)?.instance))
    }
}

/// Makes several calls, until one is refused.
async fn call_all(instance: &mut NodeInstance, calls: &[Call]) -> Result<Result<(), String>, Failure> {
    for call in calls {
        match instance.call(call.name(), call, None).await {
            Ok(Ok(())) => {}
            other => return other,
        }
    }
    Ok(Ok(()))
}

impl Inner {
    async fn ask(&mut self, renderer: usize, call: &Call, by: By) -> Result<(), String> {
        let Some(its) = self.renderers.get(renderer) else {
            return Ok(());
        };
        let instance = Arc::clone(&its.instance);
        let answer = instance.lock().await.call(call.name(), call, Some(by)).await;
        self.came(renderer, answer)
    }

    /// Takes in the result of a call. Errors get the renderer's name.
    fn came(&mut self, renderer: usize, answer: Result<Result<(), String>, Failure>) -> Result<(), String> {
        let Some(its) = self.renderers.get_mut(renderer) else {
            return Ok(());
        };
        let named = |error| format!("renderer `{}`: {error}", its.active.instances().name);
        let answer = match answer {
            Err(mut failure) if failure.blame == Blame::Guest => {
                failure.error = named(failure.error);
                let too_much = its.supervisor.failed(&its.name, &failure);
                its.too_much = too_much.or(its.too_much.take());
                Err(failure.error)
            }
            other => {
                its.supervisor.succeeded(&its.name);
                other.unwrap_or_else(|failure| Err(failure.error)).map_err(named)
            }
        };
        its.error = answer.as_ref().err().cloned();
        answer
    }
}

#[async_trait]
impl Renderers for Rendering {
    async fn render(&self, by: By, call: Call) -> Result<(), String> {
        let mut inner = self.0.lock().await;
        let mut round = inner.states.begin(&call);
        for renderer in 0..inner.renderers.len() {
            match inner.states.action(renderer, &round) {
                Action::PassOver => continue,
                Action::ResyncThenCall(event) => {
                    let resync = Call::Resync(Resync { event });
                    if let Err(error) = inner.ask(renderer, &resync, by.clone()).await {
                        inner.states.refused(renderer, &mut round, &error);
                        continue;
                    }
                    inner.states.took_resync_first(renderer);
                }
                Action::Call => {}
            }
            match inner.ask(renderer, &call, by.clone()).await {
                Ok(()) => inner.states.took(renderer, &mut round),
                Err(error) => inner.states.refused(renderer, &mut round, &error),
            }
        }
        inner.states.end(&call, round)
    }
}
