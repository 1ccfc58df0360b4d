//! Snapshots: a JSON object that holds the state and the version that wrote it, or the writer alone if there is no
//! state.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// The text of a snapshot, whose member `version` is the version of its contents.
pub fn write(snapshot: &impl Serialize) -> String {
    // Texts, numbers and lists: JSON can represent all of them.
    serde_json::to_string(snapshot).unwrap_or_default()
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// The version that wrote it if it is not this one, or what is wrong with it.
pub fn read<T: DeserializeOwned>(snapshot: &str, version: u64) -> Result<T, String> {
    check_version(snapshot, version)?;
    serde_json::from_str(snapshot).map_err(|error| {
        let text = error.to_string();
        // A snapshot is one line, so its column is of no use: the error names the member or the value.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let what = text.strip_suffix(&place).unwrap_or(&text);
        format!("snapshot: {what}, may be what a snapshot of version {version} holds")
    })
}

/// The format of a snapshot without state.
const STATELESS_FORMAT: u64 = 1;

/// The snapshot of a guest that keeps no state.
pub fn write_stateless(guest: &str, version: u32) -> String {
    let guest = text::quoted(guest);
    format!(r#"{{"format":{STATELESS_FORMAT},"guest":{guest},"version":{version}}}"#)
}

/// Accepts what any version of the guest wrote with [`write_stateless`].
///
/// # Errors
/// The guest and version that wrote the snapshot, and why this version can't read it.
pub fn read_stateless(snapshot: &str, guest: &str, version: u32) -> Result<(), String> {
    let Ok(Value::Object(members)) = serde_json::from_str(snapshot) else {
        return Err(format!(
            "snapshot: was {}, written by an unknown version, must be a JSON object of format {STATELESS_FORMAT}",
            text::quoted(snapshot)
        ));
    };
    let is_own = members.get("guest").and_then(Value::as_str) == Some(guest);
    let format = members.get("format").and_then(Value::as_u64);
    let has_version = members.get("version").is_some_and(Value::is_u64);
    if is_own && format == Some(STATELESS_FORMAT) && has_version {
        return Ok(());
    }
    let member = |name: &str| members.get(name).map_or_else(|| "unknown".to_owned(), Value::to_string);
    Err(format!(
        "snapshot: was written by guest {} version {} in format {}, must be by {} in format {STATELESS_FORMAT}, which \
         version {version} reads",
        member("guest"),
        member("version"),
        member("format"),
        text::quoted(guest),
    ))
}

/// Checks that this build can read the snapshot: a JSON object whose `version` is this one.
fn check_version(snapshot: &str, version: u64) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: Value,
    }
    // serde would accept a list for an object, too.
    let is_object = snapshot.trim_start().starts_with('{');
    let Some(found) = serde_json::from_str::<Versioned>(snapshot).ok().filter(|_| is_object) else {
        return Err(format!(
            "snapshot: has no version, may be a snapshot of version {version}"
        ));
    };
    if found.version.as_u64() == Some(version) {
        return Ok(());
    }
    Err(format!(
        "snapshot: was written by version {}, may be version {version}",
        found.version
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_of_this_version_is_read() {
        assert_eq!(check_version(r#" {"more": [1], "version": 2}"#, 2), Ok(()));
        for none in ["", "{", "[2]", "2", "null", r#"{"more": 2}"#] {
            let error = check_version(none, 2).unwrap_err();
            assert_eq!(
                error, "snapshot: has no version, may be a snapshot of version 2",
                "{none}"
            );
        }
        for (other, written) in [("1", "1"), ("\"2\"", "\"2\""), ("2.5", "2.5"), ("null", "null")] {
            let error = check_version(&format!(r#"{{"version": {other}}}"#), 2).unwrap_err();
            assert_eq!(
                error,
                format!("snapshot: was written by version {written}, may be version 2")
            );
        }
    }

    #[test]
    fn a_snapshot_without_state_names_its_writer() {
        assert_eq!(
            write_stateless("lbaas", 1),
            r#"{"format":1,"guest":"lbaas","version":1}"#
        );
        assert_eq!(read_stateless(&write_stateless("lbaas", 1), "lbaas", 2), Ok(()));
        let later = r#"{"version": 7, "guest": "lbaas", "format": 1, "later": true}"#;
        assert_eq!(read_stateless(later, "lbaas", 1), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_version_that_wrote_the_snapshot() {
        for (snapshot, part) in [
            (
                r#"{"format":2,"guest":"lbaas","version":9}"#,
                r#"guest "lbaas" version 9 in format 2"#,
            ),
            (
                r#"{"format":1,"guest":"neg","version":3}"#,
                r#"guest "neg" version 3 in format 1"#,
            ),
            (
                r#"{"format":1,"guest":"lbaas"}"#,
                r#"guest "lbaas" version unknown in format 1"#,
            ),
            ("[]", "written by an unknown version"),
            ("", "written by an unknown version"),
        ] {
            let error = read_stateless(snapshot, "lbaas", 1).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
