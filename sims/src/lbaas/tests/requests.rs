//! The answers of the Engine's own paths.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{BACKENDS, BALANCERS, BINDS, FRONTENDS, RESOURCES, SERVERS, Sim, backend, server, text};
use crate::lbaas::ServerConfig;

#[tokio::test]
async fn objects_are_created_read_changed_and_destroyed() {
    let sim = Sim::start(json!({})).await;
    let backend_id = sim.create(BACKENDS, backend("http.web")).await;
    assert!(backend_id.len() == 32 && backend_id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    let frontend = json!({"name": "http.web", "mode": "tcp", "load_balancer": "lb-1", "default_backend": backend_id});
    let frontend_id = sim.create(FRONTENDS, frontend.clone()).await;
    let bind =
        json!({"name": "v4.http.web", "address": "203.0.113.10", "port": 80, "ssl": false, "frontend": frontend_id});
    let bind_id = sim.create(BINDS, bind).await;
    let server_id = sim.create(SERVERS, server("node-1.http.web", &backend_id)).await;

    let deployed = json!({"id": "3", "text": "Deployed", "title": "Deployed", "type": 1});
    assert_eq!(
        sim.get(&format!("{FRONTENDS}/{frontend_id}")).await,
        json!({
            "identifier": frontend_id, "name": "http.web", "mode": "tcp", "state": deployed,
            "load_balancer": {"identifier": "lb-1", "name": "lb-1"},
            "default_backend": {"identifier": backend_id, "name": "http.web"},
            "customer_identifier": "simulated-customer", "reseller_identifier": "simulated-reseller",
            "automation_rules": [],
        })
    );
    let balancer = sim.get(&format!("{BALANCERS}/lb-1")).await;
    assert_eq!((&balancer["name"], &balancer["state"]), (&json!("lb-1"), &deployed));
    assert_eq!(balancer["ip_address"], "203.0.113.1");

    // A frontend may have no default backend: null or absent.
    let mut without = frontend;
    without["default_backend"] = Value::Null;
    without["identifier"] = json!(frontend_id);
    without["state"] = json!("0");
    let changed = sim.put(&format!("{FRONTENDS}/{frontend_id}"), &without).await;
    assert_eq!(changed["default_backend"], Value::Null);

    for (path, identifier, status) in [
        (FRONTENDS, &frontend_id, 409),
        (BACKENDS, &backend_id, 409),
        (SERVERS, &server_id, 200),
        (BACKENDS, &backend_id, 200),
        (BINDS, &bind_id, 200),
        (FRONTENDS, &frontend_id, 200),
        (FRONTENDS, &frontend_id, 404),
    ] {
        let (answered, body) = sim.ask(Method::DELETE, &format!("{path}/{identifier}"), None).await;
        assert_eq!(answered, status, "DELETE {path}: {body}");
    }
    assert_eq!(sim.get("/state").await["objects"], json!([]));
}

async fn check_refused(sim: &Sim, method: &str, path: &str, body: Option<Value>, status: u16, validation: Value) {
    let (answered, answer) = sim.ask(method.parse().unwrap(), path, body.as_ref()).await;
    assert_eq!(answered, status, "{method} {path} {body:?}: {answer}");
    assert_eq!(answer["error"]["code"], status, "{method} {path}: {answer}");
    assert!(!text(&answer, "/error/message").is_empty());
    assert_eq!(answer["error"]["validation"], validation, "{method} {path}: {answer}");
}

#[tokio::test]
async fn what_can_t_be_done_is_refused_with_a_reason() {
    let sim = Sim::start(json!({})).await;
    let backend_id = sim.create(BACKENDS, backend("b")).await;
    let one = format!("{BACKENDS}/{backend_id}");
    let tag = format!("{RESOURCES}/{backend_id}/tags/t");
    let before = sim.get("/state").await;
    let with = |change: Value| {
        let mut body = backend("b");
        body.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        body
    };
    let none = format!("{BACKENDS}/none");
    for (method, path, body, status) in [
        ("GET", "/api/LBaaS/v1/rule.json", None, 404),
        ("GET", "/elsewhere", None, 404),
        ("GET", &format!("{SERVERS}/{backend_id}"), None, 404),
        ("GET", &format!("{RESOURCES}/none"), None, 404),
        ("PUT", &none, Some(backend("b")), 404),
        ("PATCH", &one, Some(backend("b")), 405),
        ("DELETE", BACKENDS, None, 405),
        ("DELETE", &format!("{BALANCERS}/lb-1"), None, 405),
        ("POST", BALANCERS, Some(json!({"name": "lb"})), 405),
        ("POST", RESOURCES, Some(json!({})), 405),
        ("GET", &tag, None, 405),
        ("POST", BACKENDS, Some(json!([])), 400),
        ("POST", BACKENDS, None, 415),
        ("POST", &tag, Some(json!(null)), 400),
        ("POST", &tag, Some(json!({})), 400),
        ("POST", &tag, None, 415),
        ("DELETE", &tag, None, 404),
        ("POST", &format!("{RESOURCES}/none/tags/t"), Some(json!("")), 404),
        ("GET", &format!("{RESOURCES}?tag_name=t"), None, 422),
        ("GET", &format!("{BACKENDS}?page=0"), None, 400),
        ("GET", &format!("{BACKENDS}?page=x"), None, 400),
        ("GET", &format!("{BACKENDS}?page=1&page=1"), None, 400),
        ("GET", &format!("{BACKENDS}?limit=1001"), None, 400),
        ("GET", &format!("{BACKENDS}?tag_name=t"), None, 400),
        ("GET", &format!("{BACKENDS}?filters=backend%3Dx"), None, 400),
        ("GET", &format!("{RESOURCES}?filters=mode%3Dtcp"), None, 400),
    ] {
        check_refused(&sim, method, path, body, status, json!(null)).await;
    }
    let absent = "must be absent when creating";
    for (body, validation) in [
        (with(json!({"state": "0"})), json!({"state": absent})),
        (with(json!({"identifier": "x"})), json!({"identifier": absent})),
        (
            with(json!({"mode": "udp"})),
            json!({"mode": "must be \"tcp\" or \"http\""}),
        ),
        (with(json!({"name": ""})), json!({"name": "must not be empty"})),
        (with(json!({"nmae": "b"})), json!({"nmae": "unknown field"})),
        (
            with(json!({"load_balancer": null})),
            json!({"load_balancer": "must be there"}),
        ),
        (
            with(json!({"server_timeout": "5"})),
            json!({"server_timeout": "must be a number"}),
        ),
        (
            with(json!({"load_balancer": backend_id})),
            json!({"load_balancer": "unknown reference"}),
        ),
    ] {
        check_refused(&sim, "POST", BACKENDS, Some(body), 422, validation).await;
    }
    for (body, validation) in [
        (
            with(json!({"state": 0})),
            json!({"state": "must be the id of a state, as text"}),
        ),
        (
            with(json!({"identifier": "x"})),
            json!({"identifier": "must be the one in the path"}),
        ),
        (
            json!({"name": "b", "mode": "tcp"}),
            json!({"load_balancer": "must be there"}),
        ),
    ] {
        check_refused(&sim, "PUT", &one, Some(body), 422, validation).await;
    }
    let bind = json!({"name": 7, "port": 65536, "ssl": "false", "frontend": "none"});
    let validation = json!({
        "name": "must be text", "address": "must be there", "port": "must be a number from 1 to 65535",
        "ssl": "must be true or false", "frontend": "unknown reference",
    });
    check_refused(&sim, "POST", BINDS, Some(bind), 422, validation).await;
    let broken = sim
        .client
        .post(sim.url(BACKENDS))
        .header("Authorization", "Token simulated")
        .header("Content-Type", "application/json; charset=utf-8")
        .body("{\"name\":");
    assert_eq!(broken.send().await.unwrap().status(), 400);
    let not_allowed = sim.send(Method::PATCH, &one, None).await.unwrap();
    assert_eq!(not_allowed.status(), 405);

    assert_eq!(sim.get("/state").await, before, "what was refused changed nothing");
}

#[tokio::test]
async fn nothing_is_answered_without_the_token() {
    let sim = Sim::start(json!({"token": "s3cret"})).await;
    for (authorization, status) in [
        (None, 401),
        (Some("Token simulated"), 401),
        (Some("Bearer s3cret"), 401),
        (Some("Token s3cret"), 200),
    ] {
        let request = sim.client.get(sim.url(BACKENDS));
        let request = authorization
            .into_iter()
            .fold(request, |request, value| request.header("Authorization", value));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{authorization:?}");
    }
    let config: ServerConfig = serde_json::from_value(json!({"token": "s3cret"})).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let sim = Sim::start(json!({"load_balancers": ["lb-1", "lb-2"]})).await;
    for (name, mode, balancer) in [
        ("a", "tcp", "lb-1"),
        ("b", "http", "lb-1"),
        ("c", "tcp", "lb-2"),
        ("d", "tcp", "lb-1"),
    ] {
        let body = json!({"name": name, "mode": mode, "load_balancer": balancer});
        sim.create(BACKENDS, body).await;
    }
    let sorted = async |query: &str| {
        let mut names = sim.names(&format!("{BACKENDS}{query}")).await;
        names.sort();
        names.concat()
    };
    for (query, names) in [
        ("", "abcd"),
        ("?filters=load_balancer%3Dlb-1", "abd"),
        ("?filters=load_balancer%3Dlb-1%26mode%3Dtcp&page=1&limit=100", "ad"),
        ("?filters=mode%3Dhttp", "b"),
        ("?filters=load_balancer%3Dnone", ""),
        ("?filters=", "abcd"),
        ("?page=9", ""),
    ] {
        assert_eq!(sorted(query).await, names, "{query}");
    }

    let mut seen = Vec::new();
    for (page, entries) in [(1, 3), (2, 1), (3, 0)] {
        let body = sim.get(&format!("{BACKENDS}?page={page}&limit=3")).await;
        assert_eq!((&body["state"], &body["messages"]), (&json!("success"), &json!([])));
        let envelope =
            json!({"page": page, "total_pages": 2, "total_items": 4, "limit": 3, "data": body["data"]["data"]});
        assert_eq!(body["data"], envelope);
        let page = body["data"]["data"].as_array().unwrap();
        assert_eq!(page.len(), entries);
        for entry in page {
            assert_eq!(
                entry.as_object().unwrap().keys().collect::<Vec<_>>(),
                ["identifier", "name"]
            );
            seen.push(text(entry, "/identifier"));
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);

    assert_eq!(sim.get(BACKENDS).await["data"]["limit"], 10);
    assert_eq!(sim.get(SERVERS).await["data"]["total_pages"], 0);
    assert_eq!(sim.names(BALANCERS).await, ["lb-1", "lb-2"]);
    assert_eq!(sim.get(&format!("{BALANCERS}/lb-2")).await["state"]["id"], "3");
    assert_eq!(sim.get(RESOURCES).await["data"]["total_items"], 6);
}

#[tokio::test]
async fn resources_are_found_by_their_tags() {
    let sim = Sim::start(json!({})).await;
    let backend_id = sim.create(BACKENDS, backend("b")).await;
    let server_id = sim.create(SERVERS, server("s", &backend_id)).await;
    let tag = "anxccm-svc-uid%3Da%2Fb";
    assert_eq!(sim.tag(&backend_id, tag).await, 200);
    assert_eq!(sim.tag(&backend_id, tag).await, 422, "already tagged");
    assert_eq!(sim.tag(&server_id, tag).await, 200);
    assert_eq!(sim.tag("lb-1", tag).await, 200, "resources of any type have tags");

    let found = sim.get(&format!("{RESOURCES}?tag_name={tag}&page=1&limit=100")).await;
    let find = |identifier: &str| {
        let entries = found["data"]["data"].as_array().unwrap();
        entries
            .iter()
            .find(|entry| entry["identifier"] == identifier)
            .unwrap()
            .clone()
    };
    assert_eq!(found["data"]["total_items"], 3);
    let backend_type = json!({"identifier": "33164a3066a04a52be43c607f0c5dd8c", "name": "LBaaS / Backend"});
    assert_eq!(
        find(&backend_id),
        json!({"identifier": backend_id, "name": "b", "resource_type": backend_type})
    );
    assert_eq!(
        find(&server_id)["resource_type"]["identifier"],
        "01f321a4875446409d7d8469503a905f"
    );

    let backend_tags = sim.tags(&backend_id).await;
    assert_eq!(backend_tags[0]["name"], "anxccm-svc-uid=a/b");
    assert_eq!(
        sim.tags(&server_id).await,
        backend_tags,
        "a tag is one object for all resources"
    );

    assert_eq!(
        sim.ask(Method::DELETE, &format!("{RESOURCES}/{server_id}/tags/{tag}"), None)
            .await,
        (204, Value::Null)
    );
    assert_eq!(
        sim.ask(Method::DELETE, &format!("{RESOURCES}/{server_id}/tags/{tag}"), None)
            .await
            .0,
        404
    );
    assert_eq!(
        sim.ask(Method::DELETE, &format!("{SERVERS}/{server_id}"), None).await.0,
        200
    );
    assert_eq!(
        sim.ask(Method::DELETE, &format!("{BACKENDS}/{backend_id}"), None)
            .await
            .0,
        200
    );
    assert_eq!(sim.names(&format!("{RESOURCES}?tag_name={tag}")).await, ["lb-1"]);

    let sim = Sim::start(json!({"resource_type_in_lists": false})).await;
    let backend_id = sim.create(BACKENDS, backend("b")).await;
    sim.tag(&backend_id, "t").await;
    let found = sim.get(&format!("{RESOURCES}?tag_name=t")).await;
    assert_eq!(found["data"]["data"], json!([{"identifier": backend_id, "name": "b"}]));
    assert_eq!(
        sim.get(&format!("{RESOURCES}/{backend_id}")).await["resource_type"],
        backend_type
    );
}
