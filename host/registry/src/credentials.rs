//! Our credentials for a registry: those that `docker login` and similar tools store.
//!
//! Reads `config.json` in `$DOCKER_CONFIG`, or else in `~/.docker`: `auths`, by host, with `auth` in base64, or
//! `username` and `password`. It runs no credential helpers: if one would be needed and the registry requires
//! credentials, the error says so.
//!
//! This module also checks where a registry wants credentials sent, before any are sent. A registry names its token
//! server itself (`WWW-Authenticate: Bearer realm="https://..."`), and the OCI client sends a user's name and password
//! there, wherever it is. This module accepts only a server that uses HTTPS or is on this machine.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use reqwest::Url;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::redirect::{Attempt, Policy};
use serde::Deserialize;
use trueup_base::http::client::is_loopback;
use trueup_base::regular;

use super::oci::{AGENT, CONNECT_MAX, SILENCE_MAX, causes};
use super::store::NoGuest;

/// The credentials for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) auth: RegistryAuth,
    /// A hint for the operator if the registry refuses access.
    pub(super) hint: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    auths: BTreeMap<String, Entry>,
    creds_store: String,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
}

/// Looks up a host in the current user's file.
///
/// # Errors
/// One line: what is wrong with the file.
pub(super) fn of(host: &str) -> Result<Credentials, NoGuest> {
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    match folder.or_else(|| Some(std::env::home_dir()?.join(".docker"))) {
        Some(folder) => read(&folder.join("config.json"), host),
        None => Ok(anonymous(format!(
            "set DOCKER_CONFIG to a folder with `config.json`, and log in to {host}"
        ))),
    }
}

fn read(file: &Path, host: &str) -> Result<Credentials, NoGuest> {
    let shown = file.display();
    let log_in = format!("log in to {host} (`docker login`), which writes to {shown}");
    let text = match regular::read_text(file, regular::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(anonymous(log_in)),
        Err(error) => return Err(NoGuest(format!("credentials in {shown}: can't read them: {error}"))),
    };
    let known: File = serde_json::from_str(&text).map_err(|error| {
        // The parser's message may contain a secret, so report only the position.
        let line = error.line();
        NoGuest(format!(
            "credentials in {shown}: not as `docker login` writes them, line {line}"
        ))
    })?;
    let entry = known.auths.iter().find(|(name, _)| host_of(name) == host);
    if let Some(auth) = entry.and_then(|(_, entry)| entry.basic()) {
        return Ok(Credentials {
            auth: auth.map_err(|what| NoGuest(format!("credentials in {shown}: `auth` of {host} {what}")))?,
            hint: format!("it was given the credentials in {shown}"),
        });
    }
    let helper = known.cred_helpers.get(host).unwrap_or(&known.creds_store);
    if helper.is_empty() {
        return Ok(anonymous(log_in));
    }
    Ok(anonymous(format!(
        "{shown} keeps credentials in the helper `{helper}`, which trueup does not run: put `auth` of {host} into the \
         `config.json` of a folder of your own, and name the folder in DOCKER_CONFIG"
    )))
}

fn anonymous(hint: String) -> Credentials {
    let auth = RegistryAuth::Anonymous;
    Credentials { auth, hint }
}

/// `https://host/v1/`, which older tools wrote, and `host`.
fn host_of(name: &str) -> &str {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    name.split('/').next().unwrap_or(name)
}

impl Entry {
    /// `None` if the entry is empty, as with a credential helper.
    fn basic(&self) -> Option<Result<RegistryAuth, &'static str>> {
        if self.auth.is_empty() {
            let given = !self.username.is_empty();
            return given.then(|| Ok(RegistryAuth::Basic(self.username.clone(), self.password.clone())));
        }
        let decoded = STANDARD.decode(self.auth.trim()).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        Some(match decoded.as_deref().and_then(|text| text.split_once(':')) {
            Some((user, password)) => Ok(RegistryAuth::Basic(user.to_owned(), password.to_owned())),
            None => Err("is no base64 of `USER:PASSWORD`"),
        })
    }
}

/// The same limit as in the OCI client.
const REDIRECTS_MAX: usize = 10;

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
        return attempt.follow();
    }
    let error = format!("redirected to `{}`, which is not HTTPS", attempt.url());
    attempt.error(error)
}

/// Whether no one else can listen on the connection.
fn is_safe(url: &Url) -> bool {
    // An IPv6 address is in brackets.
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// The first unsafe place in the headers. All are checked, so it does not matter which one the client uses.
fn open_realm(headers: &HeaderMap) -> Option<String> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut realms = texts.flat_map(|value| realms(&String::from_utf8_lossy(value.as_bytes())));
    // A realm that is no URL (`Basic realm="Registry"`) is no destination.
    realms.find(|realm| Url::parse(realm).is_ok_and(|url| !is_safe(&url)))
}

/// Each `realm="..."` or `realm=...` in a challenge.
fn realms(challenge: &str) -> Vec<String> {
    const KEY: &str = "realm";
    let lower = challenge.to_ascii_lowercase();
    let keys = lower.match_indices(KEY);
    let after = keys.filter_map(|(at, _)| challenge.get(at + KEY.len()..));
    let values = after.filter_map(|rest| rest.trim_start().strip_prefix('='));
    values.map(|value| value_of(value.trim_start())).collect()
}

/// A quoted text with its escapes removed, or a word.
fn value_of(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split([',', ' ', '\t']).next().unwrap_or_default().to_owned();
    };
    let mut rest = quoted.chars();
    let unescaped = iter::from_fn(|| match rest.next()? {
        '"' => None,
        '\\' => rest.next(),
        c => Some(c),
    });
    unescaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, host: &str) -> Result<Credentials, NoGuest> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        std::fs::write(&file, text).unwrap();
        read(&file, host)
    }

    #[test]
    fn credentials_are_those_of_the_host_alone() {
        let me = RegistryAuth::Basic("me".to_owned(), "pass:word".to_owned());
        let auth = STANDARD.encode("me:pass:word");
        for (text, host, auth) in [
            (
                format!(r#"{{"auths":{{"a.example:5000":{{"auth":"{auth}"}}}}}}"#),
                "a.example:5000",
                &me,
            ),
            (
                format!(r#"{{"auths":{{"https://a.example/v1/":{{"auth":"{auth}"}}}}}}"#),
                "a.example",
                &me,
            ),
            (
                r#"{"auths":{"a.example":{"username":"me","password":"pass:word"}}}"#.to_owned(),
                "a.example",
                &me,
            ),
            (
                format!(r#"{{"auths":{{"a.example":{{"auth":"{auth}"}}}}}}"#),
                "b.example",
                &RegistryAuth::Anonymous,
            ),
            ("{}".to_owned(), "a.example", &RegistryAuth::Anonymous),
        ] {
            assert_eq!(&found(&text, host).unwrap().auth, auth, "{text}");
        }
        let nowhere = read(Path::new("/nowhere/config.json"), "a.example").unwrap();
        assert_eq!(nowhere.auth, RegistryAuth::Anonymous);
        assert!(nowhere.hint.contains("docker login"));
    }

    #[test]
    fn a_helper_is_named_and_not_run() {
        for text in [
            r#"{"auths":{"a.example":{}},"credsStore":"desktop"}"#,
            r#"{"credHelpers":{"a.example":"desktop"}}"#,
        ] {
            let found = found(text, "a.example").unwrap();
            assert_eq!(found.auth, RegistryAuth::Anonymous);
            assert!(
                found.hint.contains("the helper `desktop`, which trueup does not run"),
                "{}",
                found.hint
            );
        }
    }

    #[test]
    fn a_file_that_is_none_is_one_line_that_shows_no_secret() {
        for text in [
            "pa55word",
            r#"{"auths":{"a.example":{"auth":"pa55word"}}}"#,
            r#"{"auths":["pa55word"]}"#,
        ] {
            let error = found(text, "a.example").unwrap_err().to_string();
            assert!(
                error.starts_with("credentials in ") && !error.contains("pa55"),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1);
        }
    }

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
