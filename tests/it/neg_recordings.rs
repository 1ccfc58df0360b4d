//! Recordings of the guest `neg`: over restarts with timers and operations in flight, and replayed with the operator's
//! commands.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::Backends;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::neg::simulated::{Neg, Simulated};
use trueup_instance::{Instance, Instances};
use trueup_journal::{Options, segment_files};
use trueup_worlds::neg::guest::NAME;

use crate::programs::{built_in, instances};
use support::trueup;

const KEY: &str = "default/web:80";

/// One instance's host, world and clock.
struct Stage {
    folder: tempfile::TempDir,
    instances: Instances,
    api: Arc<Simulated>,
    clock: Arc<VirtualClock>,
}

fn endpoint(n: u8, is_dual: bool) -> Value {
    let ipv6 = if is_dual { format!("fd00::{n}") } else { String::new() };
    json!({"ip": format!("10.0.0.{n}"), "ipv6": ipv6, "port": "80", "node": "n1"})
}

impl Stage {
    /// Ten single-stack endpoints are in the NEG; each segment ends with its first call.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({"neg_names": {"s1": "web"}});
        let instances = instances(&built_in(NAME), NAME, settings, Grants::everything(), folder.path()).await;
        let api = Simulated::default();
        let endpoints: Vec<Value> = (1..=10).map(|n| endpoint(n, false)).collect();
        let neg = json!({"name": "web", "zone": "z1", "subnet": "s1", "endpoints": endpoints});
        api.put(serde_json::from_value::<Neg>(neg).unwrap());
        Self {
            instances: Instances {
                journal: Options {
                    segment_entries: 1,
                    ..Options::default()
                },
                ..instances
            },
            folder,
            api: Arc::new(api),
            clock: Arc::new(VirtualClock::new(100_000)),
        }
    }

    async fn open(&self) -> Instance {
        let backends = Backends {
            clock: Arc::<VirtualClock>::clone(&self.clock) as _,
            log: Arc::new(NoLog),
            neg: Some(Arc::<Simulated>::clone(&self.api) as _),
            ..Backends::default()
        };
        self.instances.open(KEY, backends).await.unwrap()
    }

    /// Ends an operation and notifies the instance.
    async fn end(&self, instance: &mut Instance, operation: u64) -> Value {
        assert!(self.api.end(operation, true), "operation {operation} is not under way");
        call(instance, "syncer.on-operation", json!({"operation": operation})).await
    }

    /// Moves the clock to the next timer and fires it: its id, its time and the answer.
    async fn fire(&self, instance: &mut Instance) -> (u64, u64, Value) {
        let due_ms = instance.host().timers.next_due_ms().unwrap();
        self.clock.set_ms(due_ms);
        let (_, timer) = instance.host_mut().timers.take_due(due_ms).unwrap();
        (
            timer,
            due_ms,
            call(instance, "timer-events.on-timer", json!({"timer": timer})).await,
        )
    }

    fn recordings(&self) -> Vec<PathBuf> {
        let segments = segment_files(&self.instances.recording(KEY)).unwrap();
        segments.into_iter().map(|segment| segment.path).collect()
    }
}

async fn call(instance: &mut Instance, name: &str, args: Value) -> Value {
    let answer = instance.call(name, &to_raw_value(&args).unwrap()).await.unwrap();
    serde_json::from_str(answer.get()).unwrap()
}

/// Asks for all ten endpoints with both families.
async fn sync(instance: &mut Instance) -> Value {
    let endpoints: Vec<Value> = (1..=10).map(|n| endpoint(n, true)).collect();
    let target = json!([{"location": {"zone": "z1", "subnet": "s1"}, "endpoints": endpoints}]);
    call(instance, "syncer.sync", json!({ "target": target })).await["Ok"].clone()
}

fn report(attaching: u32, detaching: u32, in_flight: u32) -> Value {
    let migration = (detaching > 0).then(|| json!({"zone": "z1", "subnet": "s1"}));
    json!({"attaching": attaching, "detaching": detaching, "in_flight": in_flight, "migration": migration})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_survives_restarts_and_each_segment_replays() {
    let stage = Stage::new().await;
    let mut instance = stage.open().await;
    assert_eq!(sync(&mut instance).await, report(0, 1, 0), "a tenth of ten");
    drop(instance);

    // An operation is in flight.
    let mut instance = stage.open().await;
    assert_eq!(sync(&mut instance).await, report(0, 0, 1));
    assert_eq!(stage.end(&mut instance, 1).await, json!(true));
    assert_eq!(
        instance.host().timers.next_due_ms(),
        Some(160_000),
        "a minute is waited for"
    );
    drop(instance);

    // A timer is pending: the host schedules it again for its remaining time, also for a new segment in the same
    // process.
    stage.clock.set_ms(130_000);
    let instance = stage.open().await;
    assert_eq!(
        (instance.host().timers.len(), instance.host().timers.next_due_ms()),
        (1, Some(160_000))
    );
    let segments = stage.recordings().len();
    let mut instance = stage.instances.rotate_if_long(instance).await.unwrap();
    assert_eq!(sync(&mut instance).await, report(1, 0, 0));
    let mut instance = stage.instances.rotate_if_long(instance).await.unwrap();
    assert!(stage.recordings().len() > segments);
    assert_eq!(instance.host().timers.len(), 1, "the old instance's are gone");
    assert_eq!(
        stage.fire(&mut instance).await,
        (1, 160_000, json!(true)),
        "ids begin at 1"
    );
    assert_eq!(stage.end(&mut instance, 2).await, json!(true));
    assert_eq!(sync(&mut instance).await, report(0, 1, 0));
    drop(instance);

    let recordings = stage.recordings();
    assert_eq!(recordings.len(), 4, "two restarts and a long one: {recordings:?}");
    let files = || recordings.iter().map(|file| file.to_str().unwrap());
    let replayed = trueup(["replay"].into_iter().chain(files())).exits(0);
    let identical = replayed.stdout.lines().filter(|line| line.contains(": identical: "));
    assert_eq!(identical.count(), recordings.len(), "{replayed}");

    let shown = trueup(["journal", "show", "--call", "api.detach"].into_iter().chain(files())).exits(0);
    let asked = shown
        .stdout
        .lines()
        .filter(|line| line.contains("api.detach {\"neg\":{\"name\":\"web\",\"zone\":\"z1\"}"));
    assert_eq!(asked.count(), 2, "{shown}");
    assert!(shown.stdout.contains("guest neg@1"), "{shown}");

    let inferred = trueup(["grants", "infer", stage.folder.path().to_str().unwrap()]).exits(0);
    let grants = "grants = { neg = { read = [\"web@z1\"], write = [\"web@z1\"] } }";
    assert!(inferred.stdout.contains(grants), "{inferred}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_was_edited_diverges_where_it_was() {
    let stage = Stage::new().await;
    let mut instance = stage.open().await;
    sync(&mut instance).await;
    drop(instance);
    let file = stage.recordings().pop().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let edited = stage.folder.path().join("edited.jsonl");
    // One endpoint of the list has another port: it is no twin of a desired one, so the guest removes it for good.
    let listed = r#""ip":"10.0.0.1","ipv6":"","port":"80""#;
    assert!(text.contains(listed), "{text}");
    std::fs::write(&edited, text.replacen(listed, &listed.replace("80", "81"), 1)).unwrap();
    let ran = trueup(["replay", edited.to_str().unwrap()]).exits(3);
    assert!(ran.stdout.contains("diverged at entry "), "{ran}");
}
