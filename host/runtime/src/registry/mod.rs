//! Where guests come from: those that ship with the host, and files.

mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trueup_engine::{Engine, Guest};

use crate::guests::Program;

pub use self::store::{Store, StoreError};

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

/// The guests that ship, by name and version.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    builtins: Vec<Builtin>,
}

/// Which guest is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// One that ships: name and version.
    Builtin {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// A file: a component, or a core module with wit-bindgen's type section.
    File(PathBuf),
}

impl Reference {
    /// `lbaas` or `lbaas@2`: a bare name is version 1 for ever.
    pub fn builtin(text: &str) -> Self {
        let (name, version) = text.split_once('@').unwrap_or((text, "1"));
        Self::Builtin {
            name: name.to_owned(),
            version: version.to_owned(),
        }
    }
}

/// Why a guest can't be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGuest(pub String);

impl Registry {
    /// A registry of these.
    pub fn new(builtins: Vec<Builtin>) -> Self {
        Self { builtins }
    }

    /// Every guest that ships.
    pub fn builtins(&self) -> &[Builtin] {
        &self.builtins
    }

    /// Loads a guest and links it to its world.
    ///
    /// # Errors
    /// One line: why it can't run here; for a name that no guest has, which there are.
    pub fn program(&self, engine: &Engine, reference: &Reference) -> Result<Arc<Program>, NoGuest> {
        let guest = self.guest(engine, reference)?;
        Program::new(engine, guest).map(Arc::new).map_err(NoGuest)
    }

    /// Loads a guest, of whatever world.
    ///
    /// # Errors
    /// As [`Registry::program`].
    pub fn guest(&self, engine: &Engine, reference: &Reference) -> Result<Guest, NoGuest> {
        match reference {
            Reference::Builtin { name, version } => {
                let found = self
                    .builtins
                    .iter()
                    .find(|guest| guest.name == name && guest.version == version);
                let Some(guest) = found else {
                    let all: Vec<String> = self
                        .builtins
                        .iter()
                        .map(|guest| format!("{}@{}", guest.name, guest.version))
                        .collect();
                    return Err(NoGuest(format!(
                        "no guest `{name}@{version}` ships with this host; there are: {}",
                        all.join(", ")
                    )));
                };
                engine
                    .load(guest.bytes)
                    .map_err(|error| NoGuest(format!("guest `{name}@{version}`: {error}")))
            }
            Reference::File(file) => self.file(engine, file),
        }
    }

    /// The bytes of a guest.
    ///
    /// # Errors
    /// As [`Registry::program`].
    pub fn bytes(&self, reference: &crate::config::GuestRef) -> Result<Vec<u8>, NoGuest> {
        match reference {
            crate::config::GuestRef::Builtin { name, version } => {
                let version = version.to_string();
                let found = self
                    .builtins
                    .iter()
                    .find(|guest| guest.name == name && guest.version == version);
                found.map(|guest| guest.bytes.to_vec()).ok_or_else(|| {
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
            crate::config::GuestRef::File(file) => {
                std::fs::read(file).map_err(|error| NoGuest(format!("guest {}: {error}", file.display())))
            }
        }
    }

    fn file(&self, engine: &Engine, file: &Path) -> Result<Guest, NoGuest> {
        engine.load_file(file).map_err(|error| NoGuest(error.to_string()))
    }
}
