//! `trueup guest`: which guests exist, and what each can touch.

pub(in crate::commands) mod host;
mod images;
pub(in crate::commands) mod shadow;
mod versions;

use std::path::Path;

use serde::Serialize;
use trueup_engine::Guest;
use trueup_instance::World;
use trueup_registry::{NoGuest, NotLoaded, Reference};
use trueup_work::load::Loader;

use self::host::OfGuest;
use super::flags::ConfigArg;
use super::{block_on, loader};
use crate::exit::{Ending, misused};
use crate::output::{self, Column, Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the guests that ship with this host.
    List,
    Inspect(Inspect),
    Status(versions::Status),
    Swap(versions::Swap),
    Rollback(versions::Rollback),
    /// Shows which versions of a guest were active, the newest last. Works without a running host.
    History(OfGuest),
    /// Compares a candidate with the active version of a guest, call by call, without letting it decide.
    #[command(subcommand)]
    Shadow(shadow::Command),
    /// Resolves each guest of a configuration, and pins it in `trueup.lock` beside the configuration.
    ///
    /// Pulls guests of registries into the store of the state folder, with their signatures if the configuration
    /// requires them. A run then needs no network. Prints what changed. If one guest has a problem, writes nothing.
    /// Guests that ship with the host need no pin.
    Lock(ConfigArg),
    Pull(images::Pull),
    Push(images::Push),
    /// Checks each guest of a configuration as a run would: it exists, matches what the lock file pins, and is signed
    /// by one of the keys that the configuration names.
    ///
    /// Exits 1 if anything is wrong. Asks a registry only for what the store does not have.
    Verify(ConfigArg),
}

pub(crate) fn exec(command: &Command, output: Output) -> Ending {
    match command {
        Command::List => list(output),
        Command::Inspect(args) => inspect(args, output),
        Command::Status(args) => versions::status(args, output),
        Command::Swap(args) => versions::swap(args, output),
        Command::Rollback(args) => versions::rollback(args, output),
        Command::History(args) => versions::history(args, output),
        Command::Shadow(command) => shadow::exec(command, output),
        Command::Lock(args) => images::lock(args, output),
        Command::Pull(args) => images::pull(args, output),
        Command::Push(args) => images::push(args, output),
        Command::Verify(args) => images::verify(args, output),
    }
}

/// A guest, as `guest list --output json` prints it.
#[derive(Serialize)]
struct Shown {
    name: String,
    version: String,
    world: Option<&'static str>,
    imports: Vec<String>,
    exports: Vec<String>,
    digest: String,
    size: usize,
}

impl Shown {
    fn of(guest: Guest, loader: &Loader) -> Self {
        Self {
            world: World::of(&guest, loader.worlds).ok().map(|world| world.name),
            digest: guest.digest.to_string(),
            name: guest.name,
            version: guest.version,
            imports: guest.imports,
            exports: guest.exports,
            size: guest.size,
        }
    }
}

fn list(output: Output) -> Ending {
    let loader = loader()?;
    let mut guests = Vec::new();
    for guest in loader.registry.builtins() {
        let reference = Reference::builtin(&format!("{}@{}", guest.name, guest.version));
        let guest = loader.guest(&reference)?;
        guests.push(Shown::of(guest, &loader));
    }
    output::show(&guests, output, |guests| {
        let all: [Column<'_, Shown>; 6] = [
            ("GUEST", &|of| format!("{}@{}", of.name, of.version)),
            ("WORLD", &|of| of.world.unwrap_or("none").to_owned()),
            ("BYTES", &|of| of.size.to_string()),
            ("DIGEST", &|of| of.digest.clone()),
            ("IMPORTS", &|of| of.imports.join(",")),
            ("EXPORTS", &|of| of.exports.join(",")),
        ];
        if output == Output::Wide {
            return output::columns(all, guests);
        }
        let [guest, world, bytes, digest, ..] = all;
        output::columns([guest, world, bytes, digest], guests)
    })
}

/// Shows what a guest is, what it may ask, and what it answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// A name such as `lbaas@1`, a file, a folder of versions (`file:FOLDER`, `file:FOLDER@VERSION`), or
    /// `oci:HOST/REPO:TAG`. Ignores lock files and signatures, and keeps nothing.
    guest: String,
}

fn inspect(args: &Inspect, output: Output) -> Ending {
    let loader = loader()?;
    let reference = Reference::parse(&args.guest, Path::new("")).map_err(misused)?;
    let guest = match reference {
        Reference::Oci(_) => {
            let bytes = block_on(loader.registry.fetch(&reference))??;
            loader.compiled(&reference, &bytes).map_err(NotLoaded::NoGuest)?
        }
        Reference::Builtin { .. } | Reference::File(_) => loader.guest(&reference).map_err(misused)?,
    };
    // Also check that the guest links: matching names are not enough.
    let refused = loader.link(guest.clone()).err();
    let shown = output::show(&Shown::of(guest, &loader), output, facts)?;
    refused.map_or(Ok(shown), |refused| Err(misused(NoGuest(refused))))
}

fn facts(guest: &Shown) -> Vec<String> {
    let indented = |names: &[String]| names.iter().map(|name| format!("         {name}")).collect();
    let facts = vec![
        format!("guest    {}@{}", guest.name, guest.version),
        format!("world    {}", guest.world.unwrap_or("none that this host knows")),
        format!("digest   {}", guest.digest),
        format!("size     {} bytes", guest.size),
        "may ask".to_owned(),
    ];
    let asks = indented(&guest.imports);
    let answers = indented(&guest.exports);
    [facts, asks, vec!["answers".to_owned()], answers].concat()
}
