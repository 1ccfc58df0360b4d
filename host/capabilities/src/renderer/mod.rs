//! `trueup:service/renderer` as the service processor imports it: each call goes to every renderer, each a guest of its
//! own.
//!
//! Defines the calls and the trait that answers them; the implementation of [`Renderers`] calls the instances. There is
//! no grant: the configuration names a processor's renderers.

pub(crate) mod binding;

use std::cmp::Ordering;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use trueup_journal::By;

use crate::bindings::kube::types::EndpointPort;
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

impl Eq for EndpointPort {}

/// By name, protocol in the order of WIT, and number.
impl Ord for EndpointPort {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.name, self.protocol as u8, self.port).cmp(&(&other.name, other.protocol as u8, other.port))
    }
}

impl PartialOrd for EndpointPort {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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
