//! Small state files that are replaced whole: a reader sees the old file or the new one.
//!
//! Where a changed byte could destroy objects or leave them behind for ever, the file also carries its own checksum:
//!
//! ```text
//! {
//!   "key": "default/web",
//!   "checksum": "sha256:<of all bytes before the comma>"
//! }
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trueup_base::regular;
use trueup_base::replace::{Durable, replace_file};
use trueup_engine::Digest;

/// The checksum's key. It is the last key of a file that has one.
const CHECKSUM: &str = "checksum";

/// Replaces `file`, and creates missing parent folders.
///
/// # Errors
/// If it can't be written. The error names the file; the old file is then untouched.
pub fn replace_json(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    replace(file, &text)
}

/// Reads what [`replace_json`] wrote. `None` if the file does not exist.
///
/// # Errors
/// If it can't be read, or holds something else. The error names the file.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> io::Result<Option<T>> {
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("reading {}: {error}", file.display()));
    match regular::read(file, regular::LIST) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

/// The paths in a folder, mapped by `of`. Empty if there is no such folder.
///
/// # Errors
/// If it can't be listed.
pub(crate) fn listed<T>(folder: &Path, of: impl Fn(PathBuf) -> Option<T>) -> io::Result<Vec<T>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(of(entry?.path()));
    }
    Ok(found)
}

/// The JSON files in a folder. None if there is no such folder.
///
/// # Errors
/// If it can't be listed.
pub(crate) fn json_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    listed(folder, |file| {
        let is_json = file.extension().is_some_and(|extension| extension == "json");
        is_json.then_some(file)
    })
}

/// As [`replace_json`] for a JSON object, with its checksum.
///
/// # Errors
/// As [`replace_json`].
pub(crate) fn replace_sealed(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    let body = text.strip_suffix("\n}").unwrap_or(&text);
    replace(file, format!("{body}{}", seal(body)).as_bytes())
}

/// Reads what [`replace_sealed`] wrote. `None` if the file does not exist. A file of an older host has no checksum.
///
/// # Errors
/// One line without the file's name: it can't be read, was changed, or holds something else.
pub(crate) fn read_sealed<T: DeserializeOwned>(file: &Path) -> io::Result<Option<T>> {
    let text = match regular::read_text(file, regular::LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let mut value: Value = serde_json::from_str(&text)?;
    let sum = value.as_object_mut().and_then(|object| object.remove(CHECKSUM));
    let body = text.rfind(",\n").and_then(|end| text.get(..end));
    let is_sealed = body.is_some_and(|body| text.strip_prefix(body) == Some(&seal(body)));
    if sum.is_some() && !is_sealed {
        let what = "the checksum does not fit: the file was damaged or edited; where the rest of it is right, delete the \
                    line `checksum` and the comma before it";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Some(serde_json::from_value(value)?))
}

/// The end of the file, which follows the bytes that the checksum covers.
fn seal(body: &str) -> String {
    format!(",\n  \"{CHECKSUM}\": \"{}\"\n}}\n", Digest::of(body.as_bytes()))
}

fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    replace_file(file, text, Durable::Yes).map_err(failed("writing", file))
}

/// Removes `file`. A missing file counts as removed.
///
/// # Errors
/// If it can't be removed. The error names the file.
pub fn remove(file: &Path) -> io::Result<()> {
    trueup_base::replace::remove(file).map_err(failed("removing", file))
}

/// Adds what was tried on which file.
pub(crate) fn failed(tried: &str, file: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{tried} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_bit_of_a_sealed_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        let written = serde_json::json!({"key": "default/web", "uids": {"u1": ["lb-1"]}});
        replace_sealed(&file, &written).unwrap();
        assert_eq!(read_sealed::<Value>(&file).unwrap(), Some(written.clone()));
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                std::fs::write(&file, &changed).unwrap();
                match read_sealed::<Value>(&file) {
                    Err(_) => {}
                    // The flipped bit hit the key `checksum` itself. No reader of such a file accepts the resulting
                    // key.
                    Ok(read) => {
                        let read = read.unwrap();
                        let keys = read.as_object().unwrap().keys();
                        assert_eq!(keys.count(), 3, "{}", String::from_utf8_lossy(&changed));
                    }
                }
            }
        }
    }

    #[test]
    fn a_file_of_an_older_host_is_read_and_one_that_was_edited_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        assert_eq!(read_sealed::<Value>(&file).unwrap(), None);
        let older = serde_json::json!({"key": "default/web"});
        replace_json(&file, &older).unwrap();
        assert_eq!(read_sealed::<Value>(&file).unwrap(), Some(older.clone()));
        replace_sealed(&file, &older).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("web", "api")).unwrap();
        let error = read_sealed::<Value>(&file).unwrap_err().to_string();
        assert!(error.contains("delete the line `checksum`"), "{error}");
    }
}
