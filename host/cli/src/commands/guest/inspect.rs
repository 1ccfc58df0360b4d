//! `trueup guest inspect`: what a guest is, what it may ask, and what it answers.

use std::path::Path;

use trueup_registry::{NoGuest, NotLoaded, Reference};

use super::Shown;
use crate::exit::{Ending, Exit, misused};
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
    match output {
        Output::Json => output::json(&shown)?,
        Output::Text => show(&shown)?,
    }
    match refused {
        Some(refused) => Err(misused(NoGuest(refused))),
        None => Ok(Exit::Done),
    }
}

fn show(guest: &Shown) -> anyhow::Result<()> {
    output::line(&format!("guest    {}@{}", guest.name, guest.version))?;
    output::line(&format!(
        "world    {}",
        guest.world.unwrap_or("none that this host knows")
    ))?;
    output::line(&format!("digest   {}", guest.digest))?;
    output::line(&format!("size     {} bytes", guest.size))?;
    output::line("may ask")?;
    for import in &guest.imports {
        output::line(&format!("         {import}"))?;
    }
    output::line("answers")?;
    for export in &guest.exports {
        output::line(&format!("         {export}"))?;
    }
    Ok(())
}
