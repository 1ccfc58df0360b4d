//! Keeps a simulated Engine's world in a file, so that no acknowledged effect is lost when the process is killed.
//!
//! The first line is a world; each further line is an effect since then. The operating system has an effect before the
//! server acknowledges it. The effect is not synced to disk: a simulation outlives its process, not its machine. When
//! the effects outgrow the world, one line replaces the file, as at every start.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use trueup_base::replace::{Durable, replace_file};

use super::world::{Effect, World};
use crate::base::state_file::{self, StateFileError};

/// Effects may take this many bytes before the file is written anew: about 5,000 effects.
const EFFECT_BYTES_MAX: u64 = 1 << 20;

/// With a large world, effects may take this many times its bytes, so that rewriting costs less than appending.
const EFFECT_WORLDS_MAX: u64 = 4;

/// The world in the file; `None` if the file is empty or does not exist.
pub(super) fn load(path: &Path, seed: u64) -> Result<Option<World>, StateFileError> {
    let text = state_file::read(path)?.unwrap_or_default();
    let mut world = None;
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let damaged = |reason: String| StateFileError::damaged(path, Some(number), reason);
        let Some(line) = line.strip_suffix(b"\n") else {
            // Only the last line can lack its end: the process died before it acknowledged the effect.
            if world.is_some() {
                tracing::warn!(
                    target: super::LOG_TARGET,
                    path = %path.display(),
                    line = number,
                    "state file: the last line was torn and is left out"
                );
                break;
            }
            return Err(damaged("it has no end".to_owned()));
        };
        match &mut world {
            None => {
                let dump = state_file::parse(path, Some(number), line)?;
                world = Some(World::from_dump(seed, dump).map_err(damaged)?);
            }
            Some(world) => {
                let effect = serde_json::from_slice(line).map_err(|error| damaged(error.to_string()))?;
                world.apply(effect).map_err(damaged)?;
            }
        }
    }
    Ok(world)
}

/// A file that holds a world, open for further effects.
pub(super) struct StateFile {
    path: PathBuf,
    file: File,
    /// Up to this length, all lines are whole.
    bytes: u64,
    /// From this length on, the file is written anew.
    bytes_max: u64,
    /// Whether the file may end in a part of a line that could not be cut off.
    torn: bool,
}

impl StateFile {
    /// Replaces the file, if there is one. A crash leaves either the old file or the new one.
    pub(super) fn create(path: &Path, world: &World) -> Result<Self, StateFileError> {
        Self::replace(path, world).map_err(|error| StateFileError::write(path, error))
    }

    fn replace(path: &Path, world: &World) -> io::Result<Self> {
        let mut text = state_file::text(world.dump())?;
        text.push(b'\n');
        // The old file holds acknowledged effects: it must stay until the new one is on disk.
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

    /// Appends effects before they are applied. After an error, the file holds none of them.
    pub(super) fn append(&mut self, effects: &[Effect]) -> Result<(), StateFileError> {
        let mut text = Vec::new();
        for effect in effects {
            serde_json::to_writer(&mut text, effect).map_err(|error| StateFileError::write(&self.path, error))?;
            text.push(b'\n');
        }
        if self.torn {
            let cut = self.file.set_len(self.bytes);
            cut.map_err(|error| StateFileError::write(&self.path, error))?;
            self.torn = false;
        }
        if let Err(error) = self.file.write_all(&text) {
            self.torn = self.file.set_len(self.bytes).is_err();
            return Err(StateFileError::write(&self.path, error));
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Replaces many effects with the world that they led to. A failure loses nothing.
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
    use crate::lbaas::kinds::{Kind, StateId};
    use crate::lbaas::world::Object;

    #[test]
    fn many_effects_are_replaced_with_the_world_they_led_to() {
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
