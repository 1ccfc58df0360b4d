//! Arguments that several commands have: which configuration, which recordings, since when.
//!
//! ```text
//! argument > --config > TRUEUP_CONFIG > the current folder
//! ```

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use jiff::{Span, SpanRelativeTo, Timestamp};
use trueup_config::Config;
use trueup_runtime::infer;
use trueup_worlds::sections;

use crate::exit::{Failure, misused};
use crate::output;

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
        self.named().unwrap_or_else(|| ".".into())
    }

    /// The same. `None` if nothing names one, and the current folder has none.
    pub(super) fn found(&self) -> Option<PathBuf> {
        let here = || Path::new(trueup_config::FILE_NAME).exists().then(|| ".".into());
        self.named().or_else(here)
    }

    fn named(&self) -> Option<PathBuf> {
        named(self.config.as_deref().or(self.option.as_deref()))
    }
}

/// The configuration of a command: `given` on its command line, or its default. This alone decides it.
pub(super) fn chosen(given: Option<&Path>) -> PathBuf {
    named(given).unwrap_or_else(|| ".".into())
}

/// An empty variable counts as none.
fn named(given: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(trueup_config::CONFIG_ENV).filter(|value| !value.is_empty());
    given.map(Path::to_owned).or_else(|| variable().map(PathBuf::from))
}

/// Reads a configuration; environment variables override it.
pub(super) fn read(config: &Path) -> Result<Config, Failure> {
    Config::load(config, &sections()).map_err(misused)
}

/// The state folder of a configuration. If the rest of the file can't be used and the folder exists, warns and uses the
/// folder: the host may run on with what it read before the file broke.
pub(super) fn state_dir(config: &Path) -> Result<PathBuf, Failure> {
    let (state_dir, error) = Config::state_dir_of(config, &sections()).map_err(misused)?;
    if let Some(error) = error {
        if !state_dir.is_dir() {
            return Err(misused(error));
        }
        error.problems.iter().for_each(output::warn);
        let folder = state_dir.display();
        let goes_on = format!("going on with the state folder {folder} (--state-dir names another)");
        output::warn(&format!("the configuration can't be used; {goes_on}"));
    }
    Ok(state_dir)
}

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

/// `--since`: entries from a point in time on.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Since {
    /// Only what happened since then: a time such as `2026-05-01T00:00:00Z`, or an age such as `90m` or `7d`.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

impl Since {
    /// The time in milliseconds since 1970. `None` if the flag is not given.
    pub(super) fn at_ms(&self) -> Result<Option<u64>, Failure> {
        self.since.as_deref().map(at_ms).transpose()
    }
}

/// A time, or an age, as milliseconds since the Unix epoch.
fn at_ms(text: &str) -> Result<u64, Failure> {
    let must = "must be a time such as `2026-05-01T00:00:00Z`, or a while such as `90m` or `7d`";
    let before = |ago: Span| -> Result<Timestamp, jiff::Error> {
        // A day is 24 hours here: no calendar is involved.
        let ago = ago.to_duration(SpanRelativeTo::days_are_24_hours())?.abs();
        Ok(Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::MIN))
    };
    let of_age = |_| text.parse::<Span>().and_then(before);
    let at = text.parse::<Timestamp>().or_else(of_age);
    let at = at.map_err(|_| misused(anyhow!("--since: was `{text}`, {must}")))?;
    Ok(u64::try_from(at.as_millisecond()).unwrap_or_default())
}
