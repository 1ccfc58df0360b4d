//! What an operator's tools ask of a host that runs: health, metrics, and everything that the commands show, as JSON. Over
//! HTTP, on loopback or a unix socket; the control socket serves the same.
//!
//! Here everything is only read. What changes something is on the control socket alone, which only the host's user and root
//! can open: a page in a browser reaches loopback too.
//!
//! ```text
//! board, manager, metrics, files of the state folder -> Reads -> [admin] listen          (all of it)
//!                                                              -> [admin] metrics_listen  (health and metrics)
//!                                                              -> control.sock            (all of it, and changes)
//! ```

mod api;
mod connections;
mod families;
mod health;
mod http;
mod listen;
mod metrics;
mod process;
mod status;

use std::sync::{Arc, OnceLock};

use axum::Router;
use serde_json::Value;
use tokio::sync::Semaphore;
use trueup_capabilities::metrics::Registry as Metrics;

pub(crate) use self::http::{answer, complete, failed, secured};
pub use self::listen::Admin;
pub(crate) use self::listen::OwnUser;
use crate::board::Board;
use crate::config::Config;
use crate::page;
use crate::run::Ground;
use crate::swap::Manager;

/// What is read from.
pub struct Reads {
    pub(crate) board: Arc<Board>,
    metrics: Arc<Metrics>,
    config: Value,
    pods_socket: Option<std::path::PathBuf>,
    /// Not there before the guests are.
    manager: OnceLock<Arc<Manager>>,
    slow: Arc<Semaphore>,
    /// Where it listens, as `/v1/status` says it.
    listens: OnceLock<Vec<String>>,
}

impl Reads {
    /// For a host that begins.
    pub fn new(config: &Config, ground: &Ground) -> Arc<Self> {
        Arc::new(Self {
            board: Arc::clone(&ground.board),
            metrics: Arc::clone(&ground.metrics),
            config: config.shown(),
            pods_socket: config.ipam.as_ref().map(|ipam| ipam.adapter.socket.clone()),
            manager: OnceLock::new(),
            slow: Arc::clone(&page::SLOW_READS),
            listens: OnceLock::new(),
        })
    }

    /// The guests are loaded, and what they ask is there to answer them.
    pub(crate) fn loaded(&self, manager: &Arc<Manager>) {
        // It is said once.
        let _ = self.manager.set(Arc::clone(manager));
    }

    fn manager(&self) -> Option<&Arc<Manager>> {
        self.manager.get()
    }
}

/// Health and metrics: what may be asked from anywhere.
pub(crate) fn public_routes(reads: &Arc<Reads>) -> Router {
    health::routes().merge(metrics::routes()).with_state(Arc::clone(reads))
}

/// Everything that can be read.
pub(crate) fn routes(reads: &Arc<Reads>) -> Router {
    let recordings = page::Source::of_state_dir(&reads.board.facts().state_dir);
    let routes = public_routes(reads).merge(api::routes().with_state(Arc::clone(reads)));
    page::under("/ui", recordings, routes)
}
