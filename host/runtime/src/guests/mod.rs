//! The worlds that a guest may implement, and calls by the name of an export.
//!
//! Each world has a module with its bindings. Everything above this module uses JSON with the names in WIT. A new world
//! is a module of its own and a line in [`WORLDS`].

pub mod dispatch;
pub mod ipam;
pub mod lbaas;
pub mod load;
pub mod neg;
pub mod nodesync;
pub(crate) mod objects;
pub mod renderer;
pub mod service;
pub(crate) mod source_ranges;
mod world;

use std::time::Duration;

use trueup_capabilities::grants::CAPABILITIES;
use trueup_capabilities::{Host, wasi};
use trueup_engine::{CallError, Engine, Guest};

use world::Linked;
pub(crate) use world::Running;
pub use world::{Bindings, World, linked};

/// Every world that this build knows.
pub const WORLDS: &[World] = &[
    ipam::WORLD,
    lbaas::WORLD,
    neg::WORLD,
    nodesync::WORLD,
    service::WORLD,
    renderer::etcd::WORLD,
    renderer::nftables::WORLD,
];

impl World {
    /// The world of a guest, determined from its exports.
    ///
    /// # Errors
    /// One line: the exports or imports that match no world, and the known worlds.
    pub fn of(guest: &Guest) -> Result<&'static Self, String> {
        let exports_all = |world: &&Self| {
            world
                .exports
                .iter()
                .all(|export| guest.exports.iter().any(|has| has == export))
        };
        let may_import = |world: &&Self| guest.imports.iter().all(|import| world.may_import(import));
        let mut fitting = WORLDS.iter().filter(exports_all);
        let first = fitting.clone().find(may_import).or_else(|| fitting.next());
        let Some(world) = first else {
            let worlds: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
            return Err(format!(
                "guest `{}@{}` exports {}, which is no world of this host; the worlds are: {}",
                guest.name,
                guest.version,
                list_or_nothing(&guest.exports),
                worlds.join(", "),
            ));
        };
        let foreign = |import: &&String| !world.may_import(import);
        let foreign = guest.imports.iter().find(foreign);
        if let Some(foreign) = foreign.filter(|import| wasi::is_wasi(import)) {
            if !cfg!(feature = "wasi") {
                return Err(format!(
                    "guest `{}@{}` imports `{foreign}`: this trueup is built without WASI (cargo feature `wasi`)",
                    guest.name, guest.version,
                ));
            }
            return Err(format!(
                "guest `{}@{}` imports `{foreign}`, which this host does not have; of `wasi:*` a guest may import, in any version 0.2.x: {}",
                guest.name,
                guest.version,
                wasi::PROVIDED.join(", "),
            ));
        }
        if let Some(foreign) = foreign {
            return Err(format!(
                "guest `{}@{}` imports `{foreign}`, which its world {} does not have; it may import: {}",
                guest.name,
                guest.version,
                world.name,
                world.imports.join(", "),
            ));
        }
        Ok(world)
    }
}

/// The capability of an import, as grants name it. `None` if it needs no grant.
pub fn capability_of(import: &str) -> Option<&'static str> {
    let (package, interface) = import.strip_prefix("trueup:")?.split_once('/')?;
    // Renderers and the service processor share a package. In it, only the packet filter is a capability.
    let name = match package {
        "service" => interface.split_once('@').map_or(interface, |(name, _)| name),
        _ => package,
    };
    CAPABILITIES.into_iter().find(|capability| *capability == name)
}

fn list_or_nothing(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

/// A guest linked to its world, ready to be instantiated.
pub struct Program {
    /// The guest.
    pub guest: Guest,
    /// Its world.
    pub world: &'static World,
    linked: Box<dyn Linked>,
}

impl Program {
    /// Finds the guest's world and links it.
    ///
    /// # Errors
    /// One line: why this guest cannot run here.
    pub fn new(engine: &Engine, guest: Guest) -> Result<Self, String> {
        let world = World::of(&guest)?;
        let linked = (world.link)(engine, &guest).map_err(|error| {
            format!(
                "guest `{}@{}` does not fit its world {}: {error:#}",
                guest.name, guest.version, world.name
            )
        })?;
        Ok(Self { guest, world, linked })
    }

    /// Whether an instance may schedule timers. Its `restore` schedules the pending ones again, and the recording has a
    /// place for that only at the head of a segment.
    pub(crate) fn has_timers(&self) -> bool {
        self.guest.imports.iter().any(|import| import == world::TIMERS)
    }

    pub(crate) async fn instantiate(
        &self,
        engine: &Engine,
        host: Host,
        cpu_max: Duration,
    ) -> Result<Box<dyn Running>, (Box<Host>, CallError)> {
        self.linked.instantiate(engine, host, cpu_max).await
    }
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
        for world in WORLDS {
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
