//! The origins of guests: built-in guests, files, folders of versions, and OCI registries.
//!
//! ```text
//! reference -> found (store, file, network) -> held against the lock -> signature, where one is asked for -> program
//! ```
//!
//! A configuration has a lock file beside it and a store in its state folder ([`Registry::at`]): a guest that is in
//! both needs no network. This module does not decide which version is active.

#[cfg(feature = "oci")]
mod credentials;
mod local;
mod lock;
#[cfg_attr(
    not(feature = "oci"),
    expect(dead_code, reason = "some of it serves registries alone")
)]
mod manifest;
#[cfg_attr(not(feature = "oci"), path = "oci_absent.rs")]
mod oci;
mod push;
#[cfg(feature = "oci")]
mod realm;
mod reference;
mod signature;
mod store;
mod versions;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup_base::regular;
use trueup_engine::{Digest, Engine, Guest};

use crate::config::{Config, Verify};
use crate::guests::Program;

pub use self::local::{Loaded, Pinned, Vouched};
pub use self::lock::{Change, FILE_NAME as LOCK_FILE_NAME, Kind as ChangeKind, Lock, Pin};
pub use self::push::{Pushed, push};
pub use self::reference::{OciReference, Reference};
pub use self::store::{Store, StoreError};

use self::local::Local;

/// A Python guest with its interpreter has 60 MB. The engine holds the bytes in memory while it compiles them.
pub const GUEST_BYTES_MAX: usize = 256 << 20;

/// A guest in the host's binary.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// The built-in guests by name and version and, for a configuration, those in its store. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    builtins: Arc<[Builtin]>,
    local: Option<Arc<Local>>,
}

/// Why a guest is unavailable, for the operator to fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGuest(pub String);

/// Why a guest was not loaded, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// An error for the operator to fix.
    #[error(transparent)]
    NoGuest(#[from] NoGuest),
    /// A temporary error: a registry is unreachable, or a disk is full.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for NotLoaded {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Registry {
    /// A registry of these guests.
    pub fn new(builtins: Vec<Builtin>) -> Self {
        Self {
            builtins: builtins.into(),
            local: None,
        }
    }

    /// The same with the lock file and the store of a configuration. Does not read them yet.
    pub fn at(&self, config: &Config) -> Self {
        Self {
            builtins: Arc::clone(&self.builtins),
            local: Some(Arc::new(Local::of(config))),
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

    /// Loads a built-in guest or a file and links it to its world. Ignores lock and signatures.
    ///
    /// # Errors
    /// One line: why it cannot run here. For an unknown name, the existing ones.
    pub fn program(&self, engine: &Engine, reference: &Reference) -> Result<Arc<Program>, NoGuest> {
        let guest = self.guest(engine, reference)?;
        Program::new(engine, guest).map(Arc::new).map_err(NoGuest)
    }

    /// The same for a guest of any world.
    ///
    /// # Errors
    /// As [`Registry::program`].
    pub fn guest(&self, engine: &Engine, reference: &Reference) -> Result<Guest, NoGuest> {
        match reference {
            Reference::Builtin { name, version } => compile(engine, reference, self.builtin(name, version)?.bytes),
            Reference::File(path) => compile(engine, reference, &read_guest(&versions::locate(path)?)?),
            Reference::Oci(place) => Err(NoGuest(format!(
                "guest `oci:{place}` is in a registry: get it first, with `trueup guest pull oci:{place} --to FILE`"
            ))),
        }
    }

    /// The bytes of a guest from any place, as the reference means it now. Ignores lock and signatures, and stores
    /// nothing.
    ///
    /// # Errors
    /// One line: why it is unavailable.
    pub async fn fetch(&self, reference: &Reference) -> Result<Vec<u8>, NotLoaded> {
        match reference {
            Reference::Builtin { name, version } => Ok(self.builtin(name, version)?.bytes.to_vec()),
            Reference::File(path) => Ok(read_guest(&versions::locate(path)?)?),
            Reference::Oci(place) => {
                let remote = oci::Remote::new(place)?;
                let manifest = remote.manifest().await?;
                remote.guest(&manifest.layer).await
            }
        }
    }

    /// The digest of the manifest that a place in a registry means now.
    ///
    /// # Errors
    /// One line: why it is unavailable, or not a guest's manifest.
    pub async fn resolve(place: &OciReference) -> Result<String, NotLoaded> {
        Ok(oci::Remote::new(place)?.manifest().await?.digest)
    }

    /// Loads a guest for a configuration: the one that its lock pins, with its signature if required. Asks a registry
    /// only for what the store lacks. Without a configuration ([`Registry::at`]) nothing is pinned or stored.
    ///
    /// # Errors
    /// One line: why it is unavailable, or how it contradicts the lock or the keys.
    pub async fn load(&self, engine: &Engine, reference: &Reference, verify: &Verify) -> Result<Loaded, NotLoaded> {
        let (found, vouched) = match (&self.local, reference) {
            (_, Reference::Builtin { name, version }) => {
                // Report a damaged lock file before anything relies on it.
                self.local.as_ref().map_or(Ok(Lock::default()), |local| local.lock())?;
                (local::Found::builtin(self.builtin(name, version)?), Vouched::Host)
            }
            (Some(local), _) => local.load(reference, verify).await?,
            (None, _) => {
                return Err(NotLoaded::Failed(format!(
                    "guest {reference}: no configuration says what it is"
                )));
            }
        };
        let program = Program::new(engine, compile(engine, reference, &found.bytes)?).map_err(NoGuest)?;
        Ok(Loaded::new(Arc::new(program), found, vouched))
    }

    /// Loads a built-in or stored guest by the digest of its bytes. `None` if there is none.
    ///
    /// # Errors
    /// One line: the text is no digest, the store's entry is damaged, or the guest cannot run here.
    pub fn stored(&self, engine: &Engine, digest: &str) -> Result<Option<Arc<Program>>, NotLoaded> {
        let ships = self
            .builtins
            .iter()
            .find(|guest| Digest::of(guest.bytes).to_string() == digest);
        let bytes = match (ships, &self.local) {
            (Some(guest), _) => Some(guest.bytes.to_vec()),
            (None, Some(local)) => local.store().get(digest)?,
            (None, None) => None,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let guest = engine
            .load(&bytes)
            .map_err(|error| NoGuest(format!("stored guest {digest}: {error}")))?;
        let program = Program::new(engine, guest).map_err(NoGuest)?;
        Ok(Some(Arc::new(program)))
    }

    /// Resolves each guest of a configuration, stores guests from registries, and writes the lock file: for all of
    /// them, or not at all if there is an error.
    ///
    /// # Errors
    /// The problems, one line each.
    pub async fn lock(&self, engine: &Engine, config: &Config) -> Result<Vec<Change>, Vec<NotLoaded>> {
        let local = Local::of(config);
        let before = local.lock().map_err(|error| vec![error.into()])?;
        let mut lock = Lock::default();
        let mut wrong = Vec::new();
        for (reference, verify) in references(config) {
            if let Reference::Builtin { name, version } = &reference {
                if let Err(error) = self.builtin(name, version) {
                    wrong.push(error.into());
                }
                continue;
            }
            let pinned = async {
                let (found, _) = local.load_fresh(&reference, verify).await?;
                Program::new(engine, compile(engine, &reference, &found.bytes)?).map_err(NoGuest)?;
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
            lock.write(local.folder()).map_err(|error| vec![error.into()])?;
        }
        Ok(lock.changes_since(&before))
    }

    fn builtin(&self, name: &str, version: &str) -> Result<Builtin, NoGuest> {
        let mut all = self.builtins.iter();
        let found = all.find(|guest| guest.name == name && guest.version == version);
        found.copied().ok_or_else(|| {
            let all: Vec<String> = self
                .builtins
                .iter()
                .map(|guest| format!("{}@{}", guest.name, guest.version))
                .collect();
            NoGuest(format!(
                "no guest `{name}@{version}` ships with this host; there are: {}",
                all.join(", ")
            ))
        })
    }
}

/// Every guest in a configuration, with its required signatures.
pub fn references(config: &Config) -> Vec<(Reference, &Verify)> {
    let guests = config.guests().into_iter();
    guests
        .flat_map(|(_, guest)| {
            guest
                .references()
                .map(|reference| (Reference::from(reference), &guest.verify))
        })
        .collect()
}

fn compile(engine: &Engine, reference: &Reference, bytes: &[u8]) -> Result<Guest, NoGuest> {
    engine.load(bytes).map_err(|error| {
        NoGuest(match reference {
            Reference::Builtin { name, version } => format!("guest `{name}@{version}`: {error}"),
            Reference::File(path) => format!("guest {}: {error}", path.display()),
            Reference::Oci(place) => format!("guest oci:{place}: {error}"),
        })
    })
}

/// The bytes of a guest's file.
fn read_guest(file: &Path) -> Result<Vec<u8>, NoGuest> {
    let wrong = |error: &dyn std::fmt::Display| NoGuest(format!("guest {}: {error}", file.display()));
    regular::read(file, GUEST_BYTES_MAX as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => wrong(&format_args!("longer than {GUEST_BYTES_MAX} bytes, so no guest")),
        _ => wrong(&error),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The folder for a configuration's relative paths.
fn folder_of(config: &Config) -> PathBuf {
    config.file.parent().unwrap_or(Path::new("")).to_owned()
}
