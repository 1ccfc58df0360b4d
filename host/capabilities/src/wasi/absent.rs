//! What is left of `wasi:*` in a host that is built without the cargo feature `wasi`: a guest that imports any of it is refused.

use wasmtime::component::Linker;

use crate::Host;
use crate::timers::Timers;

/// The interfaces that guests get: none.
pub const PROVIDED: [&str; 0] = [];

/// True for an import of WASI, whether or not it is provided.
pub fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

/// True for an import that [`add_to_linker`] gives: none.
pub fn provides(_import: &str) -> bool {
    false
}

/// What a store's data offers to be linked.
pub trait HasHost: Send + 'static {
    /// What answers the guest of this store.
    fn host(&mut self) -> &mut Host;
}

/// Gives a linker all that is [`PROVIDED`]: nothing.
///
/// # Errors
/// None.
pub fn add_to_linker<T: HasHost>(_linker: &mut Linker<T>) -> wasmtime::Result<()> {
    Ok(())
}

/// What the running instance has of WASI: nothing.
#[derive(Default)]
pub(crate) struct Slot;

impl Host {
    /// An instance begins: the timers of the last one went with it.
    pub fn begin_instance(&mut self) {
        self.timers = Timers::default();
    }

    /// A call ended: without WASI nothing was printed.
    pub fn end_printing(&mut self) {}

    pub(crate) fn begin_wasi_call(&mut self) {}
}
