//! `trueup completions`: prints shell completions.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::exit::{Ending, Exit};
use crate::output;

/// Prints completions for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn exec(args: Args) -> Ending {
    let mut command = super::Cli::command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    output::bytes(&text)?;
    Ok(Exit::Done)
}
