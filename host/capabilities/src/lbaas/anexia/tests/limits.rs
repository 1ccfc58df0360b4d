//! The limit of concurrent requests, the order of answers, and what a rate limit stops.

use std::sync::Mutex;
use std::time::Instant;

use super::fake::Fake;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::Api as _;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("s{n:03}")).collect()
}

fn server_refs(names: &[String]) -> Vec<ObjectRef> {
    refs(Kind::Server, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Answers requests for servers once `count` of them wait together, and some time later.
async fn crowded(count: usize, ms: u64) -> Server {
    Server::start(move |seen| {
        Reply::json(200, server_json(last_segment(seen.path())))
            .in_company_of(count)
            .after_ms(ms)
    })
    .await
}

#[tokio::test]
async fn sixteen_requests_run_at_a_time_for_all_calls_together() {
    // Long enough for one too many to arrive.
    let server = crowded(16, 20).await;
    let (engine, counted) = engine_with(at(&server.url));
    let refs = server_refs(&names(40));
    let (left, right, balancer) = tokio::join!(engine.get(&refs), engine.get(&refs), engine.load_balancer("lb"));
    assert!(left.iter().chain(&right).all(Result::is_ok) && balancer.is_ok());
    assert_eq!(server.requests().most(), 16);
    assert_eq!(*counted.in_flight.lock().unwrap(), (0, 16));
}

#[tokio::test]
async fn the_number_of_requests_is_a_setting() {
    let server = crowded(3, 5).await;
    let settings = at_with(&server.url, |it| it.max_concurrent_requests = 3);
    engine_with(settings).0.get(&server_refs(&names(20))).await;
    assert_eq!(server.requests().most(), 3);
}

#[tokio::test]
async fn answers_keep_the_order_of_the_arguments() {
    // The first answers last; every third does not exist.
    let server = Server::start(|seen| {
        let name = last_segment(seen.path()).to_owned();
        let n: u64 = name[1..].parse().unwrap();
        let reply = if n.is_multiple_of(3) {
            Reply::status(404)
        } else {
            Reply::json(200, server_json(&name))
        };
        reply.after_ms(60 - 5 * n)
    })
    .await;
    let names = names(12);
    let answers = engine(&server.url).get(&server_refs(&names)).await;
    for (n, (name, answer)) in names.iter().zip(answers).enumerate() {
        match answer {
            Ok(object) => assert_eq!(&object.identifier, name),
            Err(error) => assert!(error == Error::NotFound && n % 3 == 0, "{name}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn taggings_never_overlap_while_creations_do() {
    let (fake, server) = Fake::start().await;
    fake.lose("POST /api/core/v1/resource.json/", 6, Reply::status(200).after_ms(5));
    fake.refuse("POST /api/core/v1/resource.json/", 2, Reply::status(409).after_ms(5));
    fake.lose(
        "POST /api/LBaaS/v1/backend.json",
        12,
        Reply::json(200, json!({"identifier": "new1", "mode": "tcp"})).in_company_of(6),
    );
    let engine = engine(&server.url);
    let specs: Vec<Spec> = (0..6).map(|n| backend(&format!("b{n}"))).collect();
    let tags = tags();
    let (left, right) = tokio::join!(engine.create(&specs, &tags), engine.create(&specs, &tags));
    assert!(left.iter().chain(&right).all(Result::is_ok), "{left:?} {right:?}");
    assert_eq!(server.taggings().most(), 1);
    assert!(server.requests().most() >= 6, "{}", server.requests().most());
}

#[tokio::test]
async fn after_a_rate_limit_nothing_more_of_the_list_is_sent() {
    // Five at a time. The third of them is rate-limited and the quickest, by more than a machine stalls. Those in
    // flight get their normal answers.
    let check = async |retry_after: Option<&'static str>| {
        let server = Server::start(move |seen| match (last_segment(seen.path()), retry_after) {
            ("s002", None) => Reply::status(429),
            ("s002", Some(seconds)) => Reply::status(429).header("retry-after", seconds),
            (name, _) => Reply::json(200, server_json(name)).after_ms(3_000),
        })
        .await;
        let settings = at_with(&server.url, |it| it.max_concurrent_requests = 5);
        let (engine, _) = engine_with(settings);
        let answers = engine.get(&server_refs(&names(30))).await;
        assert_eq!(server.seen().len(), 5);
        for (n, answer) in answers.iter().enumerate() {
            match (n, answer) {
                (0 | 1 | 3 | 4, answer) => assert!(answer.is_ok(), "{n}: {answer:?}"),
                (2, Err(Error::RateLimited(ms))) => assert_eq!(*ms, retry_after.map(|_| 100_000)),
                (_, Err(Error::RateLimited(None))) => assert_eq!(retry_after, None),
                (_, Err(Error::RateLimited(Some(left)))) => assert!((90_000..=100_000).contains(left), "{n}: {left}"),
                _ => panic!("{n}: {answer:?}"),
            }
        }
        // The next call: withheld if the Engine gave a time, sent otherwise.
        let next = engine.get(&server_refs(&["s100".to_owned()])).await.remove(0);
        assert_eq!(next.is_ok(), retry_after.is_none(), "{next:?}");
        assert_eq!(server.seen().len(), if next.is_ok() { 6 } else { 5 });
    };
    tokio::join!(check(None), check(Some("100")));
}

#[tokio::test]
async fn after_the_limit_the_next_call_is_sent_but_not_the_rest_of_the_list() {
    let answered: Mutex<bool> = Mutex::default();
    let server = Server::start(move |seen| {
        let first = !std::mem::replace(&mut *answered.lock().unwrap(), true);
        match last_segment(seen.path()) {
            _ if first => Reply::status(429).header("retry-after", "3"),
            name => Reply::json(200, server_json(name)),
        }
    })
    .await;
    let settings = at_with(&server.url, |it| it.max_concurrent_requests = 1);
    let (engine, _) = engine_with(settings);
    let call = engine.call();
    assert_eq!(call.read(Kind::Server, "s1").await, Err(Error::RateLimited(Some(3000))));
    let other = engine.get(&server_refs(&names(1))).await.remove(0);
    assert!(matches!(other, Err(Error::RateLimited(Some(1..=3000)))), "{other:?}");
    let begin = Instant::now();
    loop {
        match call.read(Kind::Server, "s1").await {
            Err(Error::RateLimited(Some(0))) => break,
            Err(Error::RateLimited(Some(1..=3000))) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => panic!("{other:?}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the limit does not end");
    }
    assert!(engine.get(&server_refs(&names(1))).await.remove(0).is_ok());
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn retry_after_may_be_a_date_against_the_answers_own() {
    let server = Server::start(|_| {
        Reply::status(429)
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")
    })
    .await;
    let engine = engine(&server.url);
    assert_eq!(engine.load_balancer("lb").await, Err(Error::RateLimited(Some(30_000))));
    assert!(matches!(
        engine.list_tagged(TAG).await,
        Err(Error::RateLimited(Some(20_000..=30_000)))
    ));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_limit_is_seen_between_the_tries_of_a_request() {
    let server = Server::start(|seen| match last_segment(seen.path()) {
        "limited" => Reply::status(429).header("retry-after", "60"),
        // Later than the other, by more than a machine stalls.
        _ => Reply::status(503).after_ms(2_000),
    })
    .await;
    let answers = engine(&server.url)
        .get(&refs(Kind::Bind, &["passing", "limited"]))
        .await;
    assert!(matches!(answers[0], Err(Error::RateLimited(Some(_)))), "{answers:?}");
    assert_eq!(answers[1], Err(Error::RateLimited(Some(60_000))));
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_nothing_running() {
    let server = Server::start(|_| Reply::status(404).after_ms(600_000)).await;
    let (engine, counted) = engine_with(at(&server.url));
    let refs = server_refs(&names(20));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), engine.get(&refs))
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*counted.in_flight.lock().unwrap(), (0, 16));
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json GET abandoned: 16"]);
}
