//! `wasi:*` for guests in any language: a deterministic WASI 0.2 without real resources.
//!
//! A language's runtime asks for clocks, randomness, files and streams before its program asks for anything. Clocks,
//! waits and randomness come from the same backends as `trueup:host`, through the same tape, so that a replay returns
//! the same. Output goes to the guest's log. There are no files, no network, no environment, no arguments and no input:
//! these answers are constants, and are not recorded.
//!
//! ```text
//! clocks, random, poll  -> tape -> clock and chance of the host
//! stdout, stderr        -> lines -> the guest's log
//! files, sockets        -> none to open, none to make (wasmtime-wasi, locked down)
//! ```

mod clocks;
mod poll;
mod random;
mod streams;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::Serialize;
use wasmtime::component::{HasSelf, Linker, Resource, ResourceTable, ResourceTableError};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::{DynPollable, Pollable, bindings, subscribe};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::Host;
use crate::ask::ask_now;
use crate::size::AnswerSize;
use crate::timers::Timers;
use clocks::Monotonic;
use streams::Lines;

pub use random::RANDOM_BYTES_PER_CALL_MAX;

/// Declares the provided interfaces: the name, the module with its linking, and whose data answers it.
macro_rules! provided {
    ($($name:literal: $package:ident::$interface:ident, $data:ty, $get:expr $(, $options:expr)?;)+) => {
        /// The interfaces that guests get, of any version 0.2.x.
        pub const PROVIDED: &[&str] = &[$($name),+];

        /// Adds all of [`PROVIDED`] to a linker.
        ///
        /// # Errors
        /// If the linker already has one of them.
        pub fn add_to_linker<T: HasHost>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
            $(bindings::$package::$interface::add_to_linker::<T, $data>(linker, $($options,)? $get)?;)+
            Ok(())
        }
    };
}

// Of files and sockets nothing is open, and nothing can be opened: the context grants nothing, and there is no preopened
// directory.
provided! {
    "wasi:cli/environment": cli::environment, WasiCli, |data| data.host().cli();
    "wasi:cli/exit": cli::exit, HasSelf<Host>, T::host;
    "wasi:cli/stderr": cli::stderr, HasSelf<Host>, T::host;
    "wasi:cli/stdin": cli::stdin, HasSelf<Host>, T::host;
    "wasi:cli/stdout": cli::stdout, HasSelf<Host>, T::host;
    "wasi:cli/terminal-input": cli::terminal_input, WasiCli, |data| data.host().cli();
    "wasi:cli/terminal-output": cli::terminal_output, WasiCli, |data| data.host().cli();
    "wasi:cli/terminal-stderr": cli::terminal_stderr, WasiCli, |data| data.host().cli();
    "wasi:cli/terminal-stdin": cli::terminal_stdin, WasiCli, |data| data.host().cli();
    "wasi:cli/terminal-stdout": cli::terminal_stdout, WasiCli, |data| data.host().cli();
    "wasi:clocks/monotonic-clock": clocks::monotonic_clock, HasSelf<Host>, T::host;
    "wasi:clocks/wall-clock": clocks::wall_clock, HasSelf<Host>, T::host;
    "wasi:filesystem/preopens": filesystem::preopens, WasiFilesystem, |data| data.host().filesystem();
    "wasi:filesystem/types": filesystem::types, WasiFilesystem, |data| data.host().filesystem();
    "wasi:io/error": io::error, HasSelf<Host>, T::host;
    "wasi:io/poll": io::poll, HasSelf<Host>, T::host;
    "wasi:io/streams": io::streams, HasSelf<Host>, T::host;
    "wasi:random/insecure": random::insecure, HasSelf<Host>, T::host;
    "wasi:random/insecure-seed": random::insecure_seed, HasSelf<Host>, T::host;
    "wasi:random/random": random::random, HasSelf<Host>, T::host;
    "wasi:sockets/instance-network": sockets::instance_network, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/ip-name-lookup": sockets::ip_name_lookup, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/network": sockets::network, WasiSockets, |data| data.host().sockets(), &bindings::sockets::network::LinkOptions::default();
    "wasi:sockets/tcp": sockets::tcp, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/tcp-create-socket": sockets::tcp_create_socket, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/udp": sockets::udp, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/udp-create-socket": sockets::udp_create_socket, WasiSockets, |data| data.host().sockets();
}

/// Returns true for an import of WASI, whether or not it is provided.
pub fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

/// Returns true for an import that [`add_to_linker`] provides.
pub fn provides(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    let patch = version.strip_prefix("0.2.").unwrap_or_default();
    let released = !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
    released && PROVIDED.contains(&interface)
}

/// Implemented by a store's data for linking.
pub trait HasHost: Send + 'static {
    /// The host of this store's guest.
    fn host(&mut self) -> &mut Host;
}

impl Host {
    /// An instance begins: drops the previous one's WASI state and timers. Ids count from 1 again, as in a replay of
    /// what is recorded from here on.
    pub fn begin_instance(&mut self) {
        self.wasi = Slot::default();
        self.timers = Timers::default();
    }

    /// A call ended in any way: output without an end of line becomes a line, too.
    pub fn end_printing(&mut self) {
        let Some(wasi) = self.wasi.existing() else { return };
        let left = [wasi.stdout.rest(), wasi.stderr.rest()];
        for (output, line) in [Output::Stdout, Output::Stderr].into_iter().zip(left) {
            if let Some(line) = line {
                self.print(output, &line);
            }
        }
    }

    /// A call begins: resets its limit of random bytes.
    pub(crate) fn begin_wasi_call(&mut self) {
        if let Some(wasi) = self.wasi.existing() {
            wasi.random_bytes = 0;
        }
    }

    fn wasi(&mut self) -> &mut Wasi {
        self.wasi.get()
    }

    /// Makes one WASI request that is answered at once.
    fn ask_wasi<R: AnswerSize>(
        &mut self,
        name: &'static str,
        args: &(impl Serialize + ?Sized),
        answer: impl FnOnce(&crate::Backends, &mut Wasi) -> R,
    ) -> wasmtime::Result<R> {
        let (backends, wasi) = (&self.backends, self.wasi.get());
        ask_now(&mut self.tape, &mut self.meter, name, args, || answer(backends, wasi))
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Wasi { ctx, table, .. } = self.wasi();
        WasiCtxView { ctx, table }
    }
}

/// The maximum number of streams and pollables (two entries each) of one instance. A runtime has three streams and a
/// pollable per wait; an instance with thousands leaks them.
pub const RESOURCES_MAX: usize = 4_096;

/// The WASI state of the running instance, created on first use: a guest without WASI imports pays nothing. The lock is
/// never contended, since only its owner reaches it. It makes a host shareable although the table is not.
#[derive(Default)]
pub(crate) struct Slot(Option<Box<Mutex<Wasi>>>);

impl Slot {
    fn get(&mut self) -> &mut Wasi {
        self.0.get_or_insert_default().get_mut()
    }

    fn existing(&mut self) -> Option<&mut Wasi> {
        Some(self.0.as_mut()?.get_mut())
    }
}

/// The WASI state of one instance.
struct Wasi {
    table: ResourceTable,
    ctx: WasiCtx,
    monotonic: Monotonic,
    /// By the pollable's number: when it is ready, on the monotonic clock. Pollables that are always ready have no
    /// entry.
    deadlines_ns: BTreeMap<u32, u64>,
    /// By the stream's number.
    outputs: BTreeMap<u32, Output>,
    stdout: Lines,
    stderr: Lines,
    /// Drawn by the running call.
    random_bytes: u64,
}

/// The destination of a stream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
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
    fn pollable(&mut self, deadline_ns: Option<u64>) -> wasmtime::Result<Resource<DynPollable>> {
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

    fn push<R: Send + 'static>(&mut self, resource: R) -> wasmtime::Result<Resource<R>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_released_version_0_2_of_an_interface_is_provided_and_nothing_else() {
        for import in ["wasi:cli/exit@0.2.0", "wasi:io/poll@0.2.12", "wasi:sockets/udp@0.2.6"] {
            assert!(is_wasi(import) && provides(import), "{import}");
        }
        for import in [
            "wasi:cli/exit",
            "wasi:cli/exit@0.3.0",
            "wasi:cli/exit@0.2.",
            "wasi:cli/exit@0.2.0-rc-2023-11-10",
            "wasi:http/outgoing-handler@0.2.0",
            "wasi:cli/run@0.2.0",
        ] {
            assert!(is_wasi(import) && !provides(import), "{import}");
        }
        assert!(!is_wasi("trueup:host/clock@0.1.0"));
    }
}
