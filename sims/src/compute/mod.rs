//! A simulated Compute Engine: an HTTP server that a client can't tell from the real one, as far as zonal network
//! endpoint groups and their operations go.
//!
//! For tests and demonstrations, on this machine alone. Every project, zone, VM, network and subnetwork that a client
//! names exists: the server refuses none as missing.
//!
//! ```text
//! base -> calls.rs, admin.rs -> world.rs (neg.rs, operation.rs)
//! ```
//!
//! The API's paths may have any prefix, such as `/compute/v1/`. Beside them it has, without a token:
//! - `GET /operations`: the ledger, every operation ever begun, in the order of arrival, each with `id`, `type`,
//!   `neg`, `zone`, `request_id`, `repeats` (how often the same `requestId` came again), `endpoints`, `received_ms`,
//!   `start_ms`, `done_ms` (milliseconds since 1970; null until it is done) and `failure`; `DELETE /operations` makes
//!   the API forget the finished ones;
//! - `GET /negs`: every NEG by its path, with its endpoints as they are now;
//! - `GET /state`, `PUT /state`: the whole state, in the form of the state file's `world`;
//! - `GET /requests`: the counters; `DELETE /requests` sets them to zero;
//! - `GET /faults`, `POST /faults` (one [`crate::Fault`]), `DELETE /faults` (all);
//! - `PATCH /settings`: `operation_ms` (of operations that begin from then on), `endpoints_max`;
//! - `POST /behind`: what another client does, at once and without an operation:
//!   `{"project", "zone", "neg", "delete": true, "insert": NEG, "remove": [E], "add": [E]}`.
//!
//! As configuration:
//!
//! ```toml
//! token = "secret"                 # default: any bearer token
//! operation_ms = 200
//! wait_ms = 120000
//! latency_ms = 5
//! rate_limit_per_second = 20
//! retry_after = true
//! endpoints_max = 10000
//! ipv6_long = true
//! state_file = "compute.json"
//!
//! [[faults]]
//! method = "POST"                  # default: any
//! path = "*/attachNetworkEndpoints"
//! times = 2                        # default: without end
//! status = 503                     # or delay_ms = 500, close = "after", fail_next = 3
//! reason = "backendError"          # of status; also message, retry_after_s, body
//! when = "after"                   # of status and delay_ms; default: before
//! ```

mod admin;
mod calls;
mod config;
mod endpoint;
mod json;
mod neg;
mod operation;
mod refusal;
mod target;
#[cfg(test)]
mod tests;
mod world;

use std::net::SocketAddr;

use self::calls::Compute;
pub use self::config::ServerConfig;
use crate::{Server, StartError};

/// Starts a simulated Compute Engine with the state from the state file, if there is one. Port 0 takes a free port.
///
/// The server runs on tasks of the current tokio runtime.
///
/// # Errors
/// The address, the configuration or the state file can't be used.
pub async fn start(config: ServerConfig, listen: SocketAddr) -> Result<Server, StartError> {
    Server::start::<Compute>(config, listen).await
}
