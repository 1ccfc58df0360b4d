//! `trueup version`: which build this is, and which guests are in it.

use serde::Serialize;
use trueup_guests_builtin::{Builtin, GUESTS};
use trueup_worlds::worlds;

use crate::exit::Ending;
use crate::output::{self, Output};

/// Changes when a document loses a member, or one means something else.
const SCHEMA: u32 = 1;

/// This build. `build.rs` finds out what Cargo does not say.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    /// Null if the program was built outside a git checkout.
    commit: Option<&'static str>,
    /// When the commit was made, in UTC.
    commit_date: Option<&'static str>,
    /// The version of `docs/schema.json`, which says what each command prints for programs.
    schema: u32,
    target: &'static str,
    wasmtime: &'static str,
    worlds: Vec<WorldOf>,
}

#[derive(Serialize)]
struct WorldOf {
    world: &'static str,
    guests: Vec<String>,
}

pub(super) fn exec(output: Output) -> Ending {
    let of = |world: &'static str| {
        let guests = GUESTS.iter().filter(|guest| guest.world == world);
        let name = |guest: &Builtin| format!("{}@{}", guest.name, guest.version);
        let guests = guests.map(name).collect();
        WorldOf { world, guests }
    };
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("COMMIT"),
        commit_date: option_env!("COMMIT_DATE"),
        schema: SCHEMA,
        target: env!("BUILT_FOR"),
        wasmtime: env!("WASMTIME"),
        worlds: worlds().iter().map(|world| of(world.name)).collect(),
    };
    output::show(&build, output, lines)
}

fn lines(build: &Build) -> Vec<String> {
    let commit = match (build.commit, build.commit_date) {
        (Some(commit), Some(date)) => format!("{commit} of {date}"),
        _ => "not known: built outside a git checkout".to_owned(),
    };
    let mut lines = vec![
        format!("trueup    {}", build.version),
        format!("commit    {commit}"),
        format!("target    {}", build.target),
        format!("wasmtime  {}", build.wasmtime),
    ];
    let worlds = build.worlds.iter();
    let rows = worlds.map(|of| [of.world.to_owned(), of.guests.join(", ")]);
    lines.extend(output::table_below(["WORLD", "GUESTS"], rows.collect()));
    lines
}
