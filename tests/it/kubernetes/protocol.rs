//! The wire protocol: lists in pages, watches with bookmarks, versions that are too old, conflicts, status.
//!
//! Uses kube's requests, over plain HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Caller, node};
use support::api_server::ApiServer;

const NODES: &str = "/api/v1/nodes";

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn a_watch_goes_on_from_where_the_list_was() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    server.apply(node("one")).unwrap();
    let (_, list) = caller.get(NODES);
    assert_eq!((names(&list), &list["kind"]), (vec!["one"], &json!("NodeList")));
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    server.apply(node("two")).unwrap();
    let mut watch = caller.watch(&format!("{NODES}?watch=1&resourceVersion={version}"));
    let (what, name, added) = watch.told();
    assert_eq!((what.as_str(), name.as_str()), ("ADDED", "two"));
    assert!(added > version.parse().unwrap());
    server.delete("nodes", "", "one").unwrap();
    let (what, name, deleted) = watch.told();
    assert_eq!((what.as_str(), name.as_str()), ("DELETED", "one"));
    assert!(deleted > added, "an object that is gone has the version of its end");
}

#[test]
fn a_watch_without_a_version_begins_with_what_is_there() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    server.apply(node("one")).unwrap();
    let mut watch = caller.watch(&format!("{NODES}?watch=true"));
    assert_eq!(watch.told().0, "ADDED");
    server.bookmarks_every(Duration::from_millis(1));
    let parameters = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = caller.watch(&format!("{NODES}?{parameters}"));
    assert_eq!(watch.told().0, "ADDED");
    let end = watch.next().unwrap().unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    server.streaming_lists(false);
    let (code, status) = caller.get(&format!("{NODES}?{parameters}"));
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

#[test]
fn bookmarks_tell_the_version_of_changes_that_were_for_others() {
    let server = ApiServer::start();
    server.bookmarks_every(Duration::from_millis(1));
    let caller = Caller::new(&server, "a");
    let mut watch = caller.watch(&format!(
        "{NODES}?watch=1&allowWatchBookmarks=true&resourceVersion={}",
        server.version()
    ));
    server
        .apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "other" } }))
        .unwrap();
    let newest = server.version();
    loop {
        let (what, name, version) = watch.told();
        assert_eq!((what.as_str(), name.as_str()), ("BOOKMARK", ""));
        if version == newest {
            break;
        }
    }
}

#[test]
fn a_watch_ends_with_its_time() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let mut watch = caller.watch(&format!(
        "{NODES}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=1"
    ));
    assert_eq!(watch.told().0, "BOOKMARK");
    assert_eq!(watch.next().unwrap(), None);
}

#[test]
fn a_watch_by_label_sees_objects_come_and_go_with_their_labels() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let labelled = |value: Value| {
        let mut node = node("one");
        node["metadata"]["labels"] = json!({ "zone": value });
        node
    };
    server.apply(labelled(json!("b"))).unwrap();
    let mut watch = caller.watch(&format!(
        "{NODES}?watch=1&labelSelector=zone%3Da&resourceVersion={}",
        server.version()
    ));
    server.apply(labelled(json!("a"))).unwrap();
    assert_eq!(watch.told().0, "ADDED");
    server.apply(labelled(json!("c"))).unwrap();
    assert_eq!(watch.told().0, "DELETED");
    let (_, list) = caller.get(&format!(
        "{NODES}?labelSelector=zone+notin+(a,b),zone&fieldSelector=metadata.name!=two"
    ));
    assert_eq!(names(&list), ["one"]);
    let (code, status) = caller.get(&format!("{NODES}?fieldSelector=spec.colour=red"));
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("field label not supported: spec.colour"))
    );
}

#[test]
fn what_is_forgotten_is_gone_in_an_event_or_by_status() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let before = server.version();
    let path = format!("{NODES}?watch=1&resourceVersion={before}");
    let mut open = caller.watch(&path);
    server.expire();
    for watch in [&mut open, &mut caller.watch(&path)] {
        let event = watch.next().unwrap().unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&json!("ERROR"), &json!(410))
        );
        assert_eq!(event["object"]["reason"], "Expired");
        assert_eq!(watch.next().unwrap(), None);
    }
    server.gone_as_status(true);
    let (code, status) = caller.get(&path);
    assert_eq!(code, 410);
    let text = format!("too old resource version: {before} ({})", server.version());
    assert_eq!(status["message"].as_str(), Some(text.as_str()));
    let (code, _) = caller.get(&format!("{NODES}?resourceVersion={before}&resourceVersionMatch=Exact"));
    assert_eq!(code, 410);
    let (code, status) = caller.get(&format!("{NODES}?resourceVersion={}", before + 1000));
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (504, &json!("ResourceVersionTooLarge"))
    );
}

#[test]
fn pages_show_what_was_there_when_the_first_was_made() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    for name in ["a", "c", "e", "g"] {
        server.apply(node(name)).unwrap();
    }
    let (_, first) = caller.get(&format!("{NODES}?limit=2"));
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["a", "c"], &json!(2))
    );
    server.apply(node("d")).unwrap();
    server.delete("nodes", "", "g").unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, second) = caller.get(&format!("{NODES}?limit=2&continue={token}"));
    assert_eq!(names(&second), ["e", "g"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert_eq!(second["metadata"]["continue"], Value::Null);

    server.expire();
    let (code, status) = caller.get(&format!("{NODES}?limit=2&continue={token}"));
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = caller.get(&format!("{NODES}?limit=2&continue={token}"));
    assert_eq!(names(&rest), ["d", "e"]);
}

#[test]
fn a_version_that_is_named_must_be_the_one_that_is_there() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let path = format!("{NODES}/one");
    let (code, old) = caller.post(NODES, node("one"));
    assert_eq!(code, 201);
    assert_eq!(
        caller.merge(&path, json!({ "metadata": { "labels": { "a": "1" } } })).0,
        200
    );
    let stale = &old["metadata"]["resourceVersion"];
    let (code, status) = caller.put(&path, old.clone());
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on nodes \"one\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    let patch = json!({ "metadata": { "resourceVersion": stale, "labels": { "a": "2" } } });
    assert_eq!(caller.merge(&path, patch).0, 409);
    assert_eq!(
        caller
            .delete(&path, json!({ "preconditions": { "resourceVersion": stale } }))
            .0,
        409
    );
    assert_eq!(
        caller.delete(&path, json!({ "preconditions": { "uid": "another" } })).0,
        409
    );
    let before = server.version();
    let (code, same) = caller.merge(&path, json!({ "metadata": { "labels": { "a": "1" } } }));
    assert_eq!(
        (code, server.version()),
        (200, before),
        "a patch that changes nothing is no change"
    );
    let (code, status) = caller.delete(&path, json!({ "preconditions": { "uid": same["metadata"]["uid"] } }));
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(caller.get(&path).1["message"], "nodes \"one\" not found");
}

#[test]
fn a_lease_is_taken_by_one_of_two() {
    let server = ApiServer::start();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = |holder: &str, version: &Value| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "trueup", "resourceVersion": version },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-05-10T12:00:00.000001Z" },
        })
    };
    let (one, two) = (Caller::new(&server, "one"), Caller::new(&server, "two"));
    assert_eq!(one.post(leases, lease("one", &Value::Null)).0, 201);
    assert_eq!(two.post(leases, lease("two", &Value::Null)).0, 409);
    let path = format!("{leases}/trueup");
    let version = two.get(&path).1["metadata"]["resourceVersion"].clone();
    assert_eq!(two.put(&path, lease("two", &version)).0, 200);
    let (code, status) = one.put(&path, lease("one", &version));
    assert_eq!(
        (code, &status["details"]["group"]),
        (409, &json!("coordination.k8s.io"))
    );
    assert_eq!(
        one.put(&path, lease("one", &Value::Null)).0,
        422,
        "a Lease is not replaced unconditionally"
    );

    let changes = server.lease_changes("kube-system", "trueup");
    let seen: Vec<_> = changes
        .iter()
        .map(|change| (change.holder.as_str(), change.user.as_str()))
        .collect();
    assert_eq!(seen, [("one", "one"), ("two", "two")]);
    assert_eq!(
        (changes[0].renew_time.as_str(), changes[0].duration_s),
        ("2026-05-10T12:00:00.000001Z", 15)
    );
    let updates: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.asked.is("update", "leases"))
        .collect();
    assert_eq!(
        updates.iter().map(|request| request.status).collect::<Vec<_>>(),
        [200, 409, 422]
    );
}

#[test]
fn status_is_changed_at_its_own_path_and_nowhere_else() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    let services = "/api/v1/namespaces/default/services";
    let (_, created) = caller.post(services, service);
    assert_eq!(created["status"], json!({ "loadBalancer": {} }));
    let path = format!("{services}/web");
    let change = json!({
        "metadata": { "labels": { "a": "1" } }, "spec": { "sessionAffinity": "ClientIP" },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    });
    let (_, by_status) = caller.merge(&format!("{path}/status"), change.clone());
    assert_eq!(by_status["status"], change["status"]);
    assert_eq!(
        (&by_status["metadata"]["labels"], &by_status["spec"]),
        (&Value::Null, &created["spec"])
    );
    let other = json!({ "metadata": { "labels": { "a": "1" } }, "status": { "loadBalancer": { "ingress": [] } } });
    let (_, by_main) = caller.merge(&path, other);
    assert_eq!(
        (&by_main["status"], &by_main["metadata"]["labels"]),
        (&change["status"], &json!({ "a": "1" }))
    );
    let wrong = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "nowhere" }] } } });
    let (code, status) = caller.merge(&format!("{path}/status"), wrong);
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Service \"web\" is invalid: status.loadBalancer.ingress[0].ip: Invalid value: \"nowhere\": must be a valid IP address"
    );
}

#[test]
fn an_event_is_the_same_in_both_groups() {
    let server = ApiServer::start();
    let caller = Caller::new(&server, "a");
    let event = json!({
        "metadata": { "name": "e" }, "eventTime": "2026-05-10T12:00:00.000000Z", "type": "Normal", "reason": "Ready",
        "action": "Sync", "reportingController": "trueup", "reportingInstance": "one", "note": "well",
        "regarding": { "kind": "Service", "namespace": "default", "name": "web", "uid": "u" },
    });
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(caller.post(events, event).0, 201);
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-05-10T12:01:00.000000Z" } });
    assert_eq!(caller.merge(&format!("{events}/e"), series).1["note"], "well");
    let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid=u,involvedObject.name=web";
    let (_, list) = caller.get(path);
    let (old, of) = (&list["items"][0], &list["items"][0]["involvedObject"]);
    assert_eq!(
        (&old["message"], &of["name"], &old["series"]["count"]),
        (&json!("well"), &json!("web"), &json!(2))
    );
    let (code, status) = caller.post(events, json!({ "metadata": { "name": "f" }, "type": "Normal" }));
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}
