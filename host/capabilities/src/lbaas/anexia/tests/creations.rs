//! Creations: adopted, recovered, destroyed again; never left behind unseen.

use super::fake::Fake;
use super::log::Log;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::State;

const POST_BACKEND: &str = "POST /api/LBaaS/v1/backend.json";
const POST_SERVER: &str = "POST /api/LBaaS/v1/server.json";
const TAGGING: &str = "POST /api/core/v1/resource.json/";

fn backend_json(name: &str) -> Value {
    json!({"name": name, "mode": "tcp", "load_balancer": "lb", "health_check": "\"adv_check\": \"tcp-check\""})
}

fn count(server: &Server, line: &str) -> usize {
    server.lines().iter().filter(|it| it.as_str() == line).count()
}

/// The number of lists by parent that a server received.
fn lists(server: &Server) -> usize {
    server
        .seen()
        .iter()
        .filter(|seen| seen.query("filters").is_some())
        .count()
}

#[tokio::test]
async fn a_creation_is_a_post_and_one_tagging_a_tag() {
    let (fake, server) = Fake::start().await;
    let engine = engine(&server.url);
    let tags = [TAG.to_owned(), "team=net".to_owned()];
    let answers = engine
        .create(
            &[
                backend("https.web"),
                frontend("https.web", "b"),
                bind("v4.https.web", "f", "192.0.2.1"),
                server_of("n1.https.web", "b"),
            ],
            &tags,
        )
        .await;
    for (n, (answer, spec)) in answers
        .iter()
        .zip([
            backend("https.web"),
            frontend("https.web", "b"),
            bind("v4.https.web", "f", "192.0.2.1"),
            server_of("n1.https.web", "b"),
        ])
        .enumerate()
    {
        let object = answer.as_ref().unwrap();
        assert_eq!((&object.spec, object.state), (&spec, State::Pending), "{n}");
        assert_eq!(fake.tags()[&object.identifier], [TAG, "team=net"]);
    }
    let posted = |line: &str| {
        let seen = server.seen().into_iter().find(|seen| seen.line() == line).unwrap();
        serde_json::from_str::<Value>(&seen.body).unwrap()
    };
    assert_eq!(posted(POST_BACKEND), backend_json("https.web"));
    assert_eq!(
        posted("POST /api/LBaaS/v1/bind.json"),
        json!({"name": "v4.https.web", "address": "192.0.2.1", "port": 443, "ssl": false, "frontend": "f"}),
    );
    // One list for each parent and kind.
    let mut filters: Vec<String> = server
        .seen()
        .iter()
        .filter_map(|seen| Some(format!("{} {}", seen.path(), seen.query("filters")?)))
        .collect();
    filters.sort();
    let expected = [
        "/api/LBaaS/v1/backend.json load_balancer=lb",
        "/api/LBaaS/v1/bind.json frontend=f",
        "/api/LBaaS/v1/frontend.json load_balancer=lb",
        "/api/LBaaS/v1/server.json backend=b",
    ];
    assert_eq!(filters, expected);
}

#[tokio::test]
async fn an_equal_orphan_is_adopted_and_nothing_else_is() {
    let different_mode =
        json!({"name": "b", "mode": "http", "load_balancer": "lb", "health_check": "\"adv_check\": \"tcp-check\""});
    let different_check = json!({"name": "b", "mode": "tcp", "load_balancer": "lb", "health_check": ""});
    let odd = json!({"name": "b", "mode": "udp", "load_balancer": "lb"});
    // (existing object, its tags, adopted)
    let cases = [
        (backend_json("b"), vec![], true),
        (backend_json("b"), vec![TAG], true),
        (backend_json("b"), vec!["team=net"], true),
        (backend_json("b"), vec!["anxccm-svc-uid=other"], false),
        (backend_json("b"), vec!["anxccm-svc-uid=other", TAG], false),
        (backend_json("B"), vec![], false),
        (different_mode, vec![], false),
        (different_check, vec![], false),
        (odd, vec![], false),
    ];
    for (existing, existing_tags, adopted) in cases {
        let (fake, server) = Fake::start().await;
        fake.put("backend", "old", existing.clone(), &existing_tags);
        let object = create(&engine(&server.url), backend("b")).await.unwrap();
        assert_eq!(
            object.identifier,
            if adopted { "old" } else { "new1" },
            "{existing} {existing_tags:?}"
        );
        assert_eq!(count(&server, POST_BACKEND), usize::from(!adopted));
        assert!(fake.tags()[&object.identifier].contains(&TAG.to_owned()));
        if !adopted {
            assert_eq!(fake.tags()["old"], existing_tags);
        }
    }
}

#[tokio::test]
async fn adoption_compares_addresses_as_addresses() {
    for (existing, wanted, adopted) in [
        ("2001:DB8:0::1", "2001:db8::1", true),
        ("::ffff:192.0.2.1", "192.0.2.1", true),
        ("192.0.2.2", "192.0.2.1", false),
        ("any", "any", true),
        ("Any", "any", false),
    ] {
        let (fake, server) = Fake::start().await;
        fake.put(
            "bind",
            "old",
            json!({"name": "v", "frontend": "f", "address": existing, "port": 443}),
            &[],
        );
        let object = create(&engine(&server.url), bind("v", "f", wanted)).await.unwrap();
        assert_eq!(object.identifier == "old", adopted, "{existing} {wanted}");
    }
}

#[tokio::test]
async fn one_orphan_is_adopted_once() {
    let (fake, server) = Fake::start().await;
    fake.put("backend", "old", backend_json("b"), &[]);
    let answers = engine(&server.url).create(&[backend("b"), backend("b")], &tags()).await;
    let mut identifiers: Vec<String> = answers.into_iter().map(|answer| answer.unwrap().identifier).collect();
    identifiers.sort();
    assert_eq!(identifiers, ["new1", "old"]);
}

#[tokio::test]
async fn adoption_can_be_switched_off() {
    let (fake, server) = Fake::start().await;
    fake.put("backend", "old", backend_json("b"), &[]);
    let settings = at_with(&server.url, |it| it.adopt_orphans = false);
    let object = create(&engine_with(settings).0, backend("b")).await.unwrap();
    assert_eq!((object.identifier.as_str(), lists(&server)), ("new1", 0));
}

#[tokio::test]
async fn an_entry_whose_parent_cannot_be_listed_is_not_created() {
    let (fake, server) = Fake::start().await;
    fake.refuse("GET /api/LBaaS/v1/backend.json", 1, Reply::status(403));
    let answers = engine(&server.url)
        .create(&[backend("b"), server_of("s", "x")], &tags())
        .await;
    assert_eq!(answers[0], Err(refused(403, "Forbidden")));
    assert!(answers[1].is_ok());
    assert_eq!(count(&server, POST_BACKEND), 0);
}

#[tokio::test]
async fn parents_that_this_process_created_are_not_listed() {
    let (_, server) = Fake::start().await;
    let engine = engine(&server.url);
    let parent = created(&engine, backend("b")).await;
    let before = lists(&server);
    create(&engine, server_of("s1", &parent)).await.unwrap();
    assert_eq!(lists(&server), before);
    // A destroyed object leaves no memory.
    engine
        .destroy(&refs(Kind::Backend, &[&parent]))
        .await
        .remove(0)
        .unwrap();
    create(&engine, server_of("s2", &parent)).await.unwrap();
    assert_eq!(lists(&server), before + 1);
}

#[tokio::test]
async fn a_parent_of_an_earlier_epoch_may_hold_orphans_of_another_host() {
    let (fake, server) = Fake::start().await;
    let (fence, hand) = leased();
    let (engine, _) = fenced(at(&server.url), &fence);
    let parent = created(&engine, backend("b")).await;
    let before = lists(&server);
    create(&engine, server_of("s1", &parent)).await.unwrap();
    assert_eq!(lists(&server), before, "no other request acted");
    // The other host was killed between its creation and the tagging.
    let orphan = json!({"name": "s2", "ip": "10.0.0.1", "port": 30443, "check": "enabled", "backend": parent});
    fake.put("server", "of-another", orphan, &[]);
    again_after_others(&fence, &hand);
    let created = create(&engine, server_of("s2", &parent)).await.unwrap();
    assert_eq!(
        (created.identifier.as_str(), lists(&server)),
        ("of-another", before + 1)
    );
}

#[tokio::test]
async fn an_adopted_parent_may_hold_more_orphans() {
    let (fake, server) = Fake::start().await;
    fake.put("backend", "old", backend_json("b"), &[]);
    let orphan = json!({"name": "s", "ip": "10.0.0.1", "port": 30443, "check": "enabled", "backend": "old"});
    fake.put("server", "old-s", orphan, &[]);
    let engine = engine(&server.url);
    assert_eq!(created(&engine, backend("b")).await, "old");
    assert_eq!(created(&engine, server_of("s", "old")).await, "old-s");
}

/// Every way in which the answer to a POST may be lost.
fn losses() -> Vec<Reply> {
    let slow = Reply::status(200).after_ms(600_000);
    vec![
        Reply::status(502),
        Reply::status(503),
        Reply::status(504),
        Reply::closed(),
        Reply::text(200, "{").cut(),
        slow,
    ]
}

/// With a request timeout that only the slow loss exceeds, even if a machine stalls for less.
fn impatient(server: &Server) -> Anexia {
    engine_with(at_with(&server.url, |it| it.request_timeout_ms = 2_500)).0
}

#[tokio::test]
async fn what_a_lost_post_made_is_found_and_adopted() {
    for loss in losses() {
        let (fake, server) = Fake::start().await;
        fake.lose(POST_BACKEND, 1, loss.clone());
        let object = create(&impatient(&server), backend("b")).await.unwrap();
        assert_eq!(object.identifier, "new1", "{loss:?}");
        assert_eq!(
            fake.tags().into_iter().collect::<Vec<_>>(),
            [("new1".to_owned(), tags())]
        );
        assert_eq!((count(&server, POST_BACKEND), lists(&server)), (1, 2));
    }
}

#[tokio::test]
async fn what_a_lost_post_made_is_found_by_the_second_look() {
    let (fake, server) = Fake::start().await;
    fake.lose(POST_BACKEND, 1, Reply::status(504));
    // The list before the creation, then the first look.
    fake.refuse("GET /api/LBaaS/v1/backend.json", 2, Reply::json(200, json!([])));
    assert_eq!(created(&engine(&server.url), backend("b")).await, "new1");
    assert_eq!((count(&server, POST_BACKEND), lists(&server)), (1, 3));
}

#[tokio::test]
async fn a_lost_post_that_made_nothing_is_posted_once_more() {
    let lost_once = async |loss: Reply| {
        let (fake, server) = Fake::start().await;
        fake.refuse(POST_BACKEND, 1, loss.clone());
        assert_eq!(created(&impatient(&server), backend("b")).await, "new1", "{loss:?}");
        assert_eq!((count(&server, POST_BACKEND), lists(&server)), (2, 3));
    };
    let lost_for_ever = async |loss: Reply| {
        let (fake, server) = Fake::start().await;
        fake.refuse(POST_BACKEND, 9, loss.clone());
        assert!(
            matches!(
                create(&impatient(&server), backend("b")).await,
                Err(Error::Unavailable(_))
            ),
            "{loss:?}"
        );
        assert_eq!((count(&server, POST_BACKEND), lists(&server)), (2, 3));
    };
    for loss in losses() {
        // One of them is slow.
        tokio::join!(lost_once(loss.clone()), lost_for_ever(loss));
    }
}

#[tokio::test]
async fn a_lost_post_is_looked_for_even_where_adoption_is_off() {
    let (fake, server) = Fake::start().await;
    fake.lose(POST_BACKEND, 1, Reply::closed());
    let settings = at_with(&server.url, |it| it.adopt_orphans = false);
    assert_eq!(created(&engine_with(settings).0, backend("b")).await, "new1");
    assert_eq!((count(&server, POST_BACKEND), lists(&server)), (1, 1));
}

/// The server `s` exists already: it is found among the children of its parent, and not posted again.
async fn finds_the_second(engine: &Anexia, server: &Server, parent: &str) {
    let found = create(engine, server_of("s", parent)).await.unwrap();
    assert_eq!(found.identifier, "new2");
    assert_eq!(count(server, POST_SERVER), 1);
}

#[tokio::test]
async fn a_look_that_fails_ends_the_entry() {
    let (fake, server) = Fake::start().await;
    let engine = engine(&server.url);
    let parent = created(&engine, backend("b")).await;
    fake.lose(POST_SERVER, 1, Reply::closed());
    fake.refuse("GET /api/LBaaS/v1/server.json", 1, Reply::status(403));
    assert_eq!(
        create(&engine, server_of("s", &parent)).await,
        Err(refused(403, "Forbidden"))
    );
    assert_eq!(count(&server, POST_SERVER), 1);
    // The parent may hold an orphan now, although this process created it.
    finds_the_second(&engine, &server, &parent).await;
}

#[tokio::test]
async fn a_refused_post_is_final() {
    for (reply, expected) in [
        (Reply::status(422), refused(422, "Unprocessable Entity")),
        (Reply::status(404), Error::NotFound),
        (
            Reply::status(500),
            unavailable("POST /api/LBaaS/v1/backend.json: HTTP 500: Internal Server Error"),
        ),
        (
            Reply::status(302),
            unavailable("POST /api/LBaaS/v1/backend.json: HTTP 302: Found"),
        ),
    ] {
        let (fake, server) = Fake::start().await;
        fake.refuse(POST_BACKEND, 9, reply);
        assert_eq!(create(&engine(&server.url), backend("b")).await, Err(expected));
        assert_eq!(server.lines(), ["GET /api/LBaaS/v1/backend.json", POST_BACKEND]);
    }
}

#[tokio::test]
async fn a_created_object_that_cannot_be_read_does_not_stay() {
    let (fake, server) = Fake::start().await;
    fake.lose(
        POST_BACKEND,
        1,
        Reply::json(200, json!({"identifier": "new1", "mode": "udp"})),
    );
    let answer = create(&engine(&server.url), backend("b")).await;
    assert_eq!(
        answer,
        Err(unavailable(
            "backend `new1`: mode: was \"udp\", must be `tcp` or `http`"
        ))
    );
    assert!(fake.tags().is_empty());
}

#[tokio::test]
async fn what_cannot_be_tagged_is_destroyed() {
    for (reply, times, expected) in [
        (Reply::status(403), 1, Err(refused(403, "Forbidden"))),
        (Reply::status(404), 1, Err(Error::NotFound)),
        (
            Reply::status(503),
            1,
            Err(unavailable(
                "POST /api/core/v1/resource.json/new1/tags/anxccm-svc-uid%3Du-1: HTTP 503: Service Unavailable",
            )),
        ),
        (Reply::status(409), 3, Err(refused(409, "Conflict"))),
        (Reply::status(409), 2, Ok(())),
        (Reply::status(422), 1, Err(refused(422, "Unprocessable Entity"))),
    ] {
        let (fake, server) = Fake::start().await;
        fake.refuse(TAGGING, times, reply.clone());
        let answer = create(&engine(&server.url), backend("b")).await.map(drop);
        assert_eq!(answer, expected, "{reply:?}");
        assert_eq!(fake.tags().is_empty(), expected.is_err(), "{reply:?}");
        assert_eq!(
            count(&server, "DELETE /api/LBaaS/v1/backend.json/new1"),
            usize::from(expected.is_err())
        );
    }
}

#[tokio::test]
async fn a_tag_that_is_there_already_is_no_failure() {
    let (fake, server) = Fake::start().await;
    fake.lose(TAGGING, 1, Reply::status(422));
    let object = create(&engine(&server.url), backend("b")).await.unwrap();
    assert_eq!(fake.tags()[&object.identifier], [TAG]);
}

#[tokio::test]
async fn an_object_neither_tagged_nor_destroyed_is_reported_and_adopted_later() {
    let (log, _kept) = Log::keep();
    let (fake, server) = Fake::start().await;
    let engine = engine(&server.url);
    let parent = created(&engine, backend("b")).await;
    fake.refuse(TAGGING, 1, Reply::status(403));
    fake.refuse("DELETE ", 1, Reply::status(409));
    assert_eq!(
        create(&engine, server_of("s", &parent)).await,
        Err(refused(403, "Forbidden"))
    );
    let errors: Vec<String> = log
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("ERROR"))
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("kind=\"server\"") && errors[0].contains("identifier=\"new2\""),
        "{errors:?}"
    );
    assert_eq!(created(&engine, server_of("s", &parent)).await, "new2");
    assert_eq!(fake.tags()["new2"], [TAG]);
    assert_eq!(count(&server, POST_SERVER), 1);
}

#[tokio::test]
async fn a_rate_limit_while_tagging_leaves_orphans_for_the_next_call() {
    let (log, _kept) = Log::keep();
    let (fake, server) = Fake::start().await;
    let engine = engine(&server.url);
    fake.refuse(TAGGING, 1, Reply::status(429));
    let specs = [backend("b1"), backend("b2"), backend("b3")];
    let answers = engine.create(&specs, &tags()).await;
    assert_eq!(answers, vec![Err(Error::RateLimited(None)); 3]);
    let left = fake.tags().len();
    assert_eq!(
        log.lines().iter().filter(|line| line.starts_with("ERROR")).count(),
        left
    );
    assert!(
        !server.lines().iter().any(|line| line.starts_with("DELETE")),
        "nothing is sent after a rate limit"
    );
    assert!(engine.create(&specs, &tags()).await.iter().all(Result::is_ok));
    assert_eq!((count(&server, POST_BACKEND), fake.tags().len()), (3, 3));
}

#[tokio::test]
async fn a_creation_that_is_not_waited_for_leaves_no_orphan() {
    let (fake, server) = Fake::start().await;
    let engine = engine(&server.url);
    let parent = created(&engine, backend("b")).await;
    fake.lose(POST_SERVER, 1, Reply::status(200).after_ms(600_000));
    let (specs, tags) = ([server_of("s", &parent)], tags());
    let posted = async {
        while count(&server, POST_SERVER) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        answers = engine.create(&specs, &tags) => panic!("{answers:?}"),
        () = posted => {}
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    finds_the_second(&engine, &server, &parent).await;
}

#[tokio::test]
async fn a_tag_that_no_path_holds_creates_nothing() {
    let (_, server) = Fake::start().await;
    let answers = engine(&server.url).create(&[backend("b")], &["..".to_owned()]).await;
    assert_eq!(
        answers,
        [Err(unavailable("nothing created: a path can't hold the tag `..`"))]
    );
    assert!(server.seen().is_empty());
}
