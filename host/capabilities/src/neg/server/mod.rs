//! A simulated Compute Engine: an HTTP server that a client can't distinguish from the real one in zonal network
//! endpoint groups and their operations.
//!
//! For tests and demonstrations, on this machine alone. It has its own types for the API's JSON and shares no code with
//! the backend, so that a mistake in one does not hide in the other. Projects, zones, VMs, networks and subnetworks
//! need not exist: clients may use any name.
//!
//! ```text
//! door.rs -> calls.rs -> world.rs (neg.rs, operation.rs) -> state_file.rs
//! admin.rs -^
//! ```
//!
//! The API accepts any prefix, such as `/compute/v1/`. Besides the API there are these paths, without a token:
//! - `GET /operations`: the ledger, with every operation ever started, in the order of arrival. Each has `id`, `type`,
//!   `neg`, `zone`, `request_id`, `repeats` (how often the same `requestId` came again), `endpoints`, `received_ms`,
//!   `start_ms`, `done_ms` (milliseconds since 1970; null while it is running) and `failure`; `DELETE /operations`
//!   makes the API forget the finished ones;
//! - `GET /negs`: every NEG by its path, with its current endpoints;
//! - `GET /state`, `PUT /state`: the whole state, in the form of the state file's `world`;
//! - `GET /requests`: the counters; `DELETE /requests` resets them;
//! - `GET /faults`, `POST /faults` (one [`Fault`]), `DELETE /faults` (all);
//! - `GET /settings`, `PATCH /settings`: `operation_ms` (for operations that start from then on), `wait_ms`,
//!   `latency_ms`, `endpoints_max`, `fail_operations_percent`, `ipv6_long`;
//! - `POST /behind`: an immediate foreign change: `{"project", "zone", "neg", "delete": true, "insert": NEG, "remove":
//!   [E], "add": [E]}`.
//!
//! As configuration:
//!
//! ```toml
//! token = "secret"                 # default: any bearer token is let in
//! operation_ms = 200
//! wait_ms = 120000
//! latency_ms = 5
//! rate_limit_per_second = 20
//! rate_limit_status = 429          # or 403
//! retry_after = true
//! endpoints_max = 10000
//! fail_operations_percent = 30
//! seed = 1
//! keep_operations_ms = 60000
//! ipv6_long = true
//! state_file = "compute.json"
//!
//! [[faults]]
//! method = "POST"                  # default: any
//! path = "*/attachNetworkEndpoints"
//! times = 2                        # default: forever
//! status = 503                     # or delay_ms = 500, close = "after", fail_operations = 3
//! reason = "backendError"          # of status; also message, retry_after_s, body
//! when = "after"                   # of status and delay_ms; default: before
//! ```

mod admin;
mod calls;
mod config;
mod door;
mod endpoint;
mod faults;
mod neg;
mod operation;
mod refusal;
mod state_file;
mod target;
#[cfg(test)]
mod tests;
mod time;
mod traffic;
mod world;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::config::{ServerConfig, Token};
use self::door::Door;
pub use self::faults::{Fault, FaultEffect, When};
pub use self::state_file::StateFileError;
use self::world::World;
use crate::sim::connection::{Connection, CuttableListener};

/// The log target of the simulated Compute Engine.
pub const LOG_TARGET: &str = "trueup::sim::compute";

/// The maximum time for stopping, whatever clients do.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated Compute Engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The loopback address is its only protection.
    #[error(
        "simulated Compute Engine: cannot listen on `{0}`: only loopback addresses, such as `127.0.0.1:0`, are allowed"
    )]
    NotLoopback(SocketAddr),
    /// The address can't be listened on.
    #[error("simulated Compute Engine: cannot listen on `{listen}`")]
    Listen {
        /// The requested address.
        listen: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// An invalid setting.
    #[error("simulated Compute Engine: {0}")]
    Config(String),
    /// The state file can't be used.
    #[error("simulated Compute Engine: its state cannot be kept")]
    StateFile(#[from] StateFileError),
}

/// A simulated Compute Engine that is running. It ends when it is stopped or dropped.
pub struct SimulatedCompute {
    local_addr: SocketAddr,
    /// Dropping it stops the server.
    stop: watch::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl SimulatedCompute {
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
        let world = match &config.state_file {
            Some(path) => state_file::load(path)?,
            None => World::default(),
        };
        if let Some(path) = &config.state_file {
            // Find out now, not at the first request, whether the file can be written.
            state_file::save(path, &world)?;
        }

        let (stop, mut stopping) = watch::channel(());
        let door = Door::new(config, world, stopping.clone());
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
