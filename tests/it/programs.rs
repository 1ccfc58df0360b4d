//! One engine for the tests that call guests without the binary. It keeps compiled guests for the next run.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;
use trueup_base::clock::VirtualClock;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::meter::Limits;
use trueup_capabilities::{Backends, Host, Identity};
use trueup_engine::{Engine, Options as EngineOptions};
use trueup_instance::{Instance, Instances, Program, Start};
use trueup_journal::{Files, OPEN_FILES_MAX, Options, Tape};
use trueup_worlds::worlds;

/// No start of a guest comes near this limit.
const START_MAX: Duration = Duration::from_secs(60);

pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    Engine::new(&EngineOptions {
        cache_dir,
        ..EngineOptions::default()
    })
    .unwrap()
});

pub(crate) fn program(bytes: &[u8]) -> Arc<Program> {
    Arc::new(Program::new(&ENGINE, ENGINE.load(bytes).unwrap(), worlds()).unwrap())
}

/// The first version of the built-in guest of this name.
pub(crate) fn built_in(name: &str) -> Arc<Program> {
    program(trueup_guests_builtin::find(name, "1").unwrap().bytes)
}

/// The default backends: no guest waits for this clock, and the test ignores this log.
pub(crate) fn backends() -> Backends {
    Backends {
        clock: Arc::new(VirtualClock::new(0)),
        log: Arc::new(NoLog),
        ..Backends::default()
    }
}

/// The instances of a guest, as after only its settings, recorded in `folder` under `name`.
pub(crate) async fn instances(
    program: &Arc<Program>,
    name: &'static str,
    settings: Value,
    grants: Grants,
    folder: &Path,
) -> Instances {
    let host = Host::new(
        Identity::default(),
        Tape::off(),
        Grants::everything(),
        backends(),
        Limits::default(),
    );
    let start = Start {
        settings: &settings,
        snapshot: None,
        cpu_max: START_MAX,
    };
    let started = Instance::start(&ENGINE, program, host, start).await;
    let initial = started.map_err(|(_, error)| error).unwrap().snapshot().await.unwrap();
    Instances {
        name,
        engine: ENGINE.clone(),
        program: Arc::clone(program),
        recorded: Arc::new(|_| None),
        afresh: false,
        settings,
        grants,
        limits: Limits::default(),
        initial,
        state_dir: folder.to_owned(),
        record: true,
        journal: Options::default(),
        files: Files::new(OPEN_FILES_MAX),
    }
}
