//! The `trueup` binary: reads the command line, runs one command, ends with its code.
#![forbid(unsafe_code)]

mod commands;
mod exit;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    output::start_log(cli.is_simulator());
    exit::report(commands::exec(cli))
}
