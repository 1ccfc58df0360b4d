//! The `trueup` binary: reads the command line, runs one command, ends with its code.
#![forbid(unsafe_code)]

mod colour;
mod commands;
mod exit;
mod output;
mod progress;
mod telemetry;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::report(commands::exec(commands::Cli::read()))
}
