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
mod state;
mod streams;

use serde::Serialize;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings;
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtxView, WasiView};

use crate::Host;
use crate::ask::ask_now;
use crate::size::AnswerSize;
use state::Wasi;

pub use crate::host::{HasHost, is_wasi};
pub use random::RANDOM_BYTES_PER_CALL_MAX;
pub use state::RESOURCES_MAX;
pub(crate) use state::Slot;

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

// Of files and sockets nothing is open, and nothing can be opened: the context grants nothing, and there is no
// preopened directory.
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
    "wasi:io/error": io::error, HasSelf<ResourceTable>, |data| &mut data.host().wasi().table;
    "wasi:io/poll": io::poll, HasSelf<Host>, T::host;
    "wasi:io/streams": io::streams, HasSelf<Host>, T::host;
    "wasi:random/insecure": random::insecure, HasSelf<Host>, T::host;
    "wasi:random/insecure-seed": random::insecure_seed, HasSelf<Host>, T::host;
    "wasi:random/random": random::random, HasSelf<Host>, T::host;
    "wasi:sockets/instance-network": sockets::instance_network, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/ip-name-lookup": sockets::ip_name_lookup, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/network": sockets::network, WasiSockets, |data| data.host().sockets(),
        &bindings::sockets::network::LinkOptions::default();
    "wasi:sockets/tcp": sockets::tcp, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/tcp-create-socket": sockets::tcp_create_socket, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/udp": sockets::udp, WasiSockets, |data| data.host().sockets();
    "wasi:sockets/udp-create-socket": sockets::udp_create_socket, WasiSockets, |data| data.host().sockets();
}

/// Returns true for an import that [`add_to_linker`] provides.
pub fn provides(import: &str) -> bool {
    let parts = import.split_once("@0.2.");
    parts.is_some_and(|(interface, patch)| {
        let is_released = !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit());
        is_released && PROVIDED.contains(&interface)
    })
}

impl Host {
    /// A call ended in any way: output without an end of line becomes a line, too.
    pub fn end_printing(&mut self) {
        let Some(wasi) = self.wasi.existing() else { return };
        for (output, mut lines) in std::mem::take(&mut wasi.lines) {
            if let Some(line) = lines.rest() {
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
