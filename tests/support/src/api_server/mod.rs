//! An API server for tests. It speaks Kubernetes' wire protocol to kubectl, to kube and to other clients, and a test
//! can inspect it and inject faults.
//!
//! It is not Kubernetes: it has no controllers (it makes no EndpointSlices and places no Pods), and only the kinds in
//! `kinds.rs`. Objects are in memory, and end with the server. Intended differences from the real one:
//!
//! - `/status` changes nothing but status, even if a real server lets metadata through.
//! - A server-side apply is never in conflict with another manager, and keeps no `managedFields`.
//! - A Pod on a node ends at once when it is deleted, as if its kubelet were very quick.
//! - Foreground deletion is background deletion.
//! - There is no Service `kubernetes`, and no service account except those that a client creates.
//! - History holds [`store::HISTORY_MAX`] changes, the log of requests [`controls::REQUESTS_MAX`] requests, that of
//!   Leases [`controls::LEASE_CHANGES_MAX`] changes; the number of objects has no limit.
//!
//! ```text
//! test ----> ApiServer: apply, get, list, delete | cut_watches, expire, go_away, fault | requests, lease_changes
//!                          |
//! client -> wire (port) -> http -> write | read | watch -> store
//! ```

mod access;
mod admit;
mod columns;
mod controls;
mod delete;
mod discovery;
mod events;
mod failure;
mod http;
mod kinds;
mod objects;
mod patch;
mod protobuf;
mod read;
mod request;
mod select;
mod service;
mod store;
mod tls;
mod view;
mod watch;
mod wire;
mod write;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch as channel};

pub use access::ADMIN;
pub use controls::{Asked, Fault, FaultId, LeaseChange, Logged};

use controls::Controls;
use store::Store;
use wire::{Connection, Door, Gate};

/// The user in the histories when a test itself writes, without HTTP.
pub const TEST: &str = "system:test";

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The state that the server's tasks and the test share.
#[derive(Debug)]
pub struct Shared {
    store: Mutex<Store>,
    controls: Mutex<Controls>,
    /// The version of the last change; watches wait for it.
    newest: channel::Sender<u64>,
    /// Counts how often watches were cut.
    cut_watches: channel::Sender<u64>,
}

impl Shared {
    fn new() -> Self {
        Self {
            store: Mutex::new(Store::new()),
            controls: Mutex::new(Controls::default()),
            newest: channel::Sender::new(1),
            cut_watches: channel::Sender::new(0),
        }
    }

    /// The objects. Locked during a read, never across a wait.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controls(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, records changes of Leases, and wakes the watches.
    fn write<T>(&self, user: &str, write: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store();
        let before = store.version();
        let done = write(&mut store);
        if store.version() == before {
            return done;
        }
        let leases: Vec<LeaseChange> = store
            .changes_after(before)
            .into_iter()
            .flatten()
            .filter_map(|change| LeaseChange::of(change, user))
            .collect();
        let mut controls = self.controls();
        leases.into_iter().for_each(|change| controls.lease(change));
        drop(controls);
        // Still under the store's lock, so that versions arrive in order.
        self.newest.send_replace(store.version());
        done
    }
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    address: SocketAddr,
    /// The authority's certificate for clients, PEM; `None` for plain HTTP.
    authority: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server on a free port of the loopback, with plain HTTP.
    pub fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), false).unwrap()
    }

    /// Starts a server on a free port of the loopback, with TLS and an authority of its own.
    ///
    /// # Panics
    ///
    /// Without the tool `openssl`.
    pub fn start_with_tls() -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), true).unwrap()
    }

    /// Starts a server on an address, with TLS or without.
    ///
    /// # Errors
    ///
    /// If it can't bind a port.
    pub fn start_on(address: SocketAddr, with_tls: bool) -> std::io::Result<Self> {
        let (shared, gate) = (Arc::new(Shared::new()), Arc::new(Gate::new()));
        let certificates = with_tls.then(tls::certificates);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        // Not with tokio's own function, which would block: a test may start a server inside its own runtime.
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let door = {
            let _inside = runtime.enter();
            let tls = certificates
                .as_ref()
                .map(|certificates| Arc::clone(&certificates.server));
            Door::new(TcpListener::from_std(listener)?, Arc::clone(&gate), tls)?
        };
        let service = Router::new().fallback(http::handle).with_state(Arc::clone(&shared));
        let service = service.into_make_service_with_connect_info::<Connection>();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("api-server".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        served = async { axum::serve(door, service).await } => served.unwrap_or_default(),
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_timeout(Duration::from_secs(1));
            })?;
        let server = Self {
            shared,
            gate,
            address,
            authority: certificates.map(|certificates| certificates.authority),
            stop: Some(stop),
            thread: Some(thread),
        };
        for name in NAMESPACES {
            server
                .create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
                .unwrap();
        }
        Ok(server)
    }

    /// Such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The authority's certificate for clients, PEM; `None` for plain HTTP.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The text of a kubeconfig file for a user. The server knows the user's token from now on.
    ///
    /// kubectl sends no token over plain HTTP, and is `system:anonymous` there; kube does.
    pub fn kubeconfig(&self, user: &str, token: &str) -> String {
        self.shared.controls().know(user, token);
        let mut cluster = json!({ "server": self.url() });
        if let Some(authority) = &self.authority {
            cluster["certificate-authority-data"] = json!(BASE64_STANDARD.encode(authority));
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{ "name": "tests", "cluster": cluster }],
            "users": [{ "name": user, "user": { "token": token } }],
            "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": user, "namespace": "default" } }],
        });
        // JSON is YAML.
        format!("{config:#}\n")
    }
}

/// Faults.
impl ApiServer {
    /// Cuts every open watch in the middle of its answer.
    pub fn cut_watches(&self) {
        self.shared.cut_watches.send_modify(|cuts| *cuts += 1);
    }

    /// Forgets all history: every version so far is too old. Open watches get an error, and end.
    pub fn expire(&self) {
        self.shared.write(TEST, Store::forget);
    }

    /// Closes the port and cuts every connection; returns when connections are refused. Objects stay.
    pub fn go_away(&self) {
        self.gate.set_open(false);
    }

    /// Opens the same port again; returns when it is open.
    pub fn come_back(&self) {
        self.gate.set_open(true);
    }

    /// Cuts every connection; accepts new ones.
    pub fn cut_connections(&self) {
        self.gate.cut();
    }

    /// Injects a fault into the requests that `when` picks, up to `times` of them; `None` means until it is healed. If
    /// several apply to a request, the oldest counts. `when` must not ask the server anything: it would deadlock.
    pub fn fault(&self, when: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault, times: Option<u32>) -> FaultId {
        self.shared.controls().fault(when, fault, times)
    }

    /// Removes a fault.
    pub fn heal(&self, id: FaultId) {
        self.shared.controls().heal(id);
    }

    /// Removes all faults.
    pub fn heal_all(&self) {
        self.shared.controls().heal_all();
    }

    /// Refuses tokens without a [`Self::kubeconfig`] with 401. Otherwise an unknown token is its user's name.
    pub fn refuse_unknown_tokens(&self, refuse: bool) {
        self.shared.controls().strict = refuse;
    }

    /// Lets users do only what the roles and bindings in the store allow; [`ADMIN`] may do everything.
    pub fn enforce_rbac(&self, enforce: bool) {
        self.shared.controls().rbac = enforce;
    }

    /// Answers a watch from a forgotten version with HTTP status 410, not with 200 and an error event.
    pub fn gone_as_status(&self, gone: bool) {
        self.shared.controls().gone_as_status = gone;
    }

    /// Accepts `sendInitialEvents`, as a server does by default, or refuses it like one without the feature.
    pub fn streaming_lists(&self, understood: bool) {
        self.shared.controls().no_streaming_lists = !understood;
    }

    /// How often new watches get bookmarks, if they want them; 5 s by default.
    pub fn bookmarks_every(&self, pause: Duration) {
        self.shared.controls().bookmarks_every = Some(pause);
    }
}

/// History.
impl ApiServer {
    /// The requests until now, in the order of their answers, without [`Self::apply`] and the like.
    pub fn requests(&self) -> Vec<Logged> {
        self.shared.controls().requests()
    }

    /// Forgets the requests until now.
    pub fn clear_requests(&self) {
        self.shared.controls().clear_requests();
    }

    /// The changes of a Lease, in their order.
    pub fn lease_changes(&self, namespace: &str, name: &str) -> Vec<LeaseChange> {
        self.shared.controls().lease_changes(namespace, name)
    }

    /// How many watches are open.
    pub fn watches(&self) -> usize {
        self.shared.cut_watches.receiver_count()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Ignore the error: the server has already ended.
        _ = self.stop.take().map(|stop| stop.send(()));
        _ = self.thread.take().map(JoinHandle::join);
    }
}
