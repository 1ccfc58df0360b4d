//! End to end against the simulated Engine, which knows the rules of the real one and shares no code with this backend.

use super::*;
use trueup_sims::lbaas::{ServerConfig, start as start_server};
use trueup_sims::{Fault, Server};

use crate::lbaas::{Api as _, Object, State};

const BEFORE: &str = "before";
const AFTER: &str = "after";

async fn start(config: ServerConfig) -> (Server, Anexia) {
    let config = ServerConfig {
        token: TOKEN.into(),
        load_balancers: vec!["lb".into()],
        ..config
    };
    let sim = start_server(config, ([127, 0, 0, 1], 0).into()).await.unwrap();
    let engine = engine_of(&sim);
    (sim, engine)
}

/// What an Engine with this configuration is asked for comes true.
async fn comes_true(config: ServerConfig) {
    let (_sim, engine) = start(config).await;
    let created = build(&engine).await;
    assert_true(&engine, &created).await;
}

/// With small pages, so that lists have several.
fn engine_of(sim: &Server) -> Anexia {
    let url = format!("http://{}", sim.local_addr());
    engine_with(at_with(&url, |it| it.page_size = 3)).0
}

fn fault(method: &str, path: &str, times: u32, effect: Value) -> Fault {
    let mut fault = json!({"method": method, "path": path, "times": times});
    fault
        .as_object_mut()
        .unwrap()
        .extend(effect.as_object().unwrap().clone());
    serde_json::from_value(fault).unwrap()
}

fn status(code: u16, when: &str) -> Value {
    json!({"status": code, "when": when})
}

fn close(when: &str) -> Value {
    json!({"close": when})
}

/// Creates what failed again until everything exists, as a guest does over several calls.
async fn create_all(engine: &Anexia, specs: &[Spec]) -> Vec<Object> {
    let mut created = Vec::new();
    let mut left = specs.to_vec();
    let mut errors = Vec::new();
    for _ in 0..20 {
        let answers = engine.create(&left, &tags()).await;
        let mut failed = Vec::new();
        for (spec, answer) in left.into_iter().zip(answers) {
            match answer {
                Ok(object) => created.push(object),
                Err(error) => {
                    errors.push(error);
                    failed.push(spec);
                }
            }
        }
        left = failed;
        if left.is_empty() {
            return created;
        }
    }
    panic!("still not created: {left:?}: {errors:?}");
}

fn identifier_of<'a>(objects: &'a [Object], name: &str) -> &'a str {
    &objects
        .iter()
        .find(|object| object.spec.name() == name)
        .unwrap()
        .identifier
}

/// Three ports with two servers and an address each.
async fn build(engine: &Anexia) -> Vec<Object> {
    let ports = ["a", "b", "c"];
    let backends = create_all(engine, &ports.map(backend)).await;
    let mut specs = Vec::new();
    for port in ports {
        let parent = identifier_of(&backends, port);
        specs.push(frontend(port, parent));
        specs.extend(["n1", "n2"].map(|node| server_of(&format!("{node}.{port}"), parent)));
    }
    let second = create_all(engine, &specs).await;
    let binds: Vec<Spec> = ports
        .iter()
        .map(|port| {
            let parent = second
                .iter()
                .find(|it| it.spec.kind() == Kind::Frontend && it.spec.name() == *port)
                .unwrap();
            bind(&format!("v6.{port}"), &parent.identifier, "2001:db8::1")
        })
        .collect();
    let third = create_all(engine, &binds).await;
    [backends, second, third].concat()
}

fn sorted_identifiers(objects: &[Object]) -> Vec<&str> {
    let mut identifiers: Vec<&str> = objects.iter().map(|object| object.identifier.as_str()).collect();
    identifiers.sort_unstable();
    identifiers
}

/// Asserts that exactly the created objects are listed, each once.
async fn assert_true(engine: &Anexia, created: &[Object]) {
    let listed = engine.list_tagged(TAG).await.unwrap();
    assert_eq!(sorted_identifiers(&listed), sorted_identifiers(created));
    assert_eq!(listed.len(), 15);
    assert_eq!(
        engine.orphans(&["lb".to_owned()], ["u-1".to_owned()].into()).await,
        Ok(Vec::new())
    );
}

#[tokio::test]
async fn a_service_lives_and_dies() {
    let (_sim, engine) = start(ServerConfig {
        latency_ms: 2,
        ..ServerConfig::default()
    })
    .await;
    assert_eq!(engine.load_balancer("lb").await, Ok(State::Ok));
    assert_eq!(engine.load_balancer("no").await, Err(Error::NotFound));
    assert_eq!(
        engine.list_tagged(TAG).await,
        Ok(Vec::new()),
        "the tag is unused so far"
    );
    let created = build(&engine).await;
    assert_true(&engine, &created).await;

    let all: Vec<ObjectRef> = created
        .iter()
        .map(|object| ObjectRef {
            kind: object.spec.kind(),
            identifier: object.identifier.clone(),
        })
        .collect();
    for (object, answer) in created.iter().zip(engine.get(&all).await) {
        let answer = answer.unwrap();
        assert_eq!((&answer.spec, answer.state), (&object.spec, State::Ok));
    }
    assert!(engine.reset(&all).await.iter().all(Result::is_ok));
    for (object, answer) in created.iter().zip(engine.get(&all).await) {
        assert_eq!(answer.unwrap().spec, object.spec, "a reset changes nothing");
    }

    let Err(Error::Refused((409, _))) = engine.destroy(&all[..1]).await.remove(0) else {
        panic!("others refer to it")
    };
    for kind in [Kind::Server, Kind::Bind, Kind::Frontend, Kind::Backend] {
        let refs: Vec<ObjectRef> = all.iter().filter(|it| it.kind == kind).cloned().collect();
        assert!(engine.destroy(&refs).await.iter().all(Result::is_ok));
        assert_eq!(engine.destroy(&refs[..1]).await, [Err(Error::NotFound)]);
    }
    assert_eq!(engine.list_tagged(TAG).await, Ok(Vec::new()));
}

#[tokio::test]
async fn lists_without_types_are_read_all_the_same() {
    let config = ServerConfig {
        resource_type_in_lists: false,
        ..ServerConfig::default()
    };
    comes_true(config).await;
}

#[tokio::test]
async fn whatever_goes_wrong_leaves_no_orphan_and_nothing_twice() {
    let posts = "/api/LBaaS/v1/*.json";
    let taggings = "/api/core/v1/resource.json/*/tags/*";
    let cases = [
        vec![fault("POST", posts, 4, status(503, AFTER))],
        vec![fault("POST", posts, 4, status(502, BEFORE))],
        vec![fault("POST", posts, 4, close(AFTER))],
        vec![fault("POST", posts, 4, close(BEFORE))],
        vec![fault("POST", posts, 3, status(500, AFTER))],
        vec![fault("POST", taggings, 5, status(409, BEFORE))],
        vec![fault("POST", taggings, 3, status(503, AFTER))],
        vec![fault("POST", taggings, 2, close(BEFORE))],
        vec![
            fault("POST", taggings, 2, status(500, BEFORE)),
            fault("DELETE", "*", 2, status(409, BEFORE)),
        ],
        vec![
            fault("POST", posts, 3, status(504, AFTER)),
            fault("GET", posts, 7, status(503, BEFORE)),
        ],
        vec![
            fault("GET", "*", 9, close(AFTER)),
            fault("POST", posts, 1, status(429, BEFORE)),
        ],
    ];
    for faults in cases {
        println!("{faults:?}");
        // Nothing here waits for the end of a limit.
        let config = ServerConfig {
            retry_after: false,
            faults,
            ..ServerConfig::default()
        };
        comes_true(config).await;
    }
}

#[tokio::test]
async fn a_host_that_comes_back_adopts_what_its_predecessor_left() {
    // Neither tagged nor destroyed.
    let faults = vec![
        fault("POST", "/api/core/v1/resource.json/*", 3, status(500, BEFORE)),
        fault("DELETE", "*", 3, status(500, BEFORE)),
    ];
    let (sim, predecessor) = start(ServerConfig {
        faults,
        ..ServerConfig::default()
    })
    .await;
    let specs = ["a", "b", "c"].map(backend);
    assert!(predecessor.create(&specs, &tags()).await.iter().all(Result::is_err));
    let orphans = predecessor
        .orphans(&["lb".to_owned()], ["u-1".to_owned()].into())
        .await
        .unwrap();
    assert_eq!(orphans.len(), 3);
    let successor = engine_of(&sim);
    let created = build(&successor).await;
    assert_true(&successor, &created).await;
    assert!(
        orphans
            .iter()
            .all(|(orphan, _)| sorted_identifiers(&created).contains(&orphan.identifier.as_str()))
    );
}

#[tokio::test]
async fn the_rate_limit_of_the_engine_is_kept() {
    let config = ServerConfig {
        rate_limit_per_second: std::num::NonZeroU32::new(10),
        ..ServerConfig::default()
    };
    let (_sim, engine) = start(config).await;
    let begun = Instant::now();
    let answers = engine.get(&refs(Kind::Backend, &["x"; 40])).await;
    // Ten, and ten more for each second that a slow machine takes.
    let admitted_max = 10 * (1 + begun.elapsed().as_secs());
    let admitted = answers.iter().filter(|answer| **answer == Err(Error::NotFound)).count();
    assert!(
        (10..=admitted_max).contains(&(admitted as u64)),
        "{admitted} of {admitted_max}"
    );
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Err(Error::NotFound | Error::RateLimited(Some(0..=1_000)))))
    );
    for _ in 0..1_000 {
        if let Err(Error::RateLimited(Some(_))) = engine.load_balancer("lb").await {
            return;
        }
    }
    panic!("no limit");
}
