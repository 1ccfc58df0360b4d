//! Which configuration a command is about. This file alone decides it:
//!
//! ```text
//! argument > --config > TRUEUP_CONFIG > the current folder
//! ```

use std::path::{Path, PathBuf};

/// Names the configuration of commands without one on their command line. An empty value counts as none.
const VARIABLE: &str = trueup_config::CONFIG_ENV;

/// The configuration as an argument or as `--config`, which commands take that ask a host.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArg {
    /// A TOML file, or a folder with `trueup.toml`. Default: `TRUEUP_CONFIG`, else the current folder.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The same as CONFIG.
    #[arg(long = "config", value_name = "CONFIG", conflicts_with = "config")]
    option: Option<PathBuf>,
}

impl ConfigArg {
    pub(super) fn path(&self) -> PathBuf {
        chosen(self.given())
    }

    /// The same. `None` if nothing names one, and the current folder has none.
    pub(super) fn found(&self) -> Option<PathBuf> {
        named(self.given()).or_else(|| Path::new(trueup_config::FILE_NAME).exists().then(here))
    }

    fn given(&self) -> Option<&Path> {
        self.config.as_deref().or(self.option.as_deref())
    }
}

/// The configuration of a command: `given` on its command line, or its default.
pub(super) fn chosen(given: Option<&Path>) -> PathBuf {
    named(given).unwrap_or_else(here)
}

fn named(given: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    given.map(Path::to_owned).or_else(|| variable().map(PathBuf::from))
}

fn here() -> PathBuf {
    PathBuf::from(".")
}
