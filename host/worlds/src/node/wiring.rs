//! A service processor and its renderers, without the loop that feeds the processor.

use std::sync::Arc;

use trueup_capabilities::Backends;
use trueup_instance::Instances;
use trueup_work::lifecycle::active::Active;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::supervisor::Supervisor;

use super::instance::NodeInstance;
use super::rendering::Rendering;
use crate::node::guests::service::{Event, Resync, State, Update};

/// A processor with its renderers.
pub struct Wiring {
    processor: NodeInstance,
    rendering: Rendering,
}

impl Wiring {
    /// The instances of one node: the processor, and each renderer in calling order. Puts the renderers into the
    /// processor's backends.
    pub fn new(
        node: &str,
        (processor, backends): (Arc<Instances>, Backends),
        renderers: Vec<(Arc<Instances>, Backends)>,
    ) -> Self {
        let instance = |instances, backends| NodeInstance::new(Active::new(instances), node, backends);
        let renderers = renderers.into_iter();
        let renderers = renderers.map(|(instances, backends)| {
            let supervisor = Supervisor::alone(&instances);
            (instance(instances, backends), supervisor)
        });
        let rendering = Rendering::new(renderers.collect());
        let backends = Backends {
            renderers: Some(Arc::new(rendering.clone())),
            ..backends
        };
        Self {
            processor: instance(processor, backends),
            rendering,
        }
    }

    /// Sends the processor a full resync. The inner result is what the renderers answered.
    ///
    /// # Errors
    /// One line: the processor gave no answer. The host rebuilds its instance, which then needs a full resync.
    pub async fn resync(&mut self, state: State) -> Result<Result<(), String>, String> {
        let answer = self.processor.call("processor.resync", &Resync { state }, None).await;
        self.settled(answer).await
    }

    /// Sends the processor a change. The inner result is as in [`Wiring::resync`].
    ///
    /// # Errors
    /// As [`Wiring::resync`].
    pub async fn update(&mut self, event: Event) -> Result<Result<(), String>, String> {
        let answer = self.processor.call("processor.update", &Update { event }, None).await;
        self.settled(answer).await
    }

    async fn settled(&self, answer: Result<Result<(), String>, Failure>) -> Result<Result<(), String>, String> {
        self.rendering.settle().await;
        answer.map_err(|failure| failure.error)
    }

    /// The positions of renderers that need a full resync.
    pub async fn out_of_step(&self) -> Vec<usize> {
        self.rendering.out_of_step().await
    }

    /// Does what the retry timer does: resyncs a renderer that is out of step.
    ///
    /// # Errors
    /// Why it did not take it, in one line.
    pub async fn retry(&self, renderer: usize) -> Result<(), String> {
        self.rendering.resync_beside(renderer).await
    }
}
