//! Our credentials for a registry: those that `docker login` and similar tools store.
//!
//! Reads `config.json` in `$DOCKER_CONFIG`, or else in `~/.docker`: `auths`, by host, with `auth` in base64, or
//! `username` and `password`. It runs no credential helpers: if one would be needed and the registry requires
//! credentials, the error says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use super::error::NoGuest;
use trueup_base::regular;

/// The credentials for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) auth: RegistryAuth,
    /// A hint for the operator if the registry refuses access.
    pub(super) hint: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    creds_store: String,
    #[serde(default)]
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
    match file() {
        Some(file) => read(&file, host),
        None => Ok(anonymous(format!(
            "set DOCKER_CONFIG to a folder with `config.json`, and log in to {host}"
        ))),
    }
}

fn file() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".docker")))?;
    Some(folder.join("config.json"))
}

fn read(file: &Path, host: &str) -> Result<Credentials, NoGuest> {
    let shown = file.display();
    let log_in = format!("log in to {host} (`docker login`), which writes to {shown}");
    let text = match regular::read_text(file, regular::SMALL) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(anonymous(log_in)),
        Err(error) => return Err(NoGuest(format!("credentials in {shown}: can't read them: {error}"))),
    };
    let known: File = serde_json::from_str(&text)
        // The parser's message may contain a secret, so report only the position.
        .map_err(|error| {
            NoGuest(format!(
                "credentials in {shown}: not as `docker login` writes them, line {}",
                error.line()
            ))
        })?;
    let entry = known
        .auths
        .iter()
        .find(|(name, _)| host_of(name) == host)
        .map(|(_, entry)| entry);
    if let Some(auth) = entry.and_then(|entry| entry.basic()) {
        let auth = auth.map_err(|what| NoGuest(format!("credentials in {shown}: `auth` of {host} {what}")))?;
        return Ok(Credentials {
            auth,
            hint: format!("it was given the credentials in {shown}"),
        });
    }
    let helper = known
        .cred_helpers
        .get(host)
        .or(Some(&known.creds_store))
        .filter(|helper| !helper.is_empty());
    Ok(anonymous(match helper {
        Some(helper) => format!(
            "{shown} keeps credentials in the helper `{helper}`, which trueup does not run: put `auth` of {host} into the `config.json` of a folder of your own, and name the folder in DOCKER_CONFIG"
        ),
        None => log_in,
    }))
}

fn anonymous(hint: String) -> Credentials {
    Credentials {
        auth: RegistryAuth::Anonymous,
        hint,
    }
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
        let decoded = STANDARD
            .decode(self.auth.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let parts = decoded.as_deref().and_then(|text| text.split_once(':'));
        Some(match parts {
            Some((user, password)) => Ok(RegistryAuth::Basic(user.to_owned(), password.to_owned())),
            None => Err("is no base64 of `USER:PASSWORD`"),
        })
    }
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
}
