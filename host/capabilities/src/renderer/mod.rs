//! `trueup:service/renderer` as the service processor imports it: each call goes to every renderer, each a guest of its
//! own.
//!
//! Defines the calls and the trait that answers them; the implementation of [`Renderers`] calls the instances. There is
//! no grant: the configuration names a processor's renderers.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_journal::{By, Journal};

use crate::bindings::service::{self, renderer};
use crate::bindings::{kube, nodesync};
use crate::host::Host;
use crate::reading::{Capability, Function, Reading};

pub use crate::bindings::kube::types::{ObjectId, Protocol};
pub use crate::bindings::service::types::{
    Backend, ContivService, PortBackends, ResyncEvent, ServicePort, TrafficPolicy,
};

/// A call of the interface with its arguments. It serialises to an object of the arguments by parameter name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "named as in wit/, which has the documentation")]
pub enum Call {
    AddService(OfService),
    UpdateService(UpdateService),
    DeleteService(OfService),
    UpdateNodePortServices(UpdateNodePortServices),
    UpdateLocalFrontendIfs(UpdateInterfaces),
    UpdateLocalBackendIfs(UpdateInterfaces),
    Resync(Resync),
}

/// The arguments of `add-service` and `delete-service`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfService {
    /// The service.
    pub service: ContivService,
}

/// The arguments of `update-service`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateService {
    /// The last acknowledged version.
    pub old: ContivService,
    /// The new version.
    pub new: ContivService,
}

/// The arguments of `update-node-port-services`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateNodePortServices {
    /// Addresses of all nodes.
    pub node_ips: Vec<String>,
    /// Services with a node port.
    pub services: Vec<ContivService>,
}

/// The arguments of `update-local-frontend-ifs` and `update-local-backend-ifs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateInterfaces {
    /// The last acknowledged interfaces.
    pub old: Vec<String>,
    /// The new interfaces.
    pub new: Vec<String>,
}

/// The arguments of `resync`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resync {
    /// The complete state.
    pub event: ResyncEvent,
}

impl Call {
    /// `interface.function` in WIT spelling.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddService(_) => "renderer.add-service",
            Self::UpdateService(_) => "renderer.update-service",
            Self::DeleteService(_) => "renderer.delete-service",
            Self::UpdateNodePortServices(_) => "renderer.update-node-port-services",
            Self::UpdateLocalFrontendIfs(_) => "renderer.update-local-frontend-ifs",
            Self::UpdateLocalBackendIfs(_) => "renderer.update-local-backend-ifs",
            Self::Resync(_) => "renderer.resync",
        }
    }
}

/// All renderers of a processor, as one.
#[async_trait]
pub trait Renderers: Send + Sync {
    /// Passes the call to each renderer. `by` is the processor's request, which each renderer's recording names.
    ///
    /// # Errors
    /// The processor's error if the call counts as refused.
    async fn render(&self, by: By, call: Call) -> Result<(), String>;
}

/// Renderers of a scenario: each call succeeds.
#[derive(Debug, Default)]
pub struct Simulated;

#[async_trait]
impl Renderers for Simulated {
    async fn render(&self, _by: By, _call: Call) -> Result<(), String> {
        Ok(())
    }
}

type Rendered = wasmtime::Result<Result<(), String>>;

impl Host {
    async fn render(&mut self, call: Call) -> Rendered {
        let by = By {
            guest: self.identity.guest.clone(),
            instance: self.identity.instance.clone(),
            n: self.tape.journal().map(Journal::next_n),
        };
        let (name, args) = (call.name(), serde_json::value::to_raw_value(&call)?);
        self.ask(name, &*args, async |guard| match &guard.backends.renderers {
            Some(renderers) => renderers.render(by, call).await,
            None => Err("this host has no renderers; name them in `renderers` of `[adapter.service]`".to_owned()),
        })
        .await
    }
}

impl kube::types::Host for Host {}

impl nodesync::types::Host for Host {}

impl service::types::Host for Host {}

impl renderer::Host for Host {
    async fn add_service(&mut self, service: ContivService) -> Rendered {
        self.render(Call::AddService(OfService { service })).await
    }

    async fn update_service(&mut self, old: ContivService, new: ContivService) -> Rendered {
        self.render(Call::UpdateService(UpdateService { old, new })).await
    }

    async fn delete_service(&mut self, service: ContivService) -> Rendered {
        self.render(Call::DeleteService(OfService { service })).await
    }

    async fn update_node_port_services(&mut self, node_ips: Vec<String>, services: Vec<ContivService>) -> Rendered {
        let args = UpdateNodePortServices { node_ips, services };
        self.render(Call::UpdateNodePortServices(args)).await
    }

    async fn update_local_frontend_ifs(&mut self, old: Vec<String>, new: Vec<String>) -> Rendered {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalFrontendIfs(args)).await
    }

    async fn update_local_backend_ifs(&mut self, old: Vec<String>, new: Vec<String>) -> Rendered {
        let args = UpdateInterfaces { old, new };
        self.render(Call::UpdateLocalBackendIfs(args)).await
    }

    async fn resync(&mut self, event: ResyncEvent) -> Rendered {
        self.render(Call::Resync(Resync { event })).await
    }
}

/// How the calls of a service processor to its renderers are read. They need no grant, and a renderer's own recording
/// shows what it wrote.
pub(crate) static CAPABILITY: Capability = Capability {
    package: "service",
    grant: None,
    limits_destroying: false,
    functions: &[
        Function::write("renderer.add-service", the_renderer),
        Function::write("renderer.delete-service", the_renderer),
        Function::write("renderer.resync", the_renderer),
        Function::write("renderer.update-local-backend-ifs", the_renderer),
        Function::write("renderer.update-local-frontend-ifs", the_renderer),
        Function::write("renderer.update-node-port-services", the_renderer),
        Function::write("renderer.update-service", the_renderer),
    ],
    reader: || Box::new(Reader),
};

fn the_renderer(_: &Value) -> String {
    "the renderer".to_owned()
}

struct Reader;

impl Reading for Reader {}
