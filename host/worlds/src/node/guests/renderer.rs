//! The worlds of renderers: the same exports, by name, and one module of bindings for each world.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use trueup_capabilities::renderer::Call;
use trueup_instance::Worlds;

/// The call that is a full resync.
pub(crate) const RESYNC: &str = "renderer.resync";

/// A recorded call. `None` if it is no call of a renderer.
pub(crate) fn call(name: &str, args: &RawValue) -> Option<Call> {
    fn read<T: DeserializeOwned>(args: &RawValue) -> Option<T> {
        serde_json::from_str(args.get()).ok()
    }
    match name {
        "renderer.add-service" => read(args).map(Call::AddService),
        "renderer.delete-service" => read(args).map(Call::DeleteService),
        "renderer.update-service" => read(args).map(Call::UpdateService),
        "renderer.update-node-port-services" => read(args).map(Call::UpdateNodePortServices),
        "renderer.update-local-frontend-ifs" => read(args).map(Call::UpdateLocalFrontendIfs),
        "renderer.update-local-backend-ifs" => read(args).map(Call::UpdateLocalBackendIfs),
        RESYNC => read(args).map(Call::Resync),
        _ => None,
    }
}

/// The world of a renderer, in a module of its name: renderers differ only by their imports.
macro_rules! renderer {
    (
        $(#[$doc:meta])* $module:ident: $name:literal as $world:ident, $pre:ident;
        with: { $($with:tt)* }; imports: $imports:tt;
    ) => {
        $(#[$doc])*
        pub mod $module {
            use trueup_capabilities::renderer::{
                OfService, Resync, UpdateInterfaces, UpdateNodePortServices, UpdateService,
            };

            trueup_instance::bindings! {
                [
                    "../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync",
                    "../../wit/service",
                ],
                $name,
                {
                    "trueup:kube": trueup_capabilities::bindings::kube,
                    "trueup:service/types": trueup_capabilities::bindings::service::types,
                    $($with)*
                }
            }

            trueup_instance::world! {
                $name as $world, $pre;
                imports: $imports;
                exports: ["guest/lifecycle", "service/renderer"];
                is_stateless: false;
                trueup_service_renderer:
                "renderer.add-service": OfService => |e, s, a| e.call_add_service(s, &a.service);
                "renderer.delete-service": OfService => |e, s, a| e.call_delete_service(s, &a.service);
                "renderer.resync": Resync => |e, s, a| e.call_resync(s, &a.event);
                "renderer.update-local-backend-ifs": UpdateInterfaces =>
                    |e, s, a| e.call_update_local_backend_ifs(s, &a.old, &a.new);
                "renderer.update-local-frontend-ifs": UpdateInterfaces =>
                    |e, s, a| e.call_update_local_frontend_ifs(s, &a.old, &a.new);
                "renderer.update-node-port-services": UpdateNodePortServices =>
                    |e, s, a| e.call_update_node_port_services(s, &a.node_ips, &a.services);
                "renderer.update-service": UpdateService => |e, s, a| e.call_update_service(s, &a.old, &a.new);
            }
        }
    };
}

renderer! {
    /// The world `trueup:service/etcd-renderer`: a renderer that writes into etcd.
    etcd: "trueup:service/etcd-renderer" as EtcdRenderer, EtcdRendererPre;
    with: { "trueup:etcd": trueup_capabilities::bindings::etcd };
    imports: ["etcd/kv", "host/log", "host/metrics", "kube/types", "service/types"];
}

renderer! {
    /// The world `trueup:service/nftables-renderer`: a renderer that programs the kernel.
    nftables: "trueup:service/nftables-renderer" as NftablesRenderer, NftablesRendererPre;
    with: { "trueup:service/nftables": trueup_capabilities::bindings::service::nftables };
    imports: ["host/log", "host/metrics", "kube/types", "service/nftables", "service/types"];
}

/// The worlds of renderers.
pub(crate) const WORLDS: Worlds = &[&etcd::WORLD, &nftables::WORLD];
