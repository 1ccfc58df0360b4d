//! Tests over HTTP: bodies and errors as a client sees them.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ServerConfig, start};
use crate::base::testing::Sim;

const NEGS: &str = "/compute/v1/projects/p/zones/z-a/networkEndpointGroups";
const NEG: &str = "/compute/v1/projects/p/zones/z-a/networkEndpointGroups/n";

async fn start_sim(config: ServerConfig) -> Sim {
    let server = start(config, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    Sim::new(server, "Bearer t")
}

impl Sim {
    async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(Method::POST, path, Some(body)).await;
        assert!((200..300).contains(&status), "POST {path}: {status} {answer}");
        answer
    }

    async fn insert(&self, kind: &str) {
        self.post(NEGS, &json!({"name": "n", "networkEndpointType": kind}))
            .await;
    }

    async fn attach(&self, endpoints: Value) -> (u16, Value) {
        let body = json!({"networkEndpoints": endpoints});
        self.ask(Method::POST, &format!("{NEG}/attachNetworkEndpoints"), Some(&body))
            .await
    }
}

fn reason(answer: &Value) -> &str {
    answer
        .pointer("/error/errors/0/reason")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[tokio::test]
async fn errors_are_in_the_apis_shape() {
    let sim = start_sim(ServerConfig::default()).await;
    let message = "The resource 'projects/p/zones/z-a/networkEndpointGroups/n' was not found";
    let one = json!({"message": message, "domain": "global", "reason": "notFound"});
    let expected = json!({"error": {"code": 404, "message": message, "errors": [one]}});
    assert_eq!(sim.ask(Method::GET, NEG, None).await, (404, expected));
    let url = format!("http://{}{NEG}", sim.server.local_addr());
    let answer = sim.client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    sim.insert("GCE_VM_IP_PORT").await;
    let again = json!({"name": "n", "networkEndpointType": "GCE_VM_IP"});
    let (status, answer) = sim.ask(Method::POST, NEGS, Some(&again)).await;
    assert_eq!((status, reason(&answer)), (409, "alreadyExists"));
    let message = "The resource 'projects/p/zones/z-a/networkEndpointGroups/n' already exists";
    assert_eq!(answer["error"]["message"], message);
}

#[tokio::test]
async fn an_operation_is_pending_then_done_and_has_its_effect_then() {
    let config = ServerConfig {
        operation_ms: 2_000,
        ..ServerConfig::default()
    };
    let sim = start_sim(config).await;
    let body = json!({"name": "n", "networkEndpointType": "GCE_VM_IP_PORT"});
    let id = "11111111-1111-1111-1111-111111111111";
    let negs = format!("{NEGS}?requestId={id}");
    let begun = sim.post(&negs, &body).await;
    assert_eq!(
        (&begun["kind"], &begun["status"]),
        (&json!("compute#operation"), &json!("PENDING"))
    );
    assert_eq!(begun["clientOperationId"], id);
    assert!(begun["id"].is_string() && begun.get("error").is_none());
    assert_eq!(sim.ask(Method::GET, NEG, None).await.0, 404);
    let path = format!(
        "/compute/v1/projects/p/zones/z-a/operations/{}/wait",
        begun["name"].as_str().unwrap()
    );
    let done = sim.post(&path, &json!({})).await;
    assert_eq!((&done["status"], &done["progress"]), (&json!("DONE"), &json!(100)));
    assert_eq!(sim.get(NEG).await["size"], 0);
    let again = sim.post(&negs, &body).await;
    assert_eq!(again["id"], begun["id"], "the same request is the same operation");
}

#[tokio::test]
async fn waiting_ends_at_its_limit() {
    let config = ServerConfig {
        operation_ms: 600_000,
        wait_ms: 20,
        ..ServerConfig::default()
    };
    let sim = start_sim(config).await;
    sim.insert("GCE_VM_IP").await;
    let ledger = sim.get("/operations").await;
    let path = format!("/compute/v1/projects/p/zones/z-a/operations/{}/wait", ledger[0]["id"]);
    assert_eq!(sim.post(&path, &json!({})).await["status"], "PENDING");
}

#[tokio::test]
async fn what_cannot_be_attached_is_refused_at_once() {
    let sim = start_sim(ServerConfig::default()).await;
    sim.insert("GCE_VM_IP_PORT").await;
    let one = |number: usize| json!({"ipAddress": format!("10.0.{}.{}", number / 256, number % 256), "port": 1});
    for endpoints in [
        json!([]),
        json!((0..501).map(one).collect::<Vec<_>>()),
        json!([{"ipAddress": "10.0.0", "port": 1}]),
        json!([{"ipv6Address": "10.0.0.1", "port": 1}]),
        json!([{"port": 1}]),
        json!([{"ipAddress": "10.0.0.1"}]),
        json!([{"ipAddress": "10.0.0.1", "port": 0}]),
        json!([{"ipAddress": "10.0.0.1", "port": 65_536}]),
        json!([{"ipAddress": "10.0.0.1", "port": "80"}]),
        json!([{"ipAddress": "10.0.0.1", "port": 80, "ipv6Address": null}]),
        json!([{"ipAddress": "10.0.0.1", "port": 80, "node": "vm"}]),
    ] {
        let (status, answer) = sim.attach(endpoints.clone()).await;
        assert_eq!((status, reason(&answer)), (400, "invalid"), "{endpoints}");
    }
    assert!(sim.attach(json!((0..500).map(one).collect::<Vec<_>>())).await.0 == 200);
    let without_ports = start_sim(ServerConfig::default()).await;
    without_ports.insert("GCE_VM_IP").await;
    assert_eq!(without_ports.attach(json!([one(1)])).await.0, 400);
    assert!(without_ports.attach(json!([{"ipAddress": "10.0.0.1"}])).await.0 == 200);
}

#[tokio::test]
async fn request_ids_are_uuids_and_not_zero() {
    let sim = start_sim(ServerConfig::default()).await;
    for id in ["x", "00000000-0000-0000-0000-000000000000"] {
        let path = format!("{NEG}/attachNetworkEndpoints?requestId={id}");
        let (status, answer) = sim.ask(Method::POST, &path, Some(&json!({}))).await;
        assert_eq!((status, reason(&answer)), (400, "invalid"));
    }
}

#[tokio::test]
async fn pages_are_as_long_as_asked_for_and_miss_items_when_empty() {
    let sim = start_sim(ServerConfig::default()).await;
    sim.insert("GCE_VM_IP").await;
    let list = format!("{NEG}/listNetworkEndpoints");
    let empty = sim.post(&list, &json!({"healthStatus": "SKIP"})).await;
    assert!(empty.get("items").is_none() && empty.get("nextPageToken").is_none());
    let endpoints: Vec<_> = (0..5)
        .map(|number| json!({"ipAddress": format!("10.0.0.{number}")}))
        .collect();
    sim.attach(json!(endpoints)).await;
    let mut lengths = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut request = sim.request(Method::POST, &list).query(&[("maxResults", "2")]);
        if let Some(token) = &token {
            request = request.query(&[("pageToken", token)]);
        }
        let page: Value = request.send().await.unwrap().json().await.unwrap();
        lengths.push(page["items"].as_array().unwrap().len());
        match page.get("nextPageToken") {
            Some(next) => token = Some(next.as_str().unwrap().to_owned()),
            None => break,
        }
    }
    assert_eq!(lengths, [2, 2, 1]);
    for query in ["maxResults=501", "maxResults=-1", "pageToken=x"] {
        let answer = sim
            .ask(Method::POST, &format!("{list}?{query}"), Some(&json!({})))
            .await;
        assert_eq!((answer.0, reason(&answer.1)), (400, "invalid"), "{query}");
    }
}

#[tokio::test]
async fn limits_are_told_apart() {
    let config = ServerConfig {
        endpoints_max: Some(2),
        rate_limit_per_second: Some(4.try_into().unwrap()),
        ..ServerConfig::default()
    };
    let sim = start_sim(config).await;
    sim.insert("GCE_VM_IP").await;
    let three: Vec<_> = (1..4)
        .map(|number| json!({"ipAddress": format!("10.0.0.{number}")}))
        .collect();
    let (status, answer) = sim.attach(json!(three)).await;
    assert_eq!((status, reason(&answer)), (403, "quotaExceeded"));
    let mut limited = None;
    for _ in 0..1_000 {
        let answer = sim.request(Method::GET, NEG).send().await.unwrap();
        if answer.status() == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert_eq!(limited.headers()["Retry-After"], "1");
    assert_eq!(reason(&limited.json().await.unwrap()), "rateLimitExceeded");
}

#[tokio::test]
async fn a_state_file_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let config = || ServerConfig {
        state_file: Some(folder.path().join("state.json")),
        ..ServerConfig::default()
    };
    let sim = start_sim(config()).await;
    sim.insert("GCE_VM_IP").await;
    sim.attach(json!([{"ipAddress": "10.0.0.1"}])).await;
    sim.get(NEG).await;
    let state = sim.get("/state").await;
    sim.server.stop().await;
    let sim = start_sim(config()).await;
    assert_eq!(sim.get("/state").await, state);
    assert_eq!(sim.get(NEG).await["size"], 1);
}
