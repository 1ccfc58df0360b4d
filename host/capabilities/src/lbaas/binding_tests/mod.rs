//! A guest's requests to an Engine: grants by load balancer, quotas, limits, and what is recorded.
mod engine;
mod quotas;

use std::sync::Arc;

use trueup_base::clock::VirtualClock;
use trueup_journal::{Entry, Event, Segment, Tape, TapeError};

use crate::bindings::host::clock::Host as _;
use crate::bindings::host::log::{Host as _, Level};
use crate::bindings::host::metrics::Host as _;
use crate::bindings::lbaas::api::Host as _;
use crate::grants::{EVERYTHING, Grants};
use crate::lbaas::testing::{backend, bind, frontend, server};
use crate::lbaas::{Api, Error, Object, State};
use crate::log::KeptLog;
use crate::meter::Limits;
use crate::metrics::Registry;
use crate::{Backends, Host, Identity, Stop, testing};
use engine::{Engine, engine, refs};

fn grants(read: &[&str], write: &[&str]) -> Grants {
    testing::grants("lbaas", read, write)
}

fn guest() -> Identity {
    Identity {
        name: "lbaas".into(),
        guest: "lbaas".into(),
        version: "1".into(),
        digest: "sha256:1".into(),
        instance: "default/web".into(),
    }
}

fn host(engine: &Arc<Engine>, grants: Grants, limits: Limits) -> Host {
    let api: Arc<dyn Api> = Arc::<Engine>::clone(engine);
    let backends = Backends {
        lbaas: Some(api),
        clock: Arc::new(VirtualClock::new(7)),
        ..Backends::default()
    };
    Host::new(guest(), Tape::memory(), grants, backends, limits)
}

fn denied<T>(what: &str) -> Result<T, Error> {
    Err(Error::AccessDenied(what.to_owned()))
}

/// Each answer in short: the identifier, the text of the refusal, or another error.
fn short(answers: &[Result<Object, Error>]) -> Vec<String> {
    answers
        .iter()
        .map(|answer| answer.as_ref().map_or_else(error, |object| object.identifier.clone()))
        .collect()
}

fn shorter(answers: Vec<Result<(), Error>>) -> Vec<String> {
    let each = answers.into_iter();
    each.map(|answer| answer.map_or_else(|denied| error(&denied), |()| "ok".to_owned()))
        .collect()
}

async fn destroy(host: &mut Host, identifiers: &[&str]) -> Vec<String> {
    shorter(host.destroy(refs(identifiers)).await.unwrap())
}

async fn reset(host: &mut Host, identifiers: &[&str]) -> Vec<String> {
    shorter(host.reset(refs(identifiers)).await.unwrap())
}

fn error(error: &Error) -> String {
    match error {
        Error::AccessDenied(what) => what.clone(),
        other => format!("{other:?}"),
    }
}

const NO_READ_2: &str = "no grant to read load balancer `lb-2`";
const NO_WRITE_2: &str = "no grant to write load balancer `lb-2`";

#[tokio::test]
async fn without_a_grant_nothing_reaches_the_engine() {
    let engine = engine();
    let mut host = host(&engine, Grants::default(), Limits::default());
    assert_eq!(
        host.load_balancer("lb-1".into()).await.unwrap(),
        denied("no grant to read load balancer `lb-1`")
    );
    assert_eq!(
        host.list_tagged("t".into()).await.unwrap(),
        denied("no grant to read any load balancer")
    );
    let (no_read, no_write) = (
        "no grant to read any load balancer",
        "no grant to write any load balancer",
    );
    assert_eq!(short(&host.get(refs(&["b1", "n1"])).await.unwrap()), [no_read; 2]);
    assert_eq!(
        short(&host.create(vec![backend("new", "lb-1")], vec![]).await.unwrap()),
        [no_write]
    );
    assert_eq!(reset(&mut host, &["b1"]).await, [no_write]);
    assert_eq!(destroy(&mut host, &["n1", "s1"]).await, [no_write; 2]);
    assert_eq!(engine.asked(), [""; 0]);
    let refused = |call| testing::refusals(&host, call);
    assert_eq!(
        ["api.load-balancer", "api.list-tagged", "api.get"].map(refused),
        [Some(1.0), Some(1.0), Some(2.0)]
    );
    assert_eq!(
        ["api.create", "api.reset", "api.destroy"].map(refused),
        [Some(1.0), Some(1.0), Some(2.0)]
    );
    assert_eq!((host.meter.effects.created, host.meter.effects.destroyed), (0, 0));
}

#[tokio::test]
async fn reads_are_granted_by_load_balancer() {
    let engine = engine();
    let mut host = host(&engine, grants(&["lb-1"], &[]), Limits::default());
    assert_eq!(host.load_balancer("lb-1".into()).await.unwrap(), Ok(State::Ok));
    assert_eq!(host.load_balancer("lb-2".into()).await.unwrap(), denied(NO_READ_2));
    let listed = host.list_tagged("t".into()).await.unwrap().unwrap();
    let listed: Vec<&str> = listed.iter().map(|object| object.identifier.as_str()).collect();
    assert_eq!(
        listed,
        ["b1", "f1", "n1", "s1"],
        "what is on another load balancer is not shown"
    );
    assert_eq!(
        engine.asked(),
        ["load-balancer lb-1", "list-tagged t"],
        "parents are in the list"
    );
    let answers = host.get(refs(&["s2", "n1", "f2", "b1"])).await.unwrap();
    assert_eq!(
        short(&answers),
        [NO_READ_2, "n1", NO_READ_2, "b1"],
        "in the order of the arguments"
    );
    assert_eq!(engine.asked(), ["get n1 b1"], "owners are known from the list");
    assert_eq!(
        reset(&mut host, &["b1"]).await,
        ["no grant to write any load balancer"],
        "reading is not changing"
    );
}

#[tokio::test]
async fn writes_are_granted_by_the_load_balancer_at_the_end_of_the_parents() {
    let engine = engine();
    let mut host = host(&engine, grants(&[EVERYTHING], &["lb-1"]), Limits::default());
    let specs = vec![
        backend("b-new", "lb-1"),
        backend("b-other", "lb-2"),
        frontend("f-other", "lb-2", "b2"),
        bind("n-new", "f1", "192.0.2.1"),
        bind("n-other", "f2", "192.0.2.1"),
        server("s-new", "b1"),
        server("s-other", "b2"),
        server("s-lost", "b9"),
    ];
    let answers = host.create(specs, vec!["t".into()]).await.unwrap();
    assert_eq!(
        short(&answers),
        [
            "backend-1",
            NO_WRITE_2,
            NO_WRITE_2,
            "bind-1",
            NO_WRITE_2,
            "server-1",
            NO_WRITE_2,
            "Error::NotFound"
        ],
        "a parent that does not exist is said as such"
    );
    let asked = engine.asked();
    assert_eq!(asked.last().unwrap(), "create b-new n-new s-new");
    assert_eq!(
        asked[..asked.len() - 1],
        ["get f1", "get f2", "get b1", "get b2", "get b9"],
        "each parent is read once"
    );
    // The call knows its own creations and need not ask the Engine for them.
    let answers = host.create(vec![server("s-newer", "backend-1")], vec![]).await.unwrap();
    assert_eq!(short(&answers), ["server-2"]);
    assert_eq!(engine.asked(), ["create s-newer"]);

    assert_eq!(
        destroy(&mut host, &["n2", "n1", "s2"]).await,
        [NO_WRITE_2, "ok", NO_WRITE_2]
    );
    assert_eq!(engine.asked(), ["get n2", "get n1", "get s2", "destroy n1"]);
    assert_eq!(reset(&mut host, &["b2", "b1"]).await, [NO_WRITE_2, "ok"]);
    assert_eq!(
        (host.meter.effects.created, host.meter.effects.destroyed),
        (4, 1),
        "refusals are no effects"
    );
    // A new call knows nothing of what the last one saw, which may have changed.
    engine.asked();
    host.begin_unrecorded_call();
    assert_eq!(reset(&mut host, &["b2", "b1"]).await, [NO_WRITE_2, "ok"]);
    assert_eq!(engine.asked(), ["get b2", "get b1", "reset b1"]);
}

#[tokio::test]
async fn a_list_spares_the_writes_that_follow_it_a_look() {
    let engine = engine();
    let mut host = host(&engine, grants(&[EVERYTHING], &["lb-1"]), Limits::default());
    assert_eq!(host.list_tagged("t".into()).await.unwrap().unwrap().len(), 8);
    assert_eq!(destroy(&mut host, &["n1", "s1", "s2"]).await, ["ok", "ok", NO_WRITE_2]);
    assert_eq!(engine.asked(), ["list-tagged t", "destroy n1 s1"]);
}

#[tokio::test]
async fn where_everything_is_granted_no_owner_is_looked_up() {
    let engine = engine();
    let mut host = host(&engine, Grants::everything(), Limits::default());
    assert_eq!(destroy(&mut host, &["n1", "n2"]).await, ["ok", "ok"]);
    assert_eq!(engine.asked(), ["destroy n1 n2"]);
}

/// A recording with the tape's content, as if from the start of an instance.
fn segment(entries: Vec<Entry>) -> Segment {
    Segment::of("test", 0, testing::header("lbaas"), entries).unwrap()
}

#[tokio::test]
async fn refusals_are_recorded_and_a_replay_needs_no_grants() {
    async fn asks(host: &mut Host) -> String {
        let one = host.load_balancer("lb-2".into()).await.unwrap();
        let list = host.list_tagged("t".into()).await.unwrap();
        let created = host
            .create(vec![server("s", "b2"), server("s", "b1")], vec![])
            .await
            .unwrap();
        let destroyed = host.destroy(refs(&["n2", "n1"])).await.unwrap();
        format!(
            "{one:?} {list:?} {created:?} {destroyed:?} {}",
            host.now_ms().await.unwrap()
        )
    }
    let engine = engine();
    let mut recording = host(&engine, grants(&["lb-1"], &["lb-1"]), Limits::default());
    let expected = asks(&mut recording).await;
    assert!(
        expected.contains(NO_READ_2) && expected.contains(NO_WRITE_2),
        "{expected}"
    );
    let entries = recording.tape.take_entries();
    assert_eq!(entries.len(), 5, "one a question, and none for the looks at owners");

    let tape = Tape::replay(segment(entries), "sha256:1");
    let metrics = Arc::new(Registry::default());
    let backends = Backends {
        metrics: Arc::clone(&metrics),
        ..Backends::default()
    };
    let mut replaying = Host::new(guest(), tape, Grants::default(), backends, Limits::default());
    assert_eq!(asks(&mut replaying).await, expected);
    assert!(replaying.tape.replay_outcome().unwrap().is_identical());
    assert!(
        metrics.samples().is_empty(),
        "nothing is refused in a replay: it was when it happened"
    );
    assert_eq!(replaying.meter.effects, recording.meter.effects);
}

fn stop<T>(answer: wasmtime::Result<T>) -> Stop {
    answer.err().unwrap().downcast::<Stop>().unwrap()
}

#[tokio::test]
async fn a_call_may_ask_so_many_questions_whether_they_are_answered_or_replayed() {
    let engine = engine();
    let limits = Limits {
        imports_per_call: 2,
        ..Limits::default()
    };
    let mut recording = host(&engine, Grants::everything(), limits);
    for _ in 0..2 {
        recording.load_balancer("lb-1".into()).await.unwrap().unwrap();
        recording.now_ms().await.unwrap();
        let refused = stop(recording.list_tagged("t".into()).await);
        assert!(
            matches!(
                refused,
                Stop::TooManyQuestions {
                    limit: 2,
                    name: "api.list-tagged"
                }
            ),
            "{refused}"
        );
        recording.begin_unrecorded_call();
    }
    assert_eq!(
        engine.asked(),
        ["load-balancer lb-1"; 2],
        "a question too many is not asked"
    );
    let tape = Tape::replay(segment(recording.tape.take_entries()), "sha256:1");
    let mut replaying = Host::new(guest(), tape, Grants::default(), Backends::default(), limits);
    replaying.load_balancer("lb-1".into()).await.unwrap().unwrap();
    replaying.now_ms().await.unwrap();
    assert!(matches!(
        stop(replaying.list_tagged("t".into()).await),
        Stop::TooManyQuestions { .. }
    ));
}

#[tokio::test]
async fn an_answer_above_its_size_never_reaches_the_guest() {
    let engine = engine();
    let whole = host(&engine, Grants::everything(), Limits::default())
        .list_tagged("t".into())
        .await
        .unwrap();
    let bytes = crate::size::AnswerSize::bytes(&whole) as u64;
    let within = Limits {
        answer_bytes: bytes,
        ..Limits::default()
    };
    assert_eq!(
        host(&engine, Grants::everything(), within)
            .list_tagged("t".into())
            .await
            .unwrap(),
        whole
    );
    let mut host = host(
        &engine,
        Grants::everything(),
        Limits {
            answer_bytes: bytes - 1,
            ..Limits::default()
        },
    );
    let Stop::Tape(TapeError::Refused(text)) = stop(host.list_tagged("t".into()).await) else {
        panic!("another stop")
    };
    assert_eq!(
        text,
        format!(
            "the answer of `api.list-tagged` is {bytes} bytes, above the limit `answer_bytes` of {}",
            bytes - 1
        )
    );
    let [recorded] = <[Entry; 1]>::try_from(host.tape.take_entries()).unwrap();
    assert!(
        matches!(recorded.event, Event::Ask(ask) if ask.answer.is_none()),
        "recorded as a question without an answer"
    );
}

#[tokio::test]
async fn lines_above_their_limit_are_dropped_and_counted() {
    let engine = engine();
    let log = Arc::new(KeptLog::default());
    let limits = Limits {
        log_lines_per_call: 2,
        metric_lines_per_call: 3,
        ..Limits::default()
    };
    let mut host = host(&engine, Grants::default(), limits);
    host.backends.log = log.clone();
    for _ in 0..2 {
        for _ in 0..5 {
            host.emit(Level::Info, "line".into(), vec![]).unwrap();
            host.counter_add("lines".into(), vec![], 1).unwrap();
        }
        assert_eq!(
            (host.meter.used.log_lines_dropped, host.meter.used.metric_lines_dropped),
            (3, 2)
        );
        host.begin_unrecorded_call();
    }
    assert_eq!(log.lines().len(), 4);
    let number = |series: &str| host.backends.metrics.number(series);
    assert_eq!(number("lines"), Some(6.0));
    assert_eq!(number(r#"trueup_log_lines_dropped_total{guest="lbaas"}"#), Some(6.0));
    assert_eq!(number(r#"trueup_metric_lines_dropped_total{guest="lbaas"}"#), Some(4.0));
}

#[tokio::test]
async fn without_a_backend_every_question_is_answered_so() {
    let mut host = testing::host("lbaas", Grants::everything(), Backends::default());
    let text = "this host has no backend for lbaas; configure `[backend.lbaas]`";
    assert_eq!(
        host.load_balancer("lb-1".into()).await.unwrap(),
        Err(Error::Unavailable(text.into()))
    );
    assert_eq!(
        host.destroy(refs(&["n1", "n2"])).await.unwrap(),
        [(); 2].map(|()| Err(Error::Unavailable(text.into())))
    );
}
