//! One instance: its settings, and the state that its migrator and its syncer share, with its snapshot.
//!
//! Each public function is an export of the world; `syncer` has those of that interface.

use serde::{Deserialize, Serialize, Serializer};
use trueup_guest::{Guest, Imports, snapshot};

use crate::bindings::exports::trueup::neg::migrator::Filtered;
use crate::bindings::trueup::neg::types::EndpointGroup;
use crate::entry::{self, Locations};
use crate::filter::Committed;
use crate::migrator::Migrator;
use crate::operations::Operations;
use crate::retry::Retry;
use crate::settings::Settings;
use crate::world::{Pending, World};

/// The state of an instance; as JSON in the form of a snapshot, with the members in this order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Neg {
    #[serde(skip)]
    pub(crate) settings: Settings,
    #[serde(flatten)]
    pub(crate) migrator: Migrator,
    /// Locations whose NEG was ensured since the latest error.
    #[serde(serialize_with = "rows")]
    pub(crate) ensured: Locations,
    /// Locations whose NEG was ensured at some time, and not found missing since.
    #[serde(serialize_with = "rows")]
    pub(crate) known: Locations,
    /// In flight.
    #[serde(flatten)]
    pub(crate) operations: Operations,
    /// The error state that the caller set.
    pub(crate) in_error_state: bool,
    /// Retries of syncs that ended with an API error.
    pub(crate) sync_retry: Retry,
    /// Retries of failed operations.
    pub(crate) operation_retry: Retry,
}

impl Neg {
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
        let decision = self
            .migrator
            .filter(world, &self.settings, sets, committed, in_error_state);
        decision.answer()
    }

    /// `timer-events.on-timer`: true if it was the wait timer of the migrator or one of the two retry timers.
    pub fn on_timer(&mut self, world: &mut impl World, timer: u64) -> bool {
        self.migrator.on_timer(world, timer) || self.sync_retry.on_timer(timer) || self.operation_retry.on_timer(timer)
    }
}

/// The version of the text. Increment it when the contents change.
const VERSION: u64 = 1;

/// The whole state, for the next build of this guest. Without settings; timers as the times at which they are due.
#[derive(Serialize)]
struct Snapshot<'s> {
    version: u64,
    #[serde(flatten)]
    neg: &'s Neg,
}

/// Zone and subnet; serde reads a row as a record.
fn rows<S: Serializer>(locations: &Locations, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(locations.iter().map(|one| [&one.zone, &one.subnet]))
}

impl Guest for Neg {
    fn init(config: &str) -> Result<Self, String> {
        let settings = Settings::read(config)?;
        Ok(Self {
            settings,
            ..Self::default()
        })
    }

    fn snapshot(&self) -> String {
        snapshot::write(&Snapshot {
            version: VERSION,
            neg: self,
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
        let mut neg: Self = snapshot::read(snapshot, VERSION)?;
        for timer in self.timers().into_iter().flatten() {
            world.cancel(timer.timer);
        }
        neg.settings = std::mem::take(&mut self.settings);
        for timer in neg.timers().into_iter().flatten() {
            timer.begin_anew(world);
        }
        neg.migrator.paused |= neg.migrator.wait.is_some();
        *self = neg;
        Ok(())
    }

    /// Those that are pending.
    fn timers(&mut self) -> [&mut Option<Pending>; 3] {
        let Self {
            migrator,
            sync_retry,
            operation_retry,
            ..
        } = self;
        [
            &mut migrator.wait,
            &mut sync_retry.pending,
            &mut operation_retry.pending,
        ]
    }
}
