//! `trueup:service/renderer` as the service processor imports it: each call goes to every renderer, each a guest of its
//! own.
//!
//! Defines the calls and the trait that answers them; the implementation of [`Renderers`] calls the instances. There is
//! no grant: the configuration names a processor's renderers.

mod binding;
pub(crate) mod reading;
pub mod simulated;

use serde::Serialize;
use trueup_journal::By;

pub use crate::bindings::kube::types::{ObjectId, Protocol};
pub use crate::bindings::service::types::{
    Backend, ContivService, PortBackends, ResyncEvent, ServicePort, TrafficPolicy,
};
use async_trait::async_trait;

/// A call of the interface with its arguments. It serialises to an object of the arguments by parameter name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "named as in wit/, which has the documentation")]
pub enum Call {
    AddService {
        service: ContivService,
    },
    UpdateService {
        old: ContivService,
        new: ContivService,
    },
    DeleteService {
        service: ContivService,
    },
    UpdateNodePortServices {
        node_ips: Vec<String>,
        services: Vec<ContivService>,
    },
    UpdateLocalFrontendIfs {
        old: Vec<String>,
        new: Vec<String>,
    },
    UpdateLocalBackendIfs {
        old: Vec<String>,
        new: Vec<String>,
    },
    Resync {
        event: ResyncEvent,
    },
}

impl Call {
    /// `interface.function` in WIT spelling.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddService { .. } => "renderer.add-service",
            Self::UpdateService { .. } => "renderer.update-service",
            Self::DeleteService { .. } => "renderer.delete-service",
            Self::UpdateNodePortServices { .. } => "renderer.update-node-port-services",
            Self::UpdateLocalFrontendIfs { .. } => "renderer.update-local-frontend-ifs",
            Self::UpdateLocalBackendIfs { .. } => "renderer.update-local-backend-ifs",
            Self::Resync { .. } => "renderer.resync",
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
