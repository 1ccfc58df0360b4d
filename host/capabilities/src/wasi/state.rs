//! The WASI state of one instance.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use wasmtime::component::{Resource, ResourceTable, ResourceTableError};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use super::clocks::Monotonic;
use super::streams::Lines;

/// The maximum number of streams and pollables (two entries each) of one instance. A runtime has three streams and a
/// pollable per wait; an instance with thousands leaks them.
pub const RESOURCES_MAX: usize = 4_096;

/// The WASI state of the running instance, created on first use: a guest without WASI imports pays nothing. The lock is
/// never contended, since only its owner reaches it. It makes a host shareable although the table is not.
#[derive(Default)]
pub(crate) struct Slot(Option<Box<Mutex<Wasi>>>);

impl Slot {
    pub(super) fn get(&mut self) -> &mut Wasi {
        self.0.get_or_insert_default().get_mut()
    }

    pub(super) fn existing(&mut self) -> Option<&mut Wasi> {
        Some(self.0.as_mut()?.get_mut())
    }
}

/// The WASI state of one instance.
pub(super) struct Wasi {
    pub(super) table: ResourceTable,
    pub(super) ctx: WasiCtx,
    pub(super) monotonic: Monotonic,
    /// By the pollable's number: when it is ready, on the monotonic clock. Pollables that are always ready have no
    /// entry.
    pub(super) deadlines_ns: BTreeMap<u32, u64>,
    /// By the stream's number.
    pub(super) outputs: BTreeMap<u32, Output>,
    pub(super) stdout: Lines,
    pub(super) stderr: Lines,
    /// Drawn by the running call.
    pub(super) random_bytes: u64,
}

/// The destination of a stream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

impl Default for Wasi {
    fn default() -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        Self {
            table,
            ctx: WasiCtx::builder().build(),
            monotonic: Monotonic::default(),
            deadlines_ns: BTreeMap::new(),
            outputs: BTreeMap::new(),
            stdout: Lines::default(),
            stderr: Lines::default(),
            random_bytes: 0,
        }
    }
}

impl Wasi {
    /// A pollable that is ready at `deadline_ns`; `None` if it is always ready.
    pub(super) fn pollable(&mut self, deadline_ns: Option<u64>) -> wasmtime::Result<Resource<DynPollable>> {
        /// Never polled itself: `poll.rs` knows when it is ready.
        struct Due;

        #[wasmtime_wasi::async_trait]
        impl Pollable for Due {
            async fn ready(&mut self) {}
        }

        let due = self.push(Due)?;
        let full = |error: wasmtime::Error| error.downcast().map_or_else(|other| other, too_many);
        let pollable = subscribe(&mut self.table, due).map_err(full)?;
        self.deadlines_ns
            .extend(deadline_ns.map(|deadline_ns| (pollable.rep(), deadline_ns)));
        Ok(pollable)
    }

    pub(super) fn push<R: Send + 'static>(&mut self, resource: R) -> wasmtime::Result<Resource<R>> {
        self.table.push(resource).map_err(too_many)
    }
}

fn too_many(error: ResourceTableError) -> wasmtime::Error {
    match error {
        ResourceTableError::Full => wasmtime::format_err!(
            "keeps more than {RESOURCES_MAX} streams and pollables of WASI; a guest drops what it is done with"
        ),
        other => other.into(),
    }
}
