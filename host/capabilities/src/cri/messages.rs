//! The messages of CRI v1 (`runtime.v1`) that `remote.rs` sends and reads, with the protocol's field numbers.
//!
//! Written by hand: six fields deep is less than a code generator and its build script. Fields that are not needed are
//! left out. The decoder skips unknown fields, so newer runtimes work, too. As in all of proto3, a missing number is 0
//! and a missing text is empty.

/// Whether a sandbox runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SandboxState {
    Ready = 0,
    NotReady = 1,
}

/// Which network a sandbox uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum NamespaceMode {
    /// Its own.
    Pod = 0,
    /// One per container.
    Container = 1,
    /// The host's.
    Node = 2,
    /// That of another container.
    Target = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) filter: Option<PodSandboxFilter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxFilter {
    #[prost(message, optional, tag = "2")]
    pub(super) state: Option<PodSandboxStateValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStateValue {
    #[prost(enumeration = "SandboxState", tag = "1")]
    pub(super) state: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodSandboxStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatus {
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    #[prost(enumeration = "SandboxState", tag = "3")]
    pub(super) state: i32,
    #[prost(message, optional, tag = "5")]
    pub(super) network: Option<PodSandboxNetworkStatus>,
    #[prost(message, optional, tag = "6")]
    pub(super) linux: Option<LinuxPodSandboxStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxNetworkStatus {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) additional_ips: Vec<PodIp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodIp {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxPodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespace>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Namespace {
    #[prost(message, optional, tag = "2")]
    pub(super) options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamespaceOption {
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub(super) network: i32,
}
