//! The worlds of renderers: the same exports, by name, and one module of bindings for each world.

pub mod etcd;
pub mod nftables;

use serde::{Deserialize, Serialize};
use trueup_capabilities::renderer::{ContivService, ResyncEvent};

/// The arguments of `renderer.add-service` and `renderer.delete-service`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfService {
    /// The service.
    pub service: ContivService,
}

/// The arguments of `renderer.update-service`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateService {
    /// The last acknowledged version.
    pub old: ContivService,
    /// The new version.
    pub new: ContivService,
}

/// The arguments of `renderer.update-node-port-services`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateNodePortServices {
    /// Addresses of all nodes.
    pub node_ips: Vec<String>,
    /// Services with a node port.
    pub services: Vec<ContivService>,
}

/// The arguments of `renderer.update-local-frontend-ifs` and `renderer.update-local-backend-ifs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateInterfaces {
    /// The last acknowledged interfaces.
    pub old: Vec<String>,
    /// The new interfaces.
    pub new: Vec<String>,
}

/// The arguments of `renderer.resync`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resync {
    /// The complete state.
    pub event: ResyncEvent,
}

/// The calls of a renderer besides `lifecycle`.
pub const CALLS: &[&str] = &[
    "renderer.add-service",
    "renderer.delete-service",
    "renderer.resync",
    "renderer.update-local-backend-ifs",
    "renderer.update-local-frontend-ifs",
    "renderer.update-node-port-services",
    "renderer.update-service",
];

/// `dispatch` for the bindings of one world.
macro_rules! exports {
    ($world:ty) => {
        pub(in crate::guests) async fn dispatch(
            instance: &mut trueup_engine::Instance<$world>,
            call: &str,
            args: &serde_json::value::RawValue,
        ) -> $crate::guests::dispatch::Answer {
            use $crate::guests::dispatch;
            use $crate::guests::renderer::{
                CALLS, OfService, Resync, UpdateInterfaces, UpdateNodePortServices, UpdateService,
            };
            macro_rules! called {
                (|$args:ident: $type:ty, $store:ident, $export:ident| $made:expr) => {{
                    let $args = dispatch::args::<$type>(call, args)?;
                    instance.enter();
                    let ($store, bindings) = instance.parts();
                    let $export = bindings.trueup_service_renderer();
                    let result = $made.await;
                    dispatch::answer(instance, call, result)
                }};
            }
            match call {
                "renderer.add-service" => called!(|a: OfService, s, e| e.call_add_service(s, &a.service)),
                "renderer.delete-service" => called!(|a: OfService, s, e| e.call_delete_service(s, &a.service)),
                "renderer.resync" => called!(|a: Resync, s, e| e.call_resync(s, &a.event)),
                "renderer.update-local-backend-ifs" => {
                    called!(|a: UpdateInterfaces, s, e| e.call_update_local_backend_ifs(s, &a.old, &a.new))
                }
                "renderer.update-local-frontend-ifs" => {
                    called!(|a: UpdateInterfaces, s, e| e.call_update_local_frontend_ifs(s, &a.old, &a.new))
                }
                "renderer.update-node-port-services" => {
                    called!(
                        |a: UpdateNodePortServices, s, e| e.call_update_node_port_services(s, &a.node_ips, &a.services)
                    )
                }
                "renderer.update-service" => {
                    called!(|a: UpdateService, s, e| e.call_update_service(s, &a.old, &a.new))
                }
                _ => dispatch::lifecycle!(instance, call, args, CALLS),
            }
        }
    };
}

use exports;

/// The worlds of renderers.
pub(crate) const WORLDS: &[&str] = &[etcd::WORLD, nftables::WORLD];
