//! `trueup guest`: which guests exist, and what each can touch. One file for each verb.

mod history;
pub(in crate::commands) mod host;
mod inspect;
mod list;
mod lock;
mod pull;
mod push;
mod rollback;
pub(in crate::commands) mod shadow;
mod status;
mod swap;
mod verify;

use serde::Serialize;
use trueup_engine::Guest;
use trueup_instance::World;
use trueup_work::load::Loader;

use crate::exit::Ending;
use crate::output::Output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Inspect(inspect::Args),
    Status(status::Args),
    Swap(swap::Args),
    Rollback(rollback::Args),
    History(history::Args),
    /// Compares a candidate with the active version of a guest, call by call, without letting it decide.
    #[command(subcommand)]
    Shadow(shadow::Command),
    Lock(lock::Args),
    Pull(pull::Args),
    Push(push::Args),
    Verify(verify::Args),
}

pub(crate) fn exec(command: Command, output: Output) -> Ending {
    match command {
        Command::List(args) => list::exec(args, output),
        Command::Inspect(args) => inspect::exec(args, output),
        Command::Status(args) => status::exec(&args, output),
        Command::Swap(args) => swap::exec(&args, output),
        Command::Rollback(args) => rollback::exec(&args, output),
        Command::History(args) => history::exec(&args, output),
        Command::Shadow(command) => shadow::exec(&command, output),
        Command::Lock(args) => lock::exec(args, output),
        Command::Pull(args) => pull::exec(args, output),
        Command::Push(args) => push::exec(args, output),
        Command::Verify(args) => verify::exec(args, output),
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
