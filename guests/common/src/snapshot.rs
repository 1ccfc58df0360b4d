//! The version at the start of a snapshot.

use serde::Deserialize;
use serde_json::Value;

use crate::text;

/// Checks that this build can read the snapshot: a JSON object whose `version` is this one.
///
/// # Errors
/// The version that wrote it, or that it has none.
pub fn check_version(snapshot: &str, version: u64) -> Result<(), String> {
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
    let found = text::json(&found.version);
    Err(format!(
        "snapshot: was written by version {found}, may be version {version}"
    ))
}

/// The error for a snapshot of this version with invalid contents; `what` is wrong with it.
#[must_use]
pub fn misfit(what: &str, version: u64) -> String {
    format!("snapshot: {what}, may be what a snapshot of version {version} holds")
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
}
