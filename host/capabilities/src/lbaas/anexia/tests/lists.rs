//! Lists by tag, their pages, and orphans.

use super::fake::Fake;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::{Api as _, Object};

const BACKEND: &str = "33164a3066a04a52be43c607f0c5dd8c";
const SERVER: &str = "01f321a4875446409d7d8469503a905f";

fn entry(identifier: &str, resource_type: &str) -> Value {
    json!({"identifier": identifier, "name": identifier, "resource_type": {"identifier": resource_type, "name": "x"}})
}

fn identifiers(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| object.identifier.as_str()).collect()
}

/// Builds a page's answer from its entries, its number and the number of pages.
type Shape = fn(&[Value], u64, u64) -> Value;

/// Serves these entries in pages of a shape, and every server in full.
async fn paged(entries: Vec<Value>, shape: Shape) -> Server {
    Server::start(move |seen| match seen.path() {
        "/api/core/v1/resource.json" => {
            let number = |name| seen.query(name).unwrap().parse::<u64>().unwrap();
            let (page, limit) = (number("page"), number("limit"));
            let pages: Vec<&[Value]> = entries.chunks(limit as usize).collect();
            let held = pages.get(page as usize - 1).copied().unwrap_or_default();
            Reply::json(200, shape(held, page, pages.len() as u64))
        }
        path => Reply::json(200, server_json(path.rsplit('/').next().unwrap())),
    })
    .await
}

#[tokio::test]
async fn all_three_shapes_of_pages_are_read_to_the_last() {
    let pages = |held: &[Value], page: u64, pages: u64| json!({"page": page, "total_pages": pages, "data": held});
    let envelope = |held: &[Value], page: u64, pages: u64| {
        let paged = json!({"page": page, "total_pages": pages, "data": held});
        json!({"state": "success", "messages": [], "data": paged})
    };
    let uncounted = |held: &[Value], page: u64, _: u64| json!({"page": page, "total_pages": 0, "data": held});
    let bare = |held: &[Value], _: u64, _: u64| json!(held);
    // (shape, entries, list requests with two per page)
    let cases: [(Shape, usize, usize); 9] = [
        (envelope, 5, 3),
        (envelope, 4, 2),
        (pages, 5, 3),
        (pages, 4, 2),
        (pages, 0, 1),
        (uncounted, 5, 3),
        (uncounted, 4, 3),
        (bare, 5, 3),
        (bare, 4, 3),
    ];
    for (shape, count, expected) in cases {
        let names: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
        let server = paged(names.iter().map(|name| entry(name, SERVER)).collect(), shape).await;
        let settings = at_with(&server.url, |it| it.page_size = 2);
        let objects = engine_with(settings).0.list_tagged(TAG).await.unwrap();
        assert_eq!(identifiers(&objects), names);
        let lists: Vec<_> = server
            .seen()
            .into_iter()
            .filter(|seen| seen.path().ends_with("resource.json"))
            .collect();
        assert_eq!(lists.len(), expected, "{count} entries");
        assert_eq!(
            lists[0].target,
            "/api/core/v1/resource.json?tag_name=anxccm-svc-uid%3Du-1&page=1&limit=2"
        );
    }
}

#[tokio::test]
async fn an_error_on_any_page_is_an_error_of_the_list() {
    for (failing, status, expected) in [
        ("1", 422, Ok(Vec::new())),
        ("2", 422, Err(refused(422, "Unprocessable Entity"))),
        ("1", 403, Err(refused(403, "Forbidden"))),
        (
            "3",
            500,
            Err(unavailable(
                "GET /api/core/v1/resource.json: HTTP 500: Internal Server Error",
            )),
        ),
    ] {
        let server = Server::start(move |seen| match (seen.path(), seen.query("page").as_deref()) {
            (_, Some(page)) if page == failing => Reply::status(status),
            (_, Some(page)) => Reply::json(200, json!([entry(&format!("s{page}"), SERVER)])),
            (path, None) => Reply::json(200, server_json(path.rsplit('/').next().unwrap())),
        })
        .await;
        let settings = at_with(&server.url, |it| it.page_size = 1);
        assert_eq!(
            engine_with(settings).0.list_tagged(TAG).await,
            expected,
            "page {failing}"
        );
    }
    let server = Server::start(|_| Reply::json(200, json!({"data": "nonsense"}))).await;
    assert!(matches!(
        engine(&server.url).list_tagged(TAG).await,
        Err(Error::Unavailable(_))
    ));
}

#[tokio::test]
async fn a_list_is_full_and_sorted_and_omits_gone_or_foreign_objects() {
    let server = Server::start(|seen| match seen.path() {
        "/api/core/v1/resource.json" => Reply::json(
            200,
            json!([
                entry("s9", SERVER), entry("s10", SERVER), entry("s10", SERVER), entry("b1", BACKEND),
                entry("gone", SERVER),
                entry("zone", "0123"), {"identifier": "untyped", "name": "x"}, {"identifier": "vanished", "name": "x"},
            ]),
        ),
        "/api/core/v1/resource.json/untyped" => Reply::json(200, entry("untyped", SERVER)),
        "/api/LBaaS/v1/backend.json/b1" => {
            Reply::json(200, json!({"identifier": "b1", "mode": "http", "load_balancer": null}))
        }
        "/api/LBaaS/v1/server.json/gone" | "/api/core/v1/resource.json/vanished" => Reply::status(404),
        path => Reply::json(200, server_json(path.rsplit('/').next().unwrap())),
    })
    .await;
    let objects = engine(&server.url).list_tagged(TAG).await.unwrap();
    assert_eq!(identifiers(&objects), ["b1", "s10", "s9", "untyped"]);
    assert_eq!(server.lines().iter().filter(|line| line.ends_with("/s10")).count(), 1);
    assert!(!server.lines().iter().any(|line| line.contains("zone")));
}

#[tokio::test]
async fn any_other_error_of_a_get_is_an_error_of_the_list() {
    for (status, expected) in [
        (403, refused(403, "Forbidden")),
        (401, Error::Unauthorized),
        (429, Error::RateLimited(None)),
    ] {
        let server = Server::start(move |seen| match seen.path() {
            "/api/core/v1/resource.json" => Reply::json(200, json!([entry("s1", SERVER), entry("s2", SERVER)])),
            "/api/LBaaS/v1/server.json/s2" => Reply::status(status),
            _ => Reply::json(200, server_json("s1")),
        })
        .await;
        assert_eq!(engine(&server.url).list_tagged(TAG).await, Err(expected));
    }
    // A resource that the contract can't express.
    let server = Server::start(|seen| match seen.path() {
        "/api/core/v1/resource.json" => Reply::json(200, json!([entry("b1", BACKEND)])),
        _ => Reply::json(200, json!({"identifier": "b1", "mode": "udp"})),
    })
    .await;
    let expected = unavailable("backend `b1`: mode: was \"udp\", must be `tcp` or `http`");
    assert_eq!(engine(&server.url).list_tagged(TAG).await, Err(expected));
    // A resource without any type: it might be ours.
    let server = Server::start(|seen| match seen.path() {
        "/api/core/v1/resource.json" => Reply::json(200, json!([{"identifier": "x"}])),
        _ => Reply::json(200, json!({"identifier": "x"})),
    })
    .await;
    assert!(matches!(
        engine(&server.url).list_tagged(TAG).await,
        Err(Error::Unavailable(_))
    ));
}

#[tokio::test]
async fn a_server_without_a_last_page_is_given_up() {
    let server = Server::start(|_| Reply::json(200, json!([entry("s1", SERVER)]))).await;
    let settings = at_with(&server.url, |it| it.page_size = 1);
    let mut engine = engine_with(settings).0;
    let pages_max = &mut Arc::get_mut(&mut engine.engine).unwrap().pages_max;
    assert_eq!(std::mem::replace(pages_max, 20), 10_000);
    let expected = unavailable("GET /api/core/v1/resource.json: the list has not ended by page 20");
    assert_eq!(engine.list_tagged(TAG).await, Err(expected));
    assert_eq!(server.seen().len(), 20);
}

#[tokio::test]
async fn orphans_are_the_children_of_no_known_service() {
    let (fake, server) = Fake::start().await;
    let backend = |lb: &str| json!({"name": "b", "mode": "tcp", "load_balancer": lb});
    let server_of = |id: &str| json!({"name": "s", "ip": "10.0.0.1", "port": 1, "check": "enabled", "backend": id});
    let bind_of = |id: &str| json!({"name": "v4", "address": "192.0.2.1", "port": 1, "ssl": false, "frontend": id});
    fake.put("backend", "b-tagged", backend("lb"), &[TAG]);
    fake.put("backend", "b-orphan", backend("lb"), &["something=else"]);
    fake.put("backend", "b-elsewhere", backend("lb2"), &[]);
    fake.put(
        "frontend",
        "f-tagged",
        json!({"name": "f", "mode": "http", "load_balancer": "lb"}),
        &["x", "anxccm-svc-uid=other"],
    );
    fake.put("bind", "v-orphan", bind_of("f-tagged"), &[]);
    fake.put("server", "s-orphan2", server_of("b-orphan"), &[]);
    fake.put("server", "s-orphan1", server_of("b-tagged"), &[]);
    fake.put("server", "s-tagged", server_of("b-tagged"), &[TAG]);
    let engine = engine(&server.url);
    let load_balancers = ["lb".to_owned(), "lb".to_owned(), "empty".to_owned()];
    let orphans = async |uids: &[&str]| {
        let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
        let orphans = engine.orphans(&load_balancers, uids).await?;
        let shown = orphans.into_iter().map(|(object, uid)| (object.identifier, uid));
        Ok(shown.collect::<Vec<_>>())
    };
    let untagged = ["b-orphan", "v-orphan", "s-orphan1", "s-orphan2"].map(|identifier| (identifier.to_owned(), None));
    assert_eq!(orphans(&["u-1", "other"]).await.unwrap(), untagged);
    assert!(server.seen().iter().all(|seen| seen.method == "GET"));
    assert_eq!(
        server
            .seen()
            .iter()
            .filter(|seen| seen.query("filters").as_deref() == Some("load_balancer=lb"))
            .count(),
        2
    );
    fake.refuse("GET /api/LBaaS/v1/server.json", 1, Reply::status(403));
    assert_eq!(orphans(&["u-1"]).await, Err(refused(403, "Forbidden")));
    let of_another = ("f-tagged".to_owned(), Some("other".to_owned()));
    assert_eq!(orphans(&["u-1"]).await.unwrap()[1], of_another);
}
