//! A simulated Anexia Engine: an HTTP server that a client can't tell from the real one, as far as LBaaS goes.
//!
//! For quickstarts and tests, on this machine alone.
//!
//! ```text
//! base -> engine.rs -> world.rs
//! ```
//!
//! Beside the Engine's paths it has, without a token:
//! - `GET /state`: the whole state, in a fixed order; `PUT /state` replaces it;
//! - `GET /requests`: the counters; `DELETE /requests` sets them to zero;
//! - `GET /faults`, `POST /faults` (one [`crate::Fault`]), `DELETE /faults` (all).
//!
//! As configuration:
//!
//! ```toml
//! token = "simulated"
//! load_balancers = ["lb-1", "lb-2"]
//! settle_ms = 200
//! latency_ms = 5
//! rate_limit_per_second = 50
//! retry_after = true
//! seed = 1
//! state_file = "engine.json"
//! resource_type_in_lists = true
//! lose_overlapping_taggings = true
//!
//! [[faults]]
//! method = "POST"                  # default: any
//! path = "/api/LBaaS/v1/bind.json*"
//! times = 2                        # default: without end
//! status = 503                     # or delay_ms = 500, close = "after", fail_next = 3
//! when = "after"                   # of status and delay_ms; default: before
//! ```

mod bodies;
mod config;
mod engine;
mod kinds;
mod lists;
mod target;
#[cfg(test)]
mod tests;
mod world;

use std::net::SocketAddr;

use axum::http::StatusCode;

pub use self::config::ServerConfig;
use self::engine::Engine;
use crate::base::refusal::Refusal;
use crate::{Server, StartError};

/// Starts a simulated Engine with the state from the state file, if there is one. Port 0 takes a free port.
///
/// The server runs on tasks of the current tokio runtime.
///
/// # Errors
/// The address, the configuration or the state file can't be used.
pub async fn start(config: ServerConfig, listen: SocketAddr) -> Result<Server, StartError> {
    Server::start::<Engine>(config, listen).await
}

impl Refusal {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found")
    }

    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }
}
