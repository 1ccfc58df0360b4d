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
mod install;
mod outcome;
mod plan;
mod plugin;
mod report;
mod request;
mod result;
mod spool;
mod version;

use std::{ffi::OsString, io::Write as _, path::Path, process::ExitCode};

fn main() -> ExitCode {
    // A runtime gives no arguments, and asks with `CNI_COMMAND=VERSION`.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [version] if version == "--version" => {
            let version = concat!("trueup-cni ", env!("CARGO_PKG_VERSION"), "\n");
            let written = std::io::stdout().write_all(version.as_bytes());
            return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        [install, folder] if install == "install" => {
            let Err(error) = install::install(Path::new(folder)) else {
                return ExitCode::SUCCESS;
            };
            // Ignore the error: there is no other place to write it to.
            let _ = writeln!(std::io::stderr(), "trueup-cni: {error}");
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    let variables = environment::Variables::of_process();
    let input = configuration::read(std::io::stdin());
    let ending = plugin::guarded(|| plugin::run(&variables, input));
    report::report(&ending, &variables)
}
