//! Single requests: headers, paths, tries, errors, metrics, and the token, which must not leak.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::log::Log;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::{Api as _, Object, State};

/// Answers the n-th request with the n-th reply, and all later ones with the last.
async fn sequence(replies: Vec<Reply>) -> Server {
    let next = AtomicUsize::new(0);
    Server::start(move |_| replies[next.fetch_add(1, SeqCst).min(replies.len() - 1)].clone()).await
}

async fn get_one(engine: &Anexia) -> Result<Object, Error> {
    engine.get(&refs(Kind::Server, &["s1"])).await.remove(0)
}

#[tokio::test]
async fn every_request_carries_the_token_an_agent_and_its_media_type() {
    let server = Server::start(|seen| match seen.method.as_str() {
        "GET" => Reply::json(200, server_json("s1")),
        _ => Reply::json(200, json!({"identifier": "s1"})),
    })
    .await;
    let engine = engine(&format!("{}/", server.url));
    assert_eq!(engine.reset(&refs(Kind::Server, &["s1"])).await, [Ok(())]);
    assert_eq!(engine.destroy(&refs(Kind::Server, &["s1"])).await, [Ok(())]);
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(request.header("authorization"), Some(format!("Token {TOKEN}").as_str()));
        assert!(request.header("user-agent").unwrap().starts_with("trueup/"));
        let expected = if request.method == "GET" {
            ("accept", "content-type")
        } else {
            ("content-type", "accept")
        };
        assert_eq!(request.header(expected.0), Some("application/json"), "{request:?}");
        assert_ne!(request.header(expected.1), Some("application/json"), "{request:?}");
    }
    let put: Value = serde_json::from_str(&seen[1].body).unwrap();
    let expected = json!({
        "identifier": "s1", "state": "0", "name": "s1", "ip": "10.0.0.1", "port": 80, "check": "enabled",
        "backend": "b",
    });
    assert_eq!(
        (seen[1].line().as_str(), put),
        ("PUT /api/LBaaS/v1/server.json/s1", expected)
    );
    assert_eq!(seen[2].line(), "DELETE /api/LBaaS/v1/server.json/s1");
}

#[tokio::test]
async fn identifiers_are_encoded_and_those_that_no_path_holds_are_not_found() {
    let server = Server::start(|_| Reply::status(204)).await;
    let engine = engine(&server.url);
    let answers = engine
        .destroy(&refs(Kind::Bind, &["", "..", ".", "a/../b?c#d é"]))
        .await;
    assert_eq!(
        answers,
        [Err(Error::NotFound), Err(Error::NotFound), Err(Error::NotFound), Ok(())]
    );
    assert_eq!(
        server.lines(),
        ["DELETE /api/LBaaS/v1/bind.json/a%2F..%2Fb%3Fc%23d%20%C3%A9"]
    );
}

#[tokio::test]
async fn statuses_become_the_errors_of_the_contract() {
    let body =
        json!({"error": {"code": 422, "message": "no good", "validation": {"port": "too big", "name": ["taken"]}}});
    let cases = [
        (Reply::status(404), Error::NotFound),
        (Reply::status(401), Error::Unauthorized),
        (Reply::status(429), Error::RateLimited(None)),
        (
            Reply::json(422, body.clone()),
            refused(422, "no good; name: [\"taken\"]; port: too big"),
        ),
        (
            Reply::json(403, json!({"error": {"message": ""}})),
            refused(403, "Forbidden"),
        ),
        (
            Reply::json(409, json!({"error": {"validation": {"a": "b"}}})),
            refused(409, "Conflict; a: b"),
        ),
        (Reply::text(400, "<html>"), refused(400, "Bad Request")),
        (
            Reply::json(500, body),
            unavailable("GET /api/LBaaS/v1/server.json/s1: HTTP 500: no good; name: [\"taken\"]; port: too big"),
        ),
        (
            Reply::status(501),
            unavailable("GET /api/LBaaS/v1/server.json/s1: HTTP 501: Not Implemented"),
        ),
        (
            Reply::status(302).header("location", "/elsewhere"),
            unavailable("GET /api/LBaaS/v1/server.json/s1: HTTP 302: Found"),
        ),
        (Reply::text(422, "cut").cut(), refused(422, "Unprocessable Entity")),
    ];
    for (reply, error) in cases {
        let server = sequence(vec![reply]).await;
        assert_eq!(get_one(&engine(&server.url)).await, Err(error));
        assert_eq!(
            server.lines(),
            ["GET /api/LBaaS/v1/server.json/s1"],
            "not tried again, nor followed"
        );
    }
}

#[tokio::test]
async fn passing_trouble_is_tried_three_times() {
    for trouble in [
        Reply::status(502),
        Reply::status(503),
        Reply::status(504),
        Reply::closed(),
        Reply::text(200, "{").cut(),
    ] {
        let server = sequence(vec![
            trouble.clone(),
            trouble.clone(),
            Reply::json(200, server_json("s1")),
        ])
        .await;
        assert_eq!(
            get_one(&engine(&server.url)).await.unwrap().identifier,
            "s1",
            "{trouble:?}"
        );
        assert_eq!(server.seen().len(), 3);
        let server = sequence(vec![trouble.clone()]).await;
        assert!(matches!(
            get_one(&engine(&server.url)).await,
            Err(Error::Unavailable(_))
        ));
        assert_eq!(server.seen().len(), 3, "{trouble:?}");
    }
    // Covers PUT, too.
    let put = AtomicUsize::new(0);
    let server = Server::start(move |seen| match seen.method.as_str() {
        "PUT" if put.fetch_add(1, SeqCst) == 0 => Reply::status(503),
        _ => Reply::json(200, server_json("s1")),
    })
    .await;
    assert_eq!(engine(&server.url).reset(&refs(Kind::Server, &["s1"])).await, [Ok(())]);
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn pauses_are_as_documented() {
    let pauses = Pauses::default();
    assert_eq!(pauses.tries, [Duration::from_millis(500), Duration::from_millis(1000)]);
    assert_eq!(pauses.tagging, Duration::from_millis(1000));
}

#[tokio::test]
async fn what_a_repeated_destruction_does_not_find_is_destroyed() {
    let gone = Err(Error::NotFound);
    let cases = [
        (vec![Reply::status(404)], gone.clone()),
        (vec![Reply::status(503), Reply::status(404)], Ok(())),
        (vec![Reply::closed(), Reply::closed(), Reply::status(404)], Ok(())),
        (
            vec![Reply::status(503), Reply::status(409)],
            Err(refused(409, "Conflict")),
        ),
        (vec![Reply::text(200, "<not json>")], Ok(())),
        (vec![Reply::text(200, "half").cut()], Ok(())),
    ];
    for (replies, expected) in cases {
        let (server, tries) = (sequence(replies.clone()).await, replies.len());
        assert_eq!(
            engine(&server.url).destroy(&refs(Kind::Backend, &["b"])).await,
            [expected],
            "{replies:?}"
        );
        assert_eq!(server.seen().len(), tries);
    }
    let server = sequence(vec![Reply::status(503), Reply::status(404)]).await;
    assert_eq!(
        get_one(&engine(&server.url)).await,
        Err(Error::NotFound),
        "only a destruction is glad of it"
    );
}

#[tokio::test]
async fn a_timeout_is_unavailable_and_not_tried_again() {
    let server = sequence(vec![Reply::status(200).after_ms(600_000)]).await;
    let settings = at_with(&server.url, |it| it.request_timeout_ms = 50);
    let (engine, counted) = engine_with(settings);
    assert_eq!(
        get_one(&engine).await,
        Err(unavailable("GET /api/LBaaS/v1/server.json/s1: no answer within 50 ms"))
    );
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json GET timeout: 1"]);
}

#[tokio::test]
async fn without_a_server_three_connections_are_tried() {
    // Bound but not listening, so that no other process gets the port meanwhile.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", unused.local_addr().unwrap());
    let (engine, counted) = engine_with(at(&url));
    let Err(Error::Unavailable(text)) = get_one(&engine).await else {
        panic!("there is no server")
    };
    assert!(
        text.starts_with("GET /api/LBaaS/v1/server.json/s1: no connection: "),
        "{text}"
    );
    assert!(text.contains("refused"), "{text}");
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json GET connection: 3"]);
    // A creation that was never sent is neither searched nor repeated; its parent's list comes first.
    let (engine, counted) = engine_with(at_with(&engine.engine.base, |it| it.adopt_orphans = false));
    assert!(matches!(
        engine.create(&[backend("b")], &[]).await.remove(0),
        Err(Error::Unavailable(_))
    ));
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/backend.json POST connection: 1"]);
}

#[tokio::test]
async fn an_answer_that_is_no_json_is_unavailable() {
    let server = sequence(vec![Reply::text(200, "<html>")]).await;
    let Err(Error::Unavailable(text)) = get_one(&engine(&server.url)).await else {
        panic!("that is no JSON")
    };
    assert!(
        text.starts_with("GET /api/LBaaS/v1/server.json/s1: the answer is no JSON: "),
        "{text}"
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let server = sequence(vec![Reply::text(200, &" ".repeat(64 * 1024 * 1024 + 1))]).await;
    let Err(Error::Unavailable(text)) = get_one(&engine(&server.url)).await else {
        panic!("too long")
    };
    assert_eq!(
        text,
        "GET /api/LBaaS/v1/server.json/s1: the answer is longer than 67108864 bytes"
    );
}

#[tokio::test]
async fn the_load_balancer_answers_its_state() {
    let state = json!({"identifier": "lb", "name": "x", "ip_address": "192.0.2.1", "state": {"id": "0", "type": 1}});
    let server = Server::start(move |seen| match seen.path() {
        "/api/LBaaS/v1/loadbalancer.json/lb" => Reply::json(200, state.clone()),
        _ => Reply::status(404),
    })
    .await;
    let engine = engine(&server.url);
    assert_eq!(engine.load_balancer("lb").await, Ok(State::Updating));
    assert_eq!(engine.load_balancer("other").await, Err(Error::NotFound));
}

#[tokio::test]
async fn a_reset_sends_what_is_there() {
    let existing = json!({
        "identifier": "x", "customer_identifier": "c", "name": "v4.https", "address": "192.0.2.1", "port": 443,
        "ssl": true,
        "ssl_certificate_path": "/a.pem", "frontend": {"identifier": "f", "name": "f"}, "state": {"id": "2", "type": 0},
    });
    let server = Server::start(move |_| Reply::json(200, existing.clone())).await;
    assert_eq!(engine(&server.url).reset(&refs(Kind::Bind, &["x"])).await, [Ok(())]);
    let put: Value = serde_json::from_str(&server.seen()[1].body).unwrap();
    let expected = json!({
        "identifier": "x", "state": "0", "name": "v4.https", "address": "192.0.2.1", "port": 443, "ssl": true,
        "ssl_certificate_path": "/a.pem", "frontend": "f",
    });
    assert_eq!(put, expected);
    let server = Server::start(|_| Reply::status(404)).await;
    assert_eq!(
        engine(&server.url).reset(&refs(Kind::Bind, &["x"])).await,
        [Err(Error::NotFound)]
    );
}

#[tokio::test]
async fn taggings_are_tried_again_on_conflict_alone() {
    let cases = [
        (vec![200], Ok(())),
        (vec![409, 409, 204], Ok(())),
        (vec![409, 409, 409], Err(refused(409, "Conflict"))),
        (
            vec![503],
            Err(unavailable(
                "POST /api/core/v1/resource.json/r1/tags/anxccm-svc-uid%3Du-1: HTTP 503: Service Unavailable",
            )),
        ),
    ];
    for (statuses, expected) in cases {
        let server = sequence(statuses.iter().map(|&status| Reply::text(status, "ignored")).collect()).await;
        let call = engine(&server.url).call();
        assert_eq!(call.tag("r1", TAG).await.map_err(Error::from), expected);
        let seen = server.seen();
        assert_eq!(seen.len(), statuses.len());
        assert_eq!(
            seen[0].line(),
            "POST /api/core/v1/resource.json/r1/tags/anxccm-svc-uid%3Du-1"
        );
        assert_eq!(seen[0].body, "\"\"");
    }
    for (status, expected) in [(200, Ok(())), (404, Ok(())), (403, Err(refused(403, "Forbidden")))] {
        let server = sequence(vec![Reply::status(status)]).await;
        assert_eq!(engine(&server.url).untag("r1", TAG).await, expected);
        assert_eq!(
            server.lines(),
            ["DELETE /api/core/v1/resource.json/r1/tags/anxccm-svc-uid%3Du-1"]
        );
    }
}

#[tokio::test]
async fn metrics_name_paths_without_identifiers() {
    let server = Server::start(|seen| match seen.line().as_str() {
        "GET /api/LBaaS/v1/server.json/s1" => Reply::json(200, server_json("s1")),
        _ => Reply::status(404),
    })
    .await;
    let (engine, counted) = engine_with(at(&server.url));
    engine.get(&refs(Kind::Server, &["s1", "s2", "s3"])).await;
    engine.load_balancer("lb").await.unwrap_err();
    engine.list_tagged("some tag").await.unwrap_err();
    engine.untag("s1", "some tag").await.unwrap();
    let expected = [
        "/api/LBaaS/v1/loadbalancer.json GET 404: 1",
        "/api/LBaaS/v1/server.json GET 200: 1",
        "/api/LBaaS/v1/server.json GET 404: 2",
        "/api/core/v1/resource.json GET 404: 1",
        "/api/core/v1/resource.json/tags DELETE 404: 1",
    ];
    assert_eq!(counted.lines(), expected);
    assert_eq!(counted.in_flight.lock().unwrap().0, 0);
}

#[tokio::test]
async fn after_a_refusal_the_new_token_of_the_file_is_used_and_none_is_shown() {
    const NEW: &str = "n3w-secret-token";
    let (log, _kept) = Log::keep();
    let server = Server::start(|seen| match (seen.header("authorization"), seen.method.as_str()) {
        (Some(token), "GET") if token.ends_with(NEW) => Reply::json(200, server_json("s1")),
        (Some(token), _) if token.ends_with(NEW) => {
            Reply::json(400, json!({"error": {"message": format!("{TOKEN}, {NEW}")}}))
        }
        _ => Reply::status(401),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let (engine, _) = engine_with(Settings {
        url: server.url.clone(),
        token: token::TokenAt::File(file.clone()),
        ..Settings::default()
    });
    assert_eq!(get_one(&engine).await, Err(Error::Unauthorized));
    assert_eq!(server.seen().len(), 1, "the same token is not tried again");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(get_one(&engine).await, Err(Error::Unauthorized));
    std::fs::write(&file, format!("{NEW}\n")).unwrap();
    for _ in 0..2 {
        assert_eq!(get_one(&engine).await.unwrap().identifier, "s1");
    }
    assert_eq!(
        server.seen().len(),
        5,
        "once more with the new one, then only with that"
    );
    let destroyed = engine.destroy(&refs(Kind::Server, &["s1"])).await;
    assert_eq!(destroyed, [Err(refused(400, "***, ***"))]);
    let shown = log.lines().join("\n");
    assert!(shown.contains("can't read the Engine's token") && shown.contains("carry the new one"));
    assert!(!shown.contains(TOKEN) && !shown.contains(NEW), "{shown}");
}

#[tokio::test]
async fn the_token_gets_out_nowhere() {
    let (log, _kept) = Log::keep();
    let echo = json!({"error": {"message": format!("bad header: Token {TOKEN}"), "validation": {TOKEN: [TOKEN]}}});
    let foreign = json!([{"identifier": "x", "resource_type": {"identifier": "y", "name": TOKEN}}]);
    let odd = json!({"identifier": "x", "mode": TOKEN});
    let server = Server::start(move |seen| match (seen.method.as_str(), seen.path()) {
        ("GET", "/api/core/v1/resource.json") => Reply::json(200, foreign.clone()),
        ("GET", "/api/LBaaS/v1/backend.json/odd") => Reply::json(200, odd.clone()),
        ("GET", "/api/LBaaS/v1/backend.json/gone") => Reply::json(503, echo.clone()),
        ("POST", "/api/LBaaS/v1/backend.json") => Reply::json(200, json!({"identifier": "x", "mode": "tcp"})),
        _ => Reply::json(400, echo.clone()),
    })
    .await;
    let (engine, _) = engine_with(at_with(&server.url, |it| it.adopt_orphans = false));
    let answers = [
        format!(
            "{:?}",
            engine.get(&refs(Kind::Backend, &["odd", "gone", "other"])).await
        ),
        format!("{:?}", engine.create(&[backend("b")], &tags()).await),
        format!("{:?}", engine.list_tagged("t").await),
        format!("{:?}", engine.engine.token),
        log.lines().join("\n"),
    ];
    for answer in answers {
        assert!(!answer.contains(TOKEN), "{answer}");
        assert!(answer.contains("***") || answer == "Ok([])", "{answer}");
    }
    let lines = log.lines();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("INFO") && line.contains("left out of the list")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("ERROR") && line.contains("identifier=\"x\"")),
        "{lines:?}"
    );
}
