//! The whole state as text, for the next build of this guest.
//!
//! Without settings. It stores timers as the times at which they are due.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trueup_guest::snapshot;

use crate::bindings::trueup::neg::types::{Endpoint, Location};
use crate::migrator::{Migrator, Pause};
use crate::operations::{Kind, Operation, Operations};
use crate::retry::Retry;
use crate::syncer::Syncer;
use crate::world::{Pending, World};

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The parsed text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    version: u64,
    paused: bool,
    /// `None` if no wait timer runs.
    wait_ends_ms: Option<u64>,
    previous_detachment_ms: Option<u64>,
    migration_started_ms: Option<u64>,
    ensured: Vec<Place>,
    known: Vec<Place>,
    operations: Vec<InFlight>,
    migration_failure: Option<String>,
    in_error_state: bool,
    sync_retry: Trial,
    operation_retry: Trial,
}

/// Zone and subnet.
type Place = (String, String);

#[derive(Debug, Serialize, Deserialize)]
struct InFlight {
    operation: u64,
    does: Does,
    zone: String,
    subnet: String,
    migration: bool,
    /// `ip`, `ipv6`, `port`, `node`: one row each, since there may be thousands.
    endpoints: Vec<(String, String, String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Does {
    Attach,
    Detach,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trial {
    count: u64,
    due_ms: Option<u64>,
}

/// The text for `lifecycle.snapshot`.
pub fn write(migrator: &Migrator, syncer: &Syncer) -> String {
    let operations = syncer.operations.by_number.iter();
    let snapshot = Snapshot {
        version: VERSION,
        paused: migrator.pause != Pause::Off,
        wait_ends_ms: match migrator.pause {
            Pause::Waiting(wait) => Some(wait.due_ms),
            Pause::Off | Pause::On => None,
        },
        previous_detachment_ms: migrator.detached_ms,
        migration_started_ms: migrator.started_ms,
        ensured: places(&syncer.ensured),
        known: places(&syncer.known),
        operations: operations
            .map(|(&number, operation)| InFlight::of(number, operation))
            .collect(),
        migration_failure: syncer.operations.failure.clone(),
        in_error_state: syncer.in_error_state,
        sync_retry: Trial::of(&syncer.sync_retry),
        operation_retry: Trial::of(&syncer.operation_retry),
    };
    snapshot::write(&snapshot)
}

/// Parses the text of [`write()`].
///
/// # Errors
/// The version that wrote the text, or what is wrong with it.
pub fn read(snapshot: &str) -> Result<Snapshot, String> {
    snapshot::read(snapshot, VERSION)
}

impl Snapshot {
    /// The state, with pending timers scheduled for their remaining time.
    pub fn start(self, world: &mut impl World) -> (Migrator, Syncer) {
        let pause = match self.wait_ends_ms {
            Some(due_ms) => Pause::Waiting(Pending::anew(world, due_ms)),
            None if self.paused => Pause::On,
            None => Pause::Off,
        };
        let migrator = Migrator {
            pause,
            detached_ms: self.previous_detachment_ms,
            started_ms: self.migration_started_ms,
        };
        let syncer = Syncer {
            ensured: locations(self.ensured),
            known: locations(self.known),
            operations: Operations {
                by_number: self.operations.into_iter().map(InFlight::read).collect(),
                failure: self.migration_failure,
            },
            in_error_state: self.in_error_state,
            sync_retry: self.sync_retry.start(world),
            operation_retry: self.operation_retry.start(world),
        };
        (migrator, syncer)
    }
}

impl InFlight {
    fn of(operation: u64, of: &Operation) -> Self {
        let row = |endpoint: &Endpoint| {
            let Endpoint { ip, ipv6, port, node } = endpoint.clone();
            (ip, ipv6, port, node)
        };
        Self {
            operation,
            does: match of.kind {
                Kind::Attach => Does::Attach,
                Kind::Detach => Does::Detach,
            },
            zone: of.location.zone.clone(),
            subnet: of.location.subnet.clone(),
            migration: of.is_migration,
            endpoints: of.endpoints.iter().map(row).collect(),
        }
    }

    fn read(self) -> (u64, Operation) {
        let endpoint = |(ip, ipv6, port, node)| Endpoint { ip, ipv6, port, node };
        let operation = Operation {
            kind: match self.does {
                Does::Attach => Kind::Attach,
                Does::Detach => Kind::Detach,
            },
            location: Location {
                zone: self.zone,
                subnet: self.subnet,
            },
            endpoints: self.endpoints.into_iter().map(endpoint).collect(),
            is_migration: self.migration,
        };
        (self.operation, operation)
    }
}

impl Trial {
    fn of(retry: &Retry) -> Self {
        Self {
            count: retry.count,
            due_ms: retry.pending.map(|pending| pending.due_ms),
        }
    }

    fn start(&self, world: &mut impl World) -> Retry {
        Retry {
            count: self.count,
            pending: self.due_ms.map(|due_ms| Pending::anew(world, due_ms)),
        }
    }
}

fn places(locations: &BTreeSet<Location>) -> Vec<Place> {
    let place = |location: &Location| (location.zone.clone(), location.subnet.clone());
    locations.iter().map(place).collect()
}

fn locations(places: Vec<Place>) -> BTreeSet<Location> {
    places
        .into_iter()
        .map(|(zone, subnet)| Location { zone, subnet })
        .collect()
}
