//! The world `trueup:neg/neg-syncer`: its bindings, and its exports by name.

use serde::{Deserialize, Serialize};
use trueup_capabilities::neg::EndpointGroup;
use trueup_engine::Data;
use trueup_instance::{Worlds, bindings, world};
use wasmtime::Store;
use wasmtime::component::InstancePre;

pub use trueup_instance::dispatch::Nothing;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "neg";

/// The worlds that a guest of this name may have.
pub(crate) const WORLDS: Worlds = &[&WORLD];

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/neg"],
    // The world without `migrator`: see that module.
    inline: "
        package trueup:neg-syncer;
        world syncer {
            import trueup:host/log@0.1.0;
            import trueup:host/clock@0.1.0;
            import trueup:host/timers@0.1.0;
            import trueup:host/metrics@0.1.0;
            import trueup:neg/api@0.1.0;
            export trueup:guest/lifecycle@0.1.0;
            export trueup:guest/timer-events@0.1.0;
            export trueup:neg/syncer@0.1.0;
        }
    ",
    "trueup:neg-syncer/syncer",
    {
        "trueup:neg/types": trueup_capabilities::bindings::neg::types,
        "trueup:neg/api": trueup_capabilities::bindings::neg::api,
    }
}

pub use super::migrator::{Filtered, Migrator};
pub use bindings::exports::trueup::neg::syncer::{Error, SyncReport};

/// A linked guest of this world.
pub struct NegSyncerPre {
    linked: InstancePre<Data>,
    syncer: bindings::SyncerIndices,
}

/// The exports of an instance.
pub struct NegSyncer {
    syncer: bindings::Syncer,
    migrator: Migrator,
}

impl NegSyncerPre {
    fn new(linked: InstancePre<Data>) -> wasmtime::Result<Self> {
        for name in ["filter", "pause", "continue", "is-paused"] {
            Migrator::find(linked.component(), name)?;
        }
        Ok(Self {
            syncer: bindings::SyncerIndices::new(&linked)?,
            linked,
        })
    }

    /// Creates an instance.
    ///
    /// # Errors
    /// If it traps at once, there is no room, or an export does not have the type in `wit/`.
    pub async fn instantiate_async(&self, store: &mut Store<Data>) -> wasmtime::Result<NegSyncer> {
        let instance = self.linked.instantiate_async(&mut *store).await?;
        Ok(NegSyncer {
            syncer: self.syncer.load(&mut *store, &instance)?,
            migrator: Migrator::load(self.linked.component(), store, &instance)?,
        })
    }
}

impl NegSyncer {
    /// The exports of `migrator`.
    pub fn migrator(&self) -> &Migrator {
        &self.migrator
    }

    /// The exports of `syncer`.
    pub fn syncer(&self) -> &bindings::exports::trueup::neg::syncer::Guest {
        self.syncer.trueup_neg_syncer()
    }

    /// The exports of `timer-events`.
    pub fn timer_events(&self) -> &bindings::exports::trueup::guest::timer_events::Guest {
        self.syncer.trueup_guest_timer_events()
    }

    /// The exports of `lifecycle`.
    pub fn trueup_guest_lifecycle(&self) -> &bindings::exports::trueup::guest::lifecycle::Guest {
        self.syncer.trueup_guest_lifecycle()
    }
}

/// The arguments of `migrator.filter`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Filter {
    /// The endpoints to attach.
    pub add: Vec<EndpointGroup>,
    /// The endpoints to detach.
    pub remove: Vec<EndpointGroup>,
    /// Desired endpoints that are already attached.
    pub committed: Vec<EndpointGroup>,
    /// Whether the service is in its error state.
    pub in_error_state: bool,
}

/// The arguments of `migrator.continue`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Continue {
    /// Why the detachment failed. `None` if it succeeded.
    #[serde(default)]
    pub detach_failure: Option<String>,
}

/// The arguments of `syncer.sync`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sync {
    /// The desired content of the NEGs.
    pub target: Vec<EndpointGroup>,
}

/// The arguments of `syncer.on-operation`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnOperation {
    /// Its number.
    pub operation: u64,
    /// Why it failed. `None` if it succeeded.
    #[serde(default)]
    pub failure: Option<String>,
}

/// The arguments of `syncer.set-error-state`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetErrorState {
    /// Whether the service is in its error state.
    pub in_error_state: bool,
}

/// The arguments of `timer-events.on-timer`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnTimer {
    /// The timer's id.
    pub timer: u64,
}

world! {
    "trueup:neg/neg-syncer@0.1.0" as NegSyncer, NegSyncerPre, bindings::Syncer;
    imports: [
        "trueup:host/clock@0.1.0",
        "trueup:host/log@0.1.0",
        "trueup:host/metrics@0.1.0",
        "trueup:host/timers@0.1.0",
        "trueup:neg/api@0.1.0",
        "trueup:neg/types@0.1.0",
    ];
    exports: [
        "trueup:guest/lifecycle@0.1.0",
        "trueup:guest/timer-events@0.1.0",
        "trueup:neg/migrator@0.1.0",
        "trueup:neg/syncer@0.1.0",
    ];
    is_stateless: false;
    "migrator.continue": Continue => |migrator as migrator, s, a| migrator.call_continue(s, a.detach_failure);
    "migrator.filter": Filter => |migrator as migrator, s, a| migrator.call_filter(s, &a.add, &a.remove, &a.committed, a.in_error_state);
    "migrator.is-paused": Nothing => |migrator as migrator, s, _a| migrator.call_is_paused(s);
    "migrator.pause": Nothing => |migrator as migrator, s, _a| migrator.call_pause(s);
    "syncer.on-operation": OnOperation => |syncer as syncer, s, a| syncer.call_on_operation(s, a.operation, a.failure.as_deref());
    "syncer.set-error-state": SetErrorState => |syncer as syncer, s, a| syncer.call_set_error_state(s, a.in_error_state);
    "syncer.sync": Sync => |syncer as syncer, s, a| syncer.call_sync(s, &a.target);
    "timer-events.on-timer": OnTimer => |timer_events as timer_events, s, a| timer_events.call_on_timer(s, a.timer);
}
