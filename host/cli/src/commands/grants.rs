//! `trueup grants`: works out which grants a guest needs.

use trueup_runtime::infer;

use super::flags::Recordings;
use crate::exit::{Ending, misused};
use crate::output::{self, Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Proposes the smallest grant that would have allowed what recordings ask, as TOML to paste under `[guests.NAME]`.
    ///
    /// Lists refused calls separately, and does not grant them.
    Infer(Recordings),
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    let Command::Infer(recordings) = command;
    let files = recordings.files()?;
    let (inferred, torn) = infer::infer(&files).map_err(misused)?;
    for torn in torn {
        output::talk(&format!("warning: {torn}"));
    }
    output::show(&inferred, output, |inferred| {
        let texts: Vec<String> = inferred.iter().map(infer::Inferred::to_toml).collect();
        vec![texts.join("\n").trim_end().to_owned()]
    })
}
