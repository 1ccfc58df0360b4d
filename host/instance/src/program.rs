//! A guest linked to its world: the world is found by the guest's exports.

use trueup_capabilities::{Identity, wasi};
use trueup_engine::{Engine, Guest};

use crate::world::{Linked, TIMERS, World, Worlds, names};

impl World {
    /// The world of a guest among `worlds`, determined from its exports.
    ///
    /// # Errors
    /// One line: the exports or imports that match no world, and the known worlds.
    pub fn of(guest: &Guest, worlds: Worlds) -> Result<&'static Self, String> {
        let has = |export: &&str| guest.exports.iter().any(|has| has == export);
        let exports_all = |world: &&'static Self| world.exports.iter().all(has);
        let may_import = |world: &&'static Self| guest.imports.iter().all(|import| world.may_import(import));
        let mut fitting = worlds.iter().copied().filter(exports_all);
        let first = fitting.clone().find(may_import).or_else(|| fitting.next());
        let refused = |why: String| Err(format!("guest `{}@{}` {why}", guest.name, guest.version));
        let Some(world) = first else {
            let exports = match guest.exports.as_slice() {
                [] => "nothing".to_owned(),
                exports => exports.join(", "),
            };
            let worlds = names(worlds, ", ");
            return refused(format!(
                "exports {exports}, which is no world of this host; the worlds are: {worlds}"
            ));
        };
        let Some(foreign) = guest.imports.iter().find(|import| !world.may_import(import)) else {
            return Ok(world);
        };
        refused(match (wasi::is_wasi(foreign), cfg!(feature = "wasi")) {
            (true, false) => format!("imports `{foreign}`: this trueup is built without WASI (cargo feature `wasi`)"),
            (true, true) => format!(
                "imports `{foreign}`, which this host does not have; of `wasi:*` a guest may import, in any version 0.2.x: {}",
                wasi::PROVIDED.join(", ")
            ),
            (false, _) => {
                let name = world.name;
                let imports = world.imports.join(", ");
                format!("imports `{foreign}`, which its world {name} does not have; it may import: {imports}")
            }
        })
    }

    /// The error for a guest whose types or functions are not those of this host; `differs` names them.
    pub fn of_another_wit(&self, guest: &Guest, differs: &str) -> String {
        let (name, version, world) = (&guest.name, &guest.version, self.name);
        format!("guest `{name}@{version}` is built from another `wit/` than this host's {world}: {differs}")
    }
}

/// A guest linked to its world, ready to be instantiated.
pub struct Program {
    /// The guest.
    pub guest: Guest,
    /// Its world.
    pub world: &'static World,
    pub(crate) linked: Linked,
}

impl Program {
    /// Finds the guest's world among `worlds` and links it.
    ///
    /// # Errors
    /// One line: why this guest cannot run here.
    pub fn new(engine: &Engine, guest: Guest, worlds: Worlds) -> Result<Self, String> {
        let world = World::of(&guest, worlds)?;
        let refused = |error| world.of_another_wit(&guest, &format!("{error:#}"));
        let linked = (world.link)(engine, &guest).map_err(refused)?;
        Ok(Self { guest, world, linked })
    }

    /// Whether an instance may schedule timers. Its `restore` schedules the pending ones again, and the recording has a
    /// place for that only at the head of a segment.
    pub fn has_timers(&self) -> bool {
        self.guest.imports.iter().any(|import| import == TIMERS)
    }

    /// The identity of an instance that no section of a configuration names, such as that of a replay.
    pub fn identity(&self, instance: &str) -> Identity {
        Identity {
            guest: self.guest.name.clone(),
            version: self.guest.version.clone(),
            digest: self.guest.digest.to_string(),
            instance: instance.to_owned(),
            ..Identity::default()
        }
    }
}
