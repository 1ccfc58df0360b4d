//! The Engine's token, from a file or an environment variable.

use std::env::VarError;
use std::path::Path;

use trueup_base::http::secret::Secret;
use trueup_base::regular;

use super::settings::Settings;
use crate::remote::SettingsError;

/// The default source of the token if neither `token_file` nor `token_env` is set.
pub const TOKEN_ENV_DEFAULT: &str = "TRUEUP_LBAAS_TOKEN";

/// Reads the token from the source in the settings.
///
/// # Errors
/// If there are two sources, if the source can't be read, or if its content can't be a token.
pub fn read(settings: &Settings) -> Result<Secret, SettingsError> {
    match (&settings.token_file, &settings.token_env) {
        (Some(_), Some(_)) => Err(SettingsError(
            "`token_file` and `token_env` are both set: leave one of them out".to_owned(),
        )),
        (Some(path), None) => from_file(path),
        (None, name) => from_env(name.as_deref().unwrap_or(TOKEN_ENV_DEFAULT)),
    }
}

/// Reads the token from a file, trimming white space.
///
/// # Errors
/// If it can't be read, or can't be a token.
pub fn from_file(path: &Path) -> Result<Secret, SettingsError> {
    let path_shown = path.display();
    let text = regular::read_text(path, regular::SMALL).map_err(|error| {
        SettingsError(format!(
            "can't read the Engine's token from the file `{path_shown}`: {error}"
        ))
    })?;
    new(&text, &format!("the file `{path_shown}`"))
}

/// Reads the token from an environment variable.
fn from_env(name: &str) -> Result<Secret, SettingsError> {
    let text = std::env::var(name).map_err(|error| {
        // `NotUnicode` holds the value itself; an error text must not.
        let error = match error {
            VarError::NotPresent => error,
            VarError::NotUnicode(_) => VarError::NotUnicode("***".into()),
        };
        SettingsError(format!(
            "the environment variable `{name}` does not hold the Engine's token: set it, or `token_file`: {error}"
        ))
    })?;
    new(&text, &format!("the environment variable `{name}`"))
}

/// A token from text; `origin` is the source for error texts.
///
/// # Errors
/// If no header can carry it.
pub fn new(text: &str, origin: &str) -> Result<Secret, SettingsError> {
    Secret::new("Token", text).map_err(|reason| SettingsError(format!("the Engine's token in {origin} {reason}")))
}
