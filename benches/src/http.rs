//! A reconcile against a slow Engine over HTTP, with the backend for the real one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use trueup_base::fence::Fence;
use trueup_capabilities::lbaas::anexia::{Anexia, RequestMetrics, Settings, token};
use trueup_sims::lbaas::{self, ServerConfig};

use crate::service::{LOAD_BALANCER, Size};
use crate::stage::{self, Stage};

/// How the Engine answers.
#[derive(Debug, Clone, Copy)]
pub struct Latency {
    /// The time of every answer, in milliseconds.
    pub ms: u64,
    /// Whether taggings take as long too; otherwise they are answered at once.
    pub of_taggings: bool,
}

/// How long a reconcile took, and its requests.
#[derive(Debug, Clone)]
pub struct Took {
    /// The total.
    pub time: Duration,
    /// Requests that tag a resource.
    pub taggings: u64,
    /// All other requests.
    pub others: u64,
}

impl Took {
    /// How many times longer these requests take one at a time than `concurrent` at a time, if each takes the same time
    /// and taggings always go one at a time.
    #[must_use]
    pub fn bound(&self, concurrent: u16) -> f64 {
        let concurrent = f64::from(concurrent);
        let (taggings, others) = (count(self.taggings), count(self.others));
        (taggings + others) / (taggings + others / concurrent)
    }
}

fn count(requests: u64) -> f64 {
    u32::try_from(requests).map_or(f64::INFINITY, f64::from)
}

/// Reconciles a service from nothing, with this many requests at a time.
///
/// # Errors
/// If that fails.
pub fn reconcile(stage: &Stage, size: Size, latency: Latency, concurrent: u16) -> anyhow::Result<Took> {
    stage.runtime.block_on(async {
        let server = lbaas::start(server(latency)?, SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let folder = tempfile::tempdir()?;
        let token = folder.path().join("token");
        std::fs::write(&token, "simulated")?;
        let requests = Arc::new(Requests::default());
        let settings = Settings {
            url: format!("http://{}", server.local_addr()),
            max_concurrent_requests: concurrent,
            ..Settings::default()
        };
        let api = Anexia::new(
            settings,
            token::from_file(&token)?,
            Arc::clone(&requests) as _,
            Fence::open(),
            None,
        )?;
        let mut instance = stage.instance(Arc::new(api)).await?;
        let args = size.args()?;
        let began = Instant::now();
        stage::reconcile(&mut instance, &args, size.objects()).await?;
        let time = began.elapsed();
        server.stop().await;
        let (taggings, others) = requests.counts();
        Ok(Took { time, taggings, others })
    })
}

fn server(latency: Latency) -> anyhow::Result<ServerConfig> {
    let config = ServerConfig {
        load_balancers: vec![LOAD_BALANCER.into()],
        ..ServerConfig::default()
    };
    if latency.of_taggings {
        return Ok(ServerConfig {
            latency_ms: latency.ms,
            ..config
        });
    }
    // Everything but `POST /api/core/v1/resource.json/ID/tags/TAG`.
    let faults = json!([
        {"path": "/api/LBaaS/*", "delay_ms": latency.ms, "when": "after"},
        {"method": "GET", "path": "/api/core/*", "delay_ms": latency.ms, "when": "after"},
    ]);
    Ok(ServerConfig {
        faults: serde_json::from_value(faults)?,
        ..config
    })
}

/// Counts requests by resource and method.
#[derive(Default)]
struct Requests(Mutex<BTreeMap<(String, String), u64>>);

impl Requests {
    /// Taggings, and all other requests.
    fn counts(&self) -> (u64, u64) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_tagging = |(resource, method): &(String, String)| method == "POST" && resource.contains("tags");
        let sum = |tagging| {
            all.iter()
                .filter(|(key, _)| is_tagging(key) == tagging)
                .map(|(_, count)| count)
                .sum()
        };
        (sum(true), sum(false))
    }
}

impl RequestMetrics for Requests {
    fn request(&self, resource: &str, method: &str, _: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((resource.to_owned(), method.to_owned())).or_default() += 1;
    }

    fn in_flight(&self, _: i64) {}
}
