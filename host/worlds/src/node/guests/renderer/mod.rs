//! The worlds of renderers: the same exports, by name, and one module of bindings for each world.

pub mod etcd;
pub mod nftables;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trueup_capabilities::renderer::{Call, ContivService, ResyncEvent};
use trueup_instance::Worlds;

/// The call that is a full resync.
pub(crate) const RESYNC: &str = "renderer.resync";

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

/// A recorded call. `None` if it is no call of a renderer.
pub(crate) fn call(name: &str, args: &RawValue) -> Option<Call> {
    fn read<T: DeserializeOwned>(args: &RawValue) -> Option<T> {
        serde_json::from_str(args.get()).ok()
    }
    match name {
        "renderer.add-service" => read(args).map(|OfService { service }| Call::AddService { service }),
        "renderer.delete-service" => read(args).map(|OfService { service }| Call::DeleteService { service }),
        "renderer.update-service" => read(args).map(|UpdateService { old, new }| Call::UpdateService { old, new }),
        "renderer.update-node-port-services" => read(args)
            .map(|UpdateNodePortServices { node_ips, services }| Call::UpdateNodePortServices { node_ips, services }),
        "renderer.update-local-frontend-ifs" => {
            read(args).map(|UpdateInterfaces { old, new }| Call::UpdateLocalFrontendIfs { old, new })
        }
        "renderer.update-local-backend-ifs" => {
            read(args).map(|UpdateInterfaces { old, new }| Call::UpdateLocalBackendIfs { old, new })
        }
        RESYNC => read(args).map(|Resync { event }| Call::Resync { event }),
        _ => None,
    }
}

/// The world of a renderer: renderers differ only by their imports.
macro_rules! renderer {
    ($name:literal as $world:ident, $pre:ty; imports: $imports:tt;) => {
        use $crate::node::guests::renderer::{OfService, Resync, UpdateInterfaces, UpdateNodePortServices, UpdateService};

        trueup_instance::world! {
            $name as $world, $pre, $world;
            imports: $imports;
            exports: ["trueup:guest/lifecycle@0.1.0", "trueup:service/renderer@0.1.0"];
            is_stateless: false;
            trueup_service_renderer:
            "renderer.add-service": OfService => |e, s, a| e.call_add_service(s, &a.service);
            "renderer.delete-service": OfService => |e, s, a| e.call_delete_service(s, &a.service);
            "renderer.resync": Resync => |e, s, a| e.call_resync(s, &a.event);
            "renderer.update-local-backend-ifs": UpdateInterfaces => |e, s, a| e.call_update_local_backend_ifs(s, &a.old, &a.new);
            "renderer.update-local-frontend-ifs": UpdateInterfaces => |e, s, a| e.call_update_local_frontend_ifs(s, &a.old, &a.new);
            "renderer.update-node-port-services": UpdateNodePortServices => |e, s, a| e.call_update_node_port_services(s, &a.node_ips, &a.services);
            "renderer.update-service": UpdateService => |e, s, a| e.call_update_service(s, &a.old, &a.new);
        }
    };
}
use renderer;

/// The worlds of renderers.
pub(crate) const WORLDS: Worlds = &[&etcd::WORLD, &nftables::WORLD];
