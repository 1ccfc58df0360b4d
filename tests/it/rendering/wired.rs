//! Built-in guests, wired as on a node: the engine, instances in a folder, and the host's work with them.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use trueup_base::clock::VirtualClock;
use trueup_journal::{Files, OPEN_FILES_MAX, Options, Tape};
use trueup_runtime::capabilities::grants::Grants;
use trueup_runtime::capabilities::log::NoLog;
use trueup_runtime::capabilities::meter::Limits;
use trueup_runtime::capabilities::{Backends, Host, Identity};
use trueup_runtime::guests::Program;
use trueup_runtime::instance::{Instance, Start};
use trueup_runtime::run::Instances;
use trueup_runtime::worlds::node::Wiring;
use trueup_runtime::worlds::node::guests::nodesync::Node;
use trueup_runtime::worlds::node::guests::service::{Event, State};
use trueup_runtime::worlds::worlds;
use trueup_runtime::{Engine, EngineOptions};

/// The node, which is the key of every instance.
pub(crate) const NODE: &str = "node-a";

/// No start of a guest comes near this limit.
const START_MAX: Duration = Duration::from_secs(60);

pub(crate) static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
});

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    Engine::new(&EngineOptions {
        cache_dir,
        ..EngineOptions::default()
    })
    .unwrap()
});

/// The built-in guest.
pub(crate) static SERVICE: LazyLock<Arc<Program>> = LazyLock::new(|| program("service"));
pub(crate) static NAT44: LazyLock<Arc<Program>> = LazyLock::new(|| program("nat44"));
pub(crate) static NFTABLES: LazyLock<Arc<Program>> = LazyLock::new(|| program("nftables"));

fn program(name: &str) -> Arc<Program> {
    let builtin = trueup_guests_builtin::find(name, "1").unwrap();
    Arc::new(Program::new(&ENGINE, ENGINE.load(builtin.bytes).unwrap(), worlds()).unwrap())
}

/// The default backends: no guest waits for this clock, and the test ignores this log.
pub(crate) fn backends() -> Backends {
    Backends {
        clock: Arc::new(VirtualClock::new(0)),
        log: Arc::new(NoLog),
        ..Backends::default()
    }
}

/// The right to read and write only these scopes of one capability.
pub(crate) fn grants(capability: &str, scopes: &[&str]) -> Grants {
    serde_json::from_value(json!({ capability: { "read": scopes, "write": scopes } })).unwrap()
}

/// The instances of a guest, recorded in `folder` under `name`.
pub(crate) async fn instances(
    program: &Arc<Program>,
    name: &'static str,
    settings: Value,
    grants: Grants,
    folder: &Path,
) -> Arc<Instances> {
    let host = Host::new(
        Identity::default(),
        Tape::memory(),
        Grants::default(),
        backends(),
        Limits::default(),
    );
    let start = Start {
        settings: &settings,
        snapshot: None,
        cpu_max: START_MAX,
    };
    let started = Instance::start(&ENGINE, program, host, start).await;
    let mut instance = started.map_err(|(_, error)| error).unwrap();
    let initial = instance.snapshot().await.unwrap();
    Arc::new(Instances {
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
    })
}

/// A wired node, and the last nodes that it received.
pub(crate) struct Wired {
    wiring: Wiring,
    nodes: Vec<Node>,
}

impl Wired {
    pub(crate) async fn new(
        service_settings: Value,
        folder: &Path,
        renderers: Vec<(Arc<Instances>, Backends)>,
    ) -> Self {
        let service = instances(&SERVICE, "service", service_settings, Grants::default(), folder).await;
        Self {
            wiring: Wiring::new(NODE, (service, backends()), renderers),
            nodes: Vec::new(),
        }
    }

    /// Returns the renderers' answer.
    pub(crate) async fn resync(&mut self, state: &State) -> Result<(), String> {
        self.nodes.clone_from(&state.nodes);
        self.wiring.resync(state.clone()).await.unwrap()
    }

    /// Returns the renderers' answer.
    pub(crate) async fn update(&mut self, event: &Event) -> Result<(), String> {
        if let Event::Nodes(nodes) = event {
            self.nodes.clone_from(nodes);
        }
        self.wiring.update(event.clone()).await.unwrap()
    }

    /// Retries renderers that are out of step, like the retry timer; true if all accepted.
    pub(crate) async fn retry(&mut self) -> bool {
        let mut all_took = true;
        for renderer in self.wiring.out_of_step().await {
            all_took &= self.wiring.retry(renderer).await.is_ok();
        }
        all_took
    }

    /// The host's work after failures: retries the renderers, and sends the processor its known nodes, so that it
    /// repeats pending questions.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        self.retry().await;
        let nodes = self.nodes.clone();
        self.update(&Event::Nodes(nodes)).await
    }

    pub(crate) async fn all_in_step(&self) -> bool {
        self.wiring.out_of_step().await.is_empty()
    }
}
