//! The world `trueup:service/nftables-renderer`: a renderer that programs the kernel.

use trueup_engine::Data;
use trueup_instance::bindings;

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync", "../../wit/service"],
    "trueup:service/nftables-renderer",
    {
        "trueup:kube": trueup_capabilities::bindings::kube,
        "trueup:service/nftables": trueup_capabilities::bindings::service::nftables,
        "trueup:service/types": trueup_capabilities::bindings::service::types,
    }
}

pub use bindings::{NftablesRenderer, NftablesRendererPre};

super::renderer! {
    "trueup:service/nftables-renderer@0.1.0" as NftablesRenderer, NftablesRendererPre<Data>;
    imports: [
        "trueup:host/log@0.1.0",
        "trueup:host/metrics@0.1.0",
        "trueup:kube/types@0.1.0",
        "trueup:service/nftables@0.1.0",
        "trueup:service/types@0.1.0",
    ];
}
