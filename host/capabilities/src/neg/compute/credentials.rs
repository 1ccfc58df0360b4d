//! The host's identity to Compute Engine: the source of tokens, and how long they are kept.
//!
//! The configuration may give a token or a file. If it gives neither, the host uses the application default
//! credentials:
//! the file in `GOOGLE_APPLICATION_CREDENTIALS`, or else the machine's metadata server. No token is ever logged or part
//! of an error text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use google_cloud_auth::credentials::{AccessTokenCredentials, Builder, mds};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::service_account::ServiceAccount;
use trueup_base::http::secret::Secret;
use trueup_base::regular;
use trueup_base::text::causes;

use crate::remote::SettingsError;

/// The requested scope of tokens.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/compute";
/// Names the file with a service account's key, or other credentials in JSON.
pub const CREDENTIALS_ENV: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// A token is not used in its last minute: a request may be in flight that long.
const LAST: Duration = Duration::from_secs(60);
/// The timeout for fetching a token, which covers a few tries of the metadata server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The source of tokens. Cheap to create: nothing is fetched before the first request.
pub struct Credentials {
    source: Source,
    kept: Mutex<Kept>,
}

/// Creates the library's credentials, which then begin to fetch tokens.
type MakeCredentials = Box<dyn Fn() -> Result<AccessTokenCredentials, String> + Send + Sync>;

enum Source {
    Fixed(Secret),
    /// Read for each request: the file's writer decides how long a token lasts.
    File(PathBuf),
    ServiceAccount(Box<ServiceAccount>),
    /// From the library, which keeps tokens itself.
    Library(MakeCredentials),
}

#[derive(Default)]
struct Kept {
    token: Option<(Secret, Instant)>,
    library: Option<AccessTokenCredentials>,
}

impl Credentials {
    /// Google's application default credentials: the file in `GOOGLE_APPLICATION_CREDENTIALS`, or else the metadata
    /// server. Does not check whether the machine has one.
    ///
    /// # Errors
    /// If that file is invalid.
    pub fn application_default() -> Result<Self, SettingsError> {
        match std::env::var_os(CREDENTIALS_ENV).filter(|path| !path.is_empty()) {
            Some(path) => Self::credentials_file(Path::new(&path)),
            None => Ok(Self::metadata_server(None)),
        }
    }

    /// Always this token.
    ///
    /// # Errors
    /// If no header can carry it.
    pub fn fixed(token: &str) -> Result<Self, SettingsError> {
        let token = bearer(token).map_err(|reason| SettingsError(format!("the token {reason}")))?;
        Ok(Self::of(Source::Fixed(token)))
    }

    /// The file's content at the time of a request, trimmed of white space.
    pub fn token_file(path: &Path) -> Self {
        Self::of(Source::File(path.to_owned()))
    }

    /// A file as in `GOOGLE_APPLICATION_CREDENTIALS`. This module handles a service account's key itself. The library
    /// handles other kinds (workload identity federation, impersonation, a user's) and reads the variable itself.
    ///
    /// # Errors
    /// If the file can't be read, or holds no credentials.
    pub fn credentials_file(path: &Path) -> Result<Self, SettingsError> {
        let unusable = |reason: String| SettingsError(format!("credentials file `{}`: {reason}", path.display()));
        let text = regular::read(path, regular::SMALL).map_err(|error| unusable(error.to_string()))?;
        // The parser's own words could repeat a part of the key.
        let json: Value = serde_json::from_slice(&text).map_err(|_| unusable("is no JSON".to_owned()))?;
        match json.get("type").and_then(Value::as_str) {
            Some("service_account") => {
                let account = ServiceAccount::new(json).map_err(unusable)?;
                Ok(Self::of(Source::ServiceAccount(Box::new(account))))
            }
            Some(_) => Ok(Self::of(Source::Library(Box::new(by_variable)))),
            None => Err(unusable("has no `type`: it is no credentials file".to_owned())),
        }
    }

    /// The metadata server that every VM of Compute Engine has: at `endpoint` (`http://HOST`), or else at
    /// `GCE_METADATA_HOST`, or else at its fixed address.
    pub fn metadata_server(endpoint: Option<&str>) -> Self {
        let endpoint = endpoint.map(ToOwned::to_owned);
        Self::of(Source::Library(Box::new(move || metadata_server(endpoint.as_deref()))))
    }

    fn of(source: Source) -> Self {
        trueup_base::http::client::use_ring();
        Self {
            source,
            kept: Mutex::default(),
        }
    }

    /// A token for a request.
    ///
    /// # Errors
    /// One line: why there is none.
    pub(super) async fn token(&self) -> Result<Secret, String> {
        match &self.source {
            Source::Fixed(token) => Ok(token.clone()),
            Source::File(path) => {
                let text = regular::read_text(path, regular::SMALL);
                let text = text.map_err(|error| format!("the token file `{}`: {error}", path.display()))?;
                bearer(&text).map_err(|problem| format!("the token in `{}` {problem}", path.display()))
            }
            Source::ServiceAccount(account) => self.exchanged(account).await,
            Source::Library(make) => self.by_library(make).await,
        }
    }

    async fn exchanged(&self, account: &ServiceAccount) -> Result<Secret, String> {
        // Held while fetching: concurrent callers get the same token.
        let mut kept = self.kept.lock().await;
        if let Some((token, until)) = &kept.token
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        let asked = Instant::now();
        let (token, lasts) = account.fetch().await?;
        kept.token = Some((token.clone(), asked + lasts.saturating_sub(LAST)));
        Ok(token)
    }

    async fn by_library(&self, make: &MakeCredentials) -> Result<Secret, String> {
        let credentials = {
            let mut kept = self.kept.lock().await;
            match &kept.library {
                Some(credentials) => credentials.clone(),
                None => kept.library.insert(make()?).clone(),
            }
        };
        let fetched = timeout(FETCH_TIMEOUT, credentials.access_token()).await;
        let fetched = fetched.map_err(|_| format!("no token within {} s", FETCH_TIMEOUT.as_secs()))?;
        let fetched = fetched.map_err(|error| causes(&error))?;
        bearer(&fetched.token).map_err(|problem| format!("the token {problem}"))
    }

    /// Records that this token was refused: the next one must be different if possible.
    pub(super) async fn refused(&self, refused: &Secret) {
        let mut kept = self.kept.lock().await;
        if kept.token.as_ref().is_some_and(|(token, _)| token == refused) {
            kept.token = None;
        }
        // The library keeps tokens itself; only a new instance fetches again.
        kept.library = None;
    }
}

pub(super) fn bearer(text: &str) -> Result<Secret, &'static str> {
    Secret::new("Bearer", text)
}

fn by_variable() -> Result<AccessTokenCredentials, String> {
    let credentials = Builder::default().with_scopes([SCOPE]).build_access_token_credentials();
    credentials.map_err(|error| causes(&error))
}

fn metadata_server(endpoint: Option<&str>) -> Result<AccessTokenCredentials, String> {
    let mut builder = mds::Builder::default().with_scopes([SCOPE]);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let credentials = builder.build_access_token_credentials();
    credentials.map_err(|error| causes(&error))
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::Fixed(_) => "Credentials(a fixed token)",
            Source::File(_) => "Credentials(a token file)",
            Source::ServiceAccount(_) => "Credentials(a service account's key)",
            Source::Library(_) => "Credentials(application default)",
        })
    }
}
