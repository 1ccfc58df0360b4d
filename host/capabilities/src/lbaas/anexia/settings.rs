//! How to reach the Engine: settings, their limits, and the token.
//!
//! Reads the token's file or environment variable; opens no connection.

use std::env::VarError;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trueup_base::regular;
use url::Url;

use trueup_base::http::client::base_url;
use trueup_base::http::secret::Secret;

use crate::remote::{CONCURRENT_REQUESTS_MAX, SettingsError, TIMEOUT_MAX_MS, check_numbers};

/// The default source of the token if neither `token_file` nor `token_env` is set.
pub const TOKEN_ENV_DEFAULT: &str = "TRUEUP_LBAAS_TOKEN";

/// Longer pages save nothing, since each entry is read separately.
const PAGE_SIZE_MAX: u64 = 1_000;
/// How to reach the Engine. All settings are optional.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Base URL, `http` or `https`, including a path prefix. Default `https://engine.anexia-it.com`.
    pub url: String,
    /// Whether the token may be sent over plain `http` to another machine. Default false.
    pub allow_http: bool,
    /// File that holds the token, without regard to surrounding white space. Default: none.
    pub token_file: Option<PathBuf>,
    /// Environment variable that holds the token if there is no file. Default `TRUEUP_LBAAS_TOKEN`.
    pub token_env: Option<String>,
    /// The maximum number of concurrent requests of the whole host, 1 to 1000. Default 16.
    pub max_concurrent_requests: u16,
    /// The requested number of entries per page of a list, 1 to 1000. Default 100.
    pub page_size: u32,
    /// Timeout in milliseconds for one request with its whole answer, 1 to 3600000. Default 30000.
    pub request_timeout_ms: u64,
    /// Timeout in milliseconds for connecting, 1 to 3600000. Default 10000.
    pub connect_timeout_ms: u64,
    /// Whether a creation first looks for an equal object that an earlier run left behind untagged. Default true.
    pub adopt_orphans: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: "https://engine.anexia-it.com".to_owned(),
            allow_http: false,
            token_file: None,
            token_env: None,
            max_concurrent_requests: 16,
            page_size: 100,
            request_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            adopt_orphans: true,
        }
    }
}

impl Settings {
    /// The checked base URL, without a trailing slash.
    pub(super) fn base(&self) -> Result<Url, SettingsError> {
        base_url(
            &self.url,
            self.allow_http,
            "the token stands in `token_file` or `token_env`",
        )
        .map_err(|reason| SettingsError(format!("url: {reason}")))
    }

    /// Returns an error for the first number that is out of bounds.
    pub(super) fn check_numbers(&self) -> Result<(), SettingsError> {
        check_numbers(&[
            (
                "max_concurrent_requests",
                u64::from(self.max_concurrent_requests),
                CONCURRENT_REQUESTS_MAX,
            ),
            ("page_size", u64::from(self.page_size), PAGE_SIZE_MAX),
            ("request_timeout_ms", self.request_timeout_ms, TIMEOUT_MAX_MS),
            ("connect_timeout_ms", self.connect_timeout_ms, TIMEOUT_MAX_MS),
        ])
    }
}

/// The Engine's token. Its debug output is `***`.
#[derive(Clone, Debug)]
pub struct Token(Secret);

impl Deref for Token {
    type Target = Secret;

    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl Token {
    /// Reads the token from the source in the settings.
    ///
    /// # Errors
    /// If there are two sources, if the source can't be read, or if its content can't be a token.
    pub fn read(settings: &Settings) -> Result<Self, SettingsError> {
        match (&settings.token_file, &settings.token_env) {
            (Some(_), Some(_)) => Err(SettingsError(
                "`token_file` and `token_env` are both set: leave one of them out".to_owned(),
            )),
            (Some(path), None) => Self::from_file(path),
            (None, name) => Self::from_env(name.as_deref().unwrap_or(TOKEN_ENV_DEFAULT)),
        }
    }

    /// Reads the token from a file, trimming white space.
    ///
    /// # Errors
    /// If it can't be read, or can't be a token.
    pub fn from_file(path: &Path) -> Result<Self, SettingsError> {
        let path_shown = path.display();
        let text = regular::read_text(path, regular::SMALL).map_err(|error| {
            SettingsError(format!(
                "can't read the Engine's token from the file `{path_shown}`: {error}"
            ))
        })?;
        Self::new(&text, &format!("the file `{path_shown}`"))
    }

    /// Reads the token from an environment variable.
    fn from_env(name: &str) -> Result<Self, SettingsError> {
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
        Self::new(&text, &format!("the environment variable `{name}`"))
    }

    /// A token from text; `origin` is the source for error texts.
    ///
    /// # Errors
    /// If no header can carry it.
    pub fn new(text: &str, origin: &str) -> Result<Self, SettingsError> {
        let secret = Secret::new("Token", text);
        secret
            .map(Self)
            .map_err(|reason| SettingsError(format!("the Engine's token in {origin} {reason}")))
    }
}
