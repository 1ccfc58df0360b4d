//! A simulated Compute Engine: an HTTP server that a client can't tell from the real one, as far as zonal network
//! endpoint groups and their operations go.
//!
//! For tests and demonstrations, on this machine alone. It speaks the API's JSON in types of its own and shares nothing
//! with the backend that speaks to it, so that a mistake in one does not hide in the other. Projects, zones, VMs,
//! networks and subnetworks are as clients name them: none is refused because it is not there.
//!
//! ```text
//! door.rs -> calls.rs -> world.rs (neg.rs, operation.rs) -> state_file.rs
//! admin.rs -^
//! ```
//!
//! The API is found behind any prefix, such as `/compute/v1/`. Beside it there are, without a token:
//! - `GET /operations`: the ledger, every operation ever begun, in the order of arrival, each with `id`, `type`, `neg`,
//!   `zone`, `request_id`, `repeats` (how often the same `requestId` came again), `endpoints`, `received_ms`, `start_ms`,
//!   `done_ms` (milliseconds since 1970; null while it is under way) and `failure`; `DELETE /operations` forgets the
//!   finished ones, as far as the API goes;
//! - `GET /negs`: every NEG by its path, with its endpoints as they are now;
//! - `GET /state`, `PUT /state`: everything there is, in the form of the state file's `world`;
//! - `GET /requests`: what was counted; `DELETE /requests` starts again;
//! - `GET /faults`, `POST /faults` (one [`Fault`]), `DELETE /faults` (all);
//! - `GET /settings`, `PATCH /settings`: `operation_ms` (of operations that begin from then on), `wait_ms`, `latency_ms`,
//!   `endpoints_max`, `fail_operations_percent`, `ipv6_long`;
//! - `POST /behind`: what somebody else does, at once: `{"project", "zone", "neg", "delete": true, "insert": NEG,
//!   "remove": [E], "add": [E]}`.
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
//! times = 2                        # default: for ever
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

/// Where the log lines of the simulated Compute Engine can be told apart.
pub const LOG_TARGET: &str = "trueup::sim::compute";

/// Ending takes no longer, whatever clients do.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated Compute Engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It has no protection but this.
    #[error(
        "simulated Compute Engine: cannot listen on `{0}`: only loopback addresses, such as `127.0.0.1:0`, are allowed"
    )]
    NotLoopback(SocketAddr),
    /// The address can't be listened on.
    #[error("simulated Compute Engine: cannot listen on `{listen}`")]
    Listen {
        /// The address that was given.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A setting that can't be.
    #[error("simulated Compute Engine: {0}")]
    Config(String),
    /// The state file can't be used.
    #[error("simulated Compute Engine: its state cannot be kept")]
    StateFile(#[from] StateFileError),
}

/// A simulated Compute Engine that is running. It ends when it is stopped or dropped.
pub struct SimulatedCompute {
    local_addr: SocketAddr,
    /// Dropping it ends the server.
    stop: watch::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl SimulatedCompute {
    /// Begins to listen, with what the state file holds if there is one. Port 0 takes a free one.
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
            // Whether it can be written is better known now than at the first request.
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

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Ends it. Requests under way are dropped as if their client had gone away; their connections are closed.
    pub async fn stop(self) {
        drop(self.stop);
        let mut server = self.server;
        // Only a client that never ends its request can hold it up.
        if tokio::time::timeout(STOP_TIMEOUT, &mut server).await.is_err() {
            server.abort();
        }
    }
}
