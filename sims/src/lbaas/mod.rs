//! A simulated Anexia Engine: an HTTP server that a client can't tell from the real one, as far as LBaaS goes.
//!
//! For quickstarts and tests, on this machine alone.
//!
//! ```text
//! base -> service.rs -> engine.rs -> world.rs, state_file.rs
//! ```
//!
//! Beside the Engine's paths it has, without a token:
//! - `GET /state`: the whole state, in a fixed order; `PUT /state` replaces it;
//! - `GET /requests`: the counters; `DELETE /requests` sets them to zero;
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
//! times = 2                        # default: without end
//! status = 503                     # or delay_ms = 500, close = "after", fail_next = 3
//! when = "after"                   # of status and delay_ms; default: before
//! ```

mod bodies;
mod config;
mod engine;
mod kinds;
mod lists;
mod refusal;
mod service;
mod state_file;
mod taggings;
mod target;
#[cfg(test)]
mod tests;
mod world;

use std::net::SocketAddr;

pub use self::config::{LoadBalancer, RetryAfter, ServerConfig};
use self::engine::Engine;
pub use self::kinds::StateId;
use crate::base::faults::{When, fault_text};
use crate::{Server, StartError};

/// The target of the simulated Engine's log lines.
const LOG_TARGET: &str = "trueup::sim::lbaas";

fault_text! {
    /// The fields of a fault: exactly one of `status`, `delay_ms`, `close` and `fail_next`.
    ///
    /// With `fail_next`, the next objects to settle fail (state `2` in place of `3`). `path` is then compared with the
    /// object's own path, and `method` with what it settles from: `POST` or `PUT`.
    EngineFaultText, fail = "fail_next", fail_has_message = false,
    {
        method: String,
        path: String,
        times: u32,
        status: u16,
        message: String,
        delay_ms: u64,
        close: When,
        #[serde(rename = "fail_next")]
        fail: u32,
        when: When,
    }
}

/// A fault of the simulated Engine.
pub type Fault = crate::Fault<EngineFaultText>;

/// Starts a simulated Engine with the state from the state file, if there is one. Port 0 takes a free port.
///
/// The server runs on tasks of the current tokio runtime.
///
/// # Errors
/// The address, the configuration or the state file can't be used.
pub async fn start(config: ServerConfig, listen: SocketAddr) -> Result<Server, StartError> {
    Server::start::<Engine>(config, listen).await
}
