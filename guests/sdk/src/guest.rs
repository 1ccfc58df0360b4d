//! The life of an instance: its settings, its state, and its snapshot.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::{Imports, Level, Telemetry, snapshot};

/// A guest's state; [`guest!`](crate::guest!) exports it as `trueup:guest/lifecycle`.
pub trait Guest: Sized {
    /// A new instance with these settings, a JSON object.
    ///
    /// # Errors
    /// Which setting is wrong, what it was and what it may be.
    fn init(config: &str) -> Result<Self, String>;

    /// The whole state, as text that `restore` of this and every later version reads.
    fn snapshot(&self) -> String;

    /// Replaces the state.
    ///
    /// # Errors
    /// Which version wrote the snapshot, and why this one can't read it.
    fn restore(&mut self, snapshot: &str) -> Result<(), String>;
}

/// A guest that keeps nothing but its settings between calls. Its snapshot names only the guest that wrote it.
pub trait Stateless: Sized {
    /// The name in its snapshot. `restore` accepts no other, so a guest that replaces another one has its name.
    const NAME: &'static str;
    /// The version in its snapshot. `restore` accepts every version.
    const VERSION: u32;

    /// A new instance with these settings, a JSON object.
    ///
    /// # Errors
    /// Which setting is wrong, what it was and what it may be.
    fn init(config: &str) -> Result<Self, String>;
}

impl<G: Stateless> Guest for G {
    fn init(config: &str) -> Result<Self, String> {
        G::init(config)
    }

    fn snapshot(&self) -> String {
        snapshot::write_stateless(G::NAME, G::VERSION)
    }

    fn restore(&mut self, snapshot: &str) -> Result<(), String> {
        snapshot::read_stateless(snapshot, G::NAME, G::VERSION)
    }
}

/// The state of this instance; `None` before `init`. A component has one thread.
pub type State<G> = RefCell<Option<G>>;

/// For [`guest!`](crate::guest!): begins an instance. A panic's text, file and line go to the log from then on: the
/// host adds the guest's last line at error level to the text of a trap.
#[doc(hidden)]
pub fn init<G: Guest>(state: &'static LocalKey<State<G>>, config: &str) -> Result<(), String> {
    std::panic::set_hook(Box::new(|panic| Imports.log(Level::Error, &panic.to_string(), &[])));
    state.set(Some(G::init(config)?));
    Ok(())
}

/// For [`guest!`](crate::guest!): reads or changes the instance.
#[doc(hidden)]
#[expect(clippy::panic, reason = "the host calls `init` first")]
pub fn with<G, T>(state: &'static LocalKey<State<G>>, call: impl FnOnce(&mut G) -> T) -> T {
    state.with_borrow_mut(|state| match state {
        Some(guest) => call(guest),
        None => panic!("no settings yet: `lifecycle.init` comes first"),
    })
}

/// Generates the types and functions of a world from its WIT, into a module `bindings` of the crate's root. Log and
/// metrics are those of this crate; `with`, which may be left out, shares further ones, as in `wit_bindgen::generate!`.
///
/// ```text
/// trueup_guest::bindings! {
///     world: "trueup:lbaas/lbaas-reconciler",
///     wit: ["wit/host", "wit/guest", "wit/lbaas"],
///     with: { "trueup:host/clock@0.1.0": trueup_guest::bindings::trueup::host::clock },
///     derives: [Clone, PartialEq, Eq],
/// }
/// ```
#[macro_export]
macro_rules! bindings {
    (world: $world:literal, wit: $wit:tt, $(with: { $($with:tt)* },)? derives: $derives:tt $(,)?) => {
        $crate::wit_bindgen::generate!({
            path: $wit,
            world: $world,
            runtime_path: "::trueup_guest::wit_bindgen::rt",
            additional_derives: $derives,
            with: {
                "trueup:host/log@0.1.0": ::trueup_guest::bindings::trueup::host::log,
                "trueup:host/metrics@0.1.0": ::trueup_guest::bindings::trueup::host::metrics,
                $($($with)*)?
            },
            generate_all,
        });
    };
}

/// Makes this crate a guest of the world of its module `bindings`. Adds to the crate's root:
///
/// - `Exports`: implements `trueup:guest/lifecycle` with this state, a [`Guest`]. The crate implements the world's
///   other exports for it, with [`exports!`](crate::exports!) or by hand.
/// - `with(call)`: calls a function with the state.
/// - The package's version, as the guest's.
#[macro_export]
macro_rules! guest {
    ($state:ty) => {
        thread_local! {
            static STATE: $crate::State<$state> = const { $crate::State::new(None) };
        }

        /// Reads or changes the instance.
        fn with<T>(call: impl FnOnce(&mut $state) -> T) -> T {
            $crate::with(&STATE, call)
        }

        /// The exports.
        struct Exports;

        impl bindings::exports::trueup::guest::lifecycle::Guest for Exports {
            fn init(config: String) -> Result<(), String> {
                $crate::init(&STATE, &config)
            }

            fn snapshot() -> String {
                with(|state| $crate::Guest::snapshot(state))
            }

            fn restore(snapshot: String) -> Result<(), String> {
                with(|state| $crate::Guest::restore(state, &snapshot))
            }
        }

        #[cfg(target_family = "wasm")]
        bindings::export!(Exports with_types_in bindings);

        // Read by the host and by `wasm-tools metadata show`. The linker adds the name.
        #[cfg(target_family = "wasm")]
        const _: () = {
            const TEXT: &str = env!("CARGO_PKG_VERSION");

            #[used]
            #[unsafe(link_section = "version")]
            static VERSION: [u8; TEXT.len()] = match TEXT.as_bytes().first_chunk() {
                Some(text) => *text,
                None => [0; TEXT.len()],
            };
        };
    };
}

/// Implements an interface that the world exports: each function with the call on the state that answers it.
///
/// ```text
/// trueup_guest::exports! { reconciliation::Guest {
///     fn reconcile(desired: Desired) -> Result<Report, Error> = |state| state.reconcile(&mut Imports, &desired);
/// } }
/// ```
#[macro_export]
macro_rules! exports {
    ($interface:path {
        $($(#[$about:meta])* fn $name:ident($($argument:tt: $type:ty),*) $(-> $answer:ty)? = $call:expr;)+
    }) => {
        impl $interface for Exports {
            $($(#[$about])* fn $name($($argument: $type),*) $(-> $answer)? {
                with($call)
            })+
        }
    };
}

/// Declares the trait `World`: what the decisions of a guest ask, as one argument. [`Imports`] implements it with the
/// functions after `=`, which are those of the bindings; native tests implement it with a simulation.
///
/// ```text
/// trueup_guest::world! {
///     /// The database, the log and metrics.
///     pub trait World: Telemetry {
///         fn get(key: &str) -> Result<Option<KeyValue>, Error> = kv::get;
///     }
/// }
/// ```
#[macro_export]
macro_rules! world {
    ($(#[$about:meta])* $visibility:vis trait World: $base:ident $(+ $more:ident)* {
        $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)? = $import:path;)+
    }) => {
        $(#[$about])*
        $visibility trait World: $base $(+ $more)* {
            $(
                #[doc = concat!("`", stringify!($import), "`, with its errors.")]
                fn $name(&mut self, $($argument: $type),*) $(-> $answer)?;
            )+
        }

        impl World for $crate::Imports {
            $(
                fn $name(&mut self, $($argument: $type),*) $(-> $answer)? {
                    $import($($argument),*)
                }
            )+
        }
    };
}
