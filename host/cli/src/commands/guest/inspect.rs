//! `trueup guest inspect`: what a guest is, what it may ask, and what it answers.

use std::path::Path;

use trueup_registry::{NoGuest, NotLoaded, Reference};

use super::Shown;
use crate::exit::{Ending, misused};
use crate::output::{self, Output};

/// Shows what a guest is, what it may ask, and what it answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A name such as `lbaas@1`, a file, a folder of versions (`file:FOLDER`, `file:FOLDER@VERSION`), or
    /// `oci:HOST/REPO:TAG`. Ignores lock files and signatures, and keeps nothing.
    guest: String,
}

pub(super) fn exec(args: Args, output: Output) -> Ending {
    let loader = crate::commands::loader()?;
    let reference = Reference::parse(&args.guest, Path::new("")).map_err(misused)?;
    let guest = match reference {
        Reference::Oci(_) => {
            let bytes = crate::commands::block_on(loader.registry.fetch(&reference))??;
            loader.compiled(&reference, &bytes).map_err(NotLoaded::NoGuest)?
        }
        Reference::Builtin { .. } | Reference::File(_) => loader.guest(&reference).map_err(misused)?,
    };
    // Also check that the guest links: matching names are not enough.
    let refused = loader.link(guest.clone()).err();
    let shown = Shown::of(guest, &loader);
    let shown = output::show(&shown, output, lines)?;
    refused.map_or(Ok(shown), |refused| Err(misused(NoGuest(refused))))
}

fn lines(guest: &Shown) -> Vec<String> {
    let indented = |names: &[String]| names.iter().map(|name| format!("         {name}")).collect();
    let facts = vec![
        format!("guest    {}@{}", guest.name, guest.version),
        format!("world    {}", guest.world.unwrap_or("none that this host knows")),
        format!("digest   {}", guest.digest),
        format!("size     {} bytes", guest.size),
        "may ask".to_owned(),
    ];
    [
        facts,
        indented(&guest.imports),
        vec!["answers".to_owned()],
        indented(&guest.exports),
    ]
    .concat()
}
