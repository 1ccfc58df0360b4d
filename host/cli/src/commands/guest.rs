//! `trueup guest`: which guests there are, and what one can touch.

use std::path::Path;

use serde::Serialize;
use trueup_runtime::Guest;
use trueup_runtime::guests::World;
use trueup_runtime::registry::{NoGuest, Reference};

use crate::exit::{Ending, Exit, misused};
use crate::output::{self, Output};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the guests that ship with this host.
    #[command(after_help = "Examples:\n  trueup guest list\n  trueup guest list --output json | jq -r '.[].digest'")]
    List,
    /// Shows what a guest is, what it may ask, and what it answers.
    #[command(after_help = "Examples:\n  trueup guest inspect lbaas@2\n  trueup guest inspect target/my-guest.wasm")]
    Inspect {
        /// A name such as `lbaas@1`, or a file.
        guest: String,
    },
}

/// A guest, as `guest list --output json` has it.
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

impl From<Guest> for Shown {
    fn from(guest: Guest) -> Self {
        Self {
            world: World::of(&guest).ok().map(|world| world.name),
            digest: guest.digest.to_string(),
            name: guest.name,
            version: guest.version,
            imports: guest.imports,
            exports: guest.exports,
            size: guest.size,
        }
    }
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    let engine = super::engine()?;
    let registry = super::registry();
    let load = |reference: &Reference| -> Result<Guest, NoGuest> { registry.guest(&engine, reference) };
    match command {
        Command::List => {
            let references = registry
                .builtins()
                .iter()
                .map(|guest| Reference::builtin(&format!("{}@{}", guest.name, guest.version)));
            let guests: Vec<Shown> = references
                .map(|reference| load(&reference).map(Shown::from))
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
        }
        Command::Inspect { guest } => {
            let reference = if Path::new(&guest).is_file() {
                Reference::File(guest.into())
            } else {
                Reference::builtin(&guest)
            };
            let guest = load(&reference).map_err(misused)?;
            let refused = World::of(&guest).err();
            let shown = Shown::from(guest);
            match output {
                Output::Json => output::json(&shown)?,
                Output::Text => inspect(&shown)?,
            }
            if let Some(refused) = refused {
                return Err(misused(NoGuest(refused)));
            }
        }
    }
    Ok(Exit::Done)
}

fn inspect(guest: &Shown) -> anyhow::Result<()> {
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
