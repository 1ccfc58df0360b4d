//! From a reference to a program: the registry's bytes, compiled and linked to their world.

use std::path::Path;
use std::sync::Arc;

use trueup_engine::{Engine, Guest};
use trueup_registry::{
    About, Change, Found, NoGuest, NotLoaded, OciReference, Pushed, Reference, Registry, Verify, Vouched,
};

use super::Program;

/// A guest, loaded according to its configuration.
pub struct Loaded {
    /// Ready to be instantiated.
    pub program: Arc<Program>,
    /// Its bytes, and where they came from.
    pub found: Found,
    /// What vouches for it.
    pub vouched: Vouched,
}

/// Loads a built-in guest or a file and links it to its world. Ignores lock and signatures.
///
/// # Errors
/// One line: why it cannot run here. For an unknown name, the existing ones.
pub fn program(registry: &Registry, engine: &Engine, reference: &Reference) -> Result<Arc<Program>, NoGuest> {
    linked(engine, reference, &registry.bytes(reference)?)
}

/// The same for a guest of any world.
///
/// # Errors
/// As [`program`].
pub fn guest(registry: &Registry, engine: &Engine, reference: &Reference) -> Result<Guest, NoGuest> {
    compiled(engine, reference, &registry.bytes(reference)?)
}

/// Loads a guest for a configuration, as [`Registry::find`] finds it.
///
/// # Errors
/// One line: why it is unavailable or cannot run here, or how it contradicts the lock or the keys.
pub async fn configured(
    registry: &Registry,
    engine: &Engine,
    reference: &Reference,
    verify: &Verify,
) -> Result<Loaded, NotLoaded> {
    let (found, vouched) = registry.find(reference, verify).await?;
    Ok(Loaded {
        program: linked(engine, reference, &found.bytes)?,
        found,
        vouched,
    })
}

/// Loads a built-in or stored guest by the digest of its bytes. `None` if there is none.
///
/// # Errors
/// One line: the text is no digest, the store's entry is damaged, or the guest cannot run here.
pub fn stored(registry: &Registry, engine: &Engine, digest: &str) -> Result<Option<Arc<Program>>, NotLoaded> {
    let Some(bytes) = registry.stored(digest)? else {
        return Ok(None);
    };
    let guest = engine
        .load(&bytes)
        .map_err(|error| NoGuest(format!("stored guest {digest}: {error}")))?;
    let program = Program::new(engine, guest).map_err(NoGuest)?;
    Ok(Some(Arc::new(program)))
}

/// Pins the guests of a configuration, as [`Registry::lock`] does. `registry` is at that configuration.
///
/// # Errors
/// The problems, one line each.
pub async fn lock(
    registry: &Registry,
    engine: &Engine,
    guests: Vec<(Reference, &Verify)>,
) -> Result<Vec<Change>, Vec<NotLoaded>> {
    let check = |reference: &Reference, bytes: &[u8]| linked(engine, reference, bytes).map(drop);
    registry.lock(guests, check).await
}

/// Pushes a file, if it is a guest that this host could run.
///
/// # Errors
/// One line: it is no guest of a known world, the place has no tag, or the registry refuses it.
pub async fn push(engine: &Engine, file: &Path, to: &OciReference) -> Result<Pushed, NotLoaded> {
    let about = |bytes: &[u8]| {
        let program = linked(engine, &Reference::File(file.to_owned()), bytes)?;
        let guest = program.guest.clone();
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

fn linked(engine: &Engine, reference: &Reference, bytes: &[u8]) -> Result<Arc<Program>, NoGuest> {
    let guest = compiled(engine, reference, bytes)?;
    Program::new(engine, guest).map(Arc::new).map_err(NoGuest)
}

fn compiled(engine: &Engine, reference: &Reference, bytes: &[u8]) -> Result<Guest, NoGuest> {
    engine.load(bytes).map_err(|error| {
        NoGuest(match reference {
            Reference::Builtin { name, version } => format!("guest `{name}@{version}`: {error}"),
            Reference::File(path) => format!("guest {}: {error}", path.display()),
            Reference::Oci(place) => format!("guest oci:{place}: {error}"),
        })
    })
}
