//! The world `trueup:service/service-processor`: its bindings, and its exports by name.

pub mod adapter;

use trueup_instance::{bindings, world};

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "service";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync", "../../wit/service"],
    "trueup:service/service-processor",
    {
        "trueup:kube": trueup_capabilities::bindings::kube,
        "trueup:nodesync/types": trueup_capabilities::bindings::nodesync::types,
        "trueup:service/types": trueup_capabilities::bindings::service::types,
        "trueup:service/renderer": trueup_capabilities::bindings::service::renderer,
    }
}

pub use bindings::exports::trueup::service::processor::{
    CustomInterface, CustomIpAllocation, Event, LocalPod, NodeContext, State,
};
pub use trueup_capabilities::bindings::kube::types::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectId, Protocol, Service, ServicePort,
};

impl From<trueup_config::NodeContext> for NodeContext {
    fn from(context: trueup_config::NodeContext) -> Self {
        Self {
            node_ip: context.node_ip,
            host_ips: context.host_ips,
            pod_subnet_this_node: context.pod_subnet_this_node,
            pod_subnet_all_nodes: context.pod_subnet_all_nodes,
            main_interface: context.main_interface,
            other_interfaces: context.other_interfaces,
            vxlan_bvi_interface: context.vxlan_bvi_interface,
            host_interconnect_interface: context.host_interconnect_interface,
        }
    }
}

world! {
    "trueup:service/service-processor" as ServiceProcessor, ServiceProcessorPre;
    imports: ["host/log", "host/metrics", "kube/types", "nodesync/types", "service/renderer", "service/types"];
    exports: ["guest/lifecycle", "service/processor"];
    is_stateless: false; trueup_service_processor:
    "processor.resync": Resync { state: State } => |e, s, a| e.call_resync(s, &a.state);
    "processor.revert": Revert { pod: ObjectId } => |e, s, a| e.call_revert(s, &a.pod);
    "processor.update": Update { event: Event } => |e, s, a| e.call_update(s, &a.event);
}
