//! What the tools of an operator ask a running host: health, metrics, and everything the commands show, as JSON. It is
//! served over HTTP, on loopback or a unix socket; the control socket serves the same.
//!
//! The admin address is read-only. Changes are possible only through the control socket, which only root and the host's
//! user can open: a page in a browser can reach loopback too.
//!
//! ```text
//! host status, manager, metrics, files of the state folder -> Reads -> [admin] listen          (all of it)
//!                                                              -> [admin] metrics_listen  (health and metrics)
//!                                                              -> control.sock            (all of it, and changes)
//! ```

pub(crate) mod api;
mod connections;
mod families;
mod health;
mod listen;
mod metrics;
mod status;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::routing::get;
use tokio::sync::Semaphore;
use trueup_base::component::Digest;
use trueup_capabilities::metrics::Registry as Metrics;
use trueup_config::{Config, Ipam};
use trueup_work::host_context::HostContext;
use trueup_work::status::HostStatus;
use trueup_work::swap::Manager;

pub use self::listen::Admin;
pub(crate) use self::listen::{OwnUser, own_socket, serve_own_user, who_listens};
use crate::page;

/// With two, another one can proceed beside a large one.
const SLOW_READS_MAX: usize = 2;

/// Where the answers come from.
pub struct Reads {
    pub(crate) host_status: Arc<HostStatus>,
    metrics: Arc<Metrics>,
    /// The digest of the text of the configuration in force.
    digest: Digest,
    pods_socket: Option<std::path::PathBuf>,
    /// Empty until the guests are loaded.
    pub(crate) manager: OnceLock<Arc<Manager>>,
    /// A request that reads much from the disk waits for its turn.
    slow: Arc<Semaphore>,
    /// Where the host listens, as `/v1/status` reports it.
    listens: OnceLock<Vec<String>>,
}

impl Reads {
    /// For a starting host.
    pub fn new(config: &Config, host_context: &HostContext) -> Arc<Self> {
        Arc::new(Self {
            host_status: Arc::clone(&host_context.host_status),
            metrics: Arc::clone(&host_context.metrics),
            digest: config.digest,
            pods_socket: config.world::<Ipam>().map(|ipam| ipam.adapter.socket.clone()),
            manager: OnceLock::new(),
            slow: Arc::new(Semaphore::new(SLOW_READS_MAX)),
            listens: OnceLock::new(),
        })
    }
}

/// Health and metrics: safe to serve to any client.
pub(crate) fn public_routes(reads: &Arc<Reads>) -> Router {
    let routes = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics));
    routes.with_state(Arc::clone(reads))
}

/// Every read-only route.
pub(crate) fn routes(reads: &Arc<Reads>) -> Router {
    let recordings = page::Source::of_state_dir(&reads.host_status.facts().state_dir);
    let routes = public_routes(reads).merge(api::routes().with_state(Arc::clone(reads)));
    page::under("/ui", recordings, routes)
}
