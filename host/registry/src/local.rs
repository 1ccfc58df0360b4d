//! The guests of a configuration: the lock file beside it, the store in its state folder, and the rules for reference,
//! lock, store, network and keys.
//!
//! ```text
//! file               its bytes; other than the lock says: refused
//! oci, by tag        the lock says which; not in the lock: refused
//! oci, by digest     itself says which; the lock, where it speaks, must agree
//! then: the store, and only for what it does not have, the network
//! ```
//!
//! This module compiles and runs nothing.

use std::path::{Path, PathBuf};

use serde::Serialize;
use trueup_base::component::Digest;

use super::lock::{Lock, Pin};
use super::manifest::{Manifest, layer_of};
use super::oci::Remote;
use super::reference::{OciReference, Reference};
use super::signature::{Keys, Signed, Verify};
use super::store::{NoGuest, NotLoaded, Store, StoreError};
use super::versions;

/// A guest in the host's binary.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its world.
    pub world: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// A guest's bytes, and where they came from.
#[derive(Debug)]
pub struct Found {
    /// The original bytes.
    pub bytes: Vec<u8>,
    digest: String,
    /// The digest of the registry's manifest. `None` if it is not from a registry.
    pub manifest: Option<String>,
    file: Option<PathBuf>,
    /// What pins it to these bytes.
    pub pinned: Pinned,
    /// Whether it was just fetched from a registry.
    pub fetched: bool,
    /// What vouches for it.
    pub vouched: Vouched,
}

/// What pins a reference to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinned {
    /// The host, which contains it.
    Host,
    /// The reference itself, which has a digest.
    Reference,
    /// The lock file.
    Lock,
    /// Nothing: the bytes are the current content of the file.
    No,
}

/// What vouches for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vouched {
    /// It ships with the host and is trusted like the host.
    Host,
    /// No signature is required.
    NotAsked,
    /// A signature by this key.
    Key(PathBuf),
}

/// The local data about guests of a configuration.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) config: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) store: Store,
}

impl Found {
    pub(super) fn builtin(guest: Builtin) -> Self {
        Self {
            vouched: Vouched::Host,
            ..Self::of(guest.bytes.to_vec(), Digest::of(guest.bytes).to_string(), Pinned::Host)
        }
    }

    fn of(bytes: Vec<u8>, digest: String, pinned: Pinned) -> Self {
        Self {
            bytes,
            digest,
            manifest: None,
            file: None,
            pinned,
            fetched: false,
            vouched: Vouched::NotAsked,
        }
    }

    /// Its entry in the lock file.
    pub(super) fn pin(&self) -> Pin {
        let digest = self.digest.clone();
        let manifest = self.manifest.clone();
        Pin { digest, manifest }
    }
}

impl Local {
    /// Read again each time: an operator may update the lock while a host runs.
    pub(super) fn lock(&self) -> Result<Lock, NoGuest> {
        Lock::load(&self.folder)
    }

    /// The reference as the lock contains it: a file below the configuration's folder has a relative path, so that the
    /// folder can be moved.
    pub(super) fn name(&self, reference: &Reference) -> String {
        let Reference::File(path) = reference else {
            return reference.to_string();
        };
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (file, folder) = (whole(path), whole(&self.folder));
        format!("file:{}", file.strip_prefix(folder).unwrap_or(&file).display())
    }

    /// The guest that the lock pins, with its signature checked. If `fresh`, the one that the reference means now; one
    /// from a registry is then stored.
    pub(super) async fn load(&self, reference: &Reference, verify: &Verify, fresh: bool) -> Result<Found, NotLoaded> {
        let lock = if fresh { Lock::default() } else { self.lock()? };
        let pin = lock.pins.get(&self.name(reference));
        let mut found = match reference {
            Reference::File(path) => self.file(path, pin)?,
            Reference::Oci(image) if fresh => {
                let remote = Remote::new(image)?;
                self.keep(&remote, remote.manifest().await?, Pinned::Lock).await?
            }
            Reference::Oci(image) => self.pinned(image, pin).await?,
            Reference::Builtin { .. } => return Err(not_local(reference)),
        };
        if !verify.keys.is_empty() {
            let keys = Keys::read(&verify.keys)?;
            found.vouched = Vouched::Key(self.key(reference, &found, &keys, fresh).await?);
        }
        Ok(found)
    }

    fn file(&self, path: &Path, pin: Option<&Pin>) -> Result<Found, NotLoaded> {
        let file = versions::locate(path)?;
        let bytes = versions::read(&file)?;
        let digest = Digest::of(&bytes).to_string();
        if let Some(pin) = pin.filter(|pin| pin.digest != digest) {
            let what = format!("guest {}: its digest is {digest}", file.display());
            return Err(self.disagrees(&what, &pin.digest));
        }
        let pinned = if pin.is_some() { Pinned::Lock } else { Pinned::No };
        Ok(Found {
            file: Some(file),
            ..Found::of(bytes, digest, pinned)
        })
    }

    async fn pinned(&self, image: &OciReference, pin: Option<&Pin>) -> Result<Found, NotLoaded> {
        let (manifest, pinned) = match (image.digest.as_deref(), pin.and_then(|pin| pin.manifest.as_deref())) {
            (Some(digest), Some(other)) if digest != other => {
                return Err(self.disagrees(&format!("guest oci:{image}: its manifest is {digest}"), other));
            }
            (Some(digest), _) => (digest, Pinned::Reference),
            (None, Some(digest)) => (digest, Pinned::Lock),
            (None, None) => {
                let error = format!(
                    "guest oci:{image}: a tag is used only as the lock file pins it, and this one is not pinned: name \
                     it by digest (`@sha256:...`, as `trueup guest push` printed it), or run `{}` if it is in the configuration",
                    self.command()
                );
                return Err(NoGuest(error).into());
            }
        };
        let damaged = match self.kept(manifest) {
            Ok(Some(found)) => {
                self.agrees(image, manifest, &found.digest, pin)?;
                return Ok(Found { pinned, ..found });
            }
            Ok(None) => None,
            Err(error @ StoreError::Damaged { .. }) => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let fetch = async {
            let remote = Remote::new(&image.at_digest(manifest))?;
            let manifest = remote.manifest().await?;
            self.agrees(image, &manifest.digest, &manifest.layer, pin)?;
            self.keep(&remote, manifest, pinned).await
        };
        let Some(damaged) = damaged else { return fetch.await };
        let failed = |error| NotLoaded::Failed(format!("{damaged}; fetching it again failed: {error}"));
        let found = fetch.await.map_err(failed)?;
        tracing::warn!("{damaged}: it was fetched again");
        Ok(found)
    }

    /// The stored guest of a manifest, exactly the one that the manifest names. A signature covers the manifest, so
    /// nothing else may choose the bytes.
    fn kept(&self, manifest: &str) -> Result<Option<Found>, StoreError> {
        // If the manifest is not a guest's, ask the registry: its error says what it is.
        let Some(Ok(digest)) = self.store.get(manifest)?.map(|bytes| layer_of(&bytes)) else {
            return Ok(None);
        };
        let found = self.store.get(&digest)?.map(|bytes| Found {
            manifest: Some(manifest.to_owned()),
            ..Found::of(bytes, digest, Pinned::No)
        });
        Ok(found)
    }

    /// Whether the lock, if it contains the manifest, agrees that it is of this guest.
    fn agrees(&self, image: &OciReference, manifest: &str, layer: &str, pin: Option<&Pin>) -> Result<(), NotLoaded> {
        let what = format!("guest oci:{image}: its manifest {manifest} is of {layer}");
        match pin.filter(|pin| pin.digest != layer) {
            Some(pin) => Err(self.disagrees(&what, &pin.digest)),
            None => Ok(()),
        }
    }

    /// Fetches the guest of a manifest, unless the store has it completely, and stores both.
    async fn keep(&self, remote: &Remote, manifest: Manifest, pinned: Pinned) -> Result<Found, NotLoaded> {
        let (bytes, fetched) = match self.store.get(&manifest.layer) {
            Ok(Some(bytes)) => (bytes, false),
            Ok(None) | Err(StoreError::Damaged { .. }) => (remote.guest(&manifest.layer).await?, true),
            Err(error) => return Err(error.into()),
        };
        self.store.put(&bytes)?;
        self.store.put(&manifest.bytes)?;
        Ok(Found {
            manifest: Some(manifest.digest),
            fetched,
            ..Found::of(bytes, manifest.layer, pinned)
        })
    }

    /// The key that vouches for it. Uses the stored signatures of a manifest. If there are none, or `fresh` is set,
    /// fetches and stores those of the registry.
    async fn key(&self, reference: &Reference, found: &Found, keys: &Keys, fresh: bool) -> Result<PathBuf, NotLoaded> {
        match (reference, &found.file, &found.manifest) {
            (_, Some(file), _) => Ok(keys.of_file(file, &found.bytes)?),
            (Reference::Oci(image), _, Some(manifest)) => {
                let kept = if fresh { None } else { self.store.signatures(manifest)? };
                // Fetch unreadable ones again, like missing ones.
                let kept = kept.and_then(|text| serde_json::from_slice(&text).ok());
                let all = match kept.filter(|all: &Vec<Signed>| !all.is_empty()) {
                    Some(all) => all,
                    None => {
                        let all = Remote::new(image)?.signatures(manifest).await?;
                        let failed =
                            |error| NotLoaded::Failed(format!("guest oci:{image}: writing its signatures: {error}"));
                        let text = serde_json::to_string(&all).map_err(failed)?;
                        self.store.put_signatures(manifest, &text)?;
                        all
                    }
                };
                Ok(keys.of_manifest(image, manifest, &all)?)
            }
            _ => Err(not_local(reference)),
        }
    }

    fn disagrees(&self, what: &str, pinned: &str) -> NotLoaded {
        let command = self.command();
        let next = format!("if this is what you want, run `{command}`");
        NoGuest(format!("{what}, the lock file pins {pinned}; {next}")).into()
    }

    /// The command that updates the lock.
    fn command(&self) -> String {
        format!("trueup guest lock {}", self.config.display())
    }
}

/// A built-in guest is in no lock and no store; callers with a configuration know that.
fn not_local(reference: &Reference) -> NotLoaded {
    let error = format!("guest {reference} ships with the host, and is pinned and kept by it");
    NotLoaded::Failed(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A store with a signed guest and its manifest, and an unsigned guest.
    struct Desk {
        _folder: tempfile::TempDir,
        local: Local,
        signed: String,
        unsigned: String,
        manifest: String,
    }

    impl Desk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let local = Local {
                config: folder.path().join("trueup.toml"),
                folder: folder.path().to_owned(),
                store: Store::at(folder.path()),
            };
            let put = |bytes: &[u8]| local.store.put(bytes).unwrap().to_string();
            let (signed, unsigned) = (put(b"signed"), put(b"unsigned"));
            let layer = json!({"mediaType": "application/wasm", "digest": signed, "size": 6});
            let manifest = put(json!({"layers": [layer]}).to_string().as_bytes());
            Self {
                local,
                signed,
                unsigned,
                manifest,
                _folder: folder,
            }
        }

        /// Loads it with a lock that pins this manifest digest. No server listens there.
        async fn pinned(&self, digest: &str) -> Result<Vec<u8>, String> {
            let image = OciReference::parse("127.0.0.1:1/lbaas:2").unwrap();
            let pin = Pin {
                digest: digest.to_owned(),
                manifest: Some(self.manifest.clone()),
            };
            let found = self.local.pinned(&image, Some(&pin)).await;
            found.map(|found| found.bytes).map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn a_signed_manifest_vouches_only_for_the_guest_it_names() {
        let desk = Desk::new();
        assert_eq!(desk.pinned(&desk.signed).await.unwrap(), b"signed");
        let error = desk.pinned(&desk.unsigned).await.unwrap_err();
        assert!(
            error.contains(&format!("its manifest {} is of {}", desk.manifest, desk.signed))
                && error.contains(&format!("the lock file pins {}", desk.unsigned)),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_manifest_missing_in_the_store_is_fetched_even_with_its_guest_stored() {
        let desk = Desk::new();
        std::fs::remove_file(desk.local.store.path(&desk.manifest).unwrap()).unwrap();
        for digest in [&desk.signed, &desk.unsigned] {
            let error = desk.pinned(digest).await.unwrap_err();
            assert!(error.contains("asking for its manifest: "), "{error}");
        }
    }
}
