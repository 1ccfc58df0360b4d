//! The export `trueup:neg/migrator`, written by hand: one of its functions is called `continue`, a Rust keyword, and
//! `bindgen!` makes a field of that name. Otherwise this is what `bindgen!` would generate.

use serde::{Deserialize, Serialize};
use trueup_capabilities::neg::{EndpointGroup, Location};
use wasmtime::component::{Component, ComponentExportIndex, ComponentType, Func, Instance, Lift, Lower, TypedFunc};
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

/// The functions of one instance.
pub struct Migrator {
    /// With [`FilterArgs`]: borrowed arguments have no type that outlives a call.
    filter: Func,
    pause: TypedFunc<(), ()>,
    r#continue: TypedFunc<(Option<String>,), ()>,
    is_paused: TypedFunc<(), (bool,)>,
}

impl Migrator {
    /// Where a component has a function.
    pub(super) fn find(component: &Component, name: &str) -> wasmtime::Result<ComponentExportIndex> {
        let interface = component.get_export_index(None, INTERFACE);
        let interface = interface.ok_or_else(|| wasmtime::format_err!("no export interface `{INTERFACE}` found"))?;
        let found = component.get_export_index(Some(&interface), name);
        found.ok_or_else(|| wasmtime::format_err!("no function `{name}` in the export `{INTERFACE}`"))
    }

    /// The functions of an instance, each with the type in `wit/`.
    pub(super) fn load<T: 'static>(
        component: &Component,
        store: &mut Store<T>,
        instance: &Instance,
    ) -> wasmtime::Result<Self> {
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
        let (filtered,) = filter
            .call_async(&mut store, (add, remove, committed, in_error_state))
            .await?;
        Ok(filtered)
    }

    /// `migrator.pause`.
    pub async fn call_pause(&self, store: impl AsContextMut<Data: Send>) -> wasmtime::Result<()> {
        self.pause.call_async(store, ()).await
    }

    /// `migrator.continue`.
    pub async fn call_continue(
        &self,
        store: impl AsContextMut<Data: Send>,
        detach_failure: Option<String>,
    ) -> wasmtime::Result<()> {
        self.r#continue.call_async(store, (detach_failure,)).await
    }

    /// `migrator.is-paused`.
    pub async fn call_is_paused(&self, store: impl AsContextMut<Data: Send>) -> wasmtime::Result<bool> {
        let (is_paused,) = self.is_paused.call_async(store, ()).await?;
        Ok(is_paused)
    }
}
