//! The export `trueup:neg/migrator`, written by hand: one of its functions is called `continue`, a Rust keyword, and
//! `bindgen!` makes a field of that name. Otherwise this is what `bindgen!` would generate.

use serde::{Deserialize, Serialize};
use trueup_capabilities::neg::{EndpointGroup, Location};
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, ComponentType, Func, Instance, Lift, Lower,
};
use wasmtime::{AsContextMut, Store};

/// The name of the interface in a component's exports.
const INTERFACE: &str = "trueup:neg/migrator@0.1.0";

/// The result of `migrator.filter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
pub struct Filtered {
    /// The first argument without migration endpoints.
    #[component(name = "add")]
    pub add: Vec<EndpointGroup>,
    /// The second argument without migration endpoints, but with the endpoints whose migration starts now.
    #[component(name = "remove")]
    pub remove: Vec<EndpointGroup>,
    /// The location where a detachment starts now. `None` if none starts.
    #[component(name = "detaching")]
    pub detaching: Option<Location>,
    /// Migration endpoints found in `remove`.
    #[component(name = "migrating")]
    pub migrating: u32,
}

type FilterArgs<'a> = (&'a [EndpointGroup], &'a [EndpointGroup], &'a [EndpointGroup], bool);

/// The indices of the functions in a component.
#[derive(Clone)]
pub(super) struct Indices {
    filter: ComponentExportIndex,
    pause: ComponentExportIndex,
    r#continue: ComponentExportIndex,
    is_paused: ComponentExportIndex,
}

impl Indices {
    /// Looks them up.
    pub(super) fn new(component: &Component) -> wasmtime::Result<Self> {
        let interface = component.get_export_index(None, INTERFACE);
        let interface = interface.ok_or_else(|| wasmtime::format_err!("no export interface `{INTERFACE}` found"))?;
        let function = |name: &str| {
            let found = component.get_export_index(Some(&interface), name);
            found.ok_or_else(|| wasmtime::format_err!("no function `{name}` in the export `{INTERFACE}`"))
        };
        Ok(Self {
            filter: function("filter")?,
            pause: function("pause")?,
            r#continue: function("continue")?,
            is_paused: function("is-paused")?,
        })
    }

    /// The functions of an instance, each with the type in `wit/`.
    pub(super) fn load<T: 'static>(&self, store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<Migrator> {
        Ok(Migrator {
            filter: typed::<FilterArgs<'_>, (Filtered,), T>(store, instance, &self.filter)?,
            pause: typed::<(), (), T>(store, instance, &self.pause)?,
            r#continue: typed::<(Option<&str>,), (), T>(store, instance, &self.r#continue)?,
            is_paused: typed::<(), (bool,), T>(store, instance, &self.is_paused)?,
        })
    }
}

fn typed<P, R, T: 'static>(
    store: &mut Store<T>,
    instance: &Instance,
    index: &ComponentExportIndex,
) -> wasmtime::Result<Func>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    Ok(*instance.get_typed_func::<P, R>(store, index)?.func())
}

/// The functions of one instance.
#[derive(Clone, Copy)]
pub struct Migrator {
    filter: Func,
    pause: Func,
    r#continue: Func,
    is_paused: Func,
}

impl Migrator {
    /// `migrator.filter`.
    pub async fn call_filter(
        &self,
        store: impl AsContextMut<Data: Send>,
        add: &[EndpointGroup],
        remove: &[EndpointGroup],
        committed: &[EndpointGroup],
        in_error_state: bool,
    ) -> wasmtime::Result<Filtered> {
        let args = (add, remove, committed, in_error_state);
        let (filtered,) = call::<FilterArgs<'_>, (Filtered,)>(self.filter, store, args).await?;
        Ok(filtered)
    }

    /// `migrator.pause`.
    pub async fn call_pause(&self, store: impl AsContextMut<Data: Send>) -> wasmtime::Result<()> {
        call::<(), ()>(self.pause, store, ()).await
    }

    /// `migrator.continue`.
    pub async fn call_continue(
        &self,
        store: impl AsContextMut<Data: Send>,
        detach_failure: Option<&str>,
    ) -> wasmtime::Result<()> {
        call::<(Option<&str>,), ()>(self.r#continue, store, (detach_failure,)).await
    }

    /// `migrator.is-paused`.
    pub async fn call_is_paused(&self, store: impl AsContextMut<Data: Send>) -> wasmtime::Result<bool> {
        let (is_paused,) = call::<(), (bool,)>(self.is_paused, store, ()).await?;
        Ok(is_paused)
    }
}

/// Calls a function with this type. The type was checked at the start; checking it again takes a few comparisons.
async fn call<P, R>(function: Func, mut store: impl AsContextMut<Data: Send>, args: P) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower + Send + Sync,
    R: ComponentNamedList + Lift + Send + Sync + 'static,
{
    let function = function.typed::<P, R>(&store)?;
    function.call_async(&mut store, args).await
}
