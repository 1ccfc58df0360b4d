//! The contract's types and functions, generated from `wit/`.

trueup_guest::bindings! {
    world: "trueup:service/service-processor",
    wit: ["../../wit/host", "../../wit/guest", "../../wit/kube", "../../wit/etcd", "../../wit/nodesync",
        "../../wit/service"],
    derives: [Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize],
}
