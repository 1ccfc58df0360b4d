//! Pushes a guest to a registry, under a tag.

use std::path::Path;

use serde::Serialize;

use super::error::{NoGuest, NotLoaded};
use super::manifest::About;
use super::oci::Remote;
use super::reference::OciReference;
use super::versions;

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

/// Pushes a file. `about` reads what a guest says of itself, and refuses what is none.
///
/// # Errors
/// One line: the place has no tag, the file is refused, or the registry refuses it.
pub async fn push(
    file: &Path,
    to: &OciReference,
    about: impl FnOnce(&[u8]) -> Result<About, NoGuest>,
) -> Result<Pushed, NotLoaded> {
    if to.digest.is_some() || to.tag.is_none() {
        return Err(NoGuest(format!("`oci:{to}`: must be pushed under a tag, `oci:HOST/REPO:TAG`")).into());
    }
    let bytes = versions::read(file)?;
    let guest = about(&bytes)?;
    let manifest = Remote::new(to)?.push(&guest, &bytes).await?;
    Ok(Pushed {
        digest: guest.digest.to_string(),
        reference: format!("oci:{}", to.at_digest(&manifest)),
        name: guest.name,
        version: guest.version,
        manifest,
    })
}
