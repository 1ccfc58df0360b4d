//! A runtime's messages of CRI v1: more fields than the backend has, and written separately.

macro_rules! messages {
    ($($name:ident { $(#[$kind:meta] $field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, PartialEq, prost::Message)]
            pub(crate) struct $name {
                $(#[$kind] pub(crate) $field: $type,)*
            }
        )*
    };
}

messages! {
    ListPodSandboxResponse {
        #[prost(message, repeated, tag = "1")] items: Vec<PodSandbox>,
    }
    PodSandbox {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] metadata: Option<Metadata>,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(int64, tag = "4")] created_at: i64,
    }
    Metadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] uid: String,
        #[prost(string, tag = "3")] namespace: String,
        #[prost(uint32, tag = "4")] attempt: u32,
    }
    // Also for `StopPodSandbox` and `RemovePodSandbox`.
    PodSandboxStatusRequest {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
    }
    PodSandboxStatusResponse {
        #[prost(message, optional, tag = "1")] status: Option<PodSandboxStatus>,
    }
    PodSandboxStatus {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] metadata: Option<Metadata>,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(int64, tag = "4")] created_at: i64,
        #[prost(message, optional, tag = "5")] network: Option<Network>,
        #[prost(message, optional, tag = "6")] linux: Option<LinuxStatus>,
    }
    Network {
        #[prost(string, tag = "1")] ip: String,
        #[prost(message, repeated, tag = "2")] additional_ips: Vec<PodIp>,
    }
    PodIp {
        #[prost(string, tag = "1")] ip: String,
    }
    LinuxStatus {
        #[prost(message, optional, tag = "1")] namespaces: Option<Namespace>,
    }
    Namespace {
        #[prost(message, optional, tag = "2")] options: Option<NamespaceOption>,
    }
    NamespaceOption {
        #[prost(int32, tag = "1")] network: i32,
    }
    RunPodSandboxRequest {
        #[prost(message, optional, tag = "1")] config: Option<PodSandboxConfig>,
    }
    PodSandboxConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<Metadata>,
        #[prost(message, optional, tag = "8")] linux: Option<LinuxConfig>,
    }
    LinuxConfig {
        #[prost(string, tag = "1")] cgroup_parent: String,
        #[prost(message, optional, tag = "2")] security_context: Option<SecurityContext>,
    }
    SecurityContext {
        #[prost(message, optional, tag = "1")] namespace_options: Option<NamespaceOption>,
    }
    RunPodSandboxResponse {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
    }
    ImageStatusRequest {
        #[prost(message, optional, tag = "1")] image: Option<ImageSpec>,
    }
    ImageSpec {
        #[prost(string, tag = "1")] image: String,
    }
    ImageStatusResponse {
        #[prost(message, optional, tag = "1")] image: Option<Image>,
    }
    Image {
        #[prost(string, tag = "1")] id: String,
    }
}
