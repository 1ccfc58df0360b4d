//! The `trueup` binary: reads the command line, runs one command, ends with its code.
#![forbid(unsafe_code)]

mod commands;
mod exit;
mod output;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    exit::report(commands::exec(cli))
}
