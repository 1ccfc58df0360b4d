//! How to reach the Engine: settings, their limits, and the token.
//!
//! Reads the token's file or environment variable; opens no connection.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trueup_base::regular;
use url::Url;

use trueup_base::http::client::base_url;
use trueup_base::http::secret::Secret;

/// The default source of the token if neither `token_file` nor `token_env` is set.
pub const TOKEN_ENV_DEFAULT: &str = "TRUEUP_LBAAS_TOKEN";

/// More connections than this to one Engine would be an attack on it.
const CONCURRENT_REQUESTS_MAX: u64 = 1_000;
/// Longer pages save nothing, since each entry is read separately.
const PAGE_SIZE_MAX: u64 = 1_000;
/// An hour; a longer timeout is probably a mistake in the unit.
const TIMEOUT_MAX_MS: u64 = 3_600_000;

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

/// Why settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The base URL is invalid. The error does not repeat the URL, which may hold a password.
    #[error("url: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// A number is out of bounds.
    #[error("{setting}: was {was}, must be 1 to {max}")]
    Number {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        was: u64,
        /// Its maximum.
        max: u64,
    },
    /// The HTTP client can't be built; with `https` mostly because the machine has no CA certificates.
    #[error("can't build the HTTP client: {reason}")]
    Client {
        /// The client library's error.
        reason: String,
    },
    /// The pending creations of an earlier process can't be read; names the folder.
    #[error("{0}")]
    Intents(std::io::Error),
}

impl Settings {
    /// The checked base URL, without a trailing slash.
    pub(super) fn base(&self) -> Result<Url, SettingsError> {
        base_url(
            &self.url,
            self.allow_http,
            "the token stands in `token_file` or `token_env`",
        )
        .map_err(|reason| SettingsError::Url { reason })
    }

    /// Returns an error for the first number that is out of bounds.
    pub(super) fn check_numbers(&self) -> Result<(), SettingsError> {
        let numbers = [
            (
                "max_concurrent_requests",
                u64::from(self.max_concurrent_requests),
                CONCURRENT_REQUESTS_MAX,
            ),
            ("page_size", u64::from(self.page_size), PAGE_SIZE_MAX),
            ("request_timeout_ms", self.request_timeout_ms, TIMEOUT_MAX_MS),
            ("connect_timeout_ms", self.connect_timeout_ms, TIMEOUT_MAX_MS),
        ];
        match numbers.into_iter().find(|&(_, was, max)| was == 0 || was > max) {
            Some((setting, was, max)) => Err(SettingsError::Number { setting, was, max }),
            None => Ok(()),
        }
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

/// Why there is no token. Never holds the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read.
    #[error("can't read the Engine's token from the file `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The environment variable is not set, or is not text.
    #[error("the environment variable `{name}` does not hold the Engine's token: set it, or `token_file`")]
    Variable {
        /// The variable's name.
        name: String,
        /// What is wrong with it.
        source: std::env::VarError,
    },
    /// The content can't be a token.
    #[error("the Engine's token in {origin} {reason}")]
    Unusable {
        /// The file or variable.
        origin: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two sources are set, and it is unclear which one counts.
    #[error("`token_file` and `token_env` are both set: leave one of them out")]
    Ambiguous,
}

impl Token {
    /// Reads the token from the source in the settings.
    pub fn read(settings: &Settings) -> Result<Self, TokenError> {
        match (&settings.token_file, &settings.token_env) {
            (Some(_), Some(_)) => Err(TokenError::Ambiguous),
            (Some(path), None) => Self::from_file(path),
            (None, Some(name)) => Self::from_env(name),
            (None, None) => Self::from_env(TOKEN_ENV_DEFAULT),
        }
    }

    /// Reads the token from a file, trimming white space.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        let text = regular::read_text(path, regular::SMALL).map_err(|source| TokenError::File {
            path: path.to_owned(),
            source,
        })?;
        Self::new(&text, &format!("the file `{}`", path.display()))
    }

    /// Reads the token from an environment variable.
    pub fn from_env(name: &str) -> Result<Self, TokenError> {
        let text = std::env::var(name).map_err(|source| TokenError::Variable {
            name: name.to_owned(),
            // `NotUnicode` holds the value itself; an error text must not.
            source: match source {
                std::env::VarError::NotPresent => source,
                std::env::VarError::NotUnicode(_) => std::env::VarError::NotUnicode("***".into()),
            },
        })?;
        Self::new(&text, &format!("the environment variable `{name}`"))
    }

    /// A token from text; `origin` is the source for error texts.
    pub fn new(text: &str, origin: &str) -> Result<Self, TokenError> {
        let secret = Secret::new("Token", text).map_err(|reason| TokenError::Unusable {
            origin: origin.to_owned(),
            reason,
        })?;
        Ok(Self(secret))
    }
}
