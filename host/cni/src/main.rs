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
mod outcome;
mod plan;
mod plugin;
mod request;
mod result;
mod spool;
mod version;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A runtime gives no arguments, and asks with `CNI_COMMAND=VERSION`.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [version] if version == "--version" => {
            let version = concat!("trueup-cni ", env!("CARGO_PKG_VERSION"), "\n");
            let written = io::stdout().write_all(version.as_bytes());
            return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
        }
        [command, folder] if command == "install" => {
            let Err(error) = install(Path::new(folder)) else {
                return ExitCode::SUCCESS;
            };
            // Ignore the error: there is no other place to write it to.
            let _ = writeln!(io::stderr(), "trueup-cni: {error}");
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    let variables = environment::Variables::of_process();
    let input = configuration::read(io::stdin());
    let ending = plugin::guarded(|| plugin::run(&variables, input));
    plugin::report(&ending, &variables)
}

/// The plugin's name there: the `type` in `ipam`.
const NAME: &str = "trueup-cni";

/// `trueup-cni install FOLDER`: copies this program into a folder where a runtime looks for plugins, and replaces an
/// earlier one.
///
/// For an init container: the image has no shell and no `cp`. A runtime may call the plugin meanwhile, so the old file
/// stays complete until the new one replaces it.
fn install(folder: &Path) -> Result<(), String> {
    let target = folder.join(NAME);
    // Not in the way of a runtime, which takes names without a dot.
    let new = folder.join(format!(".{NAME}.{}.tmp", std::process::id()));
    let copied = fs::copy("/proc/self/exe", &new)
        .and_then(|_| fs::set_permissions(&new, Permissions::from_mode(0o755)))
        .and_then(|()| File::open(&new)?.sync_all())
        .and_then(|()| fs::rename(&new, &target));
    copied.map_err(|error| {
        // Ignore the error: the file may not exist.
        let _ = fs::remove_file(&new);
        format!("can't install {}: {error}", target.display())
    })
}
