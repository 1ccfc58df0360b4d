//! The stub of `wasi:*` in a host without the cargo feature `wasi`: it refuses guests that import any of it.

use wasmtime::component::Linker;

use crate::Host;
use crate::timers::Timers;

/// The interfaces that guests get: none.
pub const PROVIDED: &[&str] = &[];

/// Returns true for an import of WASI, whether or not it is provided.
pub fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

/// Returns true for an import that [`add_to_linker`] provides: none.
pub fn provides(_import: &str) -> bool {
    false
}

/// Implemented by a store's data for linking.
pub trait HasHost: Send + 'static {
    /// The host of this store's guest.
    fn host(&mut self) -> &mut Host;
}

/// Adds all of [`PROVIDED`] to a linker: nothing.
///
/// # Errors
/// None.
pub fn add_to_linker<T: HasHost>(_linker: &mut Linker<T>) -> wasmtime::Result<()> {
    Ok(())
}

/// The WASI state of the running instance: none.
#[derive(Default)]
pub(crate) struct Slot;

impl Host {
    /// An instance begins: drops the previous one's timers.
    pub fn begin_instance(&mut self) {
        self.timers = Timers::default();
    }

    /// A call ended: without WASI, nothing was printed.
    pub fn end_printing(&mut self) {}

    pub(crate) fn begin_wasi_call(&mut self) {}
}
