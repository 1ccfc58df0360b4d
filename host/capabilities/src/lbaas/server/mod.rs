//! A simulated Anexia Engine: an HTTP server that a client can't distinguish from the real one in LBaaS.
//!
//! For quickstarts and tests, on this machine alone. It has its own types for the Engine's JSON and shares no code with
//! the backend, so that a mistake in one does not hide in the other.
//!
//! ```text
//! door.rs -> engine.rs -> world.rs, state_file.rs
//! ```
//!
//! Besides the Engine's paths it has these, without a token:
//! - `GET /state`: the whole state, in a fixed order; `PUT /state` replaces it;
//! - `GET /requests`: the counters; `DELETE /requests` resets them;
//! - `GET /faults`, `POST /faults` (one [`Fault`]), `DELETE /faults` (all).
//!
//! As configuration:
//!
//! ```toml
//! token = "simulated"
//! load_balancers = ["lb-1", { identifier = "lb-2", name = "second", state = "2" }]
//! settle_ms = 200
//! latency_ms = 5
//! rate_limit_per_second = 50
//! retry_after = true               # or false, or a number of seconds
//! seed = 1
//! state_file = "engine.jsonl"
//! resource_type_in_lists = true
//! lose_overlapping_taggings = true
//!
//! [[faults]]
//! method = "POST"                  # default: any
//! path = "/api/LBaaS/v1/bind.json*"
//! times = 2                        # default: forever
//! status = 503                     # or delay_ms = 500, close = "after", fail_next = 3
//! when = "after"                   # of status and delay_ms; default: before
//! ```

mod bodies;
mod config;
mod door;
mod engine;
mod faults;
mod kinds;
mod lists;
mod refusal;
mod state_file;
mod target;
mod traffic;
mod world;

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use self::{
    config::{LoadBalancer, RetryAfter, ServerConfig, Token},
    faults::{Fault, FaultEffect, When},
    kinds::StateId,
    state_file::StateFileError,
};
use self::{door::Door, engine::Engine};
use crate::sim::connection::{Connection, CuttableListener};

/// The log target of the simulated Engine.
pub const LOG_TARGET: &str = "trueup::sim::lbaas";

/// The maximum time for stopping, whatever clients do.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated Engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The loopback address is its only protection.
    #[error("simulated Engine: cannot listen on `{0}`: only loopback addresses, such as `127.0.0.1:0`, are allowed")]
    NotLoopback(SocketAddr),
    /// The address can't be listened on.
    #[error("simulated Engine: cannot listen on `{listen}`")]
    Listen {
        /// The requested address.
        listen: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The configuration contradicts itself or the state file.
    #[error("simulated Engine: {0}")]
    Config(String),
    /// The state file can't be used.
    #[error("simulated Engine: its state cannot be kept")]
    StateFile(#[from] StateFileError),
}

/// A simulated Engine that is running. It ends when it is stopped or dropped.
pub struct SimulatedEngine {
    local_addr: SocketAddr,
    /// Dropping it stops the server.
    stop: watch::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl SimulatedEngine {
    /// Starts to listen, with the content of the state file if there is one. Port 0 selects a free port.
    ///
    /// Runs on the current tokio runtime, as tasks of its own.
    pub async fn start(config: ServerConfig, listen: SocketAddr) -> Result<Self, StartError> {
        if !listen.ip().is_loopback() {
            return Err(StartError::NotLoopback(listen));
        }
        if let Some(problem) = config.problem() {
            return Err(StartError::Config(problem));
        }
        let failed = |source| StartError::Listen { listen, source };
        // Before the state file: a second server on the same port must not touch it.
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let engine = Engine::new(&config)?;

        let (stop, mut stopping) = watch::channel(());
        let door = Door::new(config, engine, stopping.clone());
        let service = door.router().into_make_service_with_connect_info::<Connection>();
        let server = axum::serve(CuttableListener(listener), service)
            .with_graceful_shutdown(async move { while stopping.changed().await.is_ok() {} });
        let server = tokio::spawn(server.into_future());
        Ok(Self {
            local_addr,
            stop,
            server,
        })
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops the server. It drops requests in flight as if their clients had disconnected, and closes their
    /// connections.
    pub async fn stop(self) {
        drop(self.stop);
        let mut server = self.server;
        // Only a client that never ends its request can delay it.
        if tokio::time::timeout(STOP_TIMEOUT, &mut server).await.is_err() {
            server.abort();
        }
    }
}
