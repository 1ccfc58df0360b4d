//! Releases that the CNI plugin stored while the host was down.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use trueup_worlds::ipam::Event;

use super::host::{Stage, eni, request};

/// Stores a release like the plugin does.
pub(crate) fn leave(stage: &Stage, container: &str) -> PathBuf {
    let dir = stage.spool();
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let digest = Sha256::digest(format!("net\0{container}\0eth0").as_bytes());
    let name = digest.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let file = dir.join(name + ".json");
    let text = json!({"v":1,"instance":null,"networkName":"net","containerID":container,"ifName":"eth0"});
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

fn stage() -> Stage {
    Stage::new(&[eni("eni-1", 1, &["10.0.0.1", "10.0.0.2", "10.0.0.3"])])
}

/// A host that gave these containers addresses, and is down.
async fn stopped_with(containers: &[&str]) -> Stage {
    let stage = stage();
    let host = stage.start().await;
    for container in containers {
        host.add(container).await;
    }
    host.stop().await;
    stage
}

#[tokio::test]
async fn releases_are_worked_off_before_anyone_is_served() {
    let stage = stopped_with(&["c1", "c2", "c3"]).await;
    let files = [leave(&stage, "c1"), leave(&stage, "c3"), leave(&stage, "unknown")];
    let mut host = stage.start().await;
    assert_eq!(host.shown().await, ["eni-1 10.0.0.1 10.0.0.2* 10.0.0.3"]);
    assert!(files.iter().all(|file| !file.exists()));
    let spool = host.event(|event| matches!(event, Event::Spool { .. })).await;
    assert!(matches!(spool, Event::Spool { done: 3, kept: 0, .. }), "{spool:?}");
    host.stop().await;
    stage.replay_all().await;
}

#[tokio::test]
async fn a_release_that_fails_stays_and_the_others_are_worked_off() {
    let stage = stopped_with(&["c1", "c2"]).await;
    let files = [leave(&stage, "c1"), leave(&stage, "c2")];
    stage.disk.traps.store(1, Ordering::SeqCst);
    let mut host = stage.start().await;
    let spool = host.event(|event| matches!(event, Event::Spool { .. })).await;
    assert!(matches!(spool, Event::Spool { done: 0, kept: 2, .. }), "{spool:?}");
    assert!(files.iter().all(|file| file.exists()), "tried again later");
    host.stop().await;
    let host = stage.start().await;
    assert!(files.iter().all(|file| !file.exists()));
    assert_eq!(host.shown().await, ["eni-1 10.0.0.1 10.0.0.2 10.0.0.3"]);
    host.stop().await;
}

#[tokio::test]
async fn a_release_whose_change_is_lost_stays() {
    let stage = stopped_with(&["c1", "c2"]).await;
    let file = leave(&stage, "c1");
    stage.disk.failing_syncs.store(1, Ordering::SeqCst);
    let mut host = stage.start().await;
    host.event(|event| matches!(event, Event::RolledBack { .. })).await;
    assert!(file.exists());
    let check = host.ask(&request("CHECK", "c1")).await;
    assert_eq!(check["ok"]["ip"], json!("10.0.0.1"));
    host.stop().await;
}

#[tokio::test]
async fn once_works_the_spool_off() {
    let stage = stage();
    let host = stage.start().await;
    host.add("c1").await;
    host.stop().await;
    let file = leave(&stage, "c1");
    let summary = trueup_worlds::ipam::once(stage.serving(stage.instances()), std::future::pending(), |_| {})
        .await
        .unwrap();
    assert_eq!((summary.released, summary.stats.assigned, summary.error), (1, 0, None));
    assert!(!file.exists());
}
