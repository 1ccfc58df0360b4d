//! Pod addresses: what the IPAM guest is told of this node's network interfaces, and whom it serves.
//!
//! ```text
//! pods -> server -> actor (one an instance: calls one after another) -> guest -> store
//! ENIs ---------------^            |
//! spool --------------^            +-> answers wait for the store -> pods
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use trueup_capabilities::Backends;

use crate::run::{Instances, SetupError};

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

/// The guest's settings with `checkpoint_migration_phase: 2` where they name no phase: a node that was never run by the
/// original has nothing to move from. What [`Instances::settings`] must hold; [`serve`] and [`once`] see to it themselves.
#[must_use]
pub fn guest_settings(mut settings: Value) -> Value {
    if let Some(settings) = settings.as_object_mut() {
        settings
            .entry("checkpoint_migration_phase")
            .or_insert_with(|| Value::from(2));
    }
    settings
}

/// Serves pods until `stop`: brings the guest up, gives it the interfaces as they stand in `enis` now, has it read its
/// store, works the spool off, then listens; from then on interfaces follow `enis`. `backends` holds the instance's own
/// store and container runtime. `instances.name` is [`crate::guests::ipam::NAME`].
///
/// A store that can't be read ends nothing: the socket is there, and answers that it is to be tried again.
///
/// # Errors
/// Where nothing could be begun: the socket or the file of released interfaces can't be used.
pub async fn serve(
    settings: Settings,
    instances: Instances,
    backends: Backends,
    enis: watch::Receiver<Enis>,
    stop: impl Future<Output = ()>,
    tell: impl FnMut(Event),
) -> Result<(), SetupError> {
    let _ = (settings, Arc::new(instances), backends, enis, stop, tell);
    Err(SetupError::Failed("pod addresses can't be served yet".to_owned()))
}

/// As [`serve`], but nobody is listened to: it ends when the store was read and the spool worked off, when the reading
/// failed [`READINGS_MAX_ONCE`] times, or with `stop`.
///
/// # Errors
/// As [`serve`].
pub async fn once(
    settings: Settings,
    instances: Instances,
    backends: Backends,
    enis: Enis,
    stop: impl Future<Output = ()>,
    tell: impl FnMut(Event),
) -> Result<Summary, SetupError> {
    let _ = (settings, Arc::new(instances), backends, enis, stop, tell);
    Err(SetupError::Failed("pod addresses can't be served yet".to_owned()))
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

/// Asks the host that listens on `socket` how its instance stands; `instance` none: its only one.
///
/// # Errors
/// One line: that no host listens there, or what it said.
pub async fn show(socket: &std::path::Path, instance: Option<&str>) -> Result<Shown, String> {
    let _ = instance;
    Err(format!("no host listens on `{}`", socket.display()))
}
