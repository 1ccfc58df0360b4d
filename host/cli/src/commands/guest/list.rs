//! `trueup guest list`: the guests that ship with this host.

use trueup_registry::Reference;

use super::Shown;
use crate::exit::{Ending, Exit};
use crate::output::{self, Output};

/// Lists the guests that ship with this host.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn exec(_: Args, output: Output) -> Ending {
    let loader = crate::commands::loader()?;
    let references = loader
        .registry
        .builtins()
        .iter()
        .map(|guest| Reference::builtin(&format!("{}@{}", guest.name, guest.version)));
    let guests: Vec<Shown> = references
        .map(|reference| loader.guest(&reference).map(|guest| Shown::of(guest, &loader)))
        .collect::<Result<_, _>>()
        .map_err(anyhow::Error::from)?;
    match output {
        Output::Json => output::json(&guests)?,
        Output::Text => {
            output::line(&format!("{:<12} {:<42} {:>9}  {}", "GUEST", "WORLD", "BYTES", "DIGEST"))?;
            for guest in guests {
                let name = format!("{}@{}", guest.name, guest.version);
                output::line(&format!(
                    "{name:<12} {:<42} {:>9}  {}",
                    guest.world.unwrap_or("none"),
                    guest.size,
                    guest.digest
                ))?;
            }
        }
    }
    Ok(Exit::Done)
}
