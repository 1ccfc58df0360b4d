//! One instance: its settings, and the state that its migrator and its syncer share.
//!
//! Each public function is an export of the world; `syncer` has those of that interface.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, Serializer};
use trueup_guest::{Guest, Imports, snapshot};

use crate::bindings::trueup::neg::types::{EndpointGroup, Location};
use crate::migrator::{Migrator, Pause};
use crate::operations::{Operation, Operations};
use crate::settings::Settings;
use crate::world::{Pending, World};
use crate::{bindings::exports::trueup::neg::migrator::Filtered, entry, filter::Committed, retry::Retry};

/// The state of an instance.
#[derive(Clone, Debug, Default)]
pub struct Neg {
    pub(crate) settings: Settings,
    pub(crate) migrator: Migrator,
    /// Locations whose NEG was ensured since the latest error.
    pub(crate) ensured: BTreeSet<Location>,
    /// Locations whose NEG was ensured at some time, and not found missing since.
    pub(crate) known: BTreeSet<Location>,
    /// In flight.
    pub(crate) operations: Operations,
    /// The error state that the caller set.
    pub(crate) in_error_state: bool,
    /// Retries of syncs that ended with an API error.
    pub(crate) sync_retry: Retry,
    /// Retries of failed operations.
    pub(crate) operation_retry: Retry,
}

impl Neg {
    /// A new instance without state.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// `migrator.filter`
    pub fn filter(
        &mut self,
        world: &mut impl World,
        add: Vec<EndpointGroup>,
        remove: Vec<EndpointGroup>,
        committed: Vec<EndpointGroup>,
        in_error_state: bool,
    ) -> Filtered {
        let sets = (entry::united(add), entry::united(remove));
        let committed = || Committed::of(committed);
        let migrator = &mut self.migrator;
        migrator
            .filter(world, &self.settings, sets, committed, in_error_state)
            .answer()
    }

    /// `timer-events.on-timer`: true if it was the wait timer of the migrator or one of the two retry timers.
    pub fn on_timer(&mut self, world: &mut impl World, timer: u64) -> bool {
        self.migrator.on_timer(world, timer) || self.sync_retry.on_timer(timer) || self.operation_retry.on_timer(timer)
    }
}

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The whole state, for the next build of this guest. Without settings; timers as the times at which they are due.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u64,
    paused: bool,
    /// `None` if no wait timer runs.
    #[serde(rename = "wait_ends_ms")]
    wait: Option<Pending>,
    previous_detachment_ms: Option<u64>,
    migration_started_ms: Option<u64>,
    #[serde(serialize_with = "rows")]
    ensured: BTreeSet<Location>,
    #[serde(serialize_with = "rows")]
    known: BTreeSet<Location>,
    operations: Vec<InFlight>,
    migration_failure: Option<String>,
    in_error_state: bool,
    sync_retry: Retry,
    operation_retry: Retry,
}

/// Zone and subnet; serde reads a row as a record.
fn rows<S: Serializer>(locations: &BTreeSet<Location>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(locations.iter().map(|one| [&one.zone, &one.subnet]))
}

#[derive(Serialize, Deserialize)]
struct InFlight {
    #[serde(rename = "operation")]
    number: u64,
    #[serde(flatten)]
    operation: Operation,
}

impl Guest for Neg {
    fn init(config: &str) -> Result<Self, String> {
        Settings::read(config).map(Self::new)
    }

    fn snapshot(&self) -> String {
        let in_flight = |(&number, operation): (&u64, &Operation)| InFlight {
            number,
            operation: operation.clone(),
        };
        snapshot::write(&Snapshot {
            version: VERSION,
            paused: self.migrator.pause != Pause::Off,
            wait: match self.migrator.pause {
                Pause::Waiting(wait) => Some(wait),
                Pause::Off | Pause::On => None,
            },
            previous_detachment_ms: self.migrator.detached_ms,
            migration_started_ms: self.migrator.started_ms,
            ensured: self.ensured.clone(),
            known: self.known.clone(),
            operations: self.operations.by_number.iter().map(in_flight).collect(),
            migration_failure: self.operations.failure.clone(),
            in_error_state: self.in_error_state,
            sync_retry: self.sync_retry.clone(),
            operation_retry: self.operation_retry.clone(),
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
        let operations = snapshot.operations.into_iter();
        *self = Self {
            settings: std::mem::take(&mut self.settings),
            migrator: Migrator {
                pause: match snapshot.wait {
                    Some(wait) => Pause::Waiting(wait.anew(world)),
                    None if snapshot.paused => Pause::On,
                    None => Pause::Off,
                },
                detached_ms: snapshot.previous_detachment_ms,
                started_ms: snapshot.migration_started_ms,
            },
            ensured: snapshot.ensured,
            known: snapshot.known,
            operations: Operations {
                by_number: operations.map(|one| (one.number, one.operation)).collect(),
                failure: snapshot.migration_failure,
            },
            in_error_state: snapshot.in_error_state,
            sync_retry: snapshot.sync_retry.anew(world),
            operation_retry: snapshot.operation_retry.anew(world),
        };
        Ok(())
    }
}
