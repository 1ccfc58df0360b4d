//! The `trueup-cni` binary: a CNI IPAM plugin that asks the trueup host over its unix socket.
//!
//! A main plugin (`bridge`, `ptp`, ...) or a runtime calls it once for each command. It decides nothing about
//! addresses, keeps no state but undelivered releases, and shares no crate with the host. Both ends follow
//! `docs/cni.md`.
//!
//! ```text
//! CNI_* -> environment --+
//! stdin -> configuration +-> plan -> request -> host (socket) -> answer -> outcome -> stdout, exit status
//!                                                  |                          |
//!                                     ADD takes back <------- spool <- DEL, where the host is down
//! ```
#![forbid(unsafe_code)]

mod answer;
mod configuration;
mod environment;
mod error;
mod host;
mod members;
mod outcome;
mod plan;
mod plugin;
mod report;
mod request;
mod result;
mod spool;
mod version;

use std::process::ExitCode;

fn main() -> ExitCode {
    // For people: a runtime gives no arguments, and asks with `CNI_COMMAND=VERSION`.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == "--version")
    {
        let version = concat!("trueup-cni ", env!("CARGO_PKG_VERSION"), "\n");
        let written = std::io::Write::write_all(&mut std::io::stdout(), version.as_bytes());
        return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let variables = environment::Variables::of_process();
    let input = configuration::read(std::io::stdin());
    let ending = plugin::guarded(|| plugin::run(&variables, input));
    report::report(&ending, &variables)
}
