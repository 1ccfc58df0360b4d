//! Requests for pods, and the instance's behaviour when its store or a call fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use trueup_capabilities::checkpoint::Error;
use trueup_journal::Event as Entry;
use trueup_worlds::ipam::{self, Event};

use super::disk::Disk;
use super::host::{Stage, ask, eni, enis, request};

fn stage() -> Stage {
    Stage::new(&[eni("eni-1", 1, &["10.0.0.2", "10.0.0.1"]), eni("eni-0", 0, &[])])
}

fn status() -> Value {
    json!({"v":1,"command":"STATUS"})
}

#[tokio::test]
async fn a_pod_gets_an_address_keeps_it_and_gives_it_back() {
    let stage = stage();
    let mut host = stage.start().await;
    assert!(matches!(host.events.try_recv().unwrap(), Event::Read { stats, .. } if stats.enis == 2));
    assert_eq!(host.ask(&status()).await, json!({"v":1,"ok":{}}));
    assert_eq!(
        host.ask(&request("ADD", "c1")).await,
        json!({"v":1,"ok":{"ip":"10.0.0.1","deviceNumber":1}})
    );
    assert_eq!(host.add("c1").await, "10.0.0.1", "the same again");
    assert_eq!(host.add("c2").await, "10.0.0.2");
    assert_eq!(
        host.ask(&request("ADD", "c3")).await,
        json!({"v":1,"error":{"code":11,"msg":"no address is free","details":"net/c3/eth0"}})
    );
    assert_eq!(host.ask(&status()).await, json!({"v":1,"ok":{}}));
    assert_eq!(
        host.ask(&request("CHECK", "c2")).await,
        json!({"v":1,"ok":{"ip":"10.0.0.2","deviceNumber":1}})
    );
    assert_eq!(host.code(&request("CHECK", "c3")).await, 3);
    host.del("c1").await;
    host.del("c1").await;
    assert_eq!(host.add("c3").await, "10.0.0.1");
    assert_eq!(host.code(&request("ADD", "")).await, 4);
    host.stop().await;

    // Interfaces and addresses, the read, statistics, and the requests.
    assert!(stage.replay_all().await >= 15);
    let again = stage.start().await;
    assert_eq!(again.shown().await, ["eni-0", "eni-1 10.0.0.1* 10.0.0.2*"]);
    again.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn gc_frees_what_is_not_in_the_list_and_held_allocations_too() {
    let held = r#"{"version":"vpc-cni-ipam/1","allocations":[
        {"networkName":"_migrated-from-cri","containerID":"old","ifName":"unknown","ipv4":"10.9.0.1"},
        {"networkName":"net","containerID":"late","ifName":"eth0","ipv4":"10.9.0.2"}]}"#;
    let mut stage = stage();
    stage.disk = Disk::with(Some(trueup_capabilities::checkpoint::Saved {
        data: held.to_owned(),
        entries: Vec::new(),
    }));
    stage.guest["unknown_allocations"] = json!("hold");
    let host = stage.start().await;
    host.add("c1").await;
    host.add("c2").await;
    let held = async || {
        let shown = host.ask(&json!({"v":1,"command":"SHOW"})).await;
        shown["ok"]["stats"]["held"].as_u64().unwrap()
    };
    assert_eq!(held().await, 2);
    let mut gc = json!({"v":1,"command":"GC","network":"net","valid":[["c1","eth0"]],"gcMigrated":false});
    assert_eq!(host.ask(&gc).await, json!({"v":1,"ok":{}}));
    assert_eq!(host.shown().await, ["eni-0", "eni-1 10.0.0.1* 10.0.0.2"]);
    assert_eq!(held().await, 1);
    gc["gcMigrated"] = json!(true);
    host.ask(&gc).await;
    assert_eq!(held().await, 0);
    host.stop().await;
}

#[tokio::test]
async fn until_the_store_is_read_no_request_is_served_or_answered_as_empty() {
    let stage = stage();
    stage.disk.fail_restores(Some(Error::Corrupt("the file".to_owned())));
    let mut host = stage.start().await;
    for command in ["ADD", "DEL", "CHECK"] {
        let answer = host.ask(&request(command, "c1")).await;
        assert_eq!(
            answer,
            json!({"v":1,"error":{"code":11,"msg":"the store is not read: corrupt: the file","details":"net/c1/eth0"}})
        );
    }
    let gc = json!({"v":1,"command":"GC","network":"net","valid":[]});
    assert_eq!(host.code(&gc).await, 11);
    assert_eq!(host.code(&status()).await, 50);
    let shown = host.ask(&json!({"v":1,"command":"SHOW"})).await;
    assert_eq!(shown["ok"]["read"], json!(false));
    assert_eq!(shown["ok"]["error"], json!("corrupt: the file"));
    assert_eq!(shown["ok"]["stats"]["addresses"], json!(2));
    // An address that leaves the list now may belong to a pod: this is still unknown.
    stage
        .enis
        .send_replace(enis(&[eni("eni-1", 1, &["10.0.0.1", "10.0.0.3"])]));
    host.until_shown(&["eni-0", "eni-1 10.0.0.1 10.0.0.2 10.0.0.3"]).await;

    stage.disk.fail_restores(None);
    host.event(|event| matches!(event, Event::Read { .. })).await;
    host.until_shown(&["eni-1 10.0.0.1 10.0.0.3"]).await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    host.stop().await;
}

#[tokio::test]
async fn what_a_call_stored_before_it_ended_is_known_afterwards() {
    let stage = stage();
    let mut host = stage.start().await;
    assert_eq!(host.add("c0").await, "10.0.0.1");
    host.del("c0").await;

    stage.disk.traps.store(1, Ordering::SeqCst);
    assert_eq!(host.code(&request("ADD", "c1")).await, 11);
    host.event(|event| matches!(event, Event::Ended { .. })).await;
    assert!(stage.disk.text().contains("c1"), "it is stored");
    let check = host.ask(&request("CHECK", "c1")).await;
    let ip = check["ok"]["ip"].as_str().expect("the reading found it").to_owned();
    assert_eq!(host.add("c1").await, ip);
    assert_ne!(host.add("c2").await, ip);

    stage.disk.traps.store(1, Ordering::SeqCst);
    assert_eq!(host.code(&request("DEL", "c1")).await, 11);
    // The instance does not know that the pod is gone, so the pod may still have the address, or it may be free. Either
    // way:
    host.del("c1").await;
    assert_eq!(host.code(&request("CHECK", "c1")).await, 3);
    assert_eq!(host.add("c3").await, ip);
    host.stop().await;
    stage.replay_all().await;
    let again = stage.start().await;
    assert_eq!(again.add("c3").await, ip);
    again.stop().await;
}

#[tokio::test]
async fn a_request_that_ends_the_instance_each_time_stops_no_other() {
    let stage = stage();
    let host = stage.start().await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    // Other pods each time: a request that fails too often is set aside.
    for pod in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        host.add(pod).await;
        stage.disk.traps.store(1, Ordering::SeqCst);
        assert_eq!(host.code(&request("DEL", pod)).await, 11);
        let check = host.ask(&request("CHECK", "c1")).await;
        assert_eq!(check["ok"]["ip"], json!("10.0.0.1"), "{check}");
    }
    // Consecutive traps: each retry finds the data that the previous one stored.
    stage.disk.traps.store(6, Ordering::SeqCst);
    for command in ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL"] {
        assert_eq!(host.code(&request(command, "c2")).await, 11);
    }
    host.add("c2").await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    host.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn concurrent_requests_share_syncs_and_each_waits_for_its_own() {
    let addresses: Vec<String> = (0..64).map(|n| format!("10.0.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let stage = Stage::new(&[eni("eni-1", 1, &addresses)]);
    let host = stage.start().await;
    host.add("first").await;
    let gate = stage.disk.gate.lock().await;
    let before = stage.disk.syncs.load(Ordering::SeqCst);
    let served = Arc::new(host.served);
    let mut asked = tokio::task::JoinSet::new();
    for n in 0..48 {
        let served = Arc::clone(&served);
        asked.spawn(async move { ask(&served, &request("ADD", &format!("c{n}"))).await });
    }
    // A read that shows non-durable data waits like the change itself; STATUS shows no such data.
    let reader = Arc::clone(&served);
    while !stage.disk.text().contains("c47") {
        tokio::task::yield_now().await;
    }
    let mut read = tokio::spawn(async move { ask(&reader, &request("CHECK", "c47")).await });
    assert_eq!(ask(&served, &status()).await, json!({"v":1,"ok":{}}));
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), asked.join_next()).await;
    assert!(early.is_err(), "answered before it is durable: {early:?}");
    assert!(!read.is_finished());
    drop(gate);
    let mut given = std::collections::BTreeSet::new();
    while let Some(answer) = asked.join_next().await {
        assert!(given.insert(answer.unwrap()["ok"]["ip"].as_str().unwrap().to_owned()));
    }
    assert_eq!(given.len(), 48);
    assert!((&mut read).await.unwrap()["ok"]["ip"].is_string());
    let syncs = stage.disk.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs <= 4, "{syncs} syncs for 48 changes");
    Arc::into_inner(served).unwrap().stop().await;
}

#[tokio::test]
async fn what_was_lost_before_it_was_durable_is_an_error_and_undone() {
    let stage = stage();
    let mut host = stage.start().await;
    // The first change is a checkpoint, which is durable at once.
    assert_eq!(host.add("c1").await, "10.0.0.1");
    stage.disk.failing_syncs.store(1, Ordering::SeqCst);
    let answer = host.ask(&request("DEL", "c1")).await;
    assert_eq!(
        answer,
        json!({"v":1,"error":{"code":11,"msg":"backing-store: unavailable: the sync failed","details":"net/c1/eth0"}})
    );
    let rolled_back = host.event(|event| matches!(event, Event::RolledBack { .. })).await;
    let Event::RolledBack { stands, .. } = rolled_back else {
        unreachable!()
    };
    let check = host.ask(&request("CHECK", "c1")).await;
    assert_eq!(check["ok"]["ip"], json!("10.0.0.1"), "as it was before: {check}");
    // The store refuses entries until a checkpoint. The guest learns this from its first try.
    assert_eq!(host.code(&request("DEL", "c1")).await, 11);
    host.del("c1").await;
    assert_eq!(host.code(&request("CHECK", "c1")).await, 3);
    host.stop().await;

    let segments = stage.segments();
    let rolled_back = segments.iter().find_map(|segment| {
        let last = segment.entries.last()?;
        matches!(last.event, Entry::RolledBack(at) if at == stands).then_some(segment)
    });
    let calls = rolled_back.expect("the journal says so").entries.iter();
    let stood: Vec<&str> = calls
        .filter(|entry| entry.n <= stands)
        .filter_map(|entry| match &entry.event {
            Entry::Call(call) => Some(call.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        stood.last(),
        Some(&"datastore.assign-pod-ipv4-address"),
        "the DEL does not stand"
    );
    stage.replay_all().await;
}

#[tokio::test]
async fn once_reads_and_ends() {
    let stage = stage();
    let mut events = Vec::new();
    let summary = ipam::once(stage.serving(stage.instances()), std::future::pending(), |event| {
        events.push(event)
    })
    .await
    .unwrap();
    assert_eq!(
        (summary.stats.enis, summary.stats.addresses, summary.error),
        (2, 2, None)
    );
    assert!(matches!(events[..], [Event::Read { .. }]), "{events:?}");
    assert!(!stage.settings().socket.exists());

    stage.disk.fail_restores(Some(Error::Unavailable("gone".to_owned())));
    let summary = ipam::once(stage.serving(stage.instances()), std::future::ready(()), |_| {})
        .await
        .unwrap();
    assert_eq!(summary.error.as_deref(), Some("stopped before its end"));
}

#[tokio::test]
async fn without_a_phase_the_store_is_read_and_a_damaged_recording_is_harmless() {
    assert_eq!(
        ipam::guest_settings(json!({"cooling_period_ms": 5})),
        json!({"cooling_period_ms": 5, "checkpoint_migration_phase": 2})
    );
    assert_eq!(
        ipam::guest_settings(json!({"checkpoint_migration_phase": 1})),
        json!({"checkpoint_migration_phase": 1})
    );
    let stage = stage();
    let host = stage.start().await;
    host.add("c1").await;
    host.stop().await;
    let segments = stage.segments();
    assert_eq!(
        serde_json::from_str::<Value>(segments[0].header.settings.get()).unwrap()["checkpoint_migration_phase"],
        json!(2)
    );
    let file = std::path::PathBuf::from(&segments.last().unwrap().name);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"call\"", "\"cull\"", 1)).unwrap();
    let host = stage.start().await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    host.stop().await;
    assert!(file.with_extension("jsonl.damaged").exists());
    stage.replay_all().await;
}
