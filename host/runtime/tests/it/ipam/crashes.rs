//! Kills, traps and lost syncs in any order: no address is assigned twice, and every answer remains true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use trueup_worlds::ipam::Served;

use super::host::{GUARD, Host, Stage, ask, eni, request};

const CLIENTS: usize = 8;
const KILLS: usize = 12;

/// Answers that remain true until the same container sends another request.
#[derive(Default)]
struct Certain {
    /// The address of each container.
    held: BTreeMap<String, String>,
    /// Containers without an address.
    free: BTreeSet<String>,
}

/// One client: adds and deletes its own pods until the host is gone.
async fn client(served: Arc<Served>, mut chance: ChaCha8Rng, name: usize, certain: Arc<Mutex<Certain>>) {
    loop {
        // A host that is gone answers at once, and the runtime ends tasks only at await points.
        tokio::task::yield_now().await;
        let container = format!("pod-{name}-{}", chance.random_range(0..4));
        if chance.random_bool(0.5) {
            certain.lock().unwrap().free.remove(&container);
            let answer = ask(&served, &request("ADD", &container)).await;
            if let Some(ip) = answer["ok"]["ip"].as_str() {
                let before = certain.lock().unwrap().held.insert(ip.to_owned(), container.clone());
                assert!(
                    before.as_ref().is_none_or(|before| *before == container),
                    "{ip} is given to {container} and still that of {before:?}"
                );
            } else {
                assert_eq!(answer["error"]["code"], json!(11), "{answer}");
            }
        } else {
            certain.lock().unwrap().held.retain(|_, holder| *holder != container);
            let answer = ask(&served, &request("DEL", &container)).await;
            if answer["ok"].is_object() {
                certain.lock().unwrap().free.insert(container);
            } else {
                assert_eq!(answer["error"]["code"], json!(11), "{answer}");
            }
        }
    }
}

/// Injects faults while clients send requests.
async fn trouble(stage: &Stage, chance: &mut ChaCha8Rng) {
    for _ in 0..chance.random_range(1..6) {
        tokio::time::sleep(Duration::from_millis(chance.random_range(0..15))).await;
        match chance.random_range(0..4) {
            0 => stage.disk.traps.store(1, Ordering::SeqCst),
            1 => stage.disk.failing_syncs.store(1, Ordering::SeqCst),
            _ => {}
        }
    }
}

fn check(seed: u64) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let addresses: Vec<String> = (0..24).map(|n| format!("10.0.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut stage = Stage::new(&[eni("a", 0, &addresses[..12]), eni("b", 1, &addresses[12..])]);
    stage.guest["compact_after"] = json!(20);
    let certain: Arc<Mutex<Certain>> = Arc::default();
    let mut checked_free = 0;
    for life in 0..KILLS {
        let host = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        host.block_on(async {
            let Host { served, events: _ } = stage.start().await;
            let (held, free) = {
                let certain = certain.lock().unwrap();
                (certain.held.clone(), certain.free.clone())
            };
            for (ip, container) in held {
                let answer = ask(&served, &request("CHECK", &container)).await;
                assert_eq!(
                    answer["ok"]["ip"],
                    json!(ip),
                    "seed {seed}, life {life}: {container} {answer}"
                );
            }
            for container in free {
                let answer = ask(&served, &request("CHECK", &container)).await;
                assert_eq!(
                    answer["error"]["code"],
                    json!(3),
                    "seed {seed}, life {life}: the DEL of {container} is lost: {answer}"
                );
                checked_free += 1;
            }
            let served = Arc::new(served);
            let mut clients = tokio::task::JoinSet::new();
            for name in 0..CLIENTS {
                let chance = ChaCha8Rng::seed_from_u64(chance.next_u64());
                clients.spawn(client(Arc::clone(&served), chance, name, Arc::clone(&certain)));
            }
            trouble(&stage, &mut chance).await;
            // On a slow machine there may have been no answer until now: the last run needs something to check.
            if checked_free == 0 && life + 2 >= KILLS {
                let answered = async {
                    while certain.lock().unwrap().free.is_empty() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::time::timeout(GUARD, answered)
                    .await
                    .expect("some DEL is answered");
            }
            // A client ends only if something is wrong.
            if let Some(ended) = clients.try_join_next() {
                ended.unwrap();
            }
        });
        // The kill: everything stops at its current point.
        host.shutdown_timeout(GUARD);
        stage.disk = stage.disk.after_crash(chance.random_range(0..4));
    }
    assert!(checked_free > 0, "seed {seed}: no answered DEL was looked for");
    let last = tokio::runtime::Runtime::new().unwrap();
    last.block_on(async {
        stage.replay_all().await;
    });
}

#[test]
fn after_any_kill_no_address_is_held_twice_and_answers_remain_true() {
    for seed in 0..4 {
        check(seed);
    }
}
