//! The container runtime's sandboxes: the real backend against a runtime with scripted answers, and against containerd.
mod answers;
mod containerd;
mod grpc;
mod messages;
mod pause;
mod sandboxes;

use std::path::Path;
use std::time::Duration;

use trueup_capabilities::cri::remote::Remote;

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
/// gRPC's code for a missing object.
const NOT_FOUND: u32 = 5;

/// The backend on this socket, with its defaults but longer timeouts.
fn remote(socket: &Path) -> Remote {
    Remote {
        socket: Some(socket.to_owned()),
        // A test may remove a sandbox in the middle of a call, which takes time on a busy machine.
        connect_timeout: Duration::from_secs(60),
        call_timeout: Duration::from_secs(120),
    }
}
