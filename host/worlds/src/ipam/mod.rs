//! Pod addresses: gives the IPAM guest this node's network interfaces, and serves its answers to pods.
//!
//! ```text
//! pods -> server -> actor (one an instance: calls one after another) -> guest -> store
//! ENIs ---------------^            |
//! spool --------------^            +-> answers wait for the store -> pods
//! ```

mod actor;
mod durability;
mod enis;
pub mod guest;
mod holders;
pub(crate) mod kind;
pub mod protocol;
mod server;
mod spool;
mod state_file;
pub mod stored;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use trueup_capabilities::Backends;
use trueup_capabilities::cri::Runtime;
use trueup_config::FailurePolicy;
use trueup_instance::Instances;
use trueup_sources::enis::Enis;
use trueup_work::host_context::Supervision;
use trueup_work::lifecycle::active::{Active, Handover};
use trueup_work::setup::SetupError;
use trueup_work::socket::SocketPath;
use trueup_work::supervisor::Supervisor;

pub use self::actor::{READING_RETRY, READINGS_MAX_ONCE, Summary};
pub use self::holders::{FORGOTTEN_AFTER_MS, Forgotten};
pub use self::protocol::{Shown, ShownGuest};
pub use self::server::{CONNECTIONS_MAX, release, show};
pub use trueup_config::{IpamAdapter as Settings, WarmTargets};
pub use trueup_work::status::pods::{Event, Stats};

use self::actor::Actor;
use self::server::{Mailbox, QUEUE_MAX};

/// What serving pods needs.
pub struct Serving {
    /// How they are served.
    pub settings: Settings,
    /// The guest. The name of its instances is [`crate::ipam::guest::NAME`].
    pub managed: ManagedGuest,
    /// With the instance's own store and container runtime.
    pub backends: Backends,
    /// This node's network interfaces.
    pub enis: watch::Receiver<Enis>,
}

/// Serves pods until `stop`: brings the guest up, gives it the current interfaces, makes it read its store, works the
/// spool off, then listens. From then on it follows the interfaces.
///
/// A store that can't be read does not end this: the socket exists, and requests get the answer to try again.
///
/// # Errors
/// If nothing could be begun: the socket, the file of released interfaces, or that of interfaces that pods may use
/// can't be used.
pub async fn serve(of: Serving, stop: impl Future<Output = ()>, tell: impl FnMut(Event)) -> Result<(), SetupError> {
    let socket = of.settings.socket.clone();
    let socket_path = SocketPath::take(&socket).await?;
    let (events, received) = mpsc::unbounded_channel();
    let mut served = Served::start(of, events.clone())?;
    let serving = async {
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            () = &mut stop => {
                served.stop().await;
                return Ok(());
            }
            () = served.is_up() => {}
        }
        let listener = socket_path.listen()?;
        // The receiver outlives this.
        let _ = events.send(Event::Listening { socket });
        let (close, closing) = watch::channel(false);
        let mut server = tokio::spawn(server::serve(listener, served.mailbox.clone(), closing));
        stop.await;
        // Ignore the error: without a receiver the server is already gone.
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
                let grace = STOP_GRACE.as_secs();
                tracing::warn!("requests did not end within {grace} s: the callers get no answer, and ask again");
            }
        }
        Ok(())
    };
    crate::reporting(received, tell, serving).await
}

/// How long waiting requests may go on after the host is stopped.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A running instance without a socket. [`serve`] adds the socket.
pub struct Served {
    mailbox: Mailbox,
    task: JoinHandle<()>,
    is_up: watch::Receiver<bool>,
}

impl Served {
    /// Begins to bring the instance up; see [`serve`]. Must be called inside a runtime.
    ///
    /// # Errors
    /// If the file of released interfaces, or that of interfaces that pods may use, can't be used.
    pub fn start(of: Serving, events: mpsc::UnboundedSender<Event>) -> Result<Self, SetupError> {
        let instance = of.settings.instance.clone();
        let mut actor = Actor::new(of, events)?;
        let not_serving = actor.not_serving.subscribe();
        let (mail, received) = mpsc::channel(QUEUE_MAX);
        let (up, is_up) = watch::channel(false);
        let task = tokio::spawn(async move {
            actor.start().await;
            // The receiver may be gone.
            let _ = up.send(true);
            actor.run(received).await;
        });
        let mailbox = Mailbox {
            instance,
            mail,
            not_serving,
        };
        Ok(Self { mailbox, task, is_up })
    }

    /// Returns when the store was read and the spool worked off, or the first try of that failed.
    pub async fn is_up(&mut self) {
        // If its task is gone, there is nothing to wait for; requests get an error.
        let _ = self.is_up.wait_for(|is_up| *is_up).await;
    }

    /// Answers one request, a line without its end, with a line.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        protocol::line(&self.mailbox.answer(request).await)
    }

    /// Completes waiting requests, and ends.
    pub async fn stop(self) {
        drop(self.mailbox);
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
pub async fn once(of: Serving, stop: impl Future<Output = ()>, tell: impl FnMut(Event)) -> Result<Summary, SetupError> {
    let (events, received) = mpsc::unbounded_channel();
    let actor = Actor::new(of, events)?;
    Ok(crate::reporting(received, tell, actor.run_once(stop)).await)
}

/// The guest's setting that says from where it reads at its start.
const PHASE: &str = "checkpoint_migration_phase";

/// The phase in which it reads the store.
const READS_STORE: u32 = 2;

/// The guest's settings, with `checkpoint_migration_phase: 2` if they name no phase: a node that never ran the
/// original has nothing to migrate. [`Instances::settings`] must hold this; [`serve`] and [`once`]
/// set it themselves.
#[must_use]
pub fn guest_settings(mut settings: Value) -> Value {
    if let Some(settings) = settings.as_object_mut() {
        settings.entry(PHASE).or_insert(READS_STORE.into());
    }
    settings
}

/// The guest that serves pods, and what connects it with its manager. A bare [`Instances`] converts to a guest
/// without a manager.
pub struct ManagedGuest {
    active: Arc<Active>,
    handovers: mpsc::Receiver<Handover>,
    /// Requests in which the guest fails repeatedly, each an input.
    failing: Supervisor,
    /// Knows which containers exist. `None` if holders are not compared with it.
    runtime: Option<Arc<dyn Runtime>>,
}

impl ManagedGuest {
    /// A guest whose failing requests are set aside as the policy says. Nothing compares holders with the container
    /// runtime.
    pub fn new(active: Arc<Active>, of: Supervision, policy: FailurePolicy) -> Self {
        Self {
            active,
            handovers: of.handovers,
            failing: Supervisor::new(of.quarantine, policy, of.fall_back),
            runtime: None,
        }
    }
}

impl From<Instances> for ManagedGuest {
    fn from(mut instances: Instances) -> Self {
        instances.settings = guest_settings(instances.settings);
        Self {
            failing: Supervisor::alone(&instances),
            active: Active::new(Arc::new(instances)),
            // Without a sender there is never a version to hand over.
            handovers: mpsc::channel(1).1,
            runtime: None,
        }
    }
}
