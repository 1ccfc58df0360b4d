//! Pod addresses: what the IPAM guest is told of this node's network interfaces, and whom it serves.
//!
//! ```text
//! pods -> server -> actor (one an instance: calls one after another) -> guest -> store
//! ENIs ---------------^            |
//! spool --------------^            +-> answers wait for the store -> pods
//! ```

mod actor;
mod client;
mod datastore;
mod durability;
mod enis;
mod failing;
mod holders;
pub mod protocol;
mod released;
mod remembered;
mod router;
mod server;
mod spool;
mod state_file;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use trueup_capabilities::Backends;
use trueup_capabilities::cri::Runtime;

pub use self::client::{release, show};
pub use self::holders::{FORGOTTEN_AFTER_MS, Forgotten};
pub use self::server::CONNECTIONS_MAX;

pub(crate) use self::failing::Failing;

use self::actor::{Actor, Parts, Standing};
use self::released::Released;
use self::remembered::Remembered;
use self::router::{Door, QUEUE_MAX, Router};
use crate::config::FailurePolicy;
use crate::run::active::{Active, Handover};
use crate::run::quarantine::Quarantine;
use crate::run::{Instances, SetAside, SetupError};
use crate::socket::Place;
use crate::swap::Fallen;

/// A first reading of the store that failed is tried again after so long.
pub const READING_RETRY: Duration = Duration::from_secs(5);

/// With [`once`], a reading that failed so often is given up: as for the keys of other guests.
pub const READINGS_MAX_ONCE: u32 = crate::run::FAILURES_MAX_ONCE;

/// What the adapter is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The instance's name: what a network configuration may name, and the key of its journal.
    pub instance: String,
    /// Where pod requests are served.
    pub socket: PathBuf,
    /// Where the CNI plugin leaves releases while the host is down; none: it leaves none.
    pub spool_dir: Option<PathBuf>,
    /// Where the interfaces are written down that were given up and can be detached.
    pub released_file: PathBuf,
    /// When interfaces are given up; none: never.
    pub warm: Option<WarmTargets>,
}

/// What must stay when an unused interface is given up. 0 is no target: any number will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmTargets {
    /// Unassigned addresses on the other interfaces.
    pub warm_ip_target: u32,
    /// Addresses on the other interfaces, assigned or not.
    pub minimum_ip_target: u32,
}

/// This node's network interfaces, as the configuration or the watched file gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enis {
    /// In any order.
    pub enis: Vec<Eni>,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eni {
    /// Its id: any text, each once.
    pub id: String,
    /// Its device number.
    pub device_number: i32,
    /// Whether it is the node's first interface. Absent: no.
    #[serde(default)]
    pub is_primary: bool,
    /// Whether it carries branch interfaces. Absent: no.
    #[serde(default)]
    pub is_trunk: bool,
    /// Dotted IPv4, in any order, each once on the node.
    pub addresses: Vec<String>,
}

/// What serving pods tells whoever watches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The store was read: pods get addresses from here on. Told after every reading, also that of a rebuilt instance.
    Read {
        /// The instance.
        instance: String,
        /// How it stands.
        stats: Stats,
    },
    /// How many addresses there are, and what is the matter with them, where that changed: told at most once a second.
    Counted {
        /// The instance.
        instance: String,
        /// How it stands.
        stats: Stats,
        /// One line each; none: nothing is.
        problems: Vec<String>,
    },
    /// The store could not be read: nobody gets an address until it can.
    ReadingFailed {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
        /// When it is tried again; none: given up.
        again_in_ms: Option<u64>,
    },
    /// Pods can ask.
    Listening {
        /// Where.
        socket: PathBuf,
    },
    /// An interface was given up, and can be detached.
    Released {
        /// The instance.
        instance: String,
        /// The interface's id.
        eni: String,
    },
    /// Releases that the CNI plugin left while the host was down were worked off.
    Spool {
        /// The instance.
        instance: String,
        /// So many are done, and their files removed.
        done: usize,
        /// So many could not be done, and are tried again.
        kept: usize,
    },
    /// The instance ended in the middle of a call; whoever asked was told to try again.
    Ended {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
    },
    /// The instance could not be built, or built again.
    Down {
        /// The instance.
        instance: String,
        /// One line.
        error: String,
        /// When it is tried again; none: given up.
        again_in_ms: Option<u64>,
    },
    /// What the store took was lost before it was durable: answers that waited for it became errors, and the instance is
    /// built again from what is durable.
    RolledBack {
        /// The instance.
        instance: String,
        /// What the store said.
        error: String,
        /// The last entry of the journal that stands.
        stands: u64,
    },
}

/// How many addresses there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Interfaces.
    pub enis: usize,
    /// Addresses of them.
    pub addresses: usize,
    /// Of these, assigned to pods.
    pub assigned: usize,
    /// Allocations whose address no interface has.
    pub held: usize,
    /// Addresses of interfaces that no pod has, those that rest included. 0 where an earlier host said it.
    #[serde(default)]
    pub free: usize,
}

/// What [`once`] came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The instance.
    pub instance: String,
    /// How it stands at the end.
    pub stats: Stats,
    /// Releases of the spool that were worked off.
    pub released: usize,
    /// Why the store is not read, or a release could not be worked off; none: everything is done.
    pub error: Option<String>,
}

/// The guest's setting that says where it reads at its start.
const PHASE: &str = "checkpoint_migration_phase";

/// The phase in which that is the container runtime.
const PHASE_FROM_RUNTIME: u64 = 1;

/// The guest's settings with `checkpoint_migration_phase: 2` where they name no phase: a node that was never run by the
/// original has nothing to move from. What [`Instances::settings`] must hold; [`serve`] and [`once`] see to it themselves.
#[must_use]
pub fn guest_settings(mut settings: Value) -> Value {
    if settings.get(PHASE).is_none() {
        set_phase(&mut settings, PHASE_STORE);
    }
    settings
}

/// The phase in which it reads the store.
const PHASE_STORE: u32 = 2;

fn set_phase(settings: &mut Value, phase: u32) {
    if let Some(settings) = settings.as_object_mut() {
        settings.insert(PHASE.to_owned(), Value::from(phase));
    }
}

/// Serves pods until `stop`: brings the guest up, gives it the interfaces as they stand in `enis` now, has it read its
/// store, works the spool off, then listens; from then on interfaces follow `enis`. `backends` holds the instance's own
/// store and container runtime. `instances.name` is [`crate::guests::ipam::NAME`].
///
/// A store that can't be read ends nothing: the socket is there, and answers that it is to be tried again.
///
/// # Errors
/// Where nothing could be begun: the socket, the file of released interfaces, or that of interfaces that pods may use
/// can't be used.
pub async fn serve(
    settings: Settings,
    managed: impl Into<Managing>,
    backends: Backends,
    enis: watch::Receiver<Enis>,
    stop: impl Future<Output = ()>,
    mut tell: impl FnMut(Event),
) -> Result<(), SetupError> {
    let mut stop = std::pin::pin!(stop);
    let socket = settings.socket.clone();
    let mut place = Place::take(&socket).await?;
    let (events, mut told) = mpsc::unbounded_channel();
    let mut served = Served::start(settings, managed, backends, enis, events)?;
    loop {
        tokio::select! {
            biased;
            () = &mut stop => {
                served.stop().await;
                return Ok(());
            }
            Some(event) = told.recv() => tell(event),
            () = served.is_up() => break,
        }
    }
    let listener = place.listen()?;
    while let Ok(event) = told.try_recv() {
        tell(event);
    }
    tell(Event::Listening { socket });
    let (close, closing) = watch::channel(false);
    let mut server = tokio::spawn(server::serve(listener, Arc::new(served.router.clone()), closing));
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(event) = told.recv() => tell(event),
        }
    }
    // The server has gone where nobody listens any more.
    let _ = close.send(true);
    let ended = tokio::time::timeout(STOP_GRACE, async {
        let answered = (&mut server).await;
        served.stop().await;
        answered
    });
    match ended.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("the server of pod requests ended badly: {error}"),
        Err(_) => {
            server.abort();
            tracing::warn!(
                "requests did not end within {} s: whoever asked finds no answer, and asks again",
                STOP_GRACE.as_secs()
            );
        }
    }
    while let Ok(event) = told.try_recv() {
        tell(event);
    }
    Ok(())
}

/// The guest that serves pods, and what connects it with whoever manages it; [`Instances`] alone are a guest that nobody
/// manages.
pub struct Managing {
    pub(crate) active: Arc<Active>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) failing: Failing,
    /// Who knows which containers there are; none: holders are not compared with it.
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
}

impl From<Instances> for Managing {
    fn from(mut instances: Instances) -> Self {
        instances.settings = guest_settings(instances.settings);
        // Without a sender there is never a version to hand over.
        let (_, handovers) = mpsc::channel(1);
        Self {
            active: Active::new(Arc::new(instances)),
            handovers,
            failing: Failing::default(),
            runtime: None,
        }
    }
}

/// The other end of [`Managing`], where no host with its commands is: hands versions over, and sees what is set aside.
pub struct Hand {
    handovers: mpsc::Sender<Handover>,
    quarantine: Arc<Quarantine>,
    fallen: mpsc::UnboundedReceiver<Fallen>,
}

impl Managing {
    /// A guest whose failing requests are set aside as the policy says: in the state folder of the instances, for longer
    /// than this process. Nobody sees to a wish to fall back but [`Hand::fallen`].
    pub fn watched(instances: Instances, policy: FailurePolicy) -> (Self, Hand) {
        let quarantine = Arc::new(Quarantine::load(&instances.state_dir, instances.name));
        let (wishes, fallen) = mpsc::unbounded_channel();
        let (hand, handovers) = mpsc::channel(1);
        let this = Self {
            handovers,
            failing: Failing::new(Arc::clone(&quarantine), policy, wishes),
            ..Self::from(instances)
        };
        let hand = Hand {
            handovers: hand,
            quarantine,
            fallen,
        };
        (this, hand)
    }
}

impl Hand {
    /// Makes another version the active one, with the state of the one before.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn hand_over(&self, mut instances: Instances) -> Result<(), String> {
        instances.settings = guest_settings(instances.settings);
        let (reply, replied) = oneshot::channel();
        let handover = Handover {
            instances: Arc::new(instances),
            commit: Box::new(|| Ok(())),
            reply,
        };
        let gone = || "the instance is served no more".to_owned();
        self.handovers.send(handover).await.map_err(|_| gone())?;
        replied.await.map_err(|_| gone())?
    }

    /// The requests that are set aside, by name.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.quarantine.all()
    }

    /// Why another version is wished for, and the wish is answered thereby; none: it is not.
    pub fn fallen(&mut self) -> Option<String> {
        self.fallen.try_recv().ok().map(|fallen| fallen.why)
    }
}

/// Requests that wait when the host is stopped may end in their own time, up to this long.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// An instance that is served, without a socket: what [`serve`] listens for.
pub struct Served {
    router: Router,
    task: JoinHandle<()>,
    is_up: watch::Receiver<bool>,
}

impl Served {
    /// Begins to bring the instance up; see [`serve`]. Must be called inside a runtime.
    ///
    /// # Errors
    /// Where the file of released interfaces, or that of interfaces that pods may use, can't be used.
    pub fn start(
        settings: Settings,
        managed: impl Into<Managing>,
        backends: Backends,
        enis: watch::Receiver<Enis>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, SetupError> {
        let name = settings.instance.clone();
        let standing = Arc::new(Standing::new());
        let parts = parts(settings, managed.into(), backends, enis, Arc::clone(&standing), events)?;
        let (jobs, asked) = mpsc::channel(QUEUE_MAX);
        let (up, is_up) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut actor = Actor::new(parts);
            actor.start().await;
            // Who waited for it may have gone.
            let _ = up.send(true);
            actor.run(asked).await;
        });
        let mut router = Router::default();
        router.doors.insert(name, Door { jobs, standing });
        Ok(Self { router, task, is_up })
    }

    /// Answers when the store was read and the spool worked off, or the first try of that failed.
    pub async fn is_up(&mut self) {
        // Where its task has gone there is nothing to wait for: requests are told so.
        let _ = self.is_up.wait_for(|is_up| *is_up).await;
    }

    /// Answers one request, a line without its end, with a line.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        protocol::line(&self.router.answer(request).await)
    }

    /// Carries out what waits, and ends.
    pub async fn stop(self) {
        drop(self.router);
        if let Err(error) = self.task.await {
            tracing::error!("an instance ended badly: {error}");
        }
    }
}

fn parts(
    settings: Settings,
    managed: Managing,
    backends: Backends,
    enis: watch::Receiver<Enis>,
    standing: Arc<Standing>,
    events: mpsc::UnboundedSender<Event>,
) -> Result<Parts, SetupError> {
    let released = Released::load(&settings.released_file).map_err(SetupError::Misused)?;
    let remembered = Remembered::place(&managed.active.instances().state_dir, &settings.instance);
    let remembered = Remembered::load(remembered, released.ids()).map_err(SetupError::Misused)?;
    Ok(Parts {
        all: BTreeSet::from([settings.instance.clone()]),
        settings,
        managed,
        backends,
        enis,
        released,
        remembered,
        standing,
        events,
    })
}

/// As [`serve`], but nobody is listened to: it ends when the store was read and the spool worked off, when the reading
/// failed [`READINGS_MAX_ONCE`] times, or with `stop`.
///
/// # Errors
/// As [`serve`].
pub async fn once(
    settings: Settings,
    managed: impl Into<Managing>,
    backends: Backends,
    enis: Enis,
    stop: impl Future<Output = ()>,
    mut tell: impl FnMut(Event),
) -> Result<Summary, SetupError> {
    let (events, mut told) = mpsc::unbounded_channel();
    let (_list, enis) = watch::channel(enis);
    let parts = parts(
        settings,
        managed.into(),
        backends,
        enis,
        Arc::new(Standing::new()),
        events,
    )?;
    let mut work = std::pin::pin!(Actor::new(parts).run_once(stop));
    let summary = loop {
        tokio::select! {
            biased;
            Some(event) = told.recv() => tell(event),
            summary = &mut work => break summary,
        }
    };
    while let Ok(event) = told.try_recv() {
        tell(event);
    }
    Ok(summary)
}

/// What a host answers for `trueup ipam show`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The instance.
    pub instance: String,
    /// The guest.
    pub guest: ShownGuest,
    /// Whether the store was read: pods get addresses only then.
    pub read: bool,
    /// Why the store is not read, or the instance is not there; none where all is well.
    pub error: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// How long an address rests after it was handed back, as the guest is set; 0: not at all.
    pub cooling_period_ms: u64,
    /// Interfaces by device number then id, with their addresses and whose they are.
    pub enis: Vec<crate::guests::ipam::Eni>,
    /// Allocations whose address no interface has, by address.
    pub held: Vec<crate::guests::ipam::PodIpInfo>,
    /// Interfaces that were given up and are still in the list of interfaces, by id.
    pub released: Vec<String>,
    /// The pods that hold addresses, `namespace/name` by address, as far as the plugin said.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// Holders that the container runtime does not list, by address; absent where the host does not ask it.
    #[serde(default)]
    pub missing: Option<Vec<Forgotten>>,
}

/// Which guest an instance runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGuest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
}
