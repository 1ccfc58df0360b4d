//! A world as a value: its names, and how a guest of it is linked and called.
//!
//! The folder or file of a world states its bindings and its exports with `bindings!` and `world!`; its kind of work
//! names it (`Kind::worlds`). Nothing else enumerates worlds.
//!
//! ```text
//! World::link -> Linked (compiled against the imports) -> Running (one instance, called by an export's name)
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use trueup_capabilities::{Host, wasi};
use trueup_engine::{CallError, Data, Engine, Guest, Instance};

use crate::dispatch::Answer;

/// One of the worlds in `wit/`.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The name in WIT.
    pub name: &'static str,
    /// What a guest of this world may import, ascending.
    pub imports: &'static [&'static str],
    /// What it must export, ascending.
    pub exports: &'static [&'static str],
    /// The calls besides `lifecycle`, with the names that scenarios and journals use.
    pub calls: &'static [&'static str],
    /// Whether an instance decides only by what it reads. If its recording is lost, a new instance decides the same,
    /// and only history is lost.
    pub is_stateless: bool,
    /// Links a guest of this world.
    pub link: fn(&Engine, &Guest) -> wasmtime::Result<Linked>,
}

/// The worlds that a guest may implement.
pub type Worlds = &'static [&'static World];

/// Their names, with `between` in between.
pub fn names(worlds: Worlds, between: &str) -> String {
    let names: Vec<&str> = worlds.iter().map(|world| world.name).collect();
    names.join(between)
}

/// The import through which a guest stores persistent data.
const STORE: &str = "trueup:checkpoint/store@0.1.0";

/// The import through which an instance sets timers.
pub(crate) const TIMERS: &str = "trueup:host/timers@0.1.0";

impl World {
    /// Whether an instance of this world may start without the state of its predecessor: the host sends it the whole
    /// desired state, and it neither stores anything nor sets timers.
    pub fn may_start_without_state(&self) -> bool {
        !self.imports.contains(&TIMERS) && !self.imports.contains(&STORE)
    }

    /// Whether a guest of this world may import this interface.
    pub(crate) fn may_import(&self, import: &str) -> bool {
        self.imports.contains(&import) || wasi::provides(import)
    }
}

/// The store of an instance.
pub type Store = wasmtime::Store<Data>;

/// An instance; or the host, for another try, and why there is none.
pub(crate) type Instantiated = Result<Running, (Box<Host>, CallError)>;

/// A guest linked to its world: creates an instance. The duration is the maximum computing time of its calls.
pub type Linked = Box<dyn for<'a> Fn(&'a Engine, Host, Duration) -> BoxFuture<'a, Instantiated> + Send + Sync>;

/// A guest that creates its instances with `instantiate` from `pre`, which is linked already.
pub fn linked<P: Send + Sync + 'static, B: Dispatch + 'static>(
    pre: P,
    instantiate: for<'a> fn(&'a P, &'a mut Store) -> BoxFuture<'a, wasmtime::Result<B>>,
) -> Linked {
    let pre = Arc::new(pre);
    Box::new(move |engine, host, cpu_max| {
        let pre = Arc::clone(&pre);
        let instantiate = async move |store: &mut Store| {
            let bindings = instantiate(&pre, store).await?;
            Ok(Arc::new(bindings) as Arc<dyn Dispatch>)
        };
        Box::pin(Running::new(engine, host, cpu_max, instantiate))
    })
}

/// An instance of a guest of any world. See [`Instance`].
pub type Running = Instance<Arc<dyn Dispatch>>;

/// The bindings of an instance of any world. The macro `world!` implements it.
pub trait Dispatch: Send + Sync {
    /// Calls an export by its name; `lifecycle` is the same in every world.
    fn dispatch<'a>(&'a self, instance: &'a mut Running, call: &'a str, args: &'a RawValue) -> BoxFuture<'a, Answer>;
}

/// The types of a world, generated from `wit/`: `bindgen!` with the options that all worlds share. Takes the folders of
/// its packages, the world, and the modules of types that are generated already.
#[macro_export]
macro_rules! bindings {
    ($path:tt, $(inline: $inline:literal,)? $world:literal, { $($with:tt)* }) => {
        #[expect(missing_docs, reason = "generated from wit/, which holds the documentation")]
        mod bindings {
            wasmtime::component::bindgen!({
                path: $path,
                $(inline: $inline,)?
                world: $world,
                with: { "trueup:host": trueup_capabilities::bindings::host, $($with)* },
                require_store_data_send: true,
                exports: { default: async },
                additional_derives: [Clone, PartialEq, serde::Serialize, serde::Deserialize],
            });
        }
    };
}

/// Defines `WORLD`, `WORLDS` with it alone, and `link`, and implements [`Dispatch`].
///
/// Takes the world's name; the type of an instance, the type of a linked guest, and the type that adds the imports;
/// then the exports by name, each with the type of its arguments, its interface and its function. If fields follow the
/// type of the arguments, it is defined here. If all exports share one interface, that is given once, before them; the
/// types are then the two that `bindings!` generates. `imports` and `exports` name interfaces without `trueup:` and
/// version.
#[macro_export]
macro_rules! world {
    (
        $name:literal as $world:ident, $pre:ident;
        imports: $imports:tt; exports: $exports:tt; is_stateless: $is_stateless:literal; $interface:ident:
        $(
            $call:literal: $args:ident $({ $($arg:ident: $type:ty),* })? =>
            |$export:ident, $store:ident, $a:ident| $made:expr;
        )*
    ) => {
        $crate::world! {
            $name as bindings::$world, bindings::$pre<trueup_engine::Data>, bindings::$world;
            imports: $imports; exports: $exports; is_stateless: $is_stateless;
            $($call: $args $({ $($arg: $type),* })? => |$interface as $export, $store, $a| $made;)*
        }
    };
    (
        $name:literal as $world:ty, $pre:ty, $imports_of:ty;
        imports: [$($import:literal),*]; exports: [$($exported:literal),*]; is_stateless: $is_stateless:literal;
        $(
            $call:literal: $args:ident $({ $($arg:ident: $type:ty),* })? =>
            |$interface:ident as $export:ident, $store:ident, $a:ident| $made:expr;
        )*
    ) => {
        $($(
            #[doc = concat!("The arguments of `", $call, "`, as in `wit/`, which has the documentation.")]
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            #[expect(missing_docs, reason = "named as in wit/, which has the documentation")]
            pub struct $args {
                $(pub $arg: $type,)*
            }
        )?)*

        /// This world.
        pub const WORLD: $crate::World = $crate::World {
            name: concat!($name, "@0.1.0"),
            imports: &[$(concat!("trueup:", $import, "@0.1.0")),*],
            exports: &[$(concat!("trueup:", $exported, "@0.1.0")),*],
            calls: &[$($call),*],
            is_stateless: $is_stateless,
            link: |engine, guest| {
                Ok($crate::linked(link(engine, guest)?, |pre, store| Box::pin(pre.instantiate_async(store))))
            },
        };

        /// The worlds that a guest with this world may have.
        pub const WORLDS: $crate::Worlds = &[&WORLD];

        /// Links a guest of this world.
        ///
        /// # Errors
        /// If an import or export is missing or does not have the type in `wit/`.
        pub fn link(engine: &trueup_engine::Engine, guest: &trueup_engine::Guest) -> wasmtime::Result<$pre> {
            let mut linker = trueup_engine::linker_for(engine, guest)?;
            <$imports_of>::add_to_linker::<_, wasmtime::component::HasSelf<_>>(
                &mut linker,
                |data: &mut trueup_engine::Data| &mut data.host,
            )?;
            <$pre>::new(linker.instantiate_pre(&guest.component)?)
        }

        impl $crate::Dispatch for $world {
            fn dispatch<'a>(
                &'a self,
                instance: &'a mut $crate::Running,
                call: &'a str,
                args: &'a serde_json::value::RawValue,
            ) -> futures_util::future::BoxFuture<'a, $crate::dispatch::Answer> {
                use $crate::dispatch::{Init, Nothing as NoArgs, Restore};
                Box::pin(async move {
                    $crate::world! { @match self, instance, call, args;
                        $($call: $args => |$interface as $export, $store, $a| $made;)*
                        "lifecycle.init": Init => |trueup_guest_lifecycle as e, s, a| e.call_init(s, &a.config);
                        "lifecycle.restore": Restore =>
                            |trueup_guest_lifecycle as e, s, a| e.call_restore(s, &a.snapshot);
                        "lifecycle.snapshot": NoArgs => |trueup_guest_lifecycle as e, s, _a| e.call_snapshot(s);
                    }
                })
            }
        }
    };
    (
        @match $bindings:expr, $instance:ident, $called:ident, $given:ident;
        $($call:literal: $args:ty => |$interface:ident as $export:ident, $store:ident, $a:ident| $made:expr;)*
    ) => {
        match $called {
            $($call => {
                let $a = $crate::dispatch::args::<$args>($called, $given)?;
                let ($store, _) = $instance.enter();
                let $export = $bindings.$interface();
                let result = $made.await;
                $crate::dispatch::answer($instance, $called, result)
            })*
            _ => Err($crate::dispatch::unknown($called, WORLD.calls)),
        }
    };
}
