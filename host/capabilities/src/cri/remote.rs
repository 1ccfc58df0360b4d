//! A real container runtime: CRI v1, gRPC without TLS over the runtime's unix socket.
//!
//! Lists the running sandboxes and then requests the status of each, because only the status has the addresses and the
//! network mode. Changes nothing in the runtime, and keeps no state between calls.
//!
//! ```text
//! socket -> connection -> ListPodSandbox -> PodSandboxStatus of each, some at a time -> addresses, by id
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;
use trueup_base::text;

use super::messages::{
    ListPodSandboxRequest, ListPodSandboxResponse, POD, PodSandbox, PodSandboxFilter, PodSandboxStateValue,
    PodSandboxStatus, PodSandboxStatusRequest, PodSandboxStatusResponse, READY,
};
use super::{Runtime, Sandbox};
use async_trait::async_trait;

/// The default sockets in the order of the search, if none is configured: containerd, CRI-O, cri-dockerd.
pub const SOCKETS_DEFAULT: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
];

/// The maximum message size; runtimes and kubelet use the same limit. 16 MiB are some 60,000 listed sandboxes; a node
/// has 250.
const MESSAGE_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The number of concurrent status requests. Some runtimes query others for each status (tens of milliseconds): one
/// after the other, a node's 250 could exceed the time of the whole call. More would crowd out kubelet.
const STATUSES_AT_A_TIME: usize = 8;

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";

/// A container runtime behind its socket.
///
/// Each call opens a connection of its own. Calls are rare (one at the start, repeated on failure), a unix socket
/// connects in microseconds, and a runtime that restarts or starts later is found without extra code.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The runtime's unix socket. Default: the first of [`SOCKETS_DEFAULT`] that exists at the time of the call.
    pub socket: Option<PathBuf>,
    /// The timeout for connecting: 2 s. Not configurable; tests use less.
    pub connect_timeout: Duration,
    /// The timeout for a whole call, including its connection and all statuses: 10 s. Not configurable either.
    pub call_timeout: Duration,
}

impl Default for Remote {
    fn default() -> Self {
        Self {
            socket: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(10),
        }
    }
}

impl Remote {
    async fn connect(&self) -> Result<Connection, String> {
        let started = Instant::now();
        let socket = chosen_socket(self.socket.as_deref(), &SOCKETS_DEFAULT)?;
        let call_timeout = self.call_timeout;
        let within = self.connect_timeout.min(call_timeout);
        let opened = timeout_at(started + within, open_channel(&socket)).await;
        let opened = opened.unwrap_or_else(|_| Err(format!("no connection within {} ms", within.as_millis())));
        let channel = opened.map_err(|reason| {
            format!(
                "can't connect to the container runtime at `{}`: {reason}; start the runtime, or correct `socket` in \
                 `[backend.cri]`",
                socket.display()
            )
        })?;
        Ok(Connection {
            socket,
            grpc: Grpc::new(channel)
                .max_decoding_message_size(MESSAGE_MAX_BYTES)
                .max_encoding_message_size(MESSAGE_MAX_BYTES),
            deadline: started + call_timeout,
            call_timeout,
        })
    }
}

#[async_trait]
impl Runtime for Remote {
    async fn list_running(&self) -> Result<Vec<Sandbox>, String> {
        let connection = self.connect().await?;
        let listed = connection.list(Some(READY)).await?;
        let connection = &connection;
        let running = listed.iter().map(|(id, item)| async move {
            let status = connection.status(id).await?;
            Ok::<_, String>((id, status.map(|status| addresses(item, status))))
        });
        let running = stream::iter(running.collect::<Vec<_>>()).buffer_unordered(STATUSES_AT_A_TIME);
        // By id, whatever the order in which the runtime answers.
        let by_id: BTreeMap<_, _> = running.try_collect().await?;
        Ok(by_id.into_values().flatten().flatten().collect())
    }

    async fn list_ids(&self) -> Result<BTreeSet<String>, String> {
        let listed = self.connect().await?.list(None).await?;
        Ok(listed.into_keys().collect())
    }
}

/// The configured socket, or else the first default that exists.
fn chosen_socket(configured: Option<&Path>, defaults: &[impl AsRef<Path>]) -> Result<Arc<Path>, String> {
    if let Some(socket) = configured {
        return Ok(socket.into());
    }
    // A path that can't be inspected may exist. Connecting to it reports the error; skipping it would not.
    let exists = |socket: &&Path| socket.try_exists().unwrap_or(true);
    let found = defaults.iter().map(AsRef::as_ref).find(exists);
    found.map(Arc::from).ok_or_else(|| {
        let quoted = |path: &_| format!("`{}`", AsRef::<Path>::as_ref(path).display());
        let tried: Vec<String> = defaults.iter().map(quoted).collect();
        format!(
            "found no container runtime's socket: none of {} exists; start the runtime, or set `socket` in \
             `[backend.cri]`",
            tried.join(", ")
        )
    })
}

/// The connection of one call, and its deadline.
struct Connection {
    socket: Arc<Path>,
    grpc: Grpc<Channel>,
    deadline: Instant,
    call_timeout: Duration,
}

impl Connection {
    /// The sandboxes in this state, or in any state, by id.
    async fn list(&self, state: Option<i32>) -> Result<BTreeMap<String, PodSandbox>, String> {
        let state = state.map(|state| PodSandboxStateValue { state });
        let filter = state.is_some().then_some(PodSandboxFilter { state });
        let listed = self.unary(LIST, ListPodSandboxRequest { filter }).await;
        let listed: ListPodSandboxResponse = listed.map_err(|status| self.failed(&format!("`{LIST}`"), &status))?;
        let by_id = listed.items.into_iter().map(|item| (item.id.clone(), item));
        Ok(by_id.collect())
    }

    /// The status of one sandbox; `None` if it ended meanwhile.
    async fn status(&self, id: &str) -> Result<Option<PodSandboxStatus>, String> {
        let pod_sandbox_id = id.to_owned();
        let request = PodSandboxStatusRequest { pod_sandbox_id };
        let answer: Result<PodSandboxStatusResponse, Status> = self.unary(STATUS, request).await;
        match answer {
            // A missing status counts as an empty one, which has no address.
            Ok(answer) => Ok(Some(answer.status.unwrap_or_default())),
            Err(status) if status.code() == Code::NotFound => {
                tracing::debug!(id, "the sandbox ended after it was listed");
                Ok(None)
            }
            Err(status) => Err(self.failed(&format!("`{STATUS}` of sandbox `{id}`"), &status)),
        }
    }

    async fn unary<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc.clone();
        let answer = async {
            let ready = grpc.ready().await;
            ready.map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static(method);
            grpc.unary(Request::new(request), path, ProstCodec::default()).await
        };
        match timeout_at(self.deadline, answer).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the whole call took longer than {} ms",
                self.call_timeout.as_millis()
            ))),
        }
    }

    /// `call`: the method and its argument.
    fn failed(&self, call: &str, status: &Status) -> String {
        format!("{call} on `{}` failed: {}", self.socket.display(), status_text(status))
    }
}

/// A channel over one connection. If the connection breaks, the call fails: after a restart of the runtime, the other
/// half of an answer would describe other sandboxes.
async fn open_channel(socket: &Path) -> Result<Channel, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        let stream = stream.take();
        std::future::ready(stream.ok_or_else(|| io::Error::other("the connection broke")))
    });
    // The address only sets the request's `:authority`; gRPC over unix sockets uses `localhost`.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| text::causes(&error))
}

/// The records of a listed sandbox: one per address, the main one first. Empty if the sandbox does not run (any more)
/// or has no network of its own.
fn addresses(listed: &PodSandbox, status: PodSandboxStatus) -> Vec<Sandbox> {
    let namespaces = status.linux.and_then(|linux| linux.namespaces);
    let mode = namespaces
        .and_then(|namespaces| namespaces.options)
        .map_or(POD, |options| options.network);
    if status.state != READY || mode != POD {
        return Vec::new();
    }
    let metadata = status.metadata.or_else(|| listed.metadata.clone()).unwrap_or_default();
    let network = status.network.unwrap_or_default();
    let additional = network.additional_ips.into_iter().map(|additional| additional.ip);
    std::iter::once(network.ip)
        .chain(additional)
        .filter(|ip| !ip.is_empty())
        .map(|ip| Sandbox {
            id: listed.id.clone(),
            ip,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        })
        .collect()
}

/// gRPC's code and message on one line, with advice if there is any.
fn status_text(status: &Status) -> String {
    let mut text = format!("{} ({})", name(status.code()), i32::from(status.code()));
    // A broken connection has no message from the runtime; its causes explain it.
    let message = text::with_causes(status.message().to_owned(), status.source());
    if !message.is_empty() {
        text += &format!(": {}", message.replace(['\n', '\r'], " "));
    }
    if status.code() == Code::Unimplemented {
        text += ": the runtime lacks CRI v1; update it, or enable its CRI plugin";
    }
    text
}

/// A code as gRPC's documentation and the runtimes' logs spell it: `NotFound` is `NOT_FOUND`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
