//! How to reach the Engine. The configuration checks the numbers.

use trueup_base::http::client::base_url;
use url::Url;

use super::token::{TOKEN_ENV_DEFAULT, TokenAt};
use crate::remote::SettingsError;

/// How to reach the Engine. All settings are optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL, `http` or `https`, including a path prefix. Default `https://engine.anexia-it.com`.
    pub url: String,
    /// Whether the token may be sent over plain `http` to another machine. Default false.
    pub allow_http: bool,
    /// Where the token is. Default: the variable [`TOKEN_ENV_DEFAULT`].
    pub token: TokenAt,
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
            token: TokenAt::Variable(TOKEN_ENV_DEFAULT.to_owned()),
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
            "the token is in `token_file` or `token_env`",
        )
        .map_err(|reason| SettingsError(format!("url: {reason}")))
    }
}
