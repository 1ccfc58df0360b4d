//! The world `trueup:service/etcd-renderer`: a renderer that writes into etcd.

use trueup_engine::{Data, Engine, Guest};

/// Its name in WIT.
pub const WORLD: &str = "trueup:service/etcd-renderer@0.1.0";

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
        world: "trueup:service/etcd-renderer",
        with: {
            "trueup:host": trueup_capabilities::bindings::host,
            "trueup:kube": trueup_capabilities::bindings::kube,
            "trueup:etcd": trueup_capabilities::bindings::etcd,
            "trueup:service/types": trueup_capabilities::bindings::service::types,
        },
        require_store_data_send: true,
        exports: { default: async },
        additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
    });
}

pub use bindings::{EtcdRenderer, EtcdRendererPre};

/// Links a guest of this world.
///
/// # Errors
/// If an import or export does not have the type in `wit/`.
pub fn link(engine: &Engine, guest: &Guest) -> wasmtime::Result<EtcdRendererPre<Data>> {
    let mut linker = trueup_engine::linker_for(engine, guest)?;
    EtcdRenderer::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |data: &mut Data| &mut data.host)?;
    EtcdRendererPre::new(linker.instantiate_pre(guest.component())?)
}

super::exports!(EtcdRenderer);
