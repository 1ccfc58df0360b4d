//! Saves a simulated Engine's world in a file, so that no acknowledged effect is lost when the process is killed.
//!
//! The first line is a world; each further line is an effect since then. An effect reaches the operating system before
//! its acknowledgement. It is not forced to the disk, since a simulation survives its process, not its machine. When
//! the effects outgrow the world, the file is replaced by one line, as at every start.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use trueup_journal::{Durable, replace_file};

use super::world::{Dump, Effect, World};
use trueup_journal::regular;

/// The only format.
const FORMAT: u32 = 1;

/// The size of effects above which the file is rewritten: about 5,000 effects.
const EFFECT_BYTES_MAX: u64 = 1 << 20;

/// Above that, effects may take this many times the world's bytes, so that rewriting costs less than appending.
const EFFECT_WORLDS_MAX: u64 = 4;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    world: Dump,
}

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file exists but can't be read.
    #[error("state file `{}`: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not what a simulated Engine wrote, apart from a torn last line.
    #[error("state file `{}`: line {line} is damaged: {reason}; repair it, or move it away to start anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// It can't be written.
    #[error("state file `{}`: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The world in the file; `None` if the file is missing or empty.
pub(super) fn load(path: &Path, seed: u64) -> Result<Option<World>, StateFileError> {
    let text = match regular::read(path, regular::LIST) {
        Ok(text) if text.is_empty() => return Ok(None),
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(StateFileError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let damaged = |line, reason| StateFileError::Damaged {
        path: path.to_owned(),
        line,
        reason,
    };

    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate();
    let mut world = None;
    for (index, line) in &mut lines {
        let number = index + 1;
        let Some(line) = line.strip_suffix(b"\n") else {
            // Only the last line can be incomplete: the process died while writing it, before any acknowledgement.
            if world.is_some() {
                tracing::warn!(
                    target: super::LOG_TARGET,
                    path = %path.display(),
                    line = number,
                    "state file: the last line was torn and is left out"
                );
                break;
            }
            return Err(damaged(number, "it has no end".to_owned()));
        };
        match &mut world {
            None => {
                let header: Header =
                    serde_json::from_slice(line).map_err(|error| damaged(number, error.to_string()))?;
                if header.format != FORMAT {
                    return Err(damaged(
                        number,
                        format!("format was {}, must be {FORMAT}", header.format),
                    ));
                }
                world = Some(World::from_dump(seed, header.world).map_err(|reason| damaged(number, reason))?);
            }
            Some(world) => {
                let effect = serde_json::from_slice(line).map_err(|error| damaged(number, error.to_string()))?;
                world.apply(effect).map_err(|reason| damaged(number, reason))?;
            }
        }
    }
    Ok(world)
}

/// A file that holds a world, open for further effects.
pub(super) struct StateFile {
    path: PathBuf,
    file: File,
    /// Up to here, all lines are whole.
    bytes: u64,
    /// From this size on, the file is to be rewritten.
    bytes_max: u64,
    /// Whether the end may hold a part of a line that could not be cut off.
    torn: bool,
}

impl StateFile {
    /// Replaces the file, if there is one, atomically: an interruption leaves the old or the new one.
    pub(super) fn create(path: &Path, world: &World) -> Result<Self, StateFileError> {
        Self::replace(path, world).map_err(|source| StateFileError::Write {
            path: path.to_owned(),
            source,
        })
    }

    fn replace(path: &Path, world: &World) -> io::Result<Self> {
        let mut text = serde_json::to_vec(&Header {
            format: FORMAT,
            world: world.dump(),
        })?;
        text.push(b'\n');
        // The old file held acknowledged effects: remove it only when the new one is safe.
        replace_file(path, &text, Durable::Yes)?;
        let file = OpenOptions::new().append(true).open(path)?;
        let bytes = text.len() as u64;
        let bytes_max = bytes + EFFECT_BYTES_MAX.max(bytes.saturating_mul(EFFECT_WORLDS_MAX));
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            bytes_max,
            torn: false,
        })
    }

    /// Appends pending effects. After an error, none of them is in the file.
    pub(super) fn append(&mut self, effects: &[Effect]) -> Result<(), StateFileError> {
        let write = |source| StateFileError::Write {
            path: self.path.clone(),
            source,
        };
        let mut text = Vec::new();
        for effect in effects {
            serde_json::to_writer(&mut text, effect).map_err(|error| write(error.into()))?;
            text.push(b'\n');
        }
        if self.torn {
            self.file.set_len(self.bytes).map_err(write)?;
            self.torn = false;
        }
        if let Err(error) = self.file.write_all(&text) {
            self.torn = self.file.set_len(self.bytes).is_err();
            return Err(write(error));
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Replaces many effects by the resulting world. A failure loses nothing.
    pub(super) fn compact(&mut self, world: &World) -> Result<(), StateFileError> {
        if self.bytes < self.bytes_max {
            return Ok(());
        }
        // If this fails, the next attempt waits for as many effects again.
        self.bytes_max = self.bytes.saturating_add(EFFECT_BYTES_MAX);
        *self = Self::create(&self.path, world)?;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::lbaas::server::kinds::{Kind, StateId};
    use crate::lbaas::server::world::Object;

    #[test]
    fn many_effects_are_replaced_by_what_they_led_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.jsonl");
        let mut world = World::new(1);
        let mut store = StateFile::create(&path, &world).unwrap();
        let mut longest = 0;
        for round in 0..20_u64 {
            let fields = BTreeMap::from([("name".to_owned(), Value::from(format!("{round}").repeat(100_000)))]);
            let effect = Effect::Put {
                object: Object {
                    kind: Kind::LoadBalancer,
                    identifier: "lb".to_owned(),
                    fields,
                    tags: Default::default(),
                    state: StateId::Deployed,
                    settles_at_ms: None,
                },
                identifiers_drawn: round,
            };
            store.append(std::slice::from_ref(&effect)).unwrap();
            world.apply(effect).unwrap();
            store.compact(&world).unwrap();

            let bytes = std::fs::metadata(&path).unwrap().len();
            assert_eq!(bytes, store.bytes);
            longest = longest.max(bytes);
            assert_eq!(load(&path, 1).unwrap().unwrap().dump(), world.dump());
        }
        assert!(
            longest > EFFECT_BYTES_MAX / 2 && longest < 2 * EFFECT_BYTES_MAX,
            "{longest}"
        );
    }
}
