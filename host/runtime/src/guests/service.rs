//! The world `trueup:service/service-processor`: its bindings, and its exports by name.

pub mod adapter;

use serde::{Deserialize, Serialize};
use trueup_engine::{Data, Engine, Guest};

use super::dispatch::exports;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "service";

/// The name of its world in WIT.
pub const WORLD: &str = "trueup:service/service-processor@0.1.0";

/// The worlds that a guest of this name may have.
pub(crate) const WORLDS: &[&str] = &[WORLD];

#[expect(missing_docs, reason = "generated from wit/, where the documentation stands")]
mod bindings {
    wasmtime::component::bindgen!({
        path: [
            "../../wit/host",
            "../../wit/guest",
            "../../wit/kube",
            "../../wit/etcd",
            "../../wit/nodesync",
            "../../wit/service",
        ],
        world: "trueup:service/service-processor",
        with: {
            "trueup:host": trueup_capabilities::bindings::host,
            "trueup:kube": trueup_capabilities::bindings::kube,
            "trueup:nodesync/types": trueup_capabilities::bindings::nodesync::types,
            "trueup:service/types": trueup_capabilities::bindings::service::types,
            "trueup:service/renderer": trueup_capabilities::bindings::service::renderer,
        },
        require_store_data_send: true,
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use bindings::exports::trueup::service::processor::{
    CustomInterface, CustomIpAllocation, Event, LocalPod, NodeContext, State,
};
pub use bindings::{ServiceProcessor, ServiceProcessorPre};
pub use trueup_capabilities::bindings::kube::types::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectId, Protocol, Service, ServicePort,
};

/// Links a guest of this world.
///
/// # Errors
/// If an import or export does not have the type in `wit/`.
pub fn link(engine: &Engine, guest: &Guest) -> wasmtime::Result<ServiceProcessorPre<Data>> {
    let mut linker = trueup_engine::linker_for(engine, guest)?;
    ServiceProcessor::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data: &mut Data| {
        &mut data.host
    })?;
    ServiceProcessorPre::new(linker.instantiate_pre(guest.component())?)
}

/// The arguments of `processor.resync`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resync {
    /// The complete state.
    pub state: State,
}

/// The arguments of `processor.update`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The change.
    pub event: Event,
}

/// The arguments of `processor.revert`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revert {
    /// The pod that was added.
    pub pod: ObjectId,
}

exports! { ServiceProcessor, trueup_service_processor;
    "processor.resync": Resync => |e, s, a| e.call_resync(s, &a.state);
    "processor.revert": Revert => |e, s, a| e.call_revert(s, &a.pod);
    "processor.update": Update => |e, s, a| e.call_update(s, &a.event);
}
