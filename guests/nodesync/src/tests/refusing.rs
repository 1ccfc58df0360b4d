//! Snapshots that no guest restores: for the native tests of several guests.

/// Checks the errors for a snapshot of another version, and for this one, which lacks a member.
#[track_caller]
pub(crate) fn refuses(incomplete: &str, mut restore: impl FnMut(&str) -> Result<(), String>) {
    let error = "snapshot: was written by version 7, may be version 1";
    assert_eq!(restore(r#"{"version": 7}"#), Err(error.to_owned()));
    let error = restore(incomplete).unwrap_err();
    assert!(error.starts_with("snapshot: missing field"), "{error}");
}
