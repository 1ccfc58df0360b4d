//! The messages of CRI v1 (`runtime.v1`) that `remote.rs` sends and reads, with the protocol's field numbers.
//!
//! Written by hand: six fields deep is less than a code generator and its build script. Fields that are not needed are
//! left out. The decoder skips unknown fields, so newer runtimes work, too. As in all of proto3, a missing number is 0
//! and a missing text is empty.

/// The state of a sandbox that runs: `SANDBOX_READY`.
pub(super) const READY: i32 = 0;

/// The network mode of a sandbox with a network of its own: `POD`. The others use that of a container or of the host.
pub(super) const POD: i32 = 0;

/// Declares messages.
macro_rules! messages {
    ($($name:ident { $(#[$place:meta] $field:ident: $type:ty),+ $(,)? })+) => { $(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct $name {
            $(#[$place] pub(super) $field: $type),+
        }
    )+ };
}

messages! {
    ListPodSandboxRequest {
        #[prost(message, optional, tag = "1")] filter: Option<PodSandboxFilter>,
    }
    PodSandboxFilter {
        #[prost(message, optional, tag = "2")] state: Option<PodSandboxStateValue>,
    }
    PodSandboxStateValue {
        #[prost(int32, tag = "1")] state: i32,
    }
    ListPodSandboxResponse {
        #[prost(message, repeated, tag = "1")] items: Vec<PodSandbox>,
    }
    PodSandbox {
        #[prost(string, tag = "1")] id: String,
        #[prost(message, optional, tag = "2")] metadata: Option<PodSandboxMetadata>,
    }
    PodSandboxMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "3")] namespace: String,
    }
    PodSandboxStatusRequest {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
    }
    PodSandboxStatusResponse {
        #[prost(message, optional, tag = "1")] status: Option<PodSandboxStatus>,
    }
    PodSandboxStatus {
        #[prost(message, optional, tag = "2")] metadata: Option<PodSandboxMetadata>,
        #[prost(int32, tag = "3")] state: i32,
        #[prost(message, optional, tag = "5")] network: Option<PodSandboxNetworkStatus>,
        #[prost(message, optional, tag = "6")] linux: Option<LinuxPodSandboxStatus>,
    }
    PodSandboxNetworkStatus {
        #[prost(string, tag = "1")] ip: String,
        #[prost(message, repeated, tag = "2")] additional_ips: Vec<PodIp>,
    }
    PodIp {
        #[prost(string, tag = "1")] ip: String,
    }
    LinuxPodSandboxStatus {
        #[prost(message, optional, tag = "1")] namespaces: Option<Namespace>,
    }
    Namespace {
        #[prost(message, optional, tag = "2")] options: Option<NamespaceOption>,
    }
    NamespaceOption {
        #[prost(int32, tag = "1")] network: i32,
    }
}
