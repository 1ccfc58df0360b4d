//! The stub of `wasi:*` in a host without the cargo feature `wasi`: it refuses guests that import any of it.

use wasmtime::component::Linker;

use crate::Host;
pub use crate::host::{HasHost, is_wasi};

/// The interfaces that guests get: none.
pub const PROVIDED: &[&str] = &[];

/// Returns true for an import that [`add_to_linker`] provides: none.
pub fn provides(_import: &str) -> bool {
    false
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
    /// A call ended: without WASI, nothing was printed.
    pub fn end_printing(&mut self) {}

    pub(crate) fn begin_wasi_call(&mut self) {}
}
