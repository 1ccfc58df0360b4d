//! The Rust types of every interface that a guest may import, generated from `wit/` once for all worlds.
//!
//! The worlds in `trueup-worlds` reuse these modules (`with:`), so a `Host` that serves one world serves all of them.
//! Each type derives serde, so the WIT is also the journal's schema.
#![expect(missing_docs, reason = "generated from wit/, which has the documentation")]

wasmtime::component::bindgen!({
    path: [
        "../../wit/host",
        "../../wit/guest",
        "../../wit/lbaas",
        "../../wit/checkpoint",
        "../../wit/cri",
        "../../wit/etcd",
        "../../wit/neg",
        "../../wit/kube",
        "../../wit/nodesync",
        "../../wit/service",
    ],
    inline: "
        package trueup:capabilities;
        world capabilities {
            import trueup:host/log@0.1.0;
            import trueup:host/clock@0.1.0;
            import trueup:host/timers@0.1.0;
            import trueup:host/random@0.1.0;
            import trueup:host/metrics@0.1.0;
            import trueup:lbaas/api@0.1.0;
            import trueup:checkpoint/store@0.1.0;
            import trueup:cri/sandboxes@0.1.0;
            import trueup:neg/api@0.1.0;
            import trueup:etcd/kv@0.1.0;
            import trueup:nodesync/types@0.1.0;
            import trueup:service/renderer@0.1.0;
            import trueup:service/nftables@0.1.0;
        }
    ",
    world: "trueup:capabilities/capabilities",
    imports: {
        "trueup:host/log@0.1.0.emit": trappable,
        "trueup:host/metrics@0.1.0.counter-add": trappable,
        "trueup:host/metrics@0.1.0.gauge-set": trappable,
        "trueup:host/metrics@0.1.0.histogram-observe": trappable,
        default: async | trappable,
    },
    additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
});

/// Orders a generated type by keys, each of them made only if the ones before it are equal: `additional_derives` would
/// ask for an order of all types, and some have none.
macro_rules! order_by {
    ($type:ty, $it:ident => $($key:expr),+) => {
        impl Ord for $type {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                std::cmp::Ordering::Equal$(.then_with(|| {
                    let [left, right] = [self, other].map(|$it| $key);
                    left.cmp(&right)
                }))+
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
    };
}
pub(crate) use order_by;

pub use trueup::{checkpoint, cri, etcd, host, kube, lbaas, neg, nodesync, service};
