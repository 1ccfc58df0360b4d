//! A one-time run brings the NEGs of a simulated Compute Engine to the state in the manifests: over HTTP, in one
//! process.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use trueup_config::Config;
use trueup_registry::{Builtin, Registry};
use trueup_runtime::run;
use trueup_work::event::Event;
use trueup_work::kind::Summary;
use trueup_worlds::sections;

use super::host::GUEST;

/// No test here takes this long: a test that hangs fails.
const GUARD: Duration = Duration::from_secs(120);

/// The stack size of a process's main thread, on which a host runs.
const STACK_BYTES: usize = 8 << 20;

/// The example, with short operations.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/neg");
    std::fs::create_dir(dir.path().join("manifests")).unwrap();
    for file in [
        "trueup.toml",
        "manifests/api.yaml",
        "manifests/nodes.yaml",
        "manifests/web.yaml",
    ] {
        std::fs::copy(example.join(file), dir.path().join(file)).unwrap();
    }
    let file = dir.path().join("trueup.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text
        .replace("127.0.0.1:9481", "127.0.0.1:0")
        .replace("migration_wait_ms = 1000", "migration_wait_ms = 60")
        .replace("operation_ms = 300", "operation_ms = 20");
    std::fs::write(&file, text).unwrap();
    dir
}

async fn once(site: &Path) -> (Summary, Vec<Event>) {
    let config = Config::load_with(site, &BTreeMap::new(), &sections()).unwrap();
    let registry = Registry::new(vec![Builtin {
        name: "neg",
        version: "1",
        world: "trueup:neg/neg-syncer@0.1.0",
        bytes: &GUEST,
    }]);
    let mut events = Vec::new();
    let running = run::once(&config, &registry, std::future::pending(), |event| events.push(event));
    let ended = tokio::time::timeout(GUARD, running).await.unwrap().unwrap();
    let [part] = <[_; 1]>::try_from(ended.parts).unwrap();
    (part.summary, events)
}

/// Keeps only the first `documents` documents of a manifest.
fn keep(site: &Path, file: &str, documents: usize) -> String {
    let file = site.join("manifests").join(file);
    let text = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.split("\n---\n").take(documents).collect();
    std::fs::write(&file, kept.join("\n---\n")).unwrap();
    text
}

#[test]
fn what_manifests_say_is_attached_moved_between_stacks_and_taken_away() {
    let run = || {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        threads.block_on(attach_move_and_take_away());
    };
    let host = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    host.unwrap().join().unwrap();
}

async fn attach_move_and_take_away() {
    let site = site();
    let dual = keep(site.path(), "web.yaml", 2);
    let (summary, events) = once(site.path()).await;
    assert!(summary.is_true, "{summary:?}");
    assert_eq!(
        summary.line, "2 negs: 2 true, 0 failed; 9 attached, 0 detached",
        "{events:?}"
    );

    let (summary, _) = once(site.path()).await;
    assert_eq!(
        summary.line, "2 negs: 2 true, 0 failed; 0 attached, 0 detached",
        "nothing changed"
    );

    std::fs::write(site.path().join("manifests/web.yaml"), dual).unwrap();
    let (summary, events) = once(site.path()).await;
    assert_eq!(summary.line, "2 negs: 2 true, 0 failed; 6 attached, 6 detached");
    let synced = |event: &Event| serde_json::to_value(event).unwrap()["synced"].clone();
    let most = events.iter().filter_map(|event| synced(event)["detaching"].as_u64());
    assert_eq!(most.max(), Some(1), "a tenth at a time: {events:?}");

    std::fs::remove_file(site.path().join("manifests/api.yaml")).unwrap();
    let (summary, events) = once(site.path()).await;
    assert_eq!(summary.line, "2 negs: 2 true, 0 failed; 0 attached, 3 detached");
    assert!(
        events
            .iter()
            .any(|event| synced(event)["key"] == "default/api/443" && synced(event)["gone"] == true),
        "{events:?}"
    );
    let (summary, _) = once(site.path()).await;
    assert_eq!(
        summary.line, "1 neg: 1 true, 0 failed; 0 attached, 0 detached",
        "it is forgotten"
    );
}
