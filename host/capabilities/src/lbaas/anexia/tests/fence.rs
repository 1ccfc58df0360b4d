//! A host whose lease is over sends nothing to the Engine.

use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::super::http::{Call, Failure, Fate};
use super::fake::Fake;
use super::server::{Reply, Server};
use super::*;
use crate::lbaas::Api as _;

const GET_S1: &str = "GET /api/LBaaS/v1/server.json/s1";
const NOT_SENT: &str = "not sent: this host does not hold the lease any more";
const GIVEN_UP: &str = "given up without an answer: this host does not hold the lease any more";

async fn get_s1(call: &Call) -> Result<Value, Failure> {
    call.get(Kind::Server.names().path, "s1").await
}

fn failure(fate: Fate, text: &str) -> Failure {
    Failure {
        error: unavailable(text),
        fate,
    }
}

#[tokio::test]
async fn without_a_lease_nothing_is_even_connected() {
    let server = Server::start(|_| Reply::json(200, server_json("s1"))).await;
    let (engine, counted) = fenced(at(&server.url), &Fence::closed());
    let not_sent = failure(Fate::Withheld, &format!("{GET_S1}: {NOT_SENT}"));
    assert_eq!(get_s1(&engine.call()).await, Err(not_sent));
    assert_eq!(
        engine.create(&[server_of("s", "b")], &[]).await,
        [Err(unavailable(&format!("GET /api/LBaaS/v1/server.json: {NOT_SENT}")))]
    );
    assert_eq!((server.connections(), counted.lines()), (0, vec![]));
}

#[tokio::test]
async fn an_idle_connection_carries_nothing_between_two_leases() {
    let server = Server::start(|_| Reply::json(200, server_json("s1"))).await;
    let (fence, hand) = leased();
    let (engine, _) = fenced(at(&server.url), &fence);
    for _ in 0..20 {
        assert!(get_s1(&engine.call()).await.is_ok());
    }
    assert_eq!((server.seen().len(), server.connections()), (20, 1));
    hand.store(AFTER_THE_LEASE, SeqCst);
    assert_eq!(get_s1(&engine.call()).await.unwrap_err().fate, Fate::Withheld);
    assert_eq!((server.seen().len(), server.connections()), (20, 1));
    fence.extend_to(fence.now() + Duration::from_secs(60));
    assert!(get_s1(&engine.call()).await.is_ok());
    assert_eq!(server.seen().len(), 21);
}

#[tokio::test]
async fn a_process_stopped_during_a_request_writes_nothing_when_it_resumes() {
    // The clock jumps when it is read for the n-th time: between any two steps of the first or a later request.
    let mut ends = [0; 3];
    for looks in 0..40 {
        let server = Server::start(|_| Reply::json(200, json!({"identifier": "new"}))).await;
        let looked = Arc::new(AtomicUsize::new(0));
        let clock = Arc::clone(&looked);
        let fence = Fence::closed_by(move || {
            let seconds = if clock.fetch_add(1, SeqCst) < looks {
                1_000
            } else {
                AFTER_THE_LEASE
            };
            Moment::after_start(Duration::from_secs(seconds))
        });
        fence.extend_to(Moment::after_start(Duration::from_secs(1_060)));
        let (engine, _) = fenced(at(&server.url), &fence);
        let mut sent = 0;
        let failure = loop {
            match engine
                .call()
                .post(Kind::Server.names().path, json!({"name": "s"}))
                .await
            {
                Ok(_) => sent += 1,
                Err(failure) => break failure,
            }
        };
        let arrived = server.seen().len();
        match failure.fate {
            // No part of it arrived.
            Fate::Withheld => assert_eq!(arrived, sent, "{looks}: {failure:?}"),
            // It was written before the clock jumped; the server may not have seen it yet.
            Fate::TimedOut => assert!((sent..=sent + 1).contains(&arrived), "{looks}: {failure:?}"),
            fate => panic!("{looks}: {fate:?} {failure:?}"),
        }
        ends[usize::from(failure.fate == Fate::TimedOut)] += 1;
        ends[2] += sent;
    }
    assert!(ends.iter().all(|&count| count > 0), "not every end was met: {ends:?}");
}

#[tokio::test]
async fn the_rest_of_a_body_is_not_sent_after_the_lease() {
    // More than the buffers of both ends hold.
    let body = "x".repeat(32 * 1024 * 1024);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (fence, hand) = leased();
    let (engine, counted) = fenced(at(&url), &fence);
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut some = vec![0; 1024];
        socket.read_exact(&mut some).await.unwrap();
        hand.store(AFTER_THE_LEASE, SeqCst);
        let mut bytes = some.len();
        // The connection ends with a reset: the client's kernel discards what it still held.
        while let Ok(more @ 1..) = socket.read(&mut some).await {
            bytes += more;
        }
        (some.starts_with(b"POST"), bytes)
    });
    let sent = engine
        .call()
        .post(Kind::Server.names().path, Value::from(body.as_str()))
        .await;
    let given_up = format!("POST /api/LBaaS/v1/server.json: {GIVEN_UP}");
    assert_eq!(sent, Err(failure(Fate::TimedOut, &given_up)));
    let (_, bytes) = server.await.unwrap();
    assert!(bytes < body.len(), "all of it arrived");
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json POST timeout: 1"]);
}

#[tokio::test]
async fn a_connection_under_way_is_given_up_with_the_lease() {
    // No process accepts: once the queue is full, further connections hang.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(connected) = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        queue.push(connected.unwrap());
        assert!(queue.len() < 64, "the queue does not fill");
    }
    let (fence, hand) = leased();
    let settings = at_with(&format!("http://{address}"), |it| {
        (it.connect_timeout_ms, it.request_timeout_ms) = (600_000, 600_000)
    });
    let (engine, counted) = fenced(settings, &fence);
    let call = engine.call();
    let sending = tokio::spawn(async move { get_s1(&call).await });
    until("a request", || counted.in_flight.lock().unwrap().0 == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    hand.store(AFTER_THE_LEASE, SeqCst);
    let not_sent = failure(Fate::Withheld, &format!("{GET_S1}: {NOT_SENT}"));
    assert_eq!(sending.await.unwrap(), Err(not_sent));
    assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json GET connection: 1"]);
}

#[tokio::test]
async fn a_wait_for_an_answer_or_a_slot_stops_with_the_lease() {
    let close = |fence: &Fence, _: &AtomicU64| fence.close();
    let jump = |_: &Fence, hand: &AtomicU64| hand.store(AFTER_THE_LEASE, SeqCst);
    for end in [&close as &dyn Fn(&Fence, &AtomicU64), &jump] {
        let server = Server::start(|_| Reply::status(200).after_ms(600_000)).await;
        let (fence, hand) = leased();
        let settings = at_with(&server.url, |it| {
            (it.max_concurrent_requests, it.request_timeout_ms) = (1, 600_000)
        });
        let (engine, counted) = fenced(settings, &fence);
        let (first, second) = (engine.call(), engine.call());
        let first = tokio::spawn(async move { get_s1(&first).await });
        until("the first request", || server.seen().len() == 1).await;
        let second = tokio::spawn(async move { get_s1(&second).await });
        end(&fence, &hand);
        let given_up = failure(Fate::TimedOut, &format!("{GET_S1}: {GIVEN_UP}"));
        assert_eq!(first.await.unwrap(), Err(given_up), "and not tried again");
        let not_sent = failure(Fate::Withheld, &format!("{GET_S1}: {NOT_SENT}"));
        assert_eq!(second.await.unwrap(), Err(not_sent));
        assert_eq!(server.lines(), [GET_S1]);
        assert_eq!(counted.lines(), ["/api/LBaaS/v1/server.json GET timeout: 1"]);
    }
}

#[tokio::test]
async fn a_creation_whose_lease_ends_is_neither_repeated_nor_cleaned_up_after() {
    let (fake, server) = Fake::start().await;
    let post = "POST /api/LBaaS/v1/backend.json";
    fake.lose(post, 1, Reply::status(200).after_ms(600_000));
    let (fence, hand) = leased();
    let (engine, _) = fenced(at(&server.url), &fence);
    let creating = tokio::spawn(async move { engine.create(&[backend("b")], &tags()).await });
    until("the creation", || server.lines().iter().any(|line| line == post)).await;
    let before = server.lines();
    hand.store(AFTER_THE_LEASE, SeqCst);
    let not_looked_for = format!("GET /api/LBaaS/v1/backend.json: {NOT_SENT}");
    assert_eq!(creating.await.unwrap(), [Err(unavailable(&not_looked_for))]);
    assert_eq!(server.lines(), before);
    // The next holder, or this one, finds and adopts it.
    fence.extend_to(fence.now() + Duration::from_secs(60));
    let (engine, _) = fenced(at(&server.url), &fence);
    let created = create(&engine, backend("b")).await;
    assert_eq!(created.unwrap().identifier, "new1");
}

#[tokio::test]
async fn what_was_decided_on_in_one_epoch_is_not_sent_in_the_next() {
    let (fake, server) = Fake::start().await;
    let (fence, hand) = leased();
    let (engine, _) = fenced(at(&server.url), &fence);
    let job = engine.of_this_epoch(leftovers::owned());
    assert_eq!(job.list_tagged(TAG).await, Ok(vec![]));
    let before = server.lines();
    again_after_others(&fence, &hand);
    let not_sent = |line: &str| unavailable(&format!("{line}: {NOT_SENT}"));
    let created = create(&job, backend("b")).await;
    assert_eq!(created, Err(not_sent("GET /api/LBaaS/v1/backend.json")));
    let destroyed = job.destroy(&refs(Kind::Server, &["s1"])).await.remove(0);
    assert_eq!(destroyed, Err(not_sent("DELETE /api/LBaaS/v1/server.json/s1")));
    assert_eq!((server.lines(), fake.tags().len()), (before, 0));
    let created = engine
        .of_this_epoch(leftovers::owned())
        .create(&[backend("b")], &tags())
        .await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
}

#[tokio::test]
async fn a_wait_for_an_answer_or_a_slot_stops_with_its_epoch() {
    let server = Server::start(|seen| match seen.line().as_str() {
        GET_S1 => Reply::status(200).after_ms(600_000),
        _ => Reply::json(200, server_json("s2")),
    })
    .await;
    let (fence, hand) = leased();
    let settings = at_with(&server.url, |it| {
        (it.max_concurrent_requests, it.request_timeout_ms) = (1, 600_000)
    });
    let (engine, _) = fenced(settings, &fence);
    let get_s2 = async |call: Call| call.get(Kind::Server.names().path, "s2").await;
    let (first, second) = (engine.call(), engine.call());
    let first = tokio::spawn(async move { get_s1(&first).await });
    until("the first request", || server.seen().len() == 1).await;
    let second = tokio::spawn(get_s2(second));
    tokio::task::yield_now().await;
    again_after_others(&fence, &hand);
    let given_up = failure(Fate::TimedOut, &format!("{GET_S1}: {GIVEN_UP}"));
    assert_eq!(first.await.unwrap(), Err(given_up));
    let get_s2_line = "GET /api/LBaaS/v1/server.json/s2";
    let not_sent = failure(Fate::Withheld, &format!("{get_s2_line}: {NOT_SENT}"));
    assert_eq!(second.await.unwrap(), Err(not_sent));
    assert_eq!(server.lines(), [GET_S1]);
    assert!(get_s2(engine.call()).await.is_ok());
    assert_eq!(server.lines(), [GET_S1, get_s2_line]);
}

#[tokio::test]
async fn a_creation_waiting_to_tag_leaves_the_rest_to_the_next_epoch() {
    let (fake, server) = Fake::start().await;
    let (fence, hand) = leased();
    let (engine, counted) = fenced(at(&server.url), &fence);
    let others = engine.engine.tagging.lock().await;
    let job = engine.of_this_epoch(leftovers::owned());
    let creating = tokio::spawn(async move { job.create(&[backend("b")], &tags()).await });
    // Only after its answer is taken: the next request is the tagging.
    let posted = "/api/LBaaS/v1/backend.json POST 200: 1";
    until("the creation", || counted.lines().iter().any(|line| line == posted)).await;
    let before = server.lines();
    again_after_others(&fence, &hand);
    drop(others);
    let error = match creating.await.unwrap().remove(0) {
        Err(Error::Unavailable(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(
        error.starts_with("POST ") && error.ends_with("the lease any more"),
        "{error}"
    );
    assert_eq!(server.lines(), before, "neither tagged nor destroyed");
    let created = create(&engine, backend("b")).await;
    assert_eq!(created.unwrap().identifier, "new1");
    assert_eq!(fake.tags()["new1"], [TAG]);
}

#[tokio::test]
async fn a_lost_creation_is_neither_looked_for_nor_repeated_in_the_next_epoch() {
    let (fake, server) = Fake::start().await;
    let post = "POST /api/LBaaS/v1/backend.json";
    fake.refuse(post, 1, Reply::status(200).after_ms(600_000));
    let (fence, hand) = leased();
    let (engine, _) = fenced(at(&server.url), &fence);
    let job = engine.of_this_epoch(leftovers::owned());
    let creating = tokio::spawn(async move { job.create(&[backend("b")], &tags()).await });
    until("the creation", || server.lines().iter().any(|line| line == post)).await;
    let before = server.lines();
    again_after_others(&fence, &hand);
    let not_looked_for = format!("GET /api/LBaaS/v1/backend.json: {NOT_SENT}");
    assert_eq!(creating.await.unwrap(), [Err(unavailable(&not_looked_for))]);
    assert_eq!(server.lines(), before);
}

#[tokio::test]
async fn a_request_stopped_at_any_moment_is_not_written_in_the_next_epoch() {
    // The process is stopped at the n-th reading of the clock, and resumes with the old time.
    let mut ends = [0; 3];
    for looks in 0..40 {
        let server = Server::start(|_| Reply::json(200, json!({"identifier": "new"}))).await;
        let (looked, hand) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(1_000)));
        let again: Arc<OnceLock<Fence>> = Arc::default();
        let fence = Fence::closed_by({
            let (looked, hand, again) = (Arc::clone(&looked), Arc::clone(&hand), Arc::clone(&again));
            move || {
                let shown = hand.load(SeqCst);
                if let Some(fence) = again.get()
                    && looked.fetch_add(1, SeqCst) == looks
                {
                    hand.store(AFTER_THE_LEASE, SeqCst);
                    fence.extend_to(Moment::after_start(Duration::from_secs(AFTER_THE_LEASE + 60)));
                }
                Moment::after_start(Duration::from_secs(shown))
            }
        });
        fence.extend_to(Moment::after_start(Duration::from_secs(1_060)));
        assert!(again.set(fence.clone()).is_ok());
        let (engine, _) = fenced(at(&server.url), &fence);
        let mut sent = 0;
        let failure = loop {
            let call = engine.call();
            match call.post(Kind::Server.names().path, json!({"name": "s"})).await {
                // Its answer came in the next epoch, or all of it belonged to that epoch.
                Ok(_) if !call.fence.may_act() || call.fence.epoch() > 1 => break None,
                Ok(_) => sent += 1,
                Err(failure) => break Some(failure),
            }
        };
        let arrived = server.seen().len();
        match failure.as_ref().map(|failure| failure.fate) {
            None => ends[2] += 1,
            // No part of it arrived.
            Some(Fate::Withheld) => {
                assert_eq!(arrived, sent, "{looks}: {failure:?}");
                ends[0] += 1;
            }
            // It was written before; the server may not have seen it yet.
            Some(Fate::TimedOut) => {
                assert!((sent..=sent + 1).contains(&arrived), "{looks}: {failure:?}");
                ends[1] += 1;
            }
            Some(fate) => panic!("{looks}: {fate:?} {failure:?}"),
        }
        assert!(fence.may_act());
        assert_eq!(fence.epoch(), 2, "{looks}");
        assert!(
            engine
                .call()
                .post(Kind::Server.names().path, json!({"name": "s"}))
                .await
                .is_ok()
        );
    }
    assert!(ends[0] > 0 && ends[1] > 0, "not every end was met: {ends:?}");
}

/// Set in the child process of the test below: the Engine's URL.
const STOPPED_URL: &str = "TRUEUP_TEST_STOPPED_URL";
const STOPPED_LEASE: Duration = Duration::from_secs(3);

/// Runs this one test again in a process of its own.
fn again(test: &str, set: impl FnOnce(&mut Command) -> &mut Command) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]);
    set(&mut command).spawn().unwrap()
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_sends_nothing_more() {
    if let Ok(url) = std::env::var(STOPPED_URL) {
        let fence = Fence::closed();
        let (engine, _) = fenced(at(&url), &fence);
        fence.extend_to(fence.now() + STOPPED_LEASE);
        while get_s1(&engine.call()).await.is_ok() {}
        assert!(!fence.may_act());
        return;
    }
    let server = Server::start(|_| Reply::json(200, server_json("s1"))).await;
    let test = "lbaas::anexia::tests::fence::a_process_that_was_stopped_past_its_lease_sends_nothing_more";
    let mut child = again(test, |command| command.env(STOPPED_URL, &server.url));
    let pid = Pid::from_child(&child);
    until("a request", || !server.seen().is_empty()).await;
    kill_process(pid, Signal::STOP).unwrap();
    tokio::time::sleep(STOPPED_LEASE).await;
    let before = server.seen().len();
    kill_process(pid, Signal::CONT).unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait()).await.unwrap();
    assert!(ended.unwrap().success());
    assert_eq!(server.seen().len(), before);
}
