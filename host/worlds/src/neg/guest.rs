//! The world `trueup:neg/neg-syncer`: its bindings, and its exports by name.

use serde::{Deserialize, Serialize};
use trueup_capabilities::neg::{EndpointGroup, Location};
use trueup_engine::Data;
use trueup_instance::{bindings, world};
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Func, Instance, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Store};

pub use trueup_instance::dispatch::Nothing;

/// The name of this guest in configuration and state, whatever name the component has.
pub const NAME: &str = "neg";

bindings! {
    ["../../wit/host", "../../wit/guest", "../../wit/neg"],
    // The world without `migrator`: see [`Migrator`].
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

/// The name of the interface in a component's exports.
const INTERFACE: &str = "trueup:neg/migrator@0.1.0";

/// The result of `migrator.filter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
pub struct Filtered {
    /// The first argument without migration endpoints.
    pub add: Vec<EndpointGroup>,
    /// The second argument without migration endpoints, but with the endpoints whose migration starts now.
    pub remove: Vec<EndpointGroup>,
    /// The location where a detachment starts now. `None` if none starts.
    pub detaching: Option<Location>,
    /// Migration endpoints found in `remove`.
    pub migrating: u32,
}

type FilterArgs<'a> = (&'a [EndpointGroup], &'a [EndpointGroup], &'a [EndpointGroup], bool);

/// The functions of one instance's export `migrator`, written by hand: one of them is called `continue`, a Rust
/// keyword, and `bindgen!` makes a field of that name. Otherwise this is what `bindgen!` would generate.
pub struct Migrator {
    /// With [`FilterArgs`]: borrowed arguments have no type that outlives a call.
    filter: Func,
    pause: TypedFunc<(), ()>,
    r#continue: TypedFunc<(Option<String>,), ()>,
    is_paused: TypedFunc<(), (bool,)>,
}

impl Migrator {
    /// Where a component has a function.
    fn find(component: &Component, name: &str) -> wasmtime::Result<ComponentExportIndex> {
        let interface = component.get_export_index(None, INTERFACE);
        let interface = interface.ok_or_else(|| wasmtime::format_err!("no export interface `{INTERFACE}` found"))?;
        let found = component.get_export_index(Some(&interface), name);
        found.ok_or_else(|| wasmtime::format_err!("no function `{name}` in the export `{INTERFACE}`"))
    }

    /// The functions of an instance, each with the type in `wit/`.
    fn load(component: &Component, store: &mut Store<Data>, instance: &Instance) -> wasmtime::Result<Self> {
        let at = |name| Self::find(component, name);
        let filter = instance.get_typed_func::<FilterArgs<'_>, (Filtered,)>(&mut *store, at("filter")?)?;
        Ok(Self {
            filter: *filter.func(),
            pause: instance.get_typed_func(&mut *store, at("pause")?)?,
            r#continue: instance.get_typed_func(&mut *store, at("continue")?)?,
            is_paused: instance.get_typed_func(&mut *store, at("is-paused")?)?,
        })
    }

    /// `migrator.filter`.
    pub async fn call_filter(
        &self,
        mut store: impl AsContextMut<Data: Send>,
        add: &[EndpointGroup],
        remove: &[EndpointGroup],
        committed: &[EndpointGroup],
        in_error_state: bool,
    ) -> wasmtime::Result<Filtered> {
        let filter = self.filter.typed::<FilterArgs<'_>, (Filtered,)>(&store)?;
        let args = (add, remove, committed, in_error_state);
        Ok(filter.call_async(&mut store, args).await?.0)
    }
}

world! {
    "trueup:neg/neg-syncer" as NegSyncer, NegSyncerPre, bindings::Syncer;
    imports: ["host/clock", "host/log", "host/metrics", "host/timers", "neg/api", "neg/types"];
    exports: ["guest/lifecycle", "guest/timer-events", "neg/migrator", "neg/syncer"];
    is_stateless: false;
    "migrator.continue": Continue { detach_failure: Option<String> } =>
        |migrator as m, s, a| m.r#continue.call_async(s, (a.detach_failure,));
    "migrator.filter":
        Filter {
            add: Vec<EndpointGroup>, remove: Vec<EndpointGroup>, committed: Vec<EndpointGroup>, in_error_state: bool
        } =>
        |migrator as m, s, a| m.call_filter(s, &a.add, &a.remove, &a.committed, a.in_error_state);
    "migrator.is-paused": Nothing => |migrator as m, s, _a| async { Ok(m.is_paused.call_async(s, ()).await?.0) };
    "migrator.pause": Nothing => |migrator as m, s, _a| m.pause.call_async(s, ());
    "syncer.on-operation": OnOperation { operation: u64, failure: Option<String> } =>
        |syncer as syncer, s, a| syncer.call_on_operation(s, a.operation, a.failure.as_deref());
    "syncer.set-error-state": SetErrorState { in_error_state: bool } =>
        |syncer as syncer, s, a| syncer.call_set_error_state(s, a.in_error_state);
    "syncer.sync": Sync { target: Vec<EndpointGroup> } => |syncer as syncer, s, a| syncer.call_sync(s, &a.target);
    "timer-events.on-timer": OnTimer { timer: u64 } =>
        |timer_events as timer_events, s, a| timer_events.call_on_timer(s, a.timer);
}
