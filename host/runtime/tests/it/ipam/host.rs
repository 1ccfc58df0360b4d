//! A host with one instance of the real guest, in a folder and on a disk that outlive it.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use trueup_capabilities::Backends;
use trueup_capabilities::checkpoint::Store;
use trueup_capabilities::grants::Grants;
use trueup_capabilities::log::NoLog;
use trueup_capabilities::meter::Limits;
use trueup_config::FailurePolicy;
use trueup_instance::{Instances, Program, replay};
use trueup_journal::{Files, Options, Outcome, Segment, instance_dir, segment_files};
use trueup_sources::enis::{Eni, Enis};
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::lifecycle::quarantine::{Quarantine, SetAside};
use trueup_work::swap::FallBack;
use trueup_worlds::ipam::guest as ipam;
use trueup_worlds::ipam::{Event, ManagedGuest, Served, Serving, Settings, WarmTargets, guest_settings};

use super::disk::{ANSWER_BYTES, Disk};

use crate::versions::{ENGINE, only, program};

pub(crate) const INSTANCE: &str = "pods";

/// No test here takes this long: a test that hangs fails.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

static PROGRAM: LazyLock<Arc<Program>> = LazyLock::new(|| program(&only(ipam::NAME)));

/// The parameters of a host. `dir` and `disk` outlive it.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) disk: Arc<Disk>,
    pub(crate) guest: Value,
    pub(crate) warm: Option<WarmTargets>,
    pub(crate) enis: watch::Sender<Enis>,
}

pub(crate) struct Host {
    pub(crate) served: Served,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
}

/// The manager of the guest's versions.
pub(crate) struct Manager {
    handovers: mpsc::Sender<Handover>,
    quarantine: Arc<Quarantine>,
    fallen: mpsc::UnboundedReceiver<FallBack>,
}

impl Manager {
    /// Makes another version active, with the state of the one before.
    pub(crate) async fn hand_over(&self, mut instances: Instances) -> Result<(), String> {
        instances.settings = guest_settings(instances.settings);
        let (reply, replied) = oneshot::channel();
        let handover = Handover {
            instances: Arc::new(instances),
            commit: Box::new(|| Ok(())),
            reply,
        };
        assert!(self.handovers.send(handover).await.is_ok(), "the instance is served");
        replied.await.unwrap()
    }

    /// The requests that are set aside, by name.
    pub(crate) fn set_aside(&self) -> Vec<SetAside> {
        self.quarantine.all()
    }

    /// Why another version is requested. Taking it answers the request. `None` if there is no request.
    pub(crate) fn fallen(&mut self) -> Option<String> {
        self.fallen.try_recv().ok().map(|fallen| fallen.why)
    }
}

pub(crate) fn eni(id: &str, device_number: i32, addresses: &[&str]) -> Eni {
    Eni {
        id: id.to_owned(),
        device_number,
        is_primary: false,
        is_trunk: false,
        addresses: addresses.iter().map(|ip| (*ip).to_owned()).collect(),
    }
}

pub(crate) fn enis(list: &[Eni]) -> Enis {
    Enis { enis: list.to_vec() }
}

impl Stage {
    pub(crate) fn new(list: &[Eni]) -> Self {
        let (enis, _) = watch::channel(enis(list));
        Self {
            dir: tempfile::tempdir().unwrap(),
            disk: Arc::default(),
            guest: json!({ "cooling_period_ms": 0, "min_eni_lifetime_ms": 0 }),
            warm: None,
            enis,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            instance: INSTANCE.to_owned(),
            socket: self.dir.path().join("run/cni.sock"),
            spool_dir: Some(self.spool()),
            released_file: self.dir.path().join("released.json"),
            warm: self.warm,
        }
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    pub(crate) fn instances(&self) -> Instances {
        Instances {
            recorded: Arc::new(|_| None),
            engine: ENGINE.clone(),
            name: ipam::NAME,
            program: Arc::clone(&PROGRAM),
            settings: self.guest.clone(),
            afresh: false,
            grants: Grants::everything(),
            limits: Limits {
                answer_bytes: ANSWER_BYTES,
                ..Limits::default()
            },
            initial: r#"{"version":"trueup-ipam/1","enis":[],"resting":[],"held":[],"store":{"in_step":false,"entries":0,"blocked":null}}"#.to_owned(),
            state_dir: self.dir.path().join("state"),
            record: true,
            journal: Options::default(),
            files: Files::default(),
        }
    }

    pub(crate) fn backends(&self) -> Backends {
        Backends {
            log: Arc::new(NoLog),
            checkpoint: Some(Arc::<Disk>::clone(&self.disk) as Arc<dyn Store>),
            ..Backends::default()
        }
    }

    /// Starts a host.
    pub(crate) async fn start(&self) -> Host {
        self.start_with(self.instances()).await
    }

    /// The same, and failing requests are set aside.
    pub(crate) async fn watched(&self, policy: FailurePolicy) -> (Host, Manager) {
        let mut instances = self.instances();
        instances.settings = guest_settings(instances.settings);
        let quarantine = Arc::new(Quarantine::load(&instances.state_dir, instances.name));
        let (fall_back, fallen) = mpsc::unbounded_channel();
        let (hand_over, handovers) = mpsc::channel(1);
        let of = trueup_work::host_context::Supervision {
            quarantine: Arc::clone(&quarantine),
            handovers,
            fall_back,
        };
        let managing = ManagedGuest::new(Active::new(Arc::new(instances)), of, policy);
        let manager = Manager {
            handovers: hand_over,
            quarantine,
            fallen,
        };
        (self.start_with(managing).await, manager)
    }

    /// What serving pods needs.
    pub(crate) fn serving(&self, managed: impl Into<ManagedGuest>) -> Serving {
        Serving {
            settings: self.settings(),
            managed: managed.into(),
            backends: self.backends(),
            enis: self.enis.subscribe(),
        }
    }

    async fn start_with(&self, managing: impl Into<ManagedGuest>) -> Host {
        let (tell, events) = mpsc::unbounded_channel();
        let mut served = Served::start(self.serving(managing), tell).unwrap();
        tokio::time::timeout(GUARD, served.is_up()).await.unwrap();
        Host { served, events }
    }

    pub(crate) fn segments(&self) -> Vec<Segment> {
        let folder = instance_dir(&self.dir.path().join("state/journals"), ipam::NAME, INSTANCE);
        let files = segment_files(&folder).unwrap();
        files.iter().map(|file| Segment::read(&file.path).unwrap()).collect()
    }

    /// Replays every segment of the recording. Returns the total number of calls.
    pub(crate) async fn replay_all(&self) -> u64 {
        let mut replayed = 0;
        for segment in self.segments() {
            match replay::replay(&ENGINE, &PROGRAM, segment, replay::Options::default())
                .await
                .unwrap()
            {
                Outcome::Identical(tally) | Outcome::IdenticalAsFarAsRecorded { tally, .. } => replayed += tally.calls,
                other => panic!("{other}"),
            }
        }
        replayed
    }
}

pub(crate) fn request(command: &str, container: &str) -> Value {
    json!({
        "v": 1, "command": command, "instance": null,
        "network": "net", "containerId": container, "ifName": "eth0",
    })
}

pub(crate) async fn ask(served: &Served, request: &Value) -> Value {
    let answer = tokio::time::timeout(GUARD, served.answer(request.to_string().as_bytes())).await;
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

impl Host {
    pub(crate) async fn ask(&self, request: &Value) -> Value {
        ask(&self.served, request).await
    }

    /// The address that an ADD received.
    pub(crate) async fn add(&self, container: &str) -> String {
        let answer = self.ask(&request("ADD", container)).await;
        answer["ok"]["ip"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    pub(crate) async fn del(&self, container: &str) {
        assert_eq!(self.ask(&request("DEL", container)).await, json!({ "v": 1, "ok": {} }));
    }

    pub(crate) async fn code(&self, request: &Value) -> u64 {
        let answer = self.ask(request).await;
        answer["error"]["code"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    }

    /// Ids of interfaces with their addresses. Those of pods are marked.
    pub(crate) async fn shown(&self) -> Vec<String> {
        let answer = self.ask(&json!({ "v": 1, "command": "SHOW" })).await;
        let enis = answer["ok"]["enis"].as_array().unwrap();
        let tell = |eni: &Value| {
            let addresses = eni["addresses"].as_array().unwrap().iter().map(|address| {
                let mark = if address["key"].is_null() { "" } else { "*" };
                format!(" {}{mark}", address["address"].as_str().unwrap())
            });
            eni["id"].as_str().unwrap().to_owned() + &addresses.collect::<String>()
        };
        enis.iter().map(tell).collect()
    }

    /// Waits until the interfaces are these.
    pub(crate) async fn until_shown(&self, expected: &[&str]) {
        let wait = async {
            while self.shown().await != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(GUARD, wait).await.is_err() {
            panic!("expected {expected:?}, there is {:?}", self.shown().await);
        }
    }

    /// Waits for an event that `fits` accepts.
    pub(crate) async fn event(&mut self, fits: impl Fn(&Event) -> bool) -> Event {
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("an event");
                if fits(&event) {
                    return event;
                }
            }
        };
        tokio::time::timeout(GUARD, wait).await.expect("the event comes")
    }

    pub(crate) async fn stop(self) {
        tokio::time::timeout(GUARD, self.served.stop()).await.unwrap();
    }
}
