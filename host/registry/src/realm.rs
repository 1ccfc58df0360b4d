//! Checks where a registry wants credentials sent, before any are sent.
//!
//! A registry names its token server itself (`WWW-Authenticate: Bearer realm="https://..."`), and the OCI client sends
//! a user's name and password there, wherever it is. This module accepts only a server that uses HTTPS or is on this
//! machine.

use oci_client::secrets::RegistryAuth;
use reqwest::Url;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::redirect::{Attempt, Policy};
use trueup_base::http::client::is_loopback;

use super::oci::{AGENT, CONNECT_MAX, SILENCE_MAX, causes};

/// The same limit as in the OCI client.
const REDIRECTS_MAX: usize = 10;

/// Whether these credentials reveal our identity.
pub(super) fn is_secret(auth: &RegistryAuth) -> bool {
    !matches!(auth, RegistryAuth::Anonymous)
}

/// Asks a registry, without credentials, where it wants them sent. `base`: scheme and host.
///
/// # Errors
/// If the place does not use HTTPS, or the registry does not answer.
pub(super) async fn check(base: &str, is_loopback: bool) -> Result<(), String> {
    let client = client(is_loopback).map_err(|error| causes(&error))?;
    let answer = client.get(format!("{base}/v2/")).send().await;
    let answer = answer.map_err(|error| format!("asking where to send credentials: {}", causes(&error)))?;
    match open_realm(answer.headers()) {
        None => Ok(()),
        Some(realm) => Err(format!(
            "the registry wants the credentials sent to `{realm}`, which is not HTTPS: they are not sent"
        )),
    }
}

/// A client for requests of our own. Like the OCI client, but it follows a redirect only to a safe place.
///
/// # Errors
/// If TLS can't be set up.
pub(super) fn client(is_loopback: bool) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder()
        .user_agent(AGENT)
        .connect_timeout(CONNECT_MAX)
        .read_timeout(SILENCE_MAX)
        .redirect(Policy::custom(follow));
    // Plain HTTP stays on this machine.
    let client = if is_loopback { client.no_proxy() } else { client };
    client.build()
}

fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error("too many redirects");
    }
    if is_safe(attempt.url()) {
        attempt.follow()
    } else {
        let error = format!("redirected to `{}`, which is not HTTPS", attempt.url());
        attempt.error(error)
    }
}

/// Whether no one else can listen on the connection.
fn is_safe(url: &Url) -> bool {
    // An IPv6 address is in brackets.
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// The first unsafe place in the headers. All are checked, so it does not matter which one the client uses.
fn open_realm(headers: &HeaderMap) -> Option<String> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter();
    let texts = texts.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    texts
        .flat_map(|text| realms(&text))
        // A realm that is no URL (`Basic realm="Registry"`) is no destination.
        .find(|realm| Url::parse(realm).is_ok_and(|url| !is_safe(&url)))
}

/// Each `realm="..."` or `realm=...` in a challenge.
fn realms(challenge: &str) -> Vec<String> {
    const KEY: &str = "realm";
    let lower = challenge.to_ascii_lowercase();
    let after = lower
        .match_indices(KEY)
        .filter_map(|(at, _)| challenge.get(at + KEY.len()..));
    let values = after.filter_map(|rest| rest.trim_start().strip_prefix('='));
    values.map(|value| value_of(value.trim_start())).collect()
}

/// A quoted text with its escapes removed, or a word.
fn value_of(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return text.get(..end).unwrap_or_default().to_owned();
    };
    let (mut value, mut escaped) = (String::new(), false);
    for c in quoted.chars() {
        match c {
            '"' if !escaped => break,
            '\\' if !escaped => escaped = true,
            c => {
                value.push(c);
                escaped = false;
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(challenges: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for challenge in challenges {
            headers.append(WWW_AUTHENTICATE, challenge.parse().unwrap());
        }
        open_realm(&headers)
    }

    #[test]
    fn credentials_go_by_https_or_stay_on_this_machine() {
        for safe in [
            r#"Bearer realm="https://auth.example/token",service="r""#,
            r#"Bearer realm="http://127.0.0.1:5001/token""#,
            r#"Bearer realm="http://localhost/token""#,
            r#"Bearer realm="http://[::1]:5001/token""#,
            r#"Basic realm="Registry Realm""#,
            "Basic",
        ] {
            assert_eq!(open(&[safe]), None, "{safe}");
        }
        for wrong in [
            r#"Bearer realm="http://auth.example/token",service="r""#,
            r#"bearer service="r", REALM = "http://auth.example/token""#,
            r#"Bearer realm=http://auth.example/token,service=r"#,
            r#"Bearer realm="ht\tp://auth.example/token""#,
            r#"Basic realm="Registry Realm", Bearer realm="http://auth.example/token""#,
        ] {
            assert_eq!(open(&[wrong]).as_deref(), Some("http://auth.example/token"), "{wrong}");
        }
        let both = [r#"Basic realm="Registry""#, r#"Bearer realm="http://auth.example/""#];
        assert!(open(&both).is_some(), "in whichever header");
    }
}
