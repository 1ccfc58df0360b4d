//! The proxies that the environment names.

use std::process::Command;

use super::server::{Reply, Server};
use super::*;
use crate::lbaas::Api as _;

/// A name that does not resolve; only a proxy can reach it.
const ELSEWHERE: &str = "http://engine.test:8080/prefix";

async fn proxy() -> Server {
    Server::start(|_| Reply::json(200, server_json("s1"))).await
}

fn with_user(proxy: &Server) -> String {
    proxy.url.replace("http://", "http://someone:secret@")
}

async fn get_one(url: &str, proxies: &Matcher) -> bool {
    let settings = at_with(url, |it| it.allow_http = true);
    let (engine, _) = built(settings, &Fence::open(), None, proxies);
    engine.get(&refs(Kind::Server, &["s1"])).await.remove(0).is_ok()
}

#[tokio::test]
async fn a_proxy_is_asked_by_full_url_and_keeps_its_connection() {
    let proxy = proxy().await;
    let proxies = Matcher::builder().http(with_user(&proxy)).build();
    let settings = at_with(ELSEWHERE, |it| it.allow_http = true);
    let (engine, _) = built(settings, &Fence::open(), None, &proxies);
    for _ in 0..3 {
        assert!(engine.get(&refs(Kind::Server, &["s1"])).await.remove(0).is_ok());
    }
    assert_eq!((proxy.seen().len(), proxy.connections()), (3, 1));
    for seen in proxy.seen() {
        assert_eq!(seen.target, format!("{ELSEWHERE}/api/LBaaS/v1/server.json/s1"));
        assert_eq!(seen.header("host"), Some("engine.test:8080"));
        assert_eq!(seen.header("proxy-authorization"), Some("Basic c29tZW9uZTpzZWNyZXQ="));
        assert_eq!(seen.header("authorization"), Some(format!("Token {TOKEN}").as_str()));
    }
}

#[tokio::test]
async fn an_engine_on_this_machine_and_one_that_is_named_are_reached_without_it() {
    let (proxy, engine) = (proxy().await, proxy().await);
    let proxies = Matcher::builder().all(proxy.url.as_str()).build();
    assert!(get_one(&engine.url, &proxies).await);
    let local = engine.url.replace("127.0.0.1", "localhost");
    assert!(get_one(&local, &proxies).await);
    // Does not look like loopback; only the list of exceptions keeps it from the proxy.
    let unspecified = engine.url.replace("127.0.0.1", "0.0.0.0");
    let excepted = Matcher::builder().all(proxy.url.as_str()).no("0.0.0.0").build();
    assert!(get_one(&unspecified, &excepted).await);
    assert_eq!((engine.seen().len(), proxy.seen().len()), (3, 0));
    for seen in engine.seen() {
        assert_eq!(
            (seen.target.starts_with('/'), seen.header("proxy-authorization")),
            (true, None)
        );
    }
}

#[tokio::test]
async fn the_environment_names_the_proxy() {
    const CHILD: &str = "TRUEUP_TEST_BEHIND_PROXY";
    if std::env::var_os(CHILD).is_some() {
        let settings = at_with(ELSEWHERE, |it| it.allow_http = true);
        let token = token::new(TOKEN, "the test").unwrap();
        let engine = Anexia::new(settings, token, Arc::new(Counted::default()), Fence::open(), None).unwrap();
        assert!(engine.get(&refs(Kind::Server, &["s1"])).await.remove(0).is_ok());
        return;
    }
    let proxy = proxy().await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([
        "--exact",
        "lbaas::anexia::tests::proxy::the_environment_names_the_proxy",
    ]);
    // The machine's own environment must not matter; a CGI script gets no proxy from it.
    for name in [
        "HTTP_PROXY",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
        "REQUEST_METHOD",
    ] {
        child.env_remove(name);
    }
    child.env("http_proxy", &proxy.url).env(CHILD, "1");
    let ended = tokio::task::spawn_blocking(move || child.status()).await.unwrap();
    assert!(ended.unwrap().success());
    assert_eq!(proxy.seen().len(), 1);
}
