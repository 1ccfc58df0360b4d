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

mod cli;
mod clocks;
mod lines;
mod monotonic;
mod poll;
mod random;
mod state;
mod streams;

use serde::Serialize;
use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::cli::{WasiCli, WasiCliCtxView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings;
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsCtxView};

use crate::Host;
use crate::ask::ask_now;
use crate::size::AnswerSize;
use crate::timers::Timers;

pub use lines::LINE_BYTES_MAX;
pub use random::RANDOM_BYTES_PER_CALL_MAX;
pub use state::RESOURCES_MAX;
pub(crate) use state::Slot;

use state::{Output, Wasi};

/// The interfaces that guests get, of any version 0.2.x.
pub const PROVIDED: [&str; 27] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

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

/// Adds all of [`PROVIDED`] to a linker.
///
/// # Errors
/// If the linker already has one of them.
pub fn add_to_linker<T: HasHost>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    use bindings::{cli, clocks, filesystem, io, random, sockets};

    clocks::wall_clock::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    clocks::monotonic_clock::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    random::random::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    random::insecure::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    random::insecure_seed::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    io::error::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    io::poll::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    io::streams::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    cli::environment::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;
    cli::exit::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    cli::stdin::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    cli::stdout::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    cli::stderr::add_to_linker::<T, HasSelf<Host>>(linker, T::host)?;
    cli::terminal_input::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;
    cli::terminal_output::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;
    cli::terminal_stdin::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;
    cli::terminal_stdout::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;
    cli::terminal_stderr::add_to_linker::<T, WasiCli>(linker, |data| data.host().cli())?;

    // Nothing is open, and nothing can be opened: the contexts grant nothing, and there is no preopened directory.
    filesystem::preopens::add_to_linker::<T, WasiFilesystem>(linker, |data| data.host().filesystem())?;
    filesystem::types::add_to_linker::<T, WasiFilesystem>(linker, |data| data.host().filesystem())?;
    let network = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<T, WasiSockets>(linker, &network, |data| data.host().sockets())?;
    sockets::instance_network::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())?;
    sockets::ip_name_lookup::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())?;
    sockets::tcp_create_socket::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())?;
    sockets::tcp::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())?;
    sockets::udp_create_socket::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())?;
    sockets::udp::add_to_linker::<T, WasiSockets>(linker, |data| data.host().sockets())
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
        let left = [
            (Output::Stdout, wasi.stdout.rest()),
            (Output::Stderr, wasi.stderr.rest()),
        ];
        for (output, line) in left {
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

    fn cli(&mut self) -> WasiCliCtxView<'_> {
        let Wasi { cli, table, .. } = self.wasi();
        WasiCliCtxView { ctx: cli, table }
    }

    fn filesystem(&mut self) -> WasiFilesystemCtxView<'_> {
        let Wasi { filesystem, table, .. } = self.wasi();
        WasiFilesystemCtxView { ctx: filesystem, table }
    }

    fn sockets(&mut self) -> WasiSocketsCtxView<'_> {
        let Wasi { sockets, table, .. } = self.wasi();
        WasiSocketsCtxView { ctx: sockets, table }
    }

    /// Makes one WASI request that is answered at once.
    fn ask_wasi<A, R>(
        &mut self,
        name: &'static str,
        args: &A,
        answer: impl FnOnce(&crate::Backends, &mut Wasi) -> R,
    ) -> wasmtime::Result<R>
    where
        A: Serialize + ?Sized,
        R: AnswerSize,
    {
        let (backends, wasi) = (&self.backends, self.wasi.get());
        ask_now(&mut self.tape, &mut self.meter, name, args, || answer(backends, wasi))
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
