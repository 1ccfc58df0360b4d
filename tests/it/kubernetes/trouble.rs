//! The faults that a test can inject into the API server, as a client sees them: each has exactly its effect.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Caller, RUNTIME, node};
use support::api_server::{ADMIN, ApiServer, Asked, Fault};

const NODES: &str = "/api/v1/nodes";

/// Sends a request whose answer may be lost.
fn lost(caller: &Caller<'_>, method: Method, body: Option<Value>) -> bool {
    RUNTIME.block_on(async { caller.send(method, NODES, "application/json", body).await.is_err() })
}

#[test]
fn a_cut_watch_breaks_off_and_others_go_on() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let mut watch = caller.watch(&format!("{NODES}?watch=1"));
    server.apply(node("one")).unwrap();
    assert_eq!(watch.told().1, "one");
    server.cut_watches();
    assert!(watch.next().is_err(), "a watch that is cut has no end");
    assert_eq!(caller.get(NODES).0, 200);
}

#[test]
fn a_server_that_is_away_refuses_and_comes_back_with_all_it_had() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let mut watch = caller.watch(&format!("{NODES}?watch=1&resourceVersion={}", server.version()));
    for name in ["one", "two"] {
        server.go_away();
        assert!(watch.next().is_err());
        assert!(lost(&caller, Method::GET, None));
        server.apply(node(name)).unwrap();
        server.come_back();
        watch = caller.watch(&format!("{NODES}?watch=1&resourceVersion={}", server.version() - 1));
        assert_eq!(watch.told().1, name);
    }
}

#[test]
fn faults_meet_the_requests_they_are_made_for() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let busy = Fault::Refused {
        code: 429,
        retry_after_s: Some(3),
    };
    server.fault(|asked| asked.is("list", "nodes") && asked.user == "a", busy, Some(1));
    let answer = RUNTIME.block_on(async { caller.send(Method::GET, NODES, "application/json", None).await.unwrap() });
    assert_eq!(
        (
            answer.status().as_u16(),
            answer.headers()["retry-after"].to_str().unwrap()
        ),
        (429, "3")
    );
    assert_eq!(caller.get(NODES).0, 200);

    server.fault(|asked| asked.is("create", "nodes"), Fault::Lost, Some(1));
    assert!(lost(&caller, Method::POST, Some(node("one"))));
    assert_eq!(server.get("nodes", "", "one"), None);
    server.fault(|asked| asked.is("create", "nodes"), Fault::AnswerLost, Some(1));
    assert!(lost(&caller, Method::POST, Some(node("one"))));
    assert!(server.get("nodes", "", "one").is_some());

    let delay = Duration::from_millis(50);
    let late = server.fault(|_| true, Fault::AnsweredLate(delay), None);
    let begun = Instant::now();
    assert_eq!(caller.get("/api/v1/nodes/one").0, 200);
    assert!(begun.elapsed() >= delay);
    server.heal(late);

    let seen: Vec<_> = server
        .requests()
        .into_iter()
        .map(|request| (request.asked.verb, request.status))
        .collect();
    let seen: Vec<_> = seen.iter().map(|(verb, status)| (verb.as_str(), *status)).collect();
    assert_eq!(
        seen,
        [("list", 429), ("list", 200), ("create", 0), ("create", 0), ("get", 200)]
    );
}

#[test]
fn what_comes_late_is_done_though_the_caller_went_away() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let (arrived, arrives) = tokio::sync::watch::channel(false);
    let is_creation = move |asked: &Asked| asked.verb == "create" && !arrived.send_replace(true);
    server.fault(is_creation, Fault::Late(Duration::from_millis(200)), None);
    RUNTIME.block_on(async {
        let mut arrives = arrives;
        tokio::select! {
            biased;
            arrived = arrives.changed() => arrived.unwrap(),
            sent = caller.send(Method::POST, NODES, "application/json", Some(node("one"))) => panic!("not late: {sent:?}"),
        }
    });
    let begun = Instant::now();
    while server.get("nodes", "", "one").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not done");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn tokens_name_users_and_roles_say_what_they_may() {
    let server = ApiServer::start();
    server.kubeconfig("trueup", "its-token");
    server.refuse_unknown_tokens(true);
    let stranger = Caller::new(&server, "an-unknown-token");
    assert_eq!(stranger.get(NODES).1["message"], "Unauthorized");
    server.refuse_unknown_tokens(false);
    server.enforce_rbac(true);
    let (trueup, admin) = (
        Caller::new(&server, "its-token"),
        Caller {
            server: &server,
            user: ADMIN,
        },
    );
    let (code, status) = trueup.get(NODES);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "nodes is forbidden: User \"trueup\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }]);
    let role = json!({ "metadata": { "name": "reader" }, "rules": rules });
    let binding = json!({
        "metadata": { "name": "reader" }, "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "kind": "User", "name": "trueup" }],
    });
    assert_eq!(admin.post(&format!("/apis/{group}/v1/clusterroles"), role).0, 201);
    assert_eq!(
        admin.post(&format!("/apis/{group}/v1/clusterrolebindings"), binding).0,
        201
    );
    assert_eq!((trueup.get(NODES).0, trueup.get("/api/v1/nodes/x").0), (200, 403));
    let may = trueup.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        json!({ "spec": { "resourceAttributes": { "verb": "delete", "resource": "nodes" } } }),
    );
    assert_eq!(may.1["status"]["allowed"], false);
}

#[test]
fn watches_that_are_cut_and_expire_under_load_miss_nothing() {
    const CHANGES: usize = 3000;
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..CHANGES {
                let mut changed = node(&format!("node-{}", turn % 50));
                changed["metadata"]["labels"] = json!({ "turn": turn.to_string() });
                server.apply(changed).unwrap();
                if turn % 7 == 0 {
                    server.delete("nodes", "", &format!("node-{}", turn % 50)).unwrap();
                }
                match turn % 300 {
                    150 => server.cut_watches(),
                    299 => server.expire(),
                    _ => {}
                }
            }
            server.apply(node("the-last")).unwrap();
        });
        while !held.contains_key("the-last") {
            let (_, list) = caller.get(NODES);
            let mut version = text(&list["metadata"]["resourceVersion"]);
            let items = list["items"].as_array().unwrap();
            held = items
                .iter()
                .map(|node| {
                    (
                        text(&node["metadata"]["name"]),
                        text(&node["metadata"]["labels"]["turn"]),
                    )
                })
                .collect();
            'listed: while !held.contains_key("the-last") {
                let Ok(mut watch) = caller.try_watch(&format!("{NODES}?watch=1&resourceVersion={version}")) else {
                    continue;
                };
                while let Ok(Some(event)) = watch.next() {
                    let meta = &event["object"]["metadata"];
                    let name = text(&meta["name"]);
                    match event["type"].as_str() {
                        Some("ADDED" | "MODIFIED") => _ = held.insert(name, text(&meta["labels"]["turn"])),
                        Some("DELETED") => _ = held.remove(&name),
                        _ => break 'listed,
                    }
                    version = text(&meta["resourceVersion"]);
                    if held.contains_key("the-last") {
                        break;
                    }
                }
            }
        }
    });
    let there: BTreeMap<String, String> = server
        .list("nodes")
        .iter()
        .map(|node| {
            (
                text(&node["metadata"]["name"]),
                text(&node["metadata"]["labels"]["turn"]),
            )
        })
        .collect();
    assert_eq!(held, there);
}
