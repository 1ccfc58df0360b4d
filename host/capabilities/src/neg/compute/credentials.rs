//! The host's identity to Compute Engine: the source of tokens, and how long they are kept.
//!
//! The configuration may give a token or a file. If it gives neither, the host uses the application default
//! credentials: the file in `GOOGLE_APPLICATION_CREDENTIALS`, or else the machine's metadata server. No token is ever
//! logged or part of an error text.
//!
//! For a service account's key, the library makes the signature of a statement of identity. The exchange for a token at
//! the key's URI is done here, because the library sends such statements to the API itself, and a company may route the
//! exchange through `token_uri`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use google_cloud_auth::build_errors;
use google_cloud_auth::credentials::{AccessTokenCredentials, Builder, mds, service_account};
use google_cloud_auth::signer::Signer;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_base::http::client::{Client, Times, use_ring};
use trueup_base::http::secret::Secret;
use trueup_base::regular;
use trueup_base::text::{self, causes};
use url::Url;

use crate::remote::SettingsError;

/// The requested scope of tokens.
const SCOPE: &str = "https://www.googleapis.com/auth/compute";
/// Names the file with a service account's key, or other credentials in JSON.
pub const CREDENTIALS_ENV: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// A token is not used in its last minute: a request may be in flight that long.
const LAST: Duration = Duration::from_secs(60);
/// The timeout for fetching a token, which covers a few tries of the metadata server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The token URI for keys that don't have one.
const TOKEN_URI_DEFAULT: &str = "https://oauth2.googleapis.com/token";
/// The type of the form's content (RFC 7523).
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// How long a statement is valid; the maximum allowed.
const STATEMENT_S: u64 = 3_600;
/// How long a token lasts if the answer does not say.
const LASTS_S_DEFAULT: u64 = 3_600;
/// A token has less than 4 KiB.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

const TIMES: Times = Times {
    request: Duration::from_secs(30),
    connect: Duration::from_secs(10),
};

/// The source of tokens. Cheap to create: nothing is fetched before the first request.
pub struct Credentials {
    source: Source,
    kept: Mutex<Kept>,
}

enum Source {
    Fixed(Secret),
    /// Read for each request: the file's writer decides how long a token lasts.
    File(PathBuf),
    ServiceAccount(Box<ServiceAccount>),
    /// The library's credentials, which begin to fetch tokens once they are made, and keep them.
    Library(Box<dyn Fn() -> Made + Send + Sync>),
}

type Made = Result<AccessTokenCredentials, build_errors::Error>;

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
            Some(_) => Ok(Self::by_library(|| {
                Builder::default().with_scopes([SCOPE]).build_access_token_credentials()
            })),
            None => Err(unusable("has no `type`: it is no credentials file".to_owned())),
        }
    }

    /// The metadata server that every VM of Compute Engine has: at `endpoint` (`http://HOST`), or else at
    /// `GCE_METADATA_HOST`, or else at its fixed address.
    pub fn metadata_server(endpoint: Option<&str>) -> Self {
        let endpoint = endpoint.map(ToOwned::to_owned);
        Self::by_library(move || {
            let mut builder = mds::Builder::default().with_scopes([SCOPE]);
            if let Some(endpoint) = &endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            builder.build_access_token_credentials()
        })
    }

    fn by_library(make: impl Fn() -> Made + Send + Sync + 'static) -> Self {
        Self::of(Source::Library(Box::new(make)))
    }

    fn of(source: Source) -> Self {
        use_ring();
        let kept = Mutex::default();
        Self { source, kept }
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
            Source::Library(make) => self.fetched(make).await,
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

    async fn fetched(&self, make: impl FnOnce() -> Made) -> Result<Secret, String> {
        let credentials = {
            let mut kept = self.kept.lock().await;
            match &kept.library {
                Some(credentials) => credentials.clone(),
                None => kept.library.insert(make().map_err(|error| causes(&error))?).clone(),
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

fn bearer(text: &str) -> Result<Secret, &'static str> {
    Secret::new("Bearer", text)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// A service account, with the key that proves it.
struct ServiceAccount {
    signer: Signer,
    client_email: String,
    key_id: Option<String>,
    token_uri: String,
    client: Client,
}

impl ServiceAccount {
    /// From the JSON of its key.
    fn new(mut key: Value) -> Result<Self, String> {
        use_ring();
        let text = |name: &str| Some(key.get(name)?.as_str()?.to_owned());
        let client_email = text("client_email").ok_or("has no `client_email`")?;
        let key_id = text("private_key_id");
        let token_uri = text("token_uri").unwrap_or_else(|| TOKEN_URI_DEFAULT.to_owned());
        let url = Url::parse(&token_uri).map_err(|error| format!("its `token_uri` is no URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("its `token_uri` must begin with `http://` or `https://`".to_owned());
        }
        // The library requires these, but uses neither for a signature.
        if let Some(fields) = key.as_object_mut() {
            for name in ["private_key_id", "project_id"] {
                fields.entry(name).or_insert_with(|| json!(""));
            }
        }
        let signer = service_account::Builder::new(key).build_signer();
        Ok(Self {
            signer: signer.map_err(|error| causes(&error))?,
            client_email,
            key_id,
            client: Client::new(&url, TIMES, &Matcher::from_env())?,
            token_uri,
        })
    }

    /// A new token, and how long it lasts.
    async fn fetch(&self) -> Result<(Secret, Duration), String> {
        let statement = self.statement().await?;
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT_TYPE)
            .append_pair("assertion", &statement)
            .finish();
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let failed = |problem: String| {
            let text = format!("no token from {}: {problem}", self.token_uri);
            text::scrub(&statement, text)
        };
        // A token changes nothing: it may be fetched whether or not this host may act.
        let always = Fence::open();
        let url = &self.token_uri;
        let headers = [(CONTENT_TYPE, form_type)];
        let sent = self.client.send(&always, Method::POST, url, headers, Some(form));
        let mut answer = sent.await.map_err(|trouble| failed(trouble.text(TIMES)))?;
        let body = answer.read(ANSWER_MAX_BYTES).await;
        let body = body.map_err(|trouble| failed(trouble.text(TIMES)))?;
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !answer.status.is_success() {
            let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
            let error = text("error");
            let about = text("error_description");
            let said = format!("HTTP {} {error} {about}", answer.status.as_u16());
            return Err(failed(said.trim_end().to_owned()));
        }
        let token = json.get("access_token").and_then(Value::as_str);
        let token = token.ok_or_else(|| failed("the answer has no `access_token`".to_owned()))?;
        let token = bearer(token).map_err(|problem| failed(format!("the token {problem}")))?;
        let lasts_s = json.get("expires_in").and_then(Value::as_u64);
        Ok((token, Duration::from_secs(lasts_s.unwrap_or(LASTS_S_DEFAULT))))
    }

    /// A JSON Web Token, signed RS256.
    async fn statement(&self) -> Result<String, String> {
        let now = SystemClock.now_ms() / 1_000;
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let (Some(key_id), Some(header)) = (&self.key_id, header.as_object_mut()) {
            header.insert("kid".to_owned(), json!(key_id));
        }
        let claims = json!({
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now,
            "exp": now + STATEMENT_S,
        });
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.signer.sign(signed.as_bytes()).await;
        let signature =
            signature.map_err(|error| format!("the key of {} signs nothing: {}", self.client_email, causes(&error)))?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}
