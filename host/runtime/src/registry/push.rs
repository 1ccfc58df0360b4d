//! Pushes a guest to a registry, under a tag.

use std::path::Path;

use serde::Serialize;
use trueup_engine::Engine;

use super::oci::Remote;
use super::reference::OciReference;
use super::{NoGuest, NotLoaded, Reference, compile, read_guest};
use crate::guests::Program;

/// The result of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// The guest's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The digest of the guest's bytes.
    pub digest: String,
    /// The digest of the manifest.
    pub manifest: String,
    /// Always means exactly this guest: `oci:HOST/REPO@sha256:...`.
    pub reference: String,
}

/// Pushes a file, if it is a guest that this host could run.
///
/// # Errors
/// One line: it is no guest of a known world, the place has no tag, or the registry refuses it.
pub async fn push(engine: &Engine, file: &Path, to: &OciReference) -> Result<Pushed, NotLoaded> {
    if to.digest.is_some() || to.tag.is_none() {
        return Err(NoGuest(format!("`oci:{to}`: must be pushed under a tag, `oci:HOST/REPO:TAG`")).into());
    }
    let bytes = read_guest(file)?;
    let guest = compile(engine, &Reference::File(file.to_owned()), &bytes)?;
    let guest = Program::new(engine, guest).map_err(NoGuest)?.guest;
    let manifest = Remote::new(to)?.push(&guest, &bytes).await?;
    Ok(Pushed {
        digest: guest.digest.to_string(),
        reference: format!("oci:{}", to.at_digest(&manifest)),
        name: guest.name,
        version: guest.version,
        manifest,
    })
}
