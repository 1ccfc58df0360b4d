//! The state file, the state over HTTP, start and stop.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::client::{BACKENDS, BALANCERS, RESOURCES, SERVERS, Sim, backend, server, text, try_start, until};
use crate::lbaas::{ServerConfig, start};

fn state_file(folder: &Path) -> Value {
    json!({"state_file": folder.join("state/engine.json")})
}

#[tokio::test]
async fn the_state_survives_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/engine.json");
    let sim = Sim::start(state_file(folder.path())).await;
    let backend_id = sim.create(BACKENDS, backend("b")).await;
    let server_id = sim.create(SERVERS, server("s", &backend_id)).await;
    let gone = sim.create(SERVERS, server("gone", &backend_id)).await;
    sim.tag(&backend_id, "t").await;
    sim.tag(&gone, "u").await;
    sim.put(&format!("{SERVERS}/{server_id}"), &server("renamed", &backend_id))
        .await;
    sim.ask(Method::DELETE, &format!("{SERVERS}/{gone}"), None).await;
    sim.ask(Method::DELETE, &format!("{RESOURCES}/{backend_id}/tags/t"), None)
        .await;
    let state = sim.get("/state").await;
    assert_eq!(state["objects"][1]["fields"]["name"], "renamed");

    // A process that was killed leaves all acknowledged effects.
    let killed = folder.path().join("killed.json");
    std::fs::copy(&file, &killed).unwrap();
    sim.server.stop().await;

    for path in [&killed, &file, &file] {
        let sim = Sim::start(json!({"state_file": path, "load_balancers": ["lb-1"]})).await;
        assert_eq!(sim.get("/state").await, state);
        let files: Vec<_> = std::fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(
            files
                .iter()
                .all(|file| file.extension().is_none_or(|extension| extension != "new")),
            "{files:?}"
        );
        sim.server.stop().await;
    }

    let sim = Sim::start(json!({"state_file": file, "load_balancers": ["lb-2"]})).await;
    assert_eq!(
        sim.names(BALANCERS).await,
        ["lb-1", "lb-2"],
        "configured ones are added to those that were there"
    );
    let new = sim.create(BACKENDS, backend("new")).await;
    assert!(
        ![&backend_id, &server_id, &gone].contains(&&new),
        "an identifier is never given out again"
    );
}

#[tokio::test]
async fn settling_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = state_file(folder.path());
    // An hour does not pass within the test.
    config["settle_ms"] = json!(3_600_000);
    let sim = Sim::start(config.clone()).await;
    let path = format!("{BACKENDS}/{}", sim.create(BACKENDS, backend("b")).await);
    let state = sim.get("/state").await;
    assert!(state["objects"][0]["settles_at_ms"].is_u64(), "{state}");
    sim.server.stop().await;
    let sim = Sim::start(config.clone()).await;
    assert_eq!(sim.get(&path).await["state"]["id"], "4");
    assert_eq!(
        sim.get("/state").await,
        state,
        "it will have settled when it would have"
    );
    sim.server.stop().await;

    config["settle_ms"] = json!(100);
    let sim = Sim::start(config.clone()).await;
    assert_eq!(sim.put(&path, &backend("b")).await["state"]["id"], "0");
    sim.server.stop().await;
    // The new settling time does not change the old one.
    config["settle_ms"] = json!(3_600_000);
    let sim = Sim::start(config).await;
    until("it to settle", async || sim.get(&path).await["state"]["id"] == "3").await;
}

#[tokio::test]
async fn a_damaged_state_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.json");
    let world = r#"{"format":1,"world":{"load_balancers":[],"objects":[]}}"#;
    for (text, reason) in [
        ("", "EOF"),
        ("{\"format\"", "EOF"),
        ("[]\n", "invalid"),
        (&world.replace(":1,", ":2,"), "format was 2, must be 1"),
        (&format!("{world}\n{world}\n"), "trailing characters"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = try_start(json!({"state_file": path})).await.err().unwrap();
        let error = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.contains("engine.json` is damaged: "), "{text}: {error}");
        assert!(error.contains(reason), "{text}: {error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is left as it was");
    }
}

#[tokio::test]
async fn a_state_is_dumped_and_loaded_in_one_order() {
    let sim = Sim::start(json!({"seed": 7})).await;
    let backend_id = sim.create(BACKENDS, backend("b")).await;
    sim.create(SERVERS, server("s", &backend_id)).await;
    sim.create(BACKENDS, backend("c")).await;
    sim.tag(&backend_id, "t").await;
    let state = sim.get("/state").await;
    let kinds: Vec<String> = state["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| text(object, "/kind"))
        .collect();
    assert_eq!(kinds, ["backend", "backend", "server"]);

    let folder = tempfile::tempdir().unwrap();
    let other = Sim::start(state_file(folder.path())).await;
    other.put("/state", &state).await;
    assert_eq!(other.get("/state").await, state);
    other.server.stop().await;
    let other = Sim::start(state_file(folder.path())).await;
    assert_eq!(other.get("/state").await, state, "a state that was put is in the file");

    // One seed gives one sequence of identifiers.
    let again = Sim::start(json!({"seed": 7})).await;
    assert_eq!(again.create(BACKENDS, backend("b")).await, backend_id);
}

#[tokio::test]
async fn it_starts_on_loopback_alone_and_ends_when_told() {
    for listen in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let refused = start(ServerConfig::default(), listen.parse().unwrap())
            .await
            .err()
            .unwrap();
        assert!(refused.to_string().contains("only loopback addresses"), "{refused}");
    }
    let twice = try_start(json!({"load_balancers": ["a", "a"]})).await.err().unwrap();
    assert_eq!(
        twice.to_string(),
        "simulated Engine: load_balancers: `a` is there twice"
    );
    for (config, reason) in [
        (json!({"setle_ms": 1}), "unknown field `setle_ms`"),
        (json!({"rate_limit_per_second": 0}), "nonzero"),
        (json!({"retry_after": 30}), "invalid type"),
        (json!({"load_balancers": [{"name": "x"}]}), "invalid type"),
    ] {
        let error = serde_json::from_value::<ServerConfig>(config.clone())
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{config}: {error}");
    }

    let sim = Sim::start(json!({"faults": [{"delay_ms": 60_000}]})).await;
    let address = sim.server.local_addr();
    let second = start(ServerConfig::default(), address).await.err().unwrap();
    assert_eq!(
        second.to_string(),
        format!("simulated Engine: cannot listen on `{address}`")
    );

    let Sim { server, client, .. } = sim;
    let waiting = client
        .get(format!("http://{address}{BACKENDS}"))
        .header("Authorization", "Token simulated")
        .send();
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let asked = Instant::now();
        server.stop().await;
        asked.elapsed()
    };
    let (answer, took) = tokio::join!(waiting, stopping);
    assert!(answer.unwrap_err().is_request());
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_foreign_page_neither_reads_nor_changes_the_simulated_world() {
    let sim = Sim::start(json!({})).await;
    for (path, methods) in [
        ("/state", &[Method::GET, Method::PUT][..]),
        ("/requests", &[Method::GET, Method::DELETE]),
        ("/faults", &[Method::GET, Method::POST, Method::DELETE]),
    ] {
        for method in methods {
            let rebound = sim.request(method.clone(), path).header("Host", "evil.example");
            assert_eq!(rebound.send().await.unwrap().status(), 403, "{method} {path}");
        }
    }
    assert_eq!(sim.get("/faults").await, json!([]), "its own name is let in");
}
