//! The world `trueup:service/etcd-renderer`: a renderer that writes into etcd.

use trueup_engine::Data;
use trueup_instance::bindings;

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync", "../../wit/service"],
    "trueup:service/etcd-renderer",
    {
        "trueup:kube": trueup_capabilities::bindings::kube,
        "trueup:etcd": trueup_capabilities::bindings::etcd,
        "trueup:service/types": trueup_capabilities::bindings::service::types,
    }
}

pub use bindings::{EtcdRenderer, EtcdRendererPre};

super::renderer! {
    "trueup:service/etcd-renderer@0.1.0" as EtcdRenderer, EtcdRendererPre<Data>;
    imports: [
        "trueup:etcd/kv@0.1.0",
        "trueup:host/log@0.1.0",
        "trueup:host/metrics@0.1.0",
        "trueup:kube/types@0.1.0",
        "trueup:service/types@0.1.0",
    ];
}
