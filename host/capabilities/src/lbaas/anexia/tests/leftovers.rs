//! Untagged objects are found before the next list: by their intent, or by their name.

use super::fake::Fake;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::Api as _;
use crate::lbaas::anexia::Owned;

const POST_BACKEND: &str = "POST /api/LBaaS/v1/backend.json";

/// An engine whose intents survive it.
fn keeping(server: &Server, folder: &Path) -> Anexia {
    built(
        at(&server.url),
        &Fence::open(),
        Some(folder),
        &Matcher::builder().build(),
    )
    .0
}

/// Creates these, and is killed once the Engine has created the first: its answer never comes.
async fn killed_while_creating(fake: &Fake, server: &Server, engine: Anexia, specs: &[Spec]) {
    fake.lose("POST /api/LBaaS", 1, Reply::status(200).after_ms(600_000));
    let before = fake.tags().len();
    let tags = tags();
    tokio::select! {
        answers = engine.create(specs, &tags) => panic!("{answers:?}"),
        () = until("a creation", || fake.tags().len() > before) => {}
    }
    drop(engine);
    assert!(server.lines().iter().any(|line| line.starts_with("POST")));
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |files| {
        files.flatten().filter(|file| file.path().extension().is_some()).count()
    })
}

#[tokio::test]
async fn a_killed_hosts_creation_is_tagged_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    // An object with another name, other fields, or another Service's tag is not ours.
    fake.put(
        "backend",
        "o1",
        json!({"name": "c", "mode": "tcp", "load_balancer": "lb", "health_check": ""}),
        &[],
    );
    fake.put(
        "backend",
        "o2",
        json!({"name": "b", "mode": "http", "load_balancer": "lb", "health_check": ""}),
        &[],
    );
    killed_while_creating(&fake, &server, keeping(&server, folder.path()), &[backend("b")]).await;
    assert_eq!((fake.tags()["new1"].len(), files(folder.path())), (0, 1));

    let engine = keeping(&server, folder.path());
    let untagged = engine.leftovers(TAG).await.unwrap();
    assert_eq!(
        untagged.iter().map(|it| it.identifier.as_str()).collect::<Vec<_>>(),
        ["new1"]
    );
    assert_eq!(
        (fake.tags()["new1"].len(), files(folder.path())),
        (0, 1),
        "a plan changes nothing"
    );
    engine.adopt("anxccm-svc-uid=another").await.unwrap();
    assert!(fake.tags()["new1"].is_empty(), "that is another Service's list");
    engine.adopt(TAG).await.unwrap();
    assert_eq!((fake.tags()["new1"].clone(), files(folder.path())), (tags(), 0));
    assert!(fake.tags()["o1"].is_empty() && fake.tags()["o2"].is_empty());
    let asked = server.seen().len();
    engine.adopt(TAG).await.unwrap();
    assert_eq!(server.seen().len(), asked, "nothing is left to look for");
}

#[tokio::test]
async fn a_creation_that_turns_up_late_is_looked_for_until_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    killed_while_creating(&fake, &server, keeping(&server, folder.path()), &[backend("b")]).await;
    fake.refuse("GET /api/LBaaS/v1/backend.json", 1, Reply::json(200, json!([])));
    let engine = keeping(&server, folder.path());
    engine.adopt(TAG).await.unwrap();
    assert_eq!((fake.tags()["new1"].len(), files(folder.path())), (0, 1));
    engine.adopt(TAG).await.unwrap();
    assert_eq!((fake.tags()["new1"].clone(), files(folder.path())), (tags(), 0));
}

#[tokio::test]
async fn what_is_settled_or_was_never_sent_leaves_no_intent() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    let engine = keeping(&server, folder.path());
    fake.refuse(POST_BACKEND, 1, Reply::status(403));
    assert!(engine.create(&[backend("a")], &tags()).await[0].is_err());
    assert!(
        engine
            .create(&[backend("b"), backend("c")], &tags())
            .await
            .iter()
            .all(Result::is_ok)
    );
    fake.refuse("POST /api/core/v1/resource.json/", 1, Reply::status(403));
    assert!(
        engine.create(&[backend("d")], &tags()).await[0].is_err(),
        "it is destroyed again"
    );
    assert_eq!(files(folder.path()), 0);
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let (_, server) = Fake::start().await;
    let engine = keeping(&server, &folder.path().join("intents"));
    std::fs::write(folder.path().join("intents"), "a file").unwrap();
    let answers = engine.create(&[backend("b")], &tags()).await;
    assert!(
        matches!(&answers[0], Err(Error::Unavailable(text)) if text.contains("can't be written down")),
        "{answers:?}"
    );
    assert!(!server.lines().contains(&POST_BACKEND.to_owned()));
}

#[tokio::test]
async fn a_leftover_that_is_refused_its_tag_is_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    killed_while_creating(&fake, &server, keeping(&server, folder.path()), &[backend("b")]).await;
    fake.refuse("POST /api/core/v1/resource.json/", 1, Reply::status(422));
    keeping(&server, folder.path()).adopt(TAG).await.unwrap();
    assert_eq!((fake.tags().len(), files(folder.path())), (0, 0));
}

#[tokio::test]
async fn the_first_of_two_posts_is_looked_for_although_the_second_is_destroyed() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    let engine = keeping(&server, folder.path());
    fake.refuse(POST_BACKEND, 1, Reply::status(504));
    let unreadable = json!({"identifier": "new1", "mode": "udp"});
    fake.lose(POST_BACKEND, 1, Reply::json(200, unreadable));
    let answer = create(&engine, backend("b")).await;
    assert!(matches!(&answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert_eq!((fake.tags().len(), files(folder.path())), (0, 1));

    // The first one was only late.
    let late =
        json!({"name": "b", "mode": "tcp", "load_balancer": "lb", "health_check": "\"adv_check\": \"tcp-check\""});
    fake.put("backend", "late", late, &[]);
    engine.adopt(TAG).await.unwrap();
    assert_eq!(
        (fake.tags()["late"].as_slice(), files(folder.path())),
        (tags().as_slice(), 0)
    );
}

pub(super) fn owned() -> Owned {
    Owned {
        name_suffix: "web.default.c1".to_owned(),
        service_uid: None,
        load_balancers: ["lb".to_owned()].into(),
    }
}

/// Objects of the Service `web`, tagged and not, and of others.
fn put_leftovers(fake: &Fake) {
    let backend = |name: &str| json!({"name": name, "mode": "tcp", "load_balancer": "lb", "health_check": ""});
    let server_in = |name: &str, backend: &str| json!({"name": name, "ip": "10.0.0.1", "port": 1, "check": "enabled", "backend": backend});
    fake.put("backend", "b1", backend("http.web.default.c1"), &[TAG]);
    fake.put("backend", "b2", backend("web.default.c1"), &[]);
    fake.put("backend", "b3", backend("xweb.default.c1"), &[]);
    fake.put(
        "backend",
        "b4",
        backend("https.web.default.c1"),
        &["anxccm-svc-uid=another"],
    );
    fake.put("server", "s1", server_in("n1.http.web.default.c1", "b1"), &[]);
    fake.put("server", "s2", server_in("n1.web.default.c1", "b2"), &[]);
    fake.put("server", "s3", server_in("by-hand", "b1"), &[]);
}

fn untagged(fake: &Fake) -> Vec<String> {
    let tags = fake.tags().into_iter();
    tags.filter(|(_, tags)| tags.is_empty())
        .map(|(identifier, _)| identifier)
        .collect()
}

#[tokio::test]
async fn without_intents_what_has_a_services_name_is_tagged_once() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    put_leftovers(&fake);
    let engine = keeping(&server, folder.path()).of_this_epoch(owned());
    assert_eq!(engine.leftovers(TAG).await.unwrap().len(), 3);
    engine.adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake), ["b3", "s3"]);
    assert_eq!(fake.tags()["b4"], ["anxccm-svc-uid=another"]);
    let asked = server.seen().len();
    engine.adopt(TAG).await.unwrap();
    assert_eq!(server.seen().len(), asked);

    // If the intents are complete, nothing is looked up by name, also after a restart.
    engine.all_listed();
    put_leftovers(&fake);
    let again = keeping(&server, folder.path());
    assert!(!again.looks_by_name());
    again.of_this_epoch(owned()).adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake), ["b2", "b3", "s1", "s2", "s3"]);
}

#[tokio::test]
async fn what_is_found_by_name_never_gets_the_tag_of_an_earlier_service() {
    let (fake, server) = Fake::start().await;
    put_leftovers(&fake);
    let owned = Owned {
        service_uid: TAG.strip_prefix("anxccm-svc-uid=").map(str::to_owned),
        ..owned()
    };
    assert!(owned.service_uid.is_some());
    let engine = engine(&server.url).of_this_epoch(owned);
    // But for what is in the way of the earlier Service's own objects.
    let server =
        json!({"name": "n1.https.web.default.c1", "ip": "10.0.0.1", "port": 1, "check": "enabled", "backend": "b4"});
    fake.put("server", "s4", server, &[]);
    engine.adopt("anxccm-svc-uid=another").await.unwrap();
    assert_eq!(untagged(&fake), ["b2", "b3", "s1", "s2", "s3"]);
    engine.adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake), ["b3", "s3"]);
}

#[tokio::test]
async fn a_host_that_takes_over_looks_at_names_in_each_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    let (fence, hand) = leased();
    keeping(&server, folder.path()).all_listed();
    let (host, _) = built(
        at(&server.url),
        &fence,
        Some(folder.path()),
        &Matcher::builder().build(),
    );
    host.of_this_epoch(owned()).adopt(TAG).await.unwrap();
    host.all_listed();
    put_leftovers(&fake);
    host.of_this_epoch(owned()).adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake).len(), 5, "others did not act");
    again_after_others(&fence, &hand);
    host.of_this_epoch(owned()).adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake), ["b3", "s3"]);
    assert!(
        keeping(&server, folder.path()).looks_by_name(),
        "also where it is alone again"
    );
}

#[tokio::test]
async fn what_is_in_the_way_of_a_destruction_is_looked_for_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (fake, server) = Fake::start().await;
    keeping(&server, folder.path()).all_listed();
    let engine = keeping(&server, folder.path()).of_this_epoch(owned());
    put_leftovers(&fake);
    engine.adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake).len(), 5);
    fake.refuse("DELETE ", 1, Reply::status(409));
    assert_eq!(
        engine.destroy(&refs(Kind::Backend, &["b1"])).await,
        [Err(refused(409, "Conflict"))]
    );
    engine.adopt(TAG).await.unwrap();
    assert_eq!(untagged(&fake), ["b3", "s3"]);
}

#[tokio::test]
async fn where_adoption_is_off_nothing_is_looked_at_by_name() {
    let (fake, server) = Fake::start().await;
    put_leftovers(&fake);
    let settings = at_with(&server.url, |it| it.adopt_orphans = false);
    let engine = engine_with(settings).0.of_this_epoch(owned());
    engine.adopt(TAG).await.unwrap();
    assert_eq!((untagged(&fake).len(), server.seen().len()), (5, 0));
}
