//! Changes to the list of interfaces while pods use them.

use std::time::Duration;

use serde_json::json;
use trueup_sources::enis::Eni;
use trueup_worlds::ipam::{Event, WarmTargets};

use super::host::{Stage, eni, enis, request};

#[tokio::test]
async fn what_leaves_the_list_goes_when_no_pod_uses_it() {
    let stage = Stage::new(&[
        eni("a", 0, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        eni("b", 1, &["10.0.1.1", "10.0.1.2"]),
    ]);
    let host = stage.start().await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    for container in ["c2", "c3"] {
        host.add(container).await;
    }
    assert_eq!(host.add("c4").await, "10.0.1.1");

    stage
        .enis
        .send_replace(enis(&[eni("a", 0, &["10.0.0.2", "10.0.0.3", "10.0.0.4"])]));
    // The free address of `b` is removed at once, so that no other pod keeps the interface alive.
    host.until_shown(&["a 10.0.0.1* 10.0.0.2* 10.0.0.3* 10.0.0.4", "b 10.0.1.1*"])
        .await;
    host.del("c4").await;
    host.until_shown(&["a 10.0.0.1* 10.0.0.2* 10.0.0.3* 10.0.0.4"]).await;
    host.del("c1").await;
    host.until_shown(&["a 10.0.0.2* 10.0.0.3* 10.0.0.4"]).await;
    host.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn an_address_moves_and_other_traits_come_when_no_pod_uses_them() {
    let stage = Stage::new(&[eni("a", 0, &["10.0.0.1"]), eni("b", 1, &["10.0.1.1"])]);
    let host = stage.start().await;
    assert_eq!(host.add("c1").await, "10.0.0.1");
    assert_eq!(host.add("c2").await, "10.0.1.1");
    stage.enis.send_replace(enis(&[
        eni("a", 0, &[]),
        Eni {
            is_trunk: true,
            ..eni("b", 5, &["10.0.1.1", "10.0.0.1"])
        },
    ]));
    host.del("c1").await;
    // An interface that is to be replaced gets no new pods: they would keep it forever.
    host.until_shown(&["a", "b 10.0.1.1*"]).await;
    let check = host.ask(&request("CHECK", "c2")).await;
    assert_eq!(check["ok"]["deviceNumber"], json!(1), "as long as a pod uses it");
    host.del("c2").await;
    host.until_shown(&["a", "b 10.0.0.1 10.0.1.1"]).await;
    let shown = host.ask(&json!({"v":1,"command":"SHOW"})).await;
    assert_eq!(shown["ok"]["enis"][1]["device_number"], json!(5));
    assert_eq!(shown["ok"]["enis"][1]["is_trunk"], json!(true));
    host.stop().await;
}

#[tokio::test]
async fn an_interface_that_is_to_be_replaced_gets_no_new_pods() {
    let stage = Stage::new(&[eni("a", 0, &["10.0.0.1", "10.0.0.2"])]);
    let host = stage.start().await;
    host.add("c1").await;
    stage.enis.send_replace(enis(&[eni("a", 3, &["10.0.0.1", "10.0.0.2"])]));
    host.until_shown(&["a 10.0.0.1*"]).await;
    assert_eq!(host.code(&request("ADD", "c2")).await, 11);
    host.del("c1").await;
    host.until_shown(&["a 10.0.0.1 10.0.0.2"]).await;
    let answer = host.ask(&request("ADD", "c2")).await;
    assert_eq!(answer["ok"]["deviceNumber"], json!(3), "{answer}");
    host.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn after_a_restart_unlisted_addresses_remain_but_not_given_up_interfaces() {
    let stage = Stage::new(&[eni("a", 0, &["10.0.0.1"]), eni("b", 1, &["10.0.1.1", "10.0.1.2"])]);
    let host = stage.start().await;
    host.add("c1").await;
    assert_eq!(host.add("c2").await, "10.0.1.1");
    stage.enis.send_replace(enis(&[eni("a", 0, &["10.0.0.1"])]));
    host.until_shown(&["a 10.0.0.1*", "b 10.0.1.1*"]).await;
    host.stop().await;

    let host = stage.start().await;
    assert_eq!(host.shown().await, ["a 10.0.0.1*", "b 10.0.1.1*"]);
    host.del("c2").await;
    host.until_shown(&["a 10.0.0.1*"]).await;
    host.stop().await;
    let remembered = std::fs::read_to_string(stage.dir.path().join("state/ipam/pods.json")).unwrap();
    assert!(!remembered.contains("10.0.1"), "{remembered}");

    std::fs::write(stage.settings().released_file, r#"{"enis":["a"]}"#).unwrap();
    let host = stage.start().await;
    assert!(host.shown().await.is_empty());
    host.stop().await;
}

#[tokio::test]
async fn what_pods_use_stays_theirs_when_the_instance_is_built_again() {
    let stage = Stage::new(&[eni("a", 0, &["10.0.0.1"]), eni("b", 1, &["10.0.1.1"])]);
    let mut host = stage.start().await;
    host.add("c1").await;
    assert_eq!(host.add("c2").await, "10.0.1.1");
    stage.enis.send_replace(enis(&[eni("a", 0, &["10.0.0.1"])]));
    host.until_shown(&["a 10.0.0.1*", "b 10.0.1.1*"]).await;
    stage.disk.traps.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(host.code(&request("DEL", "c1")).await, 11);
    host.event(|event| matches!(event, Event::Ended { .. })).await;
    assert_eq!(host.shown().await, ["a 10.0.0.1", "b 10.0.1.1*"]);

    stage.disk.failing_syncs.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(host.code(&request("ADD", "c1")).await, 11);
    host.event(|event| matches!(event, Event::RolledBack { .. })).await;
    let check = host.ask(&request("CHECK", "c2")).await;
    assert_eq!(check["ok"]["ip"], json!("10.0.1.1"), "{check}");
    host.stop().await;
}

#[tokio::test]
async fn a_given_up_interface_does_not_return_until_it_left_the_list() {
    let a = || Eni {
        is_primary: true,
        ..eni("a", 0, &["10.0.0.1", "10.0.0.2"])
    };
    let mut stage = Stage::new(&[a(), eni("b", 1, &["10.0.1.1"]), eni("c", 2, &["10.0.2.1"])]);
    stage.warm = Some(WarmTargets {
        warm_ip_target: 1,
        minimum_ip_target: 3,
    });
    let mut host = stage.start().await;
    host.add("c1").await;
    host.del("c1").await;
    let released = host.event(|event| matches!(event, Event::Released { .. })).await;
    assert!(matches!(released, Event::Released { eni, .. } if eni == "b"));
    assert_eq!(host.shown().await, ["a 10.0.0.1 10.0.0.2", "c 10.0.2.1"], "3 must stay");
    let written = || std::fs::read_to_string(stage.settings().released_file).unwrap();
    assert_eq!(written(), "{\"enis\":[\"b\"]}\n");
    stage.enis.send_replace(enis(&[
        a(),
        eni("b", 1, &["10.0.1.1"]),
        eni("c", 2, &["10.0.2.1", "10.0.2.2"]),
    ]));
    host.until_shown(&["a 10.0.0.1 10.0.0.2", "c 10.0.2.1 10.0.2.2"]).await;
    host.stop().await;

    let host = stage.start().await;
    assert_eq!(host.shown().await, ["a 10.0.0.1 10.0.0.2", "c 10.0.2.1 10.0.2.2"]);
    stage.enis.send_replace(enis(&[a()]));
    host.until_shown(&["a 10.0.0.1 10.0.0.2"]).await;
    assert_eq!(written(), "{\"enis\":[]}\n");
    stage.enis.send_replace(enis(&[a(), eni("b", 1, &["10.0.1.1"])]));
    host.until_shown(&["a 10.0.0.1 10.0.0.2", "b 10.0.1.1"]).await;
    host.stop().await;

    std::fs::write(stage.settings().released_file, "{").unwrap();
    let (tell, _events) = tokio::sync::mpsc::unbounded_channel();
    let refused = trueup_worlds::ipam::Served::start(stage.serving(stage.instances()), tell);
    let error = refused.err().expect("a damaged file is not passed over").to_string();
    assert!(
        error.contains("released.json") && error.contains("repair it"),
        "{error}"
    );
    tokio::time::sleep(Duration::ZERO).await;
}

#[tokio::test]
async fn an_address_that_the_guest_refuses_keeps_no_other_from_its_place() {
    let stage = Stage::new(&[eni("a", 0, &["10.0.0.01", "10.0.0.1", "10.0.0.2"])]);
    let host = stage.start().await;
    assert_eq!(host.shown().await, ["a 10.0.0.1 10.0.0.2"]);
    host.stop().await;
}
