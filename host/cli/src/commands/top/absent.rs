//! The remainder of `trueup top` in a program that is built without the cargo feature `top`.

use anyhow::anyhow;

use crate::exit::{Ending, misused};

/// Is not in this build of trueup.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

pub(super) fn exec(args: &Args) -> Ending {
    let arguments = args.arguments.join(" ");
    let why = "this trueup is built without `top` (cargo feature `top`); use `trueup status`";
    Err(misused(anyhow!("`trueup top {arguments}`: {why}")))
}
