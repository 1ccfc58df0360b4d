//! The whole state as text, for the next build of this guest.
//!
//! Without settings. It stores timers as the times at which they are due.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use trueup_guest::{Guest, Imports, snapshot};

use crate::bindings::trueup::neg::types::{Endpoint, Location};
use crate::migrator::{Migrator, Pause};
use crate::neg::Neg;
use crate::operations::{Kind, Operation, Operations};
use crate::retry::Retry;
use crate::settings::Settings;
use crate::world::{Pending, World};

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    paused: bool,
    /// `None` if no wait timer runs.
    wait_ends_ms: Option<u64>,
    previous_detachment_ms: Option<u64>,
    migration_started_ms: Option<u64>,
    ensured: Vec<Row>,
    known: Vec<Row>,
    operations: Vec<InFlight>,
    migration_failure: Option<String>,
    in_error_state: bool,
    sync_retry: Trial,
    operation_retry: Trial,
}

/// Zone and subnet.
type Row = (String, String);

#[derive(Serialize, Deserialize)]
struct InFlight {
    operation: u64,
    does: Kind,
    zone: String,
    subnet: String,
    migration: bool,
    /// `ip`, `ipv6`, `port`, `node`: one row each, since there may be thousands.
    endpoints: Vec<(String, String, String, String)>,
}

#[derive(Serialize, Deserialize)]
struct Trial {
    count: u64,
    due_ms: Option<u64>,
}

impl Guest for Neg {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
    }

    fn snapshot(&self) -> String {
        let operations = self.operations.by_number.iter();
        snapshot::write(&Snapshot {
            version: VERSION,
            paused: self.migrator.pause != Pause::Off,
            wait_ends_ms: match self.migrator.pause {
                Pause::Waiting(wait) => Some(wait.due_ms),
                Pause::Off | Pause::On => None,
            },
            previous_detachment_ms: self.migrator.detached_ms,
            migration_started_ms: self.migrator.started_ms,
            ensured: rows(&self.ensured),
            known: rows(&self.known),
            operations: operations.map(InFlight::of).collect(),
            migration_failure: self.operations.failure.clone(),
            in_error_state: self.in_error_state,
            sync_retry: Trial::of(&self.sync_retry),
            operation_retry: Trial::of(&self.operation_retry),
        })
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        self.restore(&mut Imports, snapshot)
    }
}

impl Neg {
    /// `lifecycle.restore`: cancels the timers of this instance, and schedules those of the snapshot for their
    /// remaining time.
    ///
    /// # Errors
    /// Why the text can't be read; then nothing has changed.
    pub fn restore(&mut self, world: &mut impl World, snapshot: &str) -> Result<(), String> {
        let snapshot: Snapshot = snapshot::read(snapshot, VERSION)?;
        self.migrator.stop(world);
        self.sync_retry.cancel(world);
        self.operation_retry.cancel(world);
        *self = Self {
            settings: std::mem::take(&mut self.settings),
            migrator: Migrator {
                pause: match snapshot.wait_ends_ms {
                    Some(due_ms) => Pause::Waiting(Pending::anew(world, due_ms)),
                    None if snapshot.paused => Pause::On,
                    None => Pause::Off,
                },
                detached_ms: snapshot.previous_detachment_ms,
                started_ms: snapshot.migration_started_ms,
            },
            ensured: locations(snapshot.ensured),
            known: locations(snapshot.known),
            operations: Operations {
                by_number: snapshot.operations.into_iter().map(InFlight::read).collect(),
                failure: snapshot.migration_failure,
            },
            in_error_state: snapshot.in_error_state,
            sync_retry: snapshot.sync_retry.start(world),
            operation_retry: snapshot.operation_retry.start(world),
        };
        Ok(())
    }
}

impl InFlight {
    fn of((&operation, of): (&u64, &Operation)) -> Self {
        let row = |endpoint: &Endpoint| {
            let Endpoint { ip, ipv6, port, node } = endpoint.clone();
            (ip, ipv6, port, node)
        };
        Self {
            operation,
            does: of.kind,
            zone: of.location.zone.clone(),
            subnet: of.location.subnet.clone(),
            migration: of.is_migration,
            endpoints: of.endpoints.iter().map(row).collect(),
        }
    }

    fn read(self) -> (u64, Operation) {
        let endpoint = |(ip, ipv6, port, node)| Endpoint { ip, ipv6, port, node };
        let operation = Operation {
            kind: self.does,
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

fn rows(locations: &BTreeSet<Location>) -> Vec<Row> {
    let place = |location: &Location| (location.zone.clone(), location.subnet.clone());
    locations.iter().map(place).collect()
}

fn locations(places: Vec<Row>) -> BTreeSet<Location> {
    places
        .into_iter()
        .map(|(zone, subnet)| Location { zone, subnet })
        .collect()
}
