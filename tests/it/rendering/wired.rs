//! Built-in guests, wired as on a node: the engine, instances in a folder, and the host's work with them.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use trueup_capabilities::Backends;
use trueup_capabilities::grants::Grants;
use trueup_instance::{Instances, Program};
use trueup_work::lifecycle::active::Active;
use trueup_work::lifecycle::failure::Failure;
use trueup_work::supervisor::Supervisor;
use trueup_worlds::node::guests::nodesync::Node;
use trueup_worlds::node::guests::service::{Event, Resync, State, Update};
use trueup_worlds::node::instance::NodeInstance;
use trueup_worlds::node::rendering::Rendering;

use crate::programs::{backends, built_in, instances};

/// The node, which is the key of every instance.
pub(crate) const NODE: &str = "node-a";

pub(crate) static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
});

/// The built-in guest.
pub(crate) static SERVICE: LazyLock<Arc<Program>> = LazyLock::new(|| built_in("service"));
pub(crate) static NAT44: LazyLock<Arc<Program>> = LazyLock::new(|| built_in("nat44"));
pub(crate) static NFTABLES: LazyLock<Arc<Program>> = LazyLock::new(|| built_in("nftables"));

/// The right to read and write only these scopes of one capability.
pub(crate) fn grants(capability: &str, scopes: &[&str]) -> Grants {
    serde_json::from_value(json!({ capability: { "read": scopes, "write": scopes } })).unwrap()
}

/// A wired node, and the last nodes that it received.
pub(crate) struct Wired {
    processor: NodeInstance,
    rendering: Rendering,
    nodes: Vec<Node>,
}

impl Wired {
    pub(crate) async fn new(
        service_settings: Value,
        folder: &Path,
        renderers: Vec<(Arc<Instances>, Backends)>,
    ) -> Self {
        let service = instances(&SERVICE, "service", service_settings, Grants::default(), folder).await;
        let instance = |instances, backends| NodeInstance::new(Active::new(instances), NODE, backends);
        let renderers = renderers.into_iter().map(|(instances, backends)| {
            let supervisor = Supervisor::alone(&instances);
            (instance(instances, backends), supervisor)
        });
        let rendering = Rendering::new(renderers.collect());
        let backends = Backends {
            renderers: Some(Arc::new(rendering.clone())),
            ..backends()
        };
        Self {
            processor: instance(Arc::new(service), backends),
            rendering,
            nodes: Vec::new(),
        }
    }

    /// Returns the renderers' answer.
    pub(crate) async fn resync(&mut self, state: &State) -> Result<(), String> {
        self.nodes.clone_from(&state.nodes);
        let state = state.clone();
        let answer = self.processor.call("processor.resync", &Resync { state }, None).await;
        self.settled(answer).await
    }

    /// Returns the renderers' answer.
    pub(crate) async fn update(&mut self, event: &Event) -> Result<(), String> {
        if let Event::Nodes(nodes) = event {
            self.nodes.clone_from(nodes);
        }
        let event = event.clone();
        let answer = self.processor.call("processor.update", &Update { event }, None).await;
        self.settled(answer).await
    }

    async fn settled(&self, answer: Result<Result<(), String>, Failure>) -> Result<(), String> {
        self.rendering.settle().await;
        answer.unwrap_or_else(|failure| panic!("{}", failure.error))
    }

    /// Retries renderers that are out of step, like the retry timer; true if all accepted.
    pub(crate) async fn retry(&mut self) -> bool {
        let mut all_took = true;
        for renderer in self.rendering.out_of_step().await {
            all_took &= self.rendering.resync_beside(renderer).await.is_ok();
        }
        all_took
    }

    /// The host's work after failures: retries the renderers, and sends the processor its known nodes, so that it
    /// repeats pending questions.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        self.retry().await;
        let nodes = self.nodes.clone();
        self.update(&Event::Nodes(nodes)).await
    }

    pub(crate) async fn all_in_step(&self) -> bool {
        self.rendering.out_of_step().await.is_empty()
    }
}
