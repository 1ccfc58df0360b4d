//! Tokens for a service account's key: a signed statement of identity, exchanged for a token at the key's URI.
//!
//! The library makes the signature. The exchange is done here, because the library sends such statements to the API
//! itself, and a company may route the exchange through `token_uri`.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use google_cloud_auth::credentials::service_account::Builder;
use google_cloud_auth::signer::Signer;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::{Value, json};
use trueup_base::clock::{Clock as _, SystemClock};
use trueup_base::fence::Fence;
use trueup_base::http::client::{Client, Times, Unread};
use trueup_base::http::secret::Secret;
use trueup_base::text::{self, causes};
use url::Url;

use super::credentials::{SCOPE, bearer};

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

/// A service account, with the key that proves it.
pub(super) struct ServiceAccount {
    signer: Signer,
    client_email: String,
    key_id: Option<String>,
    token_uri: String,
    client: Client,
}

impl ServiceAccount {
    /// From the JSON of its key.
    pub(super) fn new(mut key: Value) -> Result<Self, String> {
        trueup_base::http::client::use_ring();
        let text = |name: &str| key.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let client_email = text("client_email").ok_or("has no `client_email`")?;
        let key_id = text("private_key_id");
        let token_uri = text("token_uri").unwrap_or_else(|| TOKEN_URI_DEFAULT.to_owned());
        let url = Url::parse(&token_uri).map_err(|error| format!("its `token_uri` is no URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("its `token_uri` must begin with `http://` or `https://`".to_owned());
        }
        // The library requires these, but uses neither for a signature.
        for name in ["private_key_id", "project_id"] {
            if let Some(fields) = key.as_object_mut() {
                fields.entry(name).or_insert_with(|| json!(""));
            }
        }
        let signer = Builder::new(key).build_signer().map_err(|error| causes(&error))?;
        Ok(Self {
            signer,
            client_email,
            key_id,
            client: Client::new(&url, TIMES, &Matcher::from_env())?,
            token_uri,
        })
    }

    /// A new token, and how long it lasts.
    pub(super) async fn fetch(&self) -> Result<(Secret, Duration), String> {
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
        let sent = self.client.send(
            &always,
            Method::POST,
            &self.token_uri,
            [(CONTENT_TYPE, form_type)],
            Some(form),
        );
        let mut answer = sent.await.map_err(|trouble| failed(trouble.text(TIMES)))?;
        let body = answer.read(ANSWER_MAX_BYTES).await.map_err(|unread| match unread {
            Unread::Unusable(why) => failed(why),
            Unread::Broken(trouble) => failed(trouble.text(TIMES)),
        })?;
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !answer.status.is_success() {
            let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
            let said = format!(
                "HTTP {} {} {}",
                answer.status.as_u16(),
                text("error"),
                text("error_description")
            );
            return Err(failed(said.trim_end().to_owned()));
        }
        let token = json.get("access_token").and_then(Value::as_str);
        let token = token.ok_or_else(|| failed("the answer has no `access_token`".to_owned()))?;
        let token = bearer(token).map_err(|problem| failed(format!("the token {problem}")))?;
        let lasts_s = json
            .get("expires_in")
            .and_then(Value::as_u64)
            .unwrap_or(LASTS_S_DEFAULT);
        Ok((token, Duration::from_secs(lasts_s)))
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
