//! Pod addresses: gives the IPAM guest this node's network interfaces, and serves its answers to pods.
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
pub(crate) mod kind;
pub mod protocol;
mod released;
mod remembered;
mod router;
mod server;
mod setup;
mod spool;
mod state_file;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use trueup_capabilities::Backends;
use trueup_capabilities::cri::Runtime;
use trueup_sources::enis::Enis;

pub use self::client::{release, show};
pub use self::holders::{FORGOTTEN_AFTER_MS, Forgotten};
pub use self::server::CONNECTIONS_MAX;
pub use crate::board::pods::{Event, Stats};
pub use crate::config::{Settings, WarmTargets};

use self::actor::Actor;
use self::failing::Failing;
use self::router::{Door, QUEUE_MAX, Router};
use crate::config::FailurePolicy;
use crate::instances::Instances;
use crate::lifecycle::active::{Active, Handover};
use crate::lifecycle::quarantine::{Quarantine, SetAside};
use crate::setup::SetupError;
use crate::socket::Place;
use crate::swap::Fallen;

/// The pause before a failed reading of the store is tried again.
pub const READING_RETRY: Duration = Duration::from_secs(5);

/// [`once`] gives up after this many failed readings, as for the keys of other guests.
pub const READINGS_MAX_ONCE: u32 = crate::lifecycle::troubles::FAILURES_MAX_ONCE;

/// The result of [`once`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The instance.
    pub instance: String,
    /// The counts at the end.
    pub stats: Stats,
    /// Releases of the spool that were worked off.
    pub released: usize,
    /// Why the store is not read, or a release failed. `None` if everything is done.
    pub error: Option<String>,
}

/// The guest's setting that says from where it reads at its start.
const PHASE: &str = "checkpoint_migration_phase";

/// The phase in which it reads from the container runtime.
const PHASE_FROM_RUNTIME: u64 = 1;

/// The guest's settings, with `checkpoint_migration_phase: 2` if they name no phase: a node that never ran the
/// original has nothing to migrate. [`Instances::settings`] must hold this; [`serve`] and [`once`] set it themselves.
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

/// Serves pods until `stop`: brings the guest up, gives it the current interfaces of `enis`, makes it read its store,
/// works the spool off, then listens. From then on interfaces follow `enis`. `backends` holds the instance's own
/// store and container runtime. `instances.name` is [`crate::guests::ipam::NAME`].
///
/// A store that can't be read does not end this: the socket exists, and requests get the answer to try again.
///
/// # Errors
/// If nothing could be begun: the socket, the file of released interfaces, or that of interfaces that pods may use
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
    let server = tokio::spawn(server::serve(listener, Arc::new(served.router.clone()), closing));
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(event) = told.recv() => tell(event),
        }
    }
    // Ignore the error: without a receiver the server is already gone.
    let _ = close.send(true);
    end(server, served).await;
    while let Ok(event) = told.try_recv() {
        tell(event);
    }
    Ok(())
}

/// Lets requests end, within limits.
async fn end(mut server: JoinHandle<()>, served: Served) {
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
                "requests did not end within {} s: the callers get no answer, and ask again",
                STOP_GRACE.as_secs()
            );
        }
    }
}

/// The guest that serves pods, and what connects it with its manager. A bare [`Instances`] converts to a guest
/// without a manager.
pub struct Managing {
    pub(crate) active: Arc<Active>,
    pub(crate) handovers: mpsc::Receiver<Handover>,
    pub(crate) failing: Failing,
    /// Knows which containers exist. `None` if holders are not compared with it.
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

/// The other end of [`Managing`], for use without a host and its commands: hands versions over, and shows what is set
/// aside.
pub struct Hand {
    handovers: mpsc::Sender<Handover>,
    quarantine: Arc<Quarantine>,
    fallen: mpsc::UnboundedReceiver<Fallen>,
}

impl Managing {
    /// A guest whose failing requests are set aside as the policy says: in the state folder of the instances, so that
    /// it survives this process. Only [`Hand::fallen`] handles requests to fall back.
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
    /// Makes another version active, with the state of the one before.
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

    /// Why another version is requested. Taking it answers the request. `None` if there is no request.
    pub fn fallen(&mut self) -> Option<String> {
        self.fallen.try_recv().ok().map(|fallen| fallen.why)
    }
}

/// How long waiting requests may go on after the host is stopped.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A running instance without a socket. [`serve`] adds the socket.
pub struct Served {
    router: Router,
    task: JoinHandle<()>,
    is_up: watch::Receiver<bool>,
}

impl Served {
    /// Begins to bring the instance up; see [`serve`]. Must be called inside a runtime.
    ///
    /// # Errors
    /// If the file of released interfaces, or that of interfaces that pods may use, can't be used.
    pub fn start(
        settings: Settings,
        managed: impl Into<Managing>,
        backends: Backends,
        enis: watch::Receiver<Enis>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, SetupError> {
        let name = settings.instance.clone();
        let mut actor = Actor::new(settings, managed.into(), backends, enis, events)?;
        let standing = actor.standing();
        let (jobs, asked) = mpsc::channel(QUEUE_MAX);
        let (up, is_up) = watch::channel(false);
        let task = tokio::spawn(async move {
            actor.start().await;
            // The receiver may be gone.
            let _ = up.send(true);
            actor.run(asked).await;
        });
        let mut router = Router::default();
        router.doors.insert(name, Door { jobs, standing });
        Ok(Self { router, task, is_up })
    }

    /// Returns when the store was read and the spool worked off, or the first try of that failed.
    pub async fn is_up(&mut self) {
        // If its task is gone, there is nothing to wait for; requests get an error.
        let _ = self.is_up.wait_for(|is_up| *is_up).await;
    }

    /// Answers one request, a line without its end, with a line.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        protocol::line(&self.router.answer(request).await)
    }

    /// Completes waiting requests, and ends.
    pub async fn stop(self) {
        drop(self.router);
        if let Err(error) = self.task.await {
            tracing::error!("an instance ended badly: {error}");
        }
    }
}

/// As [`serve`], but without a socket. It ends when the store was read and the spool worked off, when the reading
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
    let actor = Actor::new(settings, managed.into(), backends, enis, events)?;
    let mut work = std::pin::pin!(actor.run_once(stop));
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
    /// Whether the store was read. Pods get addresses only then.
    pub read: bool,
    /// Why the store is not read, or the instance is not there. `None` if there is no error.
    pub error: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// How long an address rests after its release, in milliseconds, from the guest's settings. 0 if it does not
    /// rest.
    pub cooling_period_ms: u64,
    /// Interfaces by device number then id, with their addresses and holders.
    pub enis: Vec<crate::guests::ipam::Eni>,
    /// Allocations whose address is on no interface, by address.
    pub held: Vec<crate::guests::ipam::PodIpInfo>,
    /// The ids of interfaces that were given up and are still in the list of interfaces.
    pub released: Vec<String>,
    /// The pods that hold addresses, `namespace/name` by address, as far as the plugin reported them.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// Holders that the container runtime does not list, by address. Absent if the host does not ask it.
    #[serde(default)]
    pub missing: Option<Vec<Forgotten>>,
}

/// The guest of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGuest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
}
