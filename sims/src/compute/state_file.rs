//! Keeps the world in a file, so that no acknowledged effect is lost when the process is killed.
//!
//! Each request that changes something replaces the whole file: a simulated world is small. The operating system has
//! the file before the server answers. The file is not synced to disk: a simulation outlives its process, not its
//! machine.

use std::path::Path;

use trueup_base::replace::{Durable, replace_file};

use super::world::World;
use crate::base::state_file::{self, StateFileError};

/// The world in the file; an empty one if there is no file.
pub(super) fn load(path: &Path) -> Result<World, StateFileError> {
    let text = state_file::read(path)?;
    text.map_or_else(|| Ok(World::default()), |text| state_file::parse(path, None, &text))
}

/// Replaces the file.
pub(super) fn save(path: &Path, world: &World) -> Result<(), StateFileError> {
    let text = state_file::text(world).map_err(|error| StateFileError::write(path, error))?;
    replace_file(path, &text, Durable::No).map_err(|error| StateFileError::write(path, error))
}
