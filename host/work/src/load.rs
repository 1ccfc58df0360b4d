//! From a reference to a program: the registry's bytes, compiled and linked to their world.
//!
//! ```text
//! Reference -> Registry (bytes) -> Engine (compiled) -> Worlds (linked) -> Program
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup_engine::{Digest, Engine, Guest};
use trueup_instance::{Program, Worlds};
use trueup_registry::{About, Change, Found, NoGuest, NotLoaded, OciReference, Pushed, Reference, Registry, Verify};
use trueup_scenario::{Guests, full_name};

/// A guest, loaded according to its configuration.
pub struct Loaded {
    /// Ready to be instantiated.
    pub program: Arc<Program>,
    /// Its bytes, and where they came from.
    pub found: Found,
}

/// `NAME@VERSION` of a guest.
pub(crate) fn named(guest: &Guest) -> String {
    format!("{}@{}", guest.name, guest.version)
}

/// Loads guests. Cheap to clone.
#[derive(Clone)]
pub struct Loader {
    /// Compiles them.
    pub engine: Engine,
    /// Where their bytes come from.
    pub registry: Registry,
    /// The worlds that they may implement.
    pub worlds: Worlds,
}

impl Loader {
    /// Links a compiled guest to its world.
    ///
    /// # Errors
    /// One line: why it cannot run here.
    pub fn link(&self, guest: Guest) -> Result<Arc<Program>, String> {
        let program = Program::new(&self.engine, guest, self.worlds)?;
        let guest = &program.guest;
        let reference = self.reference(guest, program.world.name);
        if let Some(differs) = reference.and_then(|reference| guest.differs_in_type(&reference)) {
            return Err(program.world.of_another_wit(guest, &differs));
        }
        Ok(Arc::new(program))
    }

    /// A built-in guest of the same world: its types are those of this host. `None` for a built-in guest, and if none
    /// of this world ships.
    fn reference(&self, guest: &Guest, world: &str) -> Option<Guest> {
        let ships = || self.registry.builtins().iter().filter(|builtin| builtin.world == world);
        if ships().any(|builtin| Digest::of(builtin.bytes) == guest.digest) {
            return None;
        }
        self.engine.load(ships().next()?.bytes).ok()
    }

    /// Loads a built-in guest or a file and links it to its world. Ignores lock and signatures.
    ///
    /// # Errors
    /// One line: why it cannot run here. For an unknown name, the existing ones.
    pub fn program(&self, reference: &Reference) -> Result<Arc<Program>, NoGuest> {
        self.linked(reference, &self.registry.bytes(reference)?)
    }

    /// The same for a guest of any world.
    ///
    /// # Errors
    /// As [`Loader::program`].
    pub fn guest(&self, reference: &Reference) -> Result<Guest, NoGuest> {
        self.compiled(reference, &self.registry.bytes(reference)?)
    }

    /// The guests of scenarios: the built-in ones, some of them replaced by files.
    pub fn for_scenarios(&self, replaced: BTreeMap<String, PathBuf>) -> Guests {
        let loader = self.clone();
        let replaced = replaced.into_iter().map(|(guest, file)| (full_name(&guest), file));
        let replaced: BTreeMap<String, PathBuf> = replaced.collect();
        let load = move |guest: &str| match replaced.get(&full_name(guest)).cloned() {
            Some(file) => loader.program(&Reference::File(file)).map_err(|NoGuest(why)| why),
            None => {
                let program = loader.program(&Reference::builtin(guest));
                program.map_err(|error| format!("{error}; a guest of your own is named with `--guest {guest}=FILE`"))
            }
        };
        Guests::new(self.engine.clone(), Box::new(load))
    }

    /// Loads a guest for a configuration, as [`Registry::find`] finds it.
    ///
    /// # Errors
    /// One line: why it is unavailable or cannot run here, or how it contradicts the lock or the keys.
    pub async fn configured(&self, reference: &Reference, verify: &Verify) -> Result<Loaded, NotLoaded> {
        let found = self.registry.find(reference, verify).await?;
        let program = self.linked(reference, &found.bytes)?;
        Ok(Loaded { program, found })
    }

    /// Loads a built-in or stored guest by the digest of its bytes. `None` if there is none.
    ///
    /// # Errors
    /// One line: the text is no digest, the store's entry is damaged, or the guest cannot run here.
    pub fn stored(&self, digest: &str) -> Result<Option<Arc<Program>>, NotLoaded> {
        let Some(bytes) = self.registry.stored(digest)? else {
            return Ok(None);
        };
        let guest = self.engine.load(&bytes);
        let guest = guest.map_err(|error| NoGuest(format!("stored guest {digest}: {error}")))?;
        Ok(Some(self.link(guest).map_err(NoGuest)?))
    }

    /// Pins the guests of a configuration, as [`Registry::lock`] does. The registry is at that configuration.
    ///
    /// # Errors
    /// The problems, one line each.
    pub async fn lock(&self, guests: Vec<(Reference, &Verify)>) -> Result<Vec<Change>, Vec<NotLoaded>> {
        let check = |reference: &Reference, bytes: &[u8]| self.linked(reference, bytes).map(drop);
        self.registry.lock(guests, check).await
    }

    /// Pushes a file, if it is a guest that this host could run.
    ///
    /// # Errors
    /// One line: it is no guest of a known world, the place has no tag, or the registry refuses it.
    pub async fn push(&self, file: &Path, to: &OciReference) -> Result<Pushed, NotLoaded> {
        let about = |bytes: &[u8]| {
            let guest = self.linked(&Reference::File(file.to_owned()), bytes)?.guest.clone();
            Ok(About {
                name: guest.name,
                version: guest.version,
                digest: guest.digest,
                imports: guest.imports,
                exports: guest.exports,
            })
        };
        trueup_registry::push(file, to, about).await
    }

    fn linked(&self, reference: &Reference, bytes: &[u8]) -> Result<Arc<Program>, NoGuest> {
        self.link(self.compiled(reference, bytes)?).map_err(NoGuest)
    }

    /// Compiles the bytes that `reference` names.
    ///
    /// # Errors
    /// One line: why they are no guest.
    pub fn compiled(&self, reference: &Reference, bytes: &[u8]) -> Result<Guest, NoGuest> {
        self.engine.load(bytes).map_err(|error| {
            NoGuest(match reference {
                Reference::Builtin { name, version } => format!("guest `{name}@{version}`: {error}"),
                Reference::File(path) => format!("guest {}: {error}", path.display()),
                Reference::Oci(place) => format!("guest oci:{place}: {error}"),
            })
        })
    }
}
