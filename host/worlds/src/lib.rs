//! Every kind of work that this build knows: one folder for each, and their list. Nothing else lists them.
#![forbid(unsafe_code)]

/// The files of a first configuration in `examples/`.
macro_rules! example {
    ($folder:literal: $($file:literal),*) => {
        &[$((
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/", $folder, "/", $file)),
        )),*]
    };
}

/// What a kind of work is, whatever the configuration says: see the methods of [`Kind`].
macro_rules! about {
    (name: $name:literal, worlds: $worlds:expr, sections: $sections:expr, keyed_guest: $keyed_guest:expr) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn worlds(&self) -> trueup_instance::Worlds {
            $worlds
        }

        fn sections(&self) -> &'static dyn trueup_config::World {
            $sections
        }

        fn keyed_guest(&self) -> Option<&'static str> {
            $keyed_guest
        }
    };
}

mod claims;
pub mod ipam;
pub mod lbaas;
pub mod neg;
pub mod node;
mod notes;
mod slices;
mod source_ranges;
pub mod toy;

use std::sync::LazyLock;

use tokio::sync::mpsc;
use trueup_config::{self as config, Config};
use trueup_instance::{World, Worlds};
use trueup_sims::{Server, StartError};
use trueup_work::host_context::HostContext;
use trueup_work::kind::Kind;
use trueup_work::setup::SetupError;

/// Everything that a host can do, in the order in which it is set up.
pub const KINDS: &[&dyn Kind] = &[
    &ipam::kind::OfPods,
    &lbaas::kind::OfServices,
    &neg::kind::OfNegs,
    &node::kind::OfThisNode,
    &toy::kind::OfToys,
];

/// The worlds that their guests may implement.
pub fn worlds() -> Worlds {
    static ALL: LazyLock<Vec<&World>> =
        LazyLock::new(|| KINDS.iter().flat_map(|kind| kind.worlds().iter().copied()).collect());
    &ALL
}

/// How the sections of their configurations are read.
pub fn sections() -> Vec<&'static dyn config::World> {
    KINDS.iter().map(|kind| kind.sections()).collect()
}

/// A simulated server was started for a run. Says and notes where it listens. `sim`: as in `[sim.SIM]`.
fn started(
    server: Result<Server, StartError>,
    what: &str,
    sim: &str,
    (config, host_context): (&Config, &HostContext),
) -> Result<Server, SetupError> {
    let server = server.map_err(SetupError::failed)?;
    tracing::info!("simulated {what} listens on http://{}", server.local_addr());
    host_context.note_server(config, sim, server.local_addr())?;
    Ok(server)
}

/// Stops the simulated server of a run, if it has one.
async fn stop(simulated: Option<Server>) {
    if let Some(simulated) = simulated {
        simulated.stop().await;
    }
}

/// Does `work`. Reports its events meanwhile and after it.
async fn reporting<E, T>(
    mut events: mpsc::UnboundedReceiver<E>,
    mut report: impl FnMut(E),
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => report(event),
            done = &mut work => break done,
        }
    };
    while let Ok(event) = events.try_recv() {
        report(event);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wit_parser::{Resolve, UnresolvedPackageGroup, WorldItem, WorldKey};

    use super::*;

    /// Every package in `wit/`.
    fn wit() -> Resolve {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        let mut groups: Vec<UnresolvedPackageGroup> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| UnresolvedPackageGroup::parse_dir(entry.unwrap().path()).unwrap())
            .collect();
        let main = groups.pop().unwrap();
        let mut resolve = Resolve::default();
        resolve.push_groups(main, groups).unwrap();
        resolve
    }

    #[test]
    fn every_world_has_the_interfaces_and_calls_of_its_wit() {
        let wit = wit();
        for world in worlds() {
            let is_it = |(_, of): &(_, &wit_parser::World)| {
                of.package.is_some_and(|id| wit.id_of_name(id, &of.name) == world.name)
            };
            let (_, of) = wit.worlds.iter().find(is_it).unwrap();
            let names = |items: &mut dyn Iterator<Item = &WorldKey>| {
                let mut names: Vec<String> = items.map(|key| wit.name_world_key(key)).collect();
                names.sort();
                names
            };
            assert_eq!(names(&mut of.imports.keys()), world.imports, "{}", world.name);
            assert_eq!(names(&mut of.exports.keys()), world.exports, "{}", world.name);
            let mut calls: Vec<String> = Vec::new();
            for item in of.exports.values() {
                let WorldItem::Interface { id, .. } = item else {
                    panic!("{item:?}")
                };
                let interface = &wit.interfaces[*id];
                let of = interface.name.as_deref().unwrap();
                calls.extend(interface.functions.keys().map(|name| format!("{of}.{name}")));
            }
            calls.retain(|call| !call.starts_with("lifecycle."));
            calls.sort();
            assert_eq!(calls, world.calls, "{}", world.name);
        }
    }
}
