//! `trueup guest list`: the guests that ship with this host.

use trueup_registry::Reference;

use super::Shown;
use crate::exit::Ending;
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
    output::show(&guests, output, |guests| {
        if output == Output::Wide {
            let head = ["GUEST", "WORLD", "BYTES", "DIGEST", "IMPORTS", "EXPORTS"];
            return output::table(head, guests.iter().map(row));
        }
        let short = guests
            .iter()
            .map(row)
            .map(|[name, world, bytes, digest, ..]| [name, world, bytes, digest]);
        output::table(["GUEST", "WORLD", "BYTES", "DIGEST"], short)
    })
}

fn row(guest: &Shown) -> [String; 6] {
    [
        format!("{}@{}", guest.name, guest.version),
        guest.world.unwrap_or("none").to_owned(),
        guest.size.to_string(),
        guest.digest.clone(),
        guest.imports.join(","),
        guest.exports.join(","),
    ]
}
