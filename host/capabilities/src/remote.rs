//! What the backends of HTTP servers have in common: why one can't be used, its client, parts of paths, and the ends of
//! tasks.

use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use trueup_base::http::client::{Client, Times};
use url::Url;

/// The maximum size of an error's body; anything longer is not a message for people.
pub(crate) const ERROR_BODY_MAX_BYTES: usize = 1024 * 1024;

/// Everything but the characters that RFC 3986 section 2.3 leaves unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a backend can't be used as configured. One line. It repeats neither a secret nor a URL, which may hold one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(crate) String);

/// The client of a server; with `https` it fails mostly because the machine has no CA certificates.
pub(crate) fn client(base: &Url, times: Times) -> Result<Client, SettingsError> {
    let client = Client::new(base, times, &Matcher::from_env());
    client.map_err(|reason| SettingsError(format!("can't build the HTTP client: {reason}")))
}

/// Encodes text for a path or a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes text as one segment of a path. Empty text, `.` and `..` are invalid: URLs are normalised, even with encoded
/// dots, and `DELETE backend.json/` or `GET backend.json/..` would address something else.
pub(crate) fn segment(text: &str) -> Option<String> {
    (!matches!(text, "" | "." | "..")).then(|| encode(text))
}
