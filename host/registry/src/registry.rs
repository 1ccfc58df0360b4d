//! One entry to all origins: finds, stores, pins and pushes guests.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use trueup_base::component::Digest;

use super::local::{Builtin, Found, Local};
use super::lock::{Change, Lock};
use super::manifest::About;
use super::oci::Remote;
use super::reference::{OciReference, Reference};
use super::signature::Verify;
use super::store::{NoGuest, NotLoaded, Store, StoreError};
use super::versions;

/// The built-in guests by name and version and, for a configuration, those in its store. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    builtins: Arc<[Builtin]>,
    local: Option<Arc<Local>>,
}

impl Registry {
    /// A registry of these guests.
    pub fn new(builtins: Vec<Builtin>) -> Self {
        let builtins = builtins.into();
        Self { builtins, local: None }
    }

    /// The same with the lock file beside a configuration and a store. Does not read them yet.
    pub fn at(&self, config: &Path, store: Store) -> Self {
        let folder = config.parent().unwrap_or(Path::new("")).to_owned();
        let config = config.to_owned();
        Self {
            builtins: Arc::clone(&self.builtins),
            local: Some(Arc::new(Local { config, folder, store })),
        }
    }

    /// Checks that the lock file beside the configuration, if it exists, is readable.
    ///
    /// # Errors
    /// One line: the file, the line, and what is wrong there.
    pub fn check_lock(&self) -> Result<(), NoGuest> {
        self.local.as_ref().map_or(Ok(()), |local| local.lock().map(drop))
    }

    /// Whether the lock file pins a reference.
    ///
    /// # Errors
    /// As [`Registry::check_lock`].
    pub fn pins(&self, reference: &Reference) -> Result<bool, NoGuest> {
        let Some(local) = &self.local else { return Ok(false) };
        Ok(local.lock()?.pins.contains_key(&local.name(reference)))
    }

    /// Every built-in guest.
    pub fn builtins(&self) -> &[Builtin] {
        &self.builtins
    }

    /// The bytes of a built-in guest or of a file. Ignores lock and signatures.
    ///
    /// # Errors
    /// One line: why it is unavailable. For an unknown name, the existing ones.
    pub fn bytes(&self, reference: &Reference) -> Result<Vec<u8>, NoGuest> {
        match reference {
            Reference::Builtin { name, version } => Ok(self.builtin(name, version)?.bytes.to_vec()),
            Reference::File(path) => versions::read(&versions::locate(path)?),
            Reference::Oci(image) => Err(NoGuest(format!(
                "guest `oci:{image}` is in a registry: get it first, with `trueup guest pull oci:{image} --to FILE`"
            ))),
        }
    }

    /// The bytes of a guest of any origin, as the reference means it now. Ignores lock and signatures, and stores
    /// nothing.
    ///
    /// # Errors
    /// One line: why it is unavailable.
    pub async fn fetch(&self, reference: &Reference) -> Result<Vec<u8>, NotLoaded> {
        let Reference::Oci(image) = reference else {
            return Ok(self.bytes(reference)?);
        };
        let remote = Remote::new(image)?;
        remote.guest(&remote.manifest().await?.layer).await
    }

    /// The digest of the manifest that an image in a registry has now.
    ///
    /// # Errors
    /// One line: why it is unavailable, or not a guest's manifest.
    pub async fn resolve(image: &OciReference) -> Result<String, NotLoaded> {
        Ok(Remote::new(image)?.manifest().await?.digest)
    }

    /// Finds a guest for a configuration: the one that its lock pins, with its signature if required. Asks a registry
    /// only for what the store lacks. Without a configuration ([`Registry::at`]) nothing is pinned or stored.
    ///
    /// # Errors
    /// One line: why it is unavailable, or how it contradicts the lock or the keys.
    pub async fn find(&self, reference: &Reference, verify: &Verify) -> Result<Found, NotLoaded> {
        match (&self.local, reference) {
            (_, Reference::Builtin { name, version }) => {
                // Report a damaged lock file before anything relies on it.
                self.check_lock()?;
                Ok(Found::builtin(self.builtin(name, version)?))
            }
            (Some(local), _) => local.load(reference, verify, false).await,
            (None, _) => Err(NotLoaded::Failed(format!(
                "guest {reference}: no configuration says what it is"
            ))),
        }
    }

    /// The bytes of a built-in or stored guest by their digest. `None` if there is none.
    ///
    /// # Errors
    /// One line: the text is no digest, or the store's entry is damaged.
    pub fn stored(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let is_it = |guest: &&Builtin| Digest::of(guest.bytes).to_string() == digest;
        match (self.builtins.iter().find(is_it), &self.local) {
            (Some(guest), _) => Ok(Some(guest.bytes.to_vec())),
            (None, Some(local)) => local.store.get(digest),
            (None, None) => Ok(None),
        }
    }

    /// Resolves these guests of a configuration ([`Registry::at`]), stores those from registries, and writes the lock
    /// file: for all of them, or not at all if there is an error. `check` refuses bytes that cannot run here.
    ///
    /// # Errors
    /// The problems, one line each.
    pub async fn lock(
        &self,
        guests: Vec<(Reference, &Verify)>,
        check: impl Fn(&Reference, &[u8]) -> Result<(), NoGuest>,
    ) -> Result<Vec<Change>, Vec<NotLoaded>> {
        let Some(local) = &self.local else {
            let error = "no configuration says where the lock file is".to_owned();
            return Err(vec![NotLoaded::Failed(error)]);
        };
        let before = local.lock().map_err(|error| vec![error.into()])?;
        let mut lock = Lock::default();
        let mut wrong = Vec::new();
        for (reference, verify) in guests {
            if let Reference::Builtin { name, version } = &reference {
                wrong.extend(self.builtin(name, version).err().map(NotLoaded::from));
                continue;
            }
            let pinned = async {
                let found = local.load(&reference, verify, true).await?;
                check(&reference, &found.bytes)?;
                Ok(found.pin())
            };
            match pinned.await {
                Ok(pin) => drop(lock.pins.insert(local.name(&reference), pin)),
                Err(error) => wrong.push(error),
            }
        }
        wrong.dedup();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        // If there is nothing to pin, write no file.
        if !(lock.pins.is_empty() && before.pins.is_empty()) {
            lock.write(&local.folder).map_err(|error| vec![error.into()])?;
        }
        Ok(lock.changes_since(&before))
    }

    fn builtin(&self, name: &str, version: &str) -> Result<Builtin, NoGuest> {
        let mut all = self.builtins.iter();
        let found = all.find(|guest| guest.name == name && guest.version == version);
        found.copied().ok_or_else(|| {
            let shown = |guest: &Builtin| format!("{}@{}", guest.name, guest.version);
            let all = self.builtins.iter().map(shown).collect::<Vec<_>>().join(", ");
            NoGuest(format!(
                "no guest `{name}@{version}` ships with this host; there are: {all}"
            ))
        })
    }
}

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
