//! The container runtime's sandboxes: the real backend against a runtime that answers as told, and against containerd.
mod answers;
mod containerd;
mod grpc;
mod messages;
mod pause;
mod sandboxes;

use std::path::Path;
use std::time::Duration;

use trueup_capabilities::cri::remote::{Remote, Settings};

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
/// gRPC's code of what is not there.
const NOT_FOUND: u32 = 5;

/// The backend on this socket, as it is by default but for its patience.
fn remote(socket: &Path) -> Remote {
    Remote::new(Settings {
        socket: Some(socket.to_owned()),
        // In the middle of a call, a test may have a sandbox removed: on a busy machine that takes its time.
        connect_timeout: Duration::from_secs(60),
        call_timeout: Duration::from_secs(120),
    })
}
