//! The backend against the simulated Compute Engine, in one process.

mod calls;
mod tokens;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use trueup_base::fence::Fence;
use trueup_sims::Server;
use trueup_sims::compute::start as start_server;
use uuid::Uuid;

use super::{Compute, Credentials, Ended, Operations, Settings};
use crate::neg::order::tests::neg;
use crate::neg::{Api, Endpoint, NegRef, RequestId};

/// A longer wait counts as a hang.
const HANG: Duration = Duration::from_secs(60);
const LOCAL: &str = "127.0.0.1:0";

/// A simulated Compute Engine, and a backend that talks to it.
struct World {
    server: Server,
    compute: Compute,
    ends: mpsc::Receiver<Ended>,
}

impl World {
    async fn new(config: Value) -> Self {
        Self::with(config, in_memory(), Fence::open()).await
    }

    async fn with(config: Value, store: Arc<Operations>, fence: Fence) -> Self {
        let config = serde_json::from_value(config).unwrap();
        let server = start_server(config, LOCAL.parse().unwrap()).await.unwrap();
        let (compute, ends) = backend(&server, store, fence);
        Self { server, compute, ends }
    }

    fn api(&self) -> Arc<dyn Api> {
        self.compute.of("default/web")
    }

    /// Sends a request to a path beside the API.
    async fn admin(&self, method: &str, path: &str, body: Value) -> Value {
        let url = format!("http://{}{path}", self.server.local_addr());
        let method = method.parse().unwrap();
        let answer = reqwest::Client::new()
            .request(method, url)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default()
    }

    /// With these settings of the server, and a NEG without endpoints.
    async fn with_neg(config: Value) -> Self {
        let world = Self::new(config).await;
        world.given(&[]).await;
        world
    }

    async fn fault(&self, fault: Value) {
        self.admin("POST", "/faults", fault).await;
    }

    async fn ledger(&self) -> Vec<Value> {
        serde_json::from_value(self.admin("GET", "/operations", Value::Null).await).unwrap()
    }

    async fn ended(&mut self) -> Ended {
        tokio::time::timeout(HANG, self.ends.recv()).await.unwrap().unwrap()
    }

    /// Creates a NEG with these endpoints.
    async fn given(&self, endpoints: &[Endpoint]) {
        let add: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                let port: u16 = endpoint.port.parse().unwrap();
                let mut sent = json!({"instance": endpoint.node, "port": port});
                for (name, text) in [("ipAddress", &endpoint.ip), ("ipv6Address", &endpoint.ipv6)] {
                    if !text.is_empty() {
                        sent[name] = json!(text);
                    }
                }
                sent
            })
            .collect();
        let insert = json!({"name": "web", "networkEndpointType": "GCE_VM_IP_PORT",
                            "subnetwork": "regions/z/subnetworks/s1"});
        let behind = json!({"project": "p", "zone": "z-a", "neg": "web", "insert": insert, "add": add});
        self.admin("POST", "/behind", behind).await;
    }
}

fn in_memory() -> Arc<Operations> {
    Arc::new(Operations::in_memory().unwrap())
}

fn backend(server: &Server, store: Arc<Operations>, fence: Fence) -> (Compute, mpsc::Receiver<Ended>) {
    let token = Credentials::fixed("secret-token").unwrap();
    Compute::new(settings(server), token, store, fence).unwrap()
}

/// A backend that has started no operation.
fn backend_with(settings: Settings) -> (Compute, mpsc::Receiver<Ended>) {
    let token = Credentials::fixed("t").unwrap();
    Compute::new(settings, token, in_memory(), Fence::open()).unwrap()
}

fn settings(server: &Server) -> Settings {
    Settings {
        endpoint: format!("http://{}", server.local_addr()),
        requests_per_second: 1_000,
        poll_min_ms: 5,
        poll_max_ms: 50,
        retry_pause_ms: 1,
        ..Settings::new("p")
    }
}

fn web() -> NegRef {
    neg("web", "z-a")
}

fn id(number: u128) -> RequestId {
    RequestId(Uuid::from_u128(number))
}

/// The endpoint of this number, of one stack.
fn endpoint(number: u16) -> Endpoint {
    let [high, low] = number.to_be_bytes();
    Endpoint {
        ip: format!("10.0.{high}.{low}"),
        ipv6: String::new(),
        port: "80".to_owned(),
        node: format!("vm-{}", number % 5),
    }
}
