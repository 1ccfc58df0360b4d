//! The behaviour of only a real etcd: it requires certificates and passwords, stops, hangs, and is recreated.

use needs::needs;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Permission, PermissionType};
use trueup_capabilities::etcd::remote::{Etcd, Settings, Tls};
use trueup_capabilities::etcd::{Api, Error, Follow, Followed, Listing, WatchEnd};

use super::proxy::Proxy;
use super::server::{Server, pem};

/// Only a guard against a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Settings for a test in which no server answers: they end the wait soon.
fn impatient(endpoints: Vec<String>) -> Settings {
    Settings {
        request_timeout: Duration::from_millis(700),
        ..Settings::new(endpoints)
    }
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn denied<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::AccessDenied(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn tls() -> Tls {
    Tls {
        ca: Some(pem("ca.pem")),
        own: Some((pem("client.pem"), pem("client.key"))),
        server_name: None,
    }
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_shown_and_looked_at() {
    let server = Server::start_with_tls().await;
    let with = |tls: Tls, timeout| {
        Etcd::new(Settings {
            tls,
            request_timeout: timeout,
            ..Settings::new(vec![server.url()])
        })
    };
    let api = with(tls(), Duration::from_secs(60));
    assert_eq!(api.put_if_not_exists("/a", "1").await, Ok(true));
    let mut watch = api.watch("/a", 1);
    let told = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(told.unwrap().revision, 2);

    let short = Duration::from_secs(2);
    let named = |name: &str| Tls {
        server_name: Some(name.to_owned()),
        ..tls()
    };
    assert!(
        with(named("etcd.test"), Duration::from_secs(60))
            .get("/a")
            .await
            .is_ok()
    );
    let stranger = Tls {
        ca: Some(pem("other-ca.pem")),
        ..tls()
    };
    let nameless = Tls { own: None, ..tls() };
    for (tls, what) in [
        (stranger, "another authority's"),
        (named("elsewhere.test"), "another name's"),
        (nameless, "no certificate of ours"),
        (Tls { ca: None, ..tls() }, "the system trusts it not"),
    ] {
        let text = unavailable(with(tls, short).get("/a").await);
        assert!(text.starts_with("etcd at `https://127.0.0.1:"), "{what}: {text}");
    }
    let plain = Etcd::new(impatient(vec![server.url().replace("https", "http")]));
    unavailable(plain.get("/a").await);
}

/// A root, a user `trueup` with all rights under `/a/`, a user `writer` that only writes there, and enabled
/// authentication.
async fn enable_users(client: &mut Client) {
    client.user_add("root", "root-password", None).await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.role_add("a").await.unwrap();
    let all = Permission::new(PermissionType::Readwrite, "/a/").with_prefix();
    client.role_grant_permission("a", all).await.unwrap();
    client.user_add("trueup", "password", None).await.unwrap();
    client.user_grant_role("trueup", "a").await.unwrap();
    client.role_add("writes").await.unwrap();
    let writes = Permission::new(PermissionType::Write, "/a/").with_prefix();
    client.role_grant_permission("writes", writes).await.unwrap();
    client.user_add("writer", "password", None).await.unwrap();
    client.user_grant_role("writer", "writes").await.unwrap();
    client.auth_enable().await.unwrap();
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn a_user_acts_within_its_role_and_renews_a_lost_token() {
    let mut server = Server::start().await;
    enable_users(&mut server.client().await).await;
    let with = |name: &str, password: &str| {
        Etcd::new(Settings {
            user: Some((name.to_owned(), password.to_owned())),
            request_timeout: Duration::from_secs(60),
            ..Settings::new(vec![server.url()])
        })
    };
    let api = with("trueup", "password");
    let writer = with("writer", "password");
    assert!(writer.put("/a/2", "1").await.is_ok());
    assert_eq!(writer.delete("/a/2").await, Ok(true));
    denied(writer.get("/a/1").await);
    // Whether the key exists is read, even where only a write is granted.
    denied(writer.put_if_not_exists("/a/2", "1").await);
    assert_eq!(api.get("/a/2").await, Ok(None));

    assert_eq!(api.put_if_not_exists("/a/1", "1").await, Ok(true));
    let revision = api.listing("/a/").await.unwrap().revision;
    let mut watch = api.watch("/a/", revision - 1);
    let next = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(next.unwrap().revision, revision);

    assert!(denied(api.get("/b").await).contains("permission denied"));
    denied(api.list_keys("/").await);
    denied(api.put("/b", "1").await);
    denied(api.delete("/b").await);
    let mut everything = api.watch("/", revision);
    let end = tokio::time::timeout(PATIENCE, everything.next()).await.unwrap();
    assert!(matches!(end, Err(WatchEnd::Failed(Error::AccessDenied(_)))), "{end:?}");
    assert!(denied(with("trueup", "wrong").get("/a/1").await).contains("authentication failed"));
    let nobody = Etcd::new(Settings::new(vec![server.url()]));
    assert!(denied(nobody.get("/a/1").await).contains("user name is empty"));

    // etcd keeps its tokens in memory: after a restart the client's token is invalid.
    server.stop();
    server.start_again().await;
    assert_eq!(api.get("/a/1").await.unwrap().unwrap().value, "1");
    let revision = api.put("/a/1", "2").await.unwrap();
    let next = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(next.unwrap().revision, revision);
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn a_user_where_etcd_has_none_is_told_so() {
    let server = Server::start().await;
    let api = Etcd::new(Settings {
        user: Some(("trueup".to_owned(), "password".to_owned())),
        ..Settings::new(vec![server.url()])
    });
    let text = denied(api.get("/a").await);
    assert!(text.contains("authentication is not enabled"), "{text}");
}

/// The next listing. On a slow machine an impatient client may get an error before.
async fn listed(follow: &mut Follow) -> Listing {
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Ok(told) = follow.next().await {
                return told;
            }
        }
    });
    match told.await.unwrap() {
        Followed::Listed(listing) => listing,
        Followed::Changed(changes) => panic!("changes before a listing: {changes:?}"),
    }
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn etcd_that_stops_and_starts_loses_nothing() {
    let mut server = Server::start().await;
    let api: Arc<dyn Api> = Arc::new(Etcd::new(impatient(vec![server.url()])));
    let patient = Etcd::new(Settings {
        request_timeout: Duration::from_secs(60),
        ..Settings::new(vec![server.url()])
    });
    let revision = patient.put("/a/1", "1").await.unwrap();
    let mut follow = Follow::new(Arc::clone(&api), "/a/".to_owned());
    listed(&mut follow).await;
    server.stop();
    assert!(unavailable(api.get("/a/1").await).contains("onnect"));
    let text = unavailable(api.put("/a/1", "2").await);
    assert!(text.starts_with("etcd at `http://127.0.0.1:"), "{text}");
    let waiting = tokio::spawn(async move { (follow.next().await, follow) });
    server.start_again().await;
    assert_eq!(
        patient.get("/a/1").await.unwrap().unwrap().value,
        "1",
        "what was refused is not there"
    );
    assert_eq!(patient.put("/a/1", "3").await, Ok(revision + 1));
    let (told, mut follow) = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let Ok(Followed::Changed(changes)) = told else {
        panic!("the watch goes on: {told:?}")
    };
    assert_eq!(changes.revision, revision + 1);

    // The recreated store counts from the beginning, so earlier revisions mean nothing.
    server.stop();
    server.start_empty().await;
    let listing = listed(&mut follow).await;
    assert_eq!((listing.revision, listing.entries.len()), (1, 0));
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn where_one_member_is_dead_or_hangs_the_next_one_answers() {
    let server = Server::start().await;
    // As if there were three members; all lead to the same store.
    let proxies = [Proxy::to(server.address()).await, Proxy::to(server.address()).await];
    let dead = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", gone.local_addr().unwrap())
    };
    let api = Etcd::new(Settings {
        request_timeout: Duration::from_secs(20),
        ..Settings::new(vec![dead, proxies[0].url(), proxies[1].url()])
    });
    // A write to a dead member certainly did not happen, so the client asks the next one.
    let revision = api.put("/a", "1").await.unwrap();
    assert_eq!((proxies[0].connections(), proxies[1].connections()), (1, 0));
    let mut watch = api.watch("/a", revision);
    let waiting = tokio::spawn(async move { watch.next().await });
    proxies[0].hang(true);
    assert_eq!(api.get("/a").await.unwrap().unwrap().value, "1");
    assert_eq!(proxies[1].connections(), 1, "reading goes on elsewhere");
    proxies[0].cut().await;
    assert_eq!(api.put("/a", "2").await, Ok(revision + 1));
    let told = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(told.unwrap().revision, revision + 1);
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_answer_ends() {
    let server = Server::start().await;
    let proxy = Proxy::to(server.address()).await;
    proxy.hang(true);
    let api = Etcd::new(impatient(vec![proxy.url()]));
    unavailable(api.get("/a").await);
    let text = unavailable(api.put("/a", "1").await);
    assert!(text.contains("whether it was made is not known"), "{text}");
}
