//! Versions of guests, and an active one at work: shared by the tests of the gate and of shadow.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use trueup_base::clock::VirtualClock;
use trueup_capabilities::Backends;
use trueup_capabilities::faults::Faults;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::lbaas::simulated::Simulated;
use trueup_capabilities::lbaas::{Kind, State};
use trueup_capabilities::log::NoLog;
use trueup_capabilities::meter::Limits;
use trueup_engine::{Engine, Options as EngineOptions};
use trueup_instance::{Instance, Instances, Program};
use trueup_journal::{Files, Options};
use trueup_worlds::worlds;

use super::{forgetful, misbehaving};

/// The name in the configuration, whatever the guest is.
pub(crate) const NAME: &str = "lbaas";

/// No test here takes this long: a test that hangs fails.
pub(crate) const GUARD: Duration = Duration::from_secs(120);

pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    Engine::new(&EngineOptions {
        cache_dir,
        ..EngineOptions::default()
    })
    .unwrap()
});
pub(crate) static LBAAS_1: LazyLock<Arc<Program>> = LazyLock::new(|| program(&shipped("lbaas", "1")));
pub(crate) static LBAAS_2: LazyLock<Arc<Program>> = LazyLock::new(|| program(&shipped("lbaas", "2")));
pub(crate) static FORGETFUL: LazyLock<Arc<Program>> = LazyLock::new(|| program(&forgetful::built()));
pub(crate) static IPAM: LazyLock<Arc<Program>> = LazyLock::new(|| program(&shipped("ipam", "1")));
/// Counts its calls, or does what the setting `does` says.
pub(crate) static COUNTING: LazyLock<Arc<Program>> =
    LazyLock::new(|| program(&misbehaving::built("1", misbehaving::guests::build)));
/// The same, but asks another question.
pub(crate) static COUNTING_2: LazyLock<Arc<Program>> =
    LazyLock::new(|| program(&misbehaving::built("2", misbehaving::guests::build)));

/// A shipped guest.
fn shipped(name: &'static str, version: &'static str) -> Vec<u8> {
    let world = match name {
        "ipam" => "trueup:ipam/ipam-datastore@0.1.0",
        _ => "trueup:lbaas/lbaas-reconciler@0.1.0",
    };
    forgetful::build(&misbehaving::guests::Source {
        name,
        version,
        features: if version == "2" { &["version-2"] } else { &[] },
        world,
    })
}

/// A shipped guest of which this workspace has one version.
pub(crate) fn only(name: &str) -> Vec<u8> {
    let source = misbehaving::guests::SOURCES.iter().find(|source| source.name == name);
    forgetful::build(source.unwrap())
}

pub(crate) fn program(bytes: &[u8]) -> Arc<Program> {
    program_of(&ENGINE, bytes)
}

fn program_of(engine: &Engine, bytes: &[u8]) -> Arc<Program> {
    Arc::new(Program::new(engine, engine.load(bytes).unwrap(), worlds()).unwrap())
}

/// An engine with room for this many instances, and the guest [`COUNTING`] on it.
pub(crate) fn counting_in_a_pool_of(instances_max: u32) -> (Engine, Arc<Program>) {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    let engine = Engine::new(&EngineOptions {
        cache_dir,
        instances_max,
        ..EngineOptions::default()
    })
    .unwrap();
    let program = program_of(&engine, &misbehaving::built("1", misbehaving::guests::build));
    (engine, program)
}

/// The active guest: its instances, and the Engine they use.
pub(crate) struct Active {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) instances: Instances,
    pub(crate) engine: Arc<Simulated>,
}

/// How one call went.
pub(crate) struct Made {
    pub(crate) took: Duration,
    pub(crate) answer: Option<Value>,
}

impl Active {
    pub(crate) fn new(program: &Arc<Program>, settings: Value, initial: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Simulated::new(Arc::new(VirtualClock::new(0)), Arc::new(Faults::default()), 0);
        engine.put_load_balancer("lb-1".to_owned(), State::Ok);
        Self {
            instances: Instances {
                engine: ENGINE.clone(),
                name: NAME,
                program: Arc::clone(program),
                recorded: Arc::new(|_| None),
                settings,
                afresh: false,
                grants: Grants::everything(),
                limits: Limits::default(),
                initial: initial.to_owned(),
                state_dir: dir.path().to_owned(),
                record: true,
                journal: Options::default(),
                files: Files::default(),
            },
            dir,
            engine: Arc::new(engine),
        }
    }

    /// The guest lbaas, version 1.
    pub(crate) fn lbaas() -> Self {
        Self::new(&LBAAS_1, json!({}), r#"{"format":1,"guest":"lbaas","version":1}"#)
    }

    pub(crate) async fn open(&self, key: &str) -> Instance {
        let backends = Backends {
            clock: Arc::new(VirtualClock::new(0)),
            log: Arc::new(NoLog),
            lbaas: Some(Arc::<Simulated>::clone(&self.engine) as _),
            ..Backends::default()
        };
        self.instances.open(key, backends).await.unwrap()
    }

    /// Makes the first backend fail.
    pub(crate) fn fail_a_backend(&self) {
        let resources = self.engine.resources();
        let mut backend = resources
            .into_iter()
            .find(|it| it.spec.kind() == Kind::Backend)
            .unwrap();
        backend.state = State::Failed;
        self.engine.put(backend);
    }

    pub(crate) fn digest(&self) -> String {
        self.instances.program.guest.digest.to_string()
    }
}

/// Calls the guest.
pub(crate) async fn make(instance: &mut Instance, call: &str, args: &RawValue) -> Made {
    let begun = Instant::now();
    let answer = instance.call(call, args).await;
    Made {
        took: begun.elapsed(),
        answer: answer.ok().map(|answer| serde_json::from_str(answer.get()).unwrap()),
    }
}

/// The `desired` of a service with these ports.
pub(crate) fn service(uid: &str, ports: &[u16]) -> Box<RawValue> {
    let port = |port: &u16| json!({"name": format!("p{port}"), "external": port, "internal": 30_000 + port});
    to_raw_value(&json!({ "desired": {
        "load_balancers": ["lb-1"], "name_suffix": format!("web.{uid}"), "service_uid": uid,
        "external_addresses": ["203.0.113.10"], "ports": ports.iter().map(port).collect::<Vec<_>>(),
        "servers": [{"name": "node-1", "address": "10.0.0.1"}], "backoff_steps": 5,
    } }))
    .unwrap()
}

pub(crate) const RECONCILE: &str = "reconciliation.reconcile";
pub(crate) const STATUS: &str = "reconciliation.status";
