//! Which recordings a command reads.

use std::path::PathBuf;

use anyhow::anyhow;
use trueup_runtime::infer;

use super::config::chosen;
use super::run::state_dir;
use crate::exit::{Failure, misused};

/// The recordings as arguments, or those of a configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Recordings {
    /// Recordings, folders of them, or state folders. Default: the recordings of the configuration.
    #[arg(value_name = "RECORDING")]
    paths: Vec<PathBuf>,
    /// The configuration: a TOML file, or a folder with `trueup.toml`. Default: `TRUEUP_CONFIG`, else the current
    /// folder.
    #[arg(long, value_name = "CONFIG", conflicts_with = "paths")]
    config: Option<PathBuf>,
}

impl Recordings {
    /// The given paths, or the state folder of the configuration.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        if self.paths.is_empty() {
            return Ok(vec![state_dir(&chosen(self.config.as_deref()))?]);
        }
        Ok(self.paths.clone())
    }

    /// The files of the recordings.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        infer::recordings(&self.paths()?).map_err(|error| misused(anyhow!(error)))
    }
}
