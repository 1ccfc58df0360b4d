//! The container runtime's sandboxes: the real backend against a runtime that answers as told, and against containerd.
#![cfg(test)]

mod answers;
mod containerd;
mod grpc;
mod messages;
mod pause;
mod sandboxes;

use std::path::Path;

use trueup_capabilities::cri::remote::{Remote, Settings};

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
/// gRPC's code of what is not there.
const NOT_FOUND: u32 = 5;

/// The backend on this socket, otherwise as it is by default.
fn remote(socket: &Path) -> Remote {
    Remote::new(Settings {
        socket: Some(socket.to_owned()),
        ..Settings::default()
    })
}
