//! A simulated Engine with a client, and the bodies that the client sends.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::StartError;
use crate::base::testing::PATIENCE;
pub(super) use crate::base::testing::Sim;
use crate::lbaas::{self, ServerConfig};

pub(super) const BACKENDS: &str = "/api/LBaaS/v1/backend.json";
pub(super) const FRONTENDS: &str = "/api/LBaaS/v1/frontend.json";
pub(super) const BINDS: &str = "/api/LBaaS/v1/bind.json";
pub(super) const SERVERS: &str = "/api/LBaaS/v1/server.json";
pub(super) const BALANCERS: &str = "/api/LBaaS/v1/loadbalancer.json";
pub(super) const RESOURCES: &str = "/api/core/v1/resource.json";

/// Polls until the condition holds.
pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "waited {} s for {what}", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Repeats the attempt with longer times, in milliseconds, until one was long enough: a machine that stalls makes the
/// test slow, not wrong.
pub(super) async fn in_time<T>(what: &str, attempt: impl AsyncFn(u64) -> Option<T>) -> T {
    for ms in [100, 1_000, 5_000, 20_000] {
        if let Some(done) = attempt(ms).await {
            return done;
        }
    }
    panic!("{what}: never in time")
}

/// A client of a simulated Engine with this configuration.
pub(super) async fn try_start(config: Value) -> Result<Sim, StartError> {
    let config: ServerConfig = serde_json::from_value(config).unwrap();
    let server = lbaas::start(config, "127.0.0.1:0".parse().unwrap()).await?;
    Ok(Sim::new(server, "Token simulated"))
}

impl Sim {
    pub(super) async fn start(config: Value) -> Self {
        try_start(config).await.unwrap()
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.ask(Method::PUT, path, Some(body)).await;
        assert!(matches!(status, 200 | 204), "PUT {path}: {status} {body}");
        body
    }

    /// Creates an object; returns its identifier.
    pub(super) async fn create(&self, path: &str, body: Value) -> String {
        let (status, body) = self.ask(Method::POST, path, Some(&body)).await;
        assert_eq!(status, 201, "POST {path}: {body}");
        text(&body, "/identifier")
    }

    pub(super) async fn fault(&self, fault: Value) {
        let (status, body) = self.ask(Method::POST, "/faults", Some(&fault)).await;
        assert_eq!(status, 201, "{fault}: {body}");
    }

    pub(super) async fn tag(&self, identifier: &str, tag: &str) -> u16 {
        self.ask(
            Method::POST,
            &format!("{RESOURCES}/{identifier}/tags/{tag}"),
            Some(&json!("")),
        )
        .await
        .0
    }

    pub(super) async fn tags(&self, identifier: &str) -> Value {
        self.get(&format!("{RESOURCES}/{identifier}")).await["tags"].clone()
    }

    pub(super) async fn names(&self, path: &str) -> Vec<String> {
        let page = self.get(path).await;
        page["data"]["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| text(entry, "/name"))
            .collect()
    }
}

pub(super) fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer}: {value}"))
        .to_owned()
}

pub(super) fn backend(name: &str) -> Value {
    json!({"name": name, "mode": "tcp", "load_balancer": "lb-1", "health_check": "\"adv_check\": \"tcp-check\""})
}

pub(super) fn server(name: &str, backend: &str) -> Value {
    json!({"name": name, "ip": "192.0.2.1", "port": 30080, "check": "enabled", "backend": backend})
}
