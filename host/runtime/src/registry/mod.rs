//! Where guests come from: those that ship with the host, files, folders of versions, and OCI registries.
//!
//! ```text
//! reference -> found (store, file, network) -> held against the lock -> signature, where one is asked for -> program
//! ```
//!
//! A configuration has a lock file beside it and a store in its state folder ([`Registry::at`]): what the lock pins and the
//! store has is used without a network. Which version decides, and when another takes over, is not known here.

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

use trueup_engine::{Digest, Engine, Guest};
use trueup_journal::regular;

use crate::config::{Config, Verify};
use crate::guests::Program;

pub use self::local::{Loaded, Pinned, Vouched};
pub use self::lock::{Change, FILE_NAME as LOCK_FILE_NAME, Kind as ChangeKind, Lock, Pin};
pub use self::push::{Pushed, push};
pub use self::reference::{OciReference, Reference};
pub use self::store::{Store, StoreError};

use self::local::Local;

/// A guest in Python with all of its interpreter has 60 MB; the engine holds the bytes in memory while it compiles them.
pub const GUEST_BYTES_MAX: usize = 256 << 20;

/// A guest that ships with the host.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// The guests that ship, by name and version; for one configuration, also those that are in its store. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    builtins: Arc<[Builtin]>,
    local: Option<Arc<Local>>,
}

/// Why a guest can't be had: the operator's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGuest(pub String);

/// Why a guest was not loaded: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLoaded {
    /// It can't be had like this: the operator's to mend.
    #[error(transparent)]
    NoGuest(#[from] NoGuest),
    /// It did not work now: a registry that is away, a disk that is full.
    #[error("{0}")]
    Failed(String),
}

impl From<StoreError> for NotLoaded {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Registry {
    /// A registry of these.
    pub fn new(builtins: Vec<Builtin>) -> Self {
        Self {
            builtins: builtins.into(),
            local: None,
        }
    }

    /// The same with the lock file and the store of a configuration. Reads neither yet.
    pub fn at(&self, config: &Config) -> Self {
        Self {
            builtins: Arc::clone(&self.builtins),
            local: Some(Arc::new(Local::of(config))),
        }
    }

    /// Whether the lock file beside the configuration can be read, where there is one.
    ///
    /// # Errors
    /// One line: file, line, and what is wrong there.
    pub fn check_lock(&self) -> Result<(), NoGuest> {
        self.local.as_ref().map_or(Ok(()), |local| local.lock().map(drop))
    }

    /// Whether the lock file says which bytes a reference means.
    ///
    /// # Errors
    /// As [`Registry::check_lock`].
    pub fn pins(&self, reference: &Reference) -> Result<bool, NoGuest> {
        let Some(local) = &self.local else { return Ok(false) };
        Ok(local.lock()?.pins.contains_key(&local.name(reference)))
    }

    /// Every guest that ships.
    pub fn builtins(&self) -> &[Builtin] {
        &self.builtins
    }

    /// Loads a guest that ships or that is in a file, and links it to its world. Looks at no lock and no signature.
    ///
    /// # Errors
    /// One line: why it can't run here; for a name that no guest has, which there are.
    pub fn program(&self, engine: &Engine, reference: &Reference) -> Result<Arc<Program>, NoGuest> {
        let guest = self.guest(engine, reference)?;
        Program::new(engine, guest).map(Arc::new).map_err(NoGuest)
    }

    /// The same, of whatever world.
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

    /// The bytes of a guest wherever it is, as the reference means it now. Looks at no lock and no signature, keeps nothing.
    ///
    /// # Errors
    /// One line: why it can't be had.
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
    /// One line: why it can't be had, or is no guest's.
    pub async fn resolve(place: &OciReference) -> Result<String, NotLoaded> {
        Ok(oci::Remote::new(place)?.manifest().await?.digest)
    }

    /// Loads a guest as a configuration means it: as its lock pins it, signed where that is asked for. Asks a registry only
    /// for what the store does not have. Outside of a configuration ([`Registry::at`]) nothing is pinned or kept.
    ///
    /// # Errors
    /// One line: why it can't be had, or is not what the lock or the keys say.
    pub async fn load(&self, engine: &Engine, reference: &Reference, verify: &Verify) -> Result<Loaded, NotLoaded> {
        let (found, vouched) = match (&self.local, reference) {
            (_, Reference::Builtin { name, version }) => {
                // A lock file that is damaged is said before anybody relies on it.
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

    /// Loads a guest by the digest of its bytes: one that ships, or one that is in the store. None where neither has it.
    ///
    /// # Errors
    /// One line: the text is no digest, the store's entry is damaged, or the guest can't run here.
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

    /// Finds out what each guest of a configuration means now, keeps what comes from registries, and writes the lock file:
    /// for all of them, or where something is wrong with one, not at all.
    ///
    /// # Errors
    /// What is wrong, one line each.
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
        // Where there is nothing to pin, no file says so.
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

/// Every guest that a configuration names, with who must have signed it.
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

/// The folder that a configuration's relative paths are relative to.
fn folder_of(config: &Config) -> PathBuf {
    config.file.parent().unwrap_or(Path::new("")).to_owned()
}
