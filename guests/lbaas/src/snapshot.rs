//! The guest's state as text. The guest keeps no state and asks everything anew in every call, so a snapshot only names
//! its writer.

use serde_json::Value;
use trueup_guest_common::text;

use crate::settings::VERSION;

/// The layout of the text. A later version of this guest that keeps something increments it.
const FORMAT: u64 = 1;

/// The text for `lifecycle.snapshot`.
#[must_use]
pub fn write() -> String {
    format!(r#"{{"format":{FORMAT},"guest":"lbaas","version":{VERSION}}}"#)
}

/// Accepts any text of this format, whichever version of the guest wrote it.
///
/// # Errors
/// The guest and version that wrote the text, and why it can't be read.
pub fn read(snapshot: &str) -> Result<(), String> {
    let Ok(Value::Object(members)) = serde_json::from_str(snapshot) else {
        return Err(format!(
            "snapshot: was {}, written by an unknown version, must be a JSON object of format {FORMAT}",
            text::quoted(snapshot)
        ));
    };
    let member = |name: &str| members.get(name).map_or_else(|| "unknown".to_owned(), text::json);
    let lbaas = members.get("guest").and_then(Value::as_str) == Some("lbaas");
    let format = members.get("format").and_then(Value::as_u64);
    let version = members.get("version").and_then(Value::as_u64);
    if lbaas && format == Some(FORMAT) && version.is_some() {
        return Ok(());
    }
    Err(format!(
        "snapshot: was written by guest {} version {} in format {}, must be by \"lbaas\" in format {FORMAT}, which version {VERSION} reads",
        member("guest"),
        member("version"),
        member("format"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(
            write(),
            format!(r#"{{"format":1,"guest":"lbaas","version":{VERSION}}}"#)
        );
        assert_eq!(read(&write()), Ok(()));
    }

    #[test]
    fn another_version_of_the_same_format_is_read() {
        assert_eq!(
            read(r#"{"version": 7, "guest": "lbaas", "format": 1, "later": true}"#),
            Ok(())
        );
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
            let error = read(snapshot).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
