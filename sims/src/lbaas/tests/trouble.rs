//! Configured trouble: slowness, limits, faults, and clients that disconnect.

use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::client::{BACKENDS, BINDS, FRONTENDS, RESOURCES, Sim, backend, in_time, text, until};

#[tokio::test]
async fn a_changed_object_takes_its_time_to_settle() {
    let sim = Sim::start(json!({"settle_ms": 100})).await;
    let created = Instant::now();
    let (_, body) = sim.ask(Method::POST, BACKENDS, Some(&backend("b"))).await;
    assert_eq!(
        body["state"],
        json!({"id": "4", "text": "NewlyCreated", "title": "NewlyCreated", "type": 2})
    );
    let path = format!("{BACKENDS}/{}", text(&body, "/identifier"));
    let settled = async |from: &str| {
        loop {
            let id = text(&sim.get(&path).await, "/state/id");
            if id != from {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(settled("4").await, "3");
    // The server counts whole milliseconds: the one in which it was created may have been nearly over.
    assert!(created.elapsed() >= Duration::from_millis(99));

    sim.fault(json!({"fail_next": 1, "method": "PUT", "path": "/api/LBaaS/v1/backend.json/*"}))
        .await;
    let other = sim.create(BACKENDS, backend("other")).await;
    assert_eq!(sim.put(&path, &backend("b")).await["state"]["id"], "0");
    assert_eq!(settled("0").await, "2");
    assert_eq!(
        sim.put(&path, &backend("b")).await["state"]["id"],
        "0",
        "as a reset does"
    );
    assert_eq!(settled("0").await, "3");
    assert_eq!(
        sim.get(&format!("{BACKENDS}/{other}")).await["state"]["id"],
        "3",
        "the fault was for PUT alone"
    );
}

#[tokio::test]
async fn with_no_time_to_settle_an_object_is_ready_or_failed_at_once() {
    let sim = Sim::start(json!({"faults": [{"fail_next": 2, "path": "*/bind.json/*"}]})).await;
    let frontend = json!({"name": "f", "mode": "http", "load_balancer": "lb-1"});
    let frontend = sim.create(FRONTENDS, frontend).await;
    let mut states = Vec::new();
    for port in 80..83 {
        let bind = json!({"name": "b", "address": "::1", "port": port, "ssl": false, "frontend": frontend});
        let (_, body) = sim.ask(Method::POST, BINDS, Some(&bind)).await;
        states.push(text(&body, "/state/id"));
    }
    assert_eq!(states, ["2", "2", "3"]);
    assert_eq!(sim.get("/faults").await, json!([]));
}

/// Sends requests until one is refused: on a slow machine the limit admits some in between. Returns the refusal, and
/// how many were admitted before it.
async fn until_limited(sim: &Sim) -> (Response, u64) {
    for admitted in 0..10_000 {
        let answer = sim.send(Method::GET, BACKENDS, None).await.unwrap();
        if answer.status() == 429 {
            return (answer, admitted);
        }
        assert_eq!(answer.status(), 200);
    }
    panic!("no limit")
}

#[tokio::test]
async fn the_rate_limit_says_when_to_come_back_unless_told_not_to() {
    for (retry_after, expected) in [(true, Some("1")), (false, None)] {
        let sim = Sim::start(json!({"rate_limit_per_second": 2, "retry_after": retry_after})).await;
        let (limited, admitted) = until_limited(&sim).await;
        assert_eq!(
            limited
                .headers()
                .get("retry-after")
                .map(|value| value.to_str().unwrap()),
            expected
        );
        let counted = sim.get("/requests").await;
        assert_eq!(
            counted["requests"],
            json!({"GET /api/LBaaS/v1/backend.json": admitted + 1})
        );
        assert!(admitted >= 2, "a second's requests come at once");
    }
    let sim = Sim::start(json!({"rate_limit_per_second": 5})).await;
    until_limited(&sim).await;
    tokio::time::sleep(Duration::from_millis(1_010)).await;
    assert_eq!(sim.ask(Method::GET, BACKENDS, None).await.0, 200, "a second is over");
}

#[tokio::test]
async fn of_two_taggings_at_once_one_is_lost() {
    for (lose, kept) in [(true, 1), (false, 2)] {
        // The second must come while the first is under way.
        let (sim, a, b) = in_time("two taggings at once", async |delay_ms| {
            let sim = Sim::start(json!({"lose_overlapping_taggings": lose})).await;
            let (a, b) = (
                sim.create(BACKENDS, backend("a")).await,
                sim.create(BACKENDS, backend("b")).await,
            );
            sim.fault(json!({"path": "*/tags/*", "delay_ms": delay_ms, "when": "after", "times": 2}))
                .await;
            assert_eq!(tokio::join!(sim.tag(&a, "t"), sim.tag(&b, "t")), (200, 200));
            let overlapping = sim.get("/requests").await["requests_in_flight_max"] == 2;
            overlapping.then_some((sim, a, b))
        })
        .await;
        assert_eq!(sim.names(&format!("{RESOURCES}?tag_name=t")).await.len(), kept);
        assert_eq!((sim.tag(&a, "u").await, sim.tag(&b, "u").await), (200, 200));
        assert_eq!(
            sim.names(&format!("{RESOURCES}?tag_name=u")).await.len(),
            2,
            "one after the other, both stay"
        );
    }
}

#[tokio::test]
async fn a_faulty_status_comes_before_the_effect_or_after_it() {
    let sim = Sim::start(json!({
        "faults": [{"method": "POST", "path": "/api/LBaaS/v1/*", "times": 2, "status": 503, "message": "maintenance"}],
    }))
    .await;
    for _ in 0..2 {
        let (status, body) = sim.ask(Method::POST, BACKENDS, Some(&backend("b"))).await;
        assert_eq!(
            (status, body),
            (503, json!({"error": {"code": 503, "message": "maintenance"}}))
        );
    }
    assert_eq!(sim.names(BACKENDS).await.len(), 0);
    sim.create(BACKENDS, backend("b")).await;

    sim.fault(json!({"status": 502, "when": "after", "times": 1})).await;
    let (status, body) = sim.ask(Method::POST, BACKENDS, Some(&backend("unseen"))).await;
    assert_eq!(
        (status, body),
        (502, json!({"error": {"code": 502, "message": "Bad Gateway"}}))
    );
    assert_eq!(sim.names(BACKENDS).await.len(), 2);

    sim.fault(json!({"status": 429, "retry_after_s": 7})).await;
    let limited = sim.send(Method::GET, BACKENDS, None).await.unwrap();
    assert_eq!(
        (limited.status().as_u16(), &limited.headers()["retry-after"]),
        (429, &"7".parse().unwrap())
    );
    assert_eq!(sim.ask(Method::DELETE, "/faults", None).await.0, 204);
    sim.get(BACKENDS).await;

    let (status, _) = sim.ask(Method::POST, "/faults", Some(&json!({"status": 200}))).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn a_delay_holds_the_effect_or_the_answer_back() {
    let sim = Sim::start(json!({})).await;
    for (when, effect_seen) in [("before", 0), ("after", 1)] {
        let seen = in_time("a look during the delay", async |delay_ms| {
            sim.put(
                "/state",
                &json!({"load_balancers": [{"kind": "load_balancer", "identifier": "lb-1", "fields": {}}], "objects": []}),
            )
            .await;
            sim.fault(json!({"method": "POST", "delay_ms": delay_ms, "when": when, "times": 1}))
                .await;
            let (started, delay) = (Instant::now(), Duration::from_millis(delay_ms));
            let create = sim.create(BACKENDS, backend("b"));
            let look = async {
                until("the fault", async || sim.get("/faults").await == json!([])).await;
                let seen = sim.names(BACKENDS).await.len();
                (started.elapsed() < delay).then_some(seen)
            };
            let (_, seen) = tokio::join!(create, look);
            assert!(started.elapsed() >= delay);
            assert_eq!(sim.names(BACKENDS).await.len(), 1);
            seen
        })
        .await;
        assert_eq!(seen, effect_seen, "{when}");
    }
}

#[tokio::test]
async fn a_connection_is_closed_without_an_answer() {
    let sim = Sim::start(json!({})).await;
    for (close, created) in [("before", 0), ("after", 1)] {
        sim.fault(json!({"method": "POST", "path": BACKENDS, "close": close, "times": 1}))
            .await;
        // The connection is one that served requests before; closing it must look the same.
        let error = sim.send(Method::POST, BACKENDS, Some(&backend("b"))).await.unwrap_err();
        assert!(error.is_request() && !error.is_timeout(), "{error:?}");
        assert_eq!(sim.names(BACKENDS).await.len(), created, "{close}");
    }
}

#[tokio::test]
async fn a_request_whose_client_is_gone_before_its_effect_has_none() {
    // The test does not wait for its end.
    const HOUR_MS: u64 = 3_600_000;
    let sim = Sim::start(json!({"latency_ms": HOUR_MS})).await;
    let send = async || {
        let body = backend("b").to_string();
        let head = format!(
            "POST {BACKENDS} HTTP/1.1\r\nHost: sim\r\nAuthorization: Token simulated\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut connection = TcpStream::connect(sim.server.local_addr()).await.unwrap();
        connection.write_all((head + &body).as_bytes()).await.unwrap();
        connection
    };
    // Neither this nor what is counted has a latency.
    let created = async || sim.get("/state").await["objects"].as_array().unwrap().len();
    let is_gone = async || sim.get("/requests").await["requests_in_flight"] == 0;
    sim.fault(json!({"method": "POST", "delay_ms": HOUR_MS, "when": "before", "times": 1}))
        .await;
    let connection = send().await;
    until("the fault", async || sim.get("/faults").await == json!([])).await;
    drop(connection);
    until("the server to notice", &is_gone).await;
    assert_eq!(created().await, 0);

    let connection = send().await;
    until("the effect", async || created().await == 1).await;
    drop(connection);
    until("the server to notice", &is_gone).await;
    assert_eq!(created().await, 1, "gone in the latency after the effect");
}
