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
            return wide(guests);
        }
        let line =
            |name: &str, world: &str, size: &str, digest: &str| format!("{name:<12} {world:<42} {size:>9}  {digest}");
        let of = |guest: &Shown| {
            let name = format!("{}@{}", guest.name, guest.version);
            line(
                &name,
                guest.world.unwrap_or("none"),
                &guest.size.to_string(),
                &guest.digest,
            )
        };
        let head = line("GUEST", "WORLD", "BYTES", "DIGEST");
        std::iter::once(head).chain(guests.iter().map(of)).collect()
    })
}

/// Also what each asks of the host, and answers.
fn wide(guests: &[Shown]) -> Vec<String> {
    let head = ["GUEST", "WORLD", "BYTES", "DIGEST", "IMPORTS", "EXPORTS"];
    let row = |guest: &Shown| {
        [
            format!("{}@{}", guest.name, guest.version),
            guest.world.unwrap_or("none").to_owned(),
            guest.size.to_string(),
            guest.digest.clone(),
            guest.imports.join(","),
            guest.exports.join(","),
        ]
    };
    output::table(head, guests.iter().map(row))
}
