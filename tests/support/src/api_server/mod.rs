//! An API server for tests: it speaks Kubernetes' wire protocol to kubectl, to kube and to who else wants to talk to it, and
//! a test can look into it and make things go wrong.
//!
//! It is not Kubernetes: there are no controllers (no EndpointSlices are made, no Pods are placed), and it knows only the
//! kinds in `kinds.rs`. Objects are in memory, and gone with the server. What differs from the real one, on purpose:
//!
//! - `/status` changes nothing but status, also where a real server lets metadata through.
//! - A server-side apply is never in conflict with another manager, and keeps no `managedFields`.
//! - A Pod on a node ends at once when it is deleted, as if its kubelet were very quick.
//! - Foreground deletion is background deletion.
//! - There is no Service `kubernetes`, and there are no service accounts but those that are made.
//! - History is [`store::HISTORY_MAX`] changes, the log of requests [`controls::REQUESTS_MAX`] requests, that of Leases
//!   [`controls::LEASE_CHANGES_MAX`] changes; objects are as many as a test makes.
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

/// The user in the histories where a test itself writes, without HTTP.
pub const TEST: &str = "system:test";

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// What the server's tasks and the test both hold.
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

    /// The objects. Held while something is read, never while something is waited for.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn controls(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, notes what became of Leases, and wakes the watches.
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
        // Still under the store's lock, so that versions come in their order.
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
    /// The certificate of the authority that clients must know, PEM; `None` for plain HTTP.
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
    /// If there can be no port.
    pub fn start_on(address: SocketAddr, with_tls: bool) -> std::io::Result<Self> {
        let (shared, gate) = (Arc::new(Shared::new()), Arc::new(Gate::new()));
        let certificates = with_tls.then(tls::certificates);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        // Not tokio's own way, which would wait: a test may start a server within its own runtime.
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

    /// The certificate of the authority that clients must know, PEM; `None` for plain HTTP.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The text of a kubeconfig file for a user, whose token is known to the server from now on.
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

/// What can go wrong.
impl ApiServer {
    /// Ends every open watch abruptly, in the middle of its answer.
    pub fn cut_watches(&self) {
        self.shared.cut_watches.send_modify(|cuts| *cuts += 1);
    }

    /// Forgets all history: every version seen until now is too old. Open watches are told so, and end.
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

    /// Cuts every connection; new ones are taken.
    pub fn cut_connections(&self) {
        self.gate.cut();
    }

    /// Makes something go wrong with the requests that `when` picks, so many `times`; `None` is until it is healed. Where
    /// several are made for a request, the oldest counts. `when` must not ask the server anything: it would wait for itself.
    pub fn fault(&self, when: impl Fn(&Asked) -> bool + Send + 'static, fault: Fault, times: Option<u32>) -> FaultId {
        self.shared.controls().fault(when, fault, times)
    }

    /// Takes a fault away.
    pub fn heal(&self, id: FaultId) {
        self.shared.controls().heal(id);
    }

    /// Takes all faults away.
    pub fn heal_all(&self) {
        self.shared.controls().heal_all();
    }

    /// Refuses tokens that no [`Self::kubeconfig`] was made for, with 401. Otherwise who comes with an unknown token is
    /// called by it.
    pub fn refuse_unknown_tokens(&self, refuse: bool) {
        self.shared.controls().strict = refuse;
    }

    /// Lets users do only what the roles and bindings in the store allow; [`ADMIN`] everything.
    pub fn enforce_rbac(&self, enforce: bool) {
        self.shared.controls().rbac = enforce;
    }

    /// Answers a watch from a version that is forgotten with HTTP status 410, not with 200 and an event that says so.
    pub fn gone_as_status(&self, gone: bool) {
        self.shared.controls().gone_as_status = gone;
    }

    /// Understands `sendInitialEvents`, as a server does by default, or refuses it as one without the feature.
    pub fn streaming_lists(&self, understood: bool) {
        self.shared.controls().no_streaming_lists = !understood;
    }

    /// How often watches that begin from now on get bookmarks, if they want them; at first each 5 s.
    pub fn bookmarks_every(&self, pause: Duration) {
        self.shared.controls().bookmarks_every = Some(pause);
    }
}

/// What happened.
impl ApiServer {
    /// The requests until now, in the order in which they were answered; those of [`Self::apply`] and the like are none.
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
        // Who has ended already is stopped.
        _ = self.stop.take().map(|stop| stop.send(()));
        _ = self.thread.take().map(JoinHandle::join);
    }
}
