//! Requests on which the guest always fails: each is set aside, while all others are served.

use serde_json::json;
use trueup_config::{FailurePolicy, OnFailure};
use trueup_registry::Reference;
use trueup_worlds::ipam::Event;

use super::host::{Host, INSTANCE, Stage, eni, request};
use super::spool::leave;

/// The container for whose entries the store's answer is always too long.
const BAD: &str = "bad-container";

fn policy(on_failure: OnFailure) -> FailurePolicy {
    FailurePolicy {
        on_failure,
        quarantine_after: 3,
        ..FailurePolicy::default()
    }
}

fn stage() -> Stage {
    let stage = Stage::new(&[eni("eni-1", 1, &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"])]);
    *stage.disk.poison.lock().unwrap() = Some(BAD);
    stage
}

/// The error of a request, and the number of instances that ended during it.
async fn refused(host: &mut Host, command: &str) -> (String, usize) {
    let answer = host.ask(&request(command, BAD)).await;
    assert_eq!(answer["error"]["code"], json!(11), "{answer}");
    // Another request waits until the ended instance is replaced, and by then its end is reported.
    host.ask(&json!({"v": 1, "command": "SHOW"})).await;
    let mut ended = 0;
    while let Ok(event) = host.events.try_recv() {
        ended += usize::from(matches!(event, Event::Ended { .. }));
    }
    (
        answer["error"]["msg"].as_str().unwrap().to_owned() + answer["error"]["details"].as_str().unwrap_or(""),
        ended,
    )
}

const SET_ASIDE: &str =
    "the guest failed in this 3 times in a row, and is not asked again until another version is active: ";

#[tokio::test]
async fn a_request_that_fails_too_often_is_refused_and_others_are_served() {
    let stage = stage();
    let (mut host, manager) = stage.watched(policy(OnFailure::Retry)).await;
    for turn in 0..3 {
        assert_eq!(manager.set_aside(), []);
        let (said, ended) = refused(&mut host, "ADD").await;
        assert!(
            said.contains("the instance gave no answer: ") && ended == 1,
            "{turn}: {said}"
        );
        host.add(&format!("c{turn}")).await;
    }
    for _ in 0..2 {
        let (said, ended) = refused(&mut host, "ADD").await;
        assert!(
            said.contains(SET_ASIDE) && said.contains("answer_bytes") && ended == 0,
            "{said}"
        );
    }
    let all = manager.set_aside();
    let [entry] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(
        (entry.instance.as_str(), entry.failures),
        ("pods ADD net/bad-container/eth0", 3)
    );
    assert!(entry.journal.ends_with(format!("journals/ipam/{INSTANCE}")) && entry.journal.is_dir());
    // Requests for other containers, and other requests for this one.
    assert_eq!(host.code(&request("CHECK", BAD)).await, 3);
    host.del("c0").await;
    host.stop().await;

    // The next process knows it. With other limits, it tries again.
    let (mut host, manager) = stage.watched(policy(OnFailure::Retry)).await;
    assert!(refused(&mut host, "ADD").await.0.contains(SET_ASIDE));
    let mut next = stage.instances();
    next.limits.imports_per_call += 1;
    manager.hand_over(next).await.unwrap();
    assert_eq!(manager.set_aside(), [], "another version is asked");
    let (said, ended) = refused(&mut host, "ADD").await;
    assert!(said.contains("the instance gave no answer: ") && ended == 1, "{said}");
    // The store was the cause, and it works again.
    *stage.disk.poison.lock().unwrap() = None;
    let ip = host.add(BAD).await;
    assert_ne!(ip, host.add("c1").await, "two pods, two addresses");
    host.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn an_answer_and_the_pods_end_forgive() {
    let stage = stage();
    let (mut host, manager) = stage.watched(policy(OnFailure::Retry)).await;
    for turn in 0..4 {
        *stage.disk.poison.lock().unwrap() = Some(BAD);
        for _ in 0..2 {
            assert_eq!(refused(&mut host, "ADD").await.1, 1, "{turn}");
        }
        *stage.disk.poison.lock().unwrap() = None;
        host.add(BAD).await;
        host.del(BAD).await;
    }
    assert_eq!(manager.set_aside(), [], "never so often in a row");
    *stage.disk.poison.lock().unwrap() = Some(BAD);
    for _ in 0..3 {
        refused(&mut host, "ADD").await;
    }
    assert_eq!(manager.set_aside().len(), 1);
    // No address was assigned, so its release needs no change of the store.
    host.del(BAD).await;
    assert_eq!(manager.set_aside(), [], "no request is about this pod any more");
    host.stop().await;
}

#[tokio::test]
async fn a_release_set_aside_ends_no_instance_from_the_spool_or_gc_either() {
    let stage = stage();
    *stage.disk.poison.lock().unwrap() = None;
    let (mut host, manager) = stage.watched(policy(OnFailure::Hold)).await;
    for container in [BAD, "c1", "c2"] {
        host.add(container).await;
    }
    *stage.disk.poison.lock().unwrap() = Some(BAD);
    let gc = json!({"v": 1, "command": "GC", "network": "net", "valid": [["c1", "eth0"]]});
    assert_eq!(host.code(&gc).await, 11);
    assert_eq!(manager.set_aside()[0].instance, "pods DEL net/bad-container/eth0");
    let ended = host.event(|event| matches!(event, Event::Ended { .. })).await;
    assert!(matches!(ended, Event::Ended { .. }));
    assert_eq!(host.code(&gc).await, 11);
    let (said, ended) = refused(&mut host, "DEL").await;
    assert!(said.contains("failed in this 1 times in a row") && ended == 0, "{said}");
    assert_eq!(
        host.code(&request("CHECK", "c2")).await,
        3,
        "what else was unused is free"
    );
    host.stop().await;

    let files = [leave(&stage, BAD), leave(&stage, "c1")];
    let (mut host, _hand) = stage.watched(policy(OnFailure::Hold)).await;
    let mut ended = 0;
    let spool = loop {
        match host.events.recv().await.unwrap() {
            Event::Ended { .. } => ended += 1,
            spool @ Event::Spool { .. } => break spool,
            _ => {}
        }
    };
    assert!(matches!(spool, Event::Spool { done: 1, kept: 1, .. }), "{spool:?}");
    assert_eq!((ended, files.map(|file| file.exists())), (0, [true, false]));
    host.stop().await;
}

#[tokio::test]
async fn another_version_is_wished_for_and_again_once_that_wish_is_answered() {
    let stage = stage();
    let to = Reference::Builtin {
        name: "ipam".to_owned(),
        version: "1".to_owned(),
    };
    let (mut host, mut manager) = stage.watched(policy(OnFailure::FallBack(to))).await;
    for _ in 0..3 {
        assert_eq!(manager.fallen(), None);
        refused(&mut host, "ADD").await;
    }
    let why = manager.fallen().unwrap();
    assert!(
        why.starts_with(
            "pods ADD net/bad-container/eth0 failed 3 times: guest `ipam@1` in `datastore.assign-pod-ipv4-address`: "
        ),
        "{why}"
    );
    assert_eq!((manager.set_aside().len(), manager.fallen()), (1, None));
    manager.hand_over(stage.instances()).await.unwrap();
    for _ in 0..3 {
        refused(&mut host, "ADD").await;
    }
    assert!(manager.fallen().is_some());
    host.stop().await;
}
