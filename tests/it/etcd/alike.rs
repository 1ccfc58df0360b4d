//! All stores give the same answers to a long sequence of questions with a fixed seed.

use needs::needs;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trueup_capabilities::etcd::{Compare, FIRST_REVISION, Operation};

use super::store::{Store, delete, put};

/// The number of questions: some seconds of a real etcd.
const QUESTIONS: usize = 400;

/// The last one is empty: no key, and the prefix of all.
const KEYS: [&str; 6] = ["/a", "/a/1", "/a/2", "/b/1", "/b/2", ""];
const VALUES: [&str; 3] = ["", "x", "y"];

fn compare(chance: &mut ChaCha8Rng) -> Compare {
    let key = KEYS[chance.random_range(0..KEYS.len() - 1)].to_owned();
    match chance.random_range(0..4) {
        0 => Compare::Absent(key),
        1 => Compare::Exists(key),
        2 => Compare::ModRevision((key, chance.random_range(0..20))),
        _ => Compare::Value((key, VALUES[chance.random_range(0..VALUES.len())].to_owned())),
    }
}

fn operation(chance: &mut ChaCha8Rng) -> Operation {
    // Rarely the empty one.
    let empty = chance.random_bool(0.02);
    let key = if empty {
        ""
    } else {
        KEYS[chance.random_range(0..KEYS.len() - 1)]
    };
    let value = VALUES[chance.random_range(0..VALUES.len())];
    if chance.random_bool(0.3) {
        delete(key)
    } else {
        put(key, value)
    }
}

/// The answer to the next question as text, without the wording of a refusal.
async fn answer(store: &Store, chance: &mut ChaCha8Rng) -> String {
    let api = &store.api;
    let key = KEYS[chance.random_range(0..KEYS.len())];
    let value = VALUES[chance.random_range(0..VALUES.len())];
    match chance.random_range(0..10) {
        0 => format!("get {key}: {:?}", api.get(key).await.map_err(|e| e.kind())),
        1 => format!("list {key}: {:?}", api.list_prefix(key).await.map_err(|e| e.kind())),
        2 => format!("keys {key}: {:?}", api.list_keys(key).await.map_err(|e| e.kind())),
        3 => format!("put {key}: {:?}", api.put(key, value).await.map_err(|e| e.kind())),
        4 => format!(
            "put if not {key}: {:?}",
            api.put_if_not_exists(key, value).await.map_err(|e| e.kind())
        ),
        5 => format!("delete {key}: {:?}", api.delete(key).await.map_err(|e| e.kind())),
        _ => {
            let compares: Vec<Compare> = (0..chance.random_range(0..3)).map(|_| compare(chance)).collect();
            let operations: Vec<Operation> = (0..chance.random_range(0..5)).map(|_| operation(chance)).collect();
            let made = api.commit(&compares, &operations).await.map_err(|e| e.kind());
            format!(
                "commit {compares:?} {operations:?}: {made:?} at {}",
                store.revision().await
            )
        }
    }
}

async fn questions(store: &Store, seed: u64) -> Vec<String> {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut answers = Vec::new();
    for _ in 0..QUESTIONS {
        answers.push(answer(store, &mut chance).await);
    }
    answers
}

async fn answers(store: &Store) -> Vec<String> {
    let mut answers = questions(store, 7).await;
    answers.push(format!("{:?}", store.api.listing("").await));
    let last = store.revision().await;
    let mut watch = store.api.watch("", 1);
    loop {
        let changes = watch.next().await.unwrap();
        answers.push(format!("{changes:?}"));
        if changes.revision == last {
            return answers;
        }
    }
}

#[needs(etcd)]
#[tokio::test(flavor = "multi_thread")]
async fn a_long_sequence_is_answered_alike_by_all_three() {
    let in_memory = answers(&Store::in_memory()).await;
    let made = in_memory.iter().filter(|answer| answer.contains(": Ok(true)")).count();
    assert!(made > 50, "most questions must not be refused: {made}");
    for (name, store) in [("embedded", Store::embedded()), ("etcd", Store::etcd().await)] {
        for (n, (left, right)) in in_memory.iter().zip(answers(&store).await).enumerate() {
            assert_eq!(*left, right, "question {n} of {name}");
        }
    }
}

#[tokio::test]
async fn a_plan_answers_as_the_store_that_fills_it_and_leaves_it_alone() {
    let (empty, store) = (Store::in_memory(), Store::in_memory());
    assert_eq!(answers(&empty.planned()).await, answers(&store).await);
    assert_eq!(empty.revision().await, FIRST_REVISION);

    let real = Store::in_memory();
    answers(&real).await;
    let before = real.api.listing("").await;
    let (plan, run) = (questions(&real.planned(), 8).await, questions(&store, 8).await);
    for (n, (planned, made)) in plan.iter().zip(&run).enumerate() {
        assert_eq!(planned, made, "question {n} over a store with entries");
    }
    assert_eq!(real.api.listing("").await, before);
}
