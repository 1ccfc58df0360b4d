//! `trueup.lock`: the bytes that each reference of a configuration meant when an operator last locked it.
//!
//! This module reads, checks and writes the file. `local.rs` decides what must be in it, and what a difference means.
//!
//! ```text
//! version = 1
//!
//! [[guest]]
//! use = "oci:registry.example/lbaas:2"
//! digest = "sha256:..."             of the guest's bytes
//! manifest = "sha256:..."           of the registry's manifest; for OCI alone
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::store::{NoGuest, is_digest, one_line, write_whole};
use trueup_base::{regular, text};

/// The file's name, beside the configuration.
pub const FILE_NAME: &str = "trueup.lock";

/// The format that this version reads and writes.
const VERSION: u64 = 1;

/// An entry has 300 bytes, and a configuration a handful of guests. A larger file is the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The meaning of each reference, by its text in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// By `use`.
    pub pins: BTreeMap<String, Pin>,
}

/// The meaning of one reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// The digest of the guest's bytes.
    pub digest: String,
    /// The digest of the registry's manifest. `None` if the guest is not from a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
}

/// How a new lock differs for one reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The reference.
    #[serde(rename = "use")]
    pub reference: String,
    /// The kind of the change.
    pub change: Kind,
    /// The new meaning. `None` if the reference was removed.
    #[serde(flatten)]
    pub pin: Option<Pin>,
    /// The old meaning, if it was different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Pin>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was not pinned before.
    Added,
    /// It has a new meaning.
    Moved,
    /// It has the same meaning.
    Unchanged,
    /// The configuration no longer contains it.
    Removed,
}

/// Parsed first, to distinguish a file of a later version from a damaged one.
#[derive(Deserialize)]
struct Head {
    version: Option<Spanned<toml::Value>>,
    guest: Option<Spanned<toml::Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[expect(dead_code, reason = "was looked at already")]
    version: u64,
    #[serde(default)]
    guest: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    r#use: Spanned<String>,
    digest: Spanned<String>,
    manifest: Option<Spanned<String>>,
}

impl Lock {
    /// The lock in a folder. Empty if the file does not exist.
    ///
    /// # Errors
    /// One line: the file, the line, and what is wrong there.
    pub fn load(folder: &Path) -> Result<Self, NoGuest> {
        let file = folder.join(FILE_NAME);
        let wrong = |what: String| NoGuest(format!("{}: {what}", file.display()));
        let content = match regular::read_text(&file, FILE_BYTES_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                return Err(wrong(format!("longer than {FILE_BYTES_MAX} bytes, so no lock file")));
            }
            Err(error) => return Err(wrong(format!("can't read the lock file: {}", text::cause(&error)))),
        };
        Self::parse(&content).map_err(|(offset, what)| {
            let line = 1 + content.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            let next = "delete the file and run `trueup guest lock` to write it anew";
            NoGuest(format!("{}:{line}: {what}; {next}", file.display()))
        })
    }

    /// An error contains the offset in bytes and a message.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let syntax = |error: toml::de::Error| (error.span().unwrap_or_default().start, one_line(error.message()));
        let head: Head = toml::from_str(text).map_err(|error| {
            let (at, what) = syntax(error);
            (at, format!("not TOML: {what}"))
        })?;
        match &head.version {
            None => return Err((0, format!("no `version`, must begin with `version = {VERSION}`"))),
            Some(version) if version.get_ref().as_integer() != Some(VERSION.cast_signed()) => {
                let shown = one_line(&version.get_ref().to_string());
                let what = format!("version: was {shown}, must be {VERSION}, the one that this trueup reads");
                return Err((version.span().start, what));
            }
            Some(_) => {}
        }
        if let Some(guest) = head.guest.filter(|guest| !guest.get_ref().is_array()) {
            let what = "guest: must be a list, each of it under `[[guest]]`".to_owned();
            return Err((guest.span().start, what));
        }
        let document: Document = toml::from_str(text).map_err(syntax)?;
        let mut pins = BTreeMap::new();
        for entry in document.guest {
            let at = entry.r#use.span().start;
            let (reference, pin) = entry.checked()?;
            let twice = format!("`{reference}` is here twice");
            if pins.insert(reference, pin).is_some() {
                return Err((at, twice));
            }
        }
        Ok(Self { pins })
    }

    /// Writes the lock into a folder, completely or not at all. Leaves an identical file unchanged.
    ///
    /// # Errors
    /// One line: which file cannot be written, and why.
    pub fn write(&self, folder: &Path) -> Result<(), NoGuest> {
        let file = folder.join(FILE_NAME);
        let text = self.to_string();
        if regular::read(&file, FILE_BYTES_MAX).is_ok_and(|there| there == text.as_bytes()) {
            return Ok(());
        }
        let written = write_whole(&file, text.as_bytes());
        written.map_err(|error| NoGuest(format!("can't write the lock file {}: {error}", file.display())))
    }

    /// The differences by reference, including unchanged references.
    pub fn changes_since(&self, before: &Self) -> Vec<Change> {
        let references: BTreeSet<&String> = before.pins.keys().chain(self.pins.keys()).collect();
        let change = |reference: &String| {
            let (old, new) = (before.pins.get(reference), self.pins.get(reference));
            let kind = match (old, new) {
                (None, _) => Kind::Added,
                (_, None) => Kind::Removed,
                (old, new) if old == new => Kind::Unchanged,
                _ => Kind::Moved,
            };
            Change {
                reference: reference.clone(),
                change: kind,
                pin: new.cloned(),
                before: old.filter(|_| kind != Kind::Unchanged).cloned(),
            }
        };
        references.into_iter().map(change).collect()
    }
}

impl std::fmt::Display for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("# Written by `trueup guest lock`, which says what changed. Keep it beside the configuration.\n")?;
        writeln!(f, "version = {VERSION}")?;
        let quoted = |text: &str| toml::Value::from(text).to_string();
        for (reference, pin) in &self.pins {
            writeln!(f, "\n[[guest]]\nuse = {}", quoted(reference))?;
            writeln!(f, "digest = {}", quoted(&pin.digest))?;
            if let Some(manifest) = &pin.manifest {
                writeln!(f, "manifest = {}", quoted(manifest))?;
            }
        }
        Ok(())
    }
}

impl Entry {
    fn checked(self) -> Result<(String, Pin), (usize, String)> {
        let digest = |key: &str, text: &Spanned<String>| {
            if is_digest(text.get_ref()) {
                return Ok(text.get_ref().clone());
            }
            let shown = toml::Value::from(text.get_ref().as_str()).to_string();
            let what = format!("{key}: was {shown}, must be `sha256:` and 64 lower-case hexadecimal digits");
            Err((text.span().start, one_line(&what)))
        };
        let wrong = |what: &str| Err((self.r#use.span().start, format!("use: {what}")));
        match (self.r#use.get_ref().split_once(':'), &self.manifest) {
            (Some(("oci", _)), None) => return wrong("a guest from a registry needs `manifest` too"),
            (Some(("file", _)), Some(_)) => return wrong("only a guest from a registry has a `manifest`"),
            (Some(("oci" | "file", _)), _) => {}
            _ => return wrong("must begin with `file:` or `oci:`; others are not pinned"),
        }
        let manifest = self.manifest.as_ref().map(|text| digest("manifest", text));
        let pin = Pin {
            digest: digest("digest", &self.digest)?,
            manifest: manifest.transpose()?,
        };
        Ok((self.r#use.into_inner(), pin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(digit: &str, manifest: Option<&str>) -> Pin {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        Pin {
            digest: digest(digit),
            manifest: manifest.map(digest),
        }
    }

    fn lock<const N: usize>(pins: [(&str, Pin); N]) -> Lock {
        Lock {
            pins: pins.map(|(reference, pin)| (reference.to_owned(), pin)).into(),
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            Lock::load(folder.path()).unwrap(),
            Lock::default(),
            "no file is an empty lock"
        );
        let lock = lock([
            ("oci:registry.example/lbaas:2", pin("a", Some("b"))),
            ("file:a \"quoted\" na\\me.wasm", pin("c", None)),
        ]);
        lock.write(folder.path()).unwrap();
        assert_eq!(Lock::load(folder.path()).unwrap(), lock);
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        assert!(
            text.find("file:a").unwrap() < text.find("oci:registry").unwrap(),
            "sorted: {text}"
        );
        let written = std::fs::metadata(folder.path().join(FILE_NAME)).unwrap();
        lock.write(folder.path()).unwrap();
        let again = std::fs::metadata(folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(
            std::os::unix::fs::MetadataExt::ino(&written),
            std::os::unix::fs::MetadataExt::ino(&again)
        );
    }

    #[test]
    fn each_mistake_is_one_line_with_file_and_line_number() {
        let good = format!("digest = \"sha256:{}\"\n", "a".repeat(64));
        let manifest = good.replace("digest", "manifest");
        let entry = |text: &str| format!("version = 1\n\n[[guest]]\n{text}");
        for (text, line, said) in [
            (String::new(), 1, "no `version`"),
            ("version = 2\nnew_key = 1\n".to_owned(), 1, "version: was 2, must be 1"),
            ("\nversion = \"1\"\n".to_owned(), 2, "version: was \"1\", must be 1"),
            ("version = 1\nversoin = 1\n".to_owned(), 2, "unknown field `versoin`"),
            ("version = 1\n<<<<<<< HEAD\n".to_owned(), 2, "not TOML"),
            ("version = 1\n[guest]\n".to_owned(), 2, "must be a list"),
            (entry("use = \"file:a\"\n"), 3, "missing field `digest`"),
            (entry(&good), 3, "missing field `use`"),
            (
                entry(&format!("use = \"file:a\"\n{good}size = 1\n")),
                6,
                "unknown field `size`",
            ),
            (
                entry("use = \"file:a\"\ndigest = \"sha256:12\"\n"),
                5,
                "digest: was \"sha256:12\", must be",
            ),
            (
                entry(&format!("use = \"file:a\"\n{good}{manifest}")),
                4,
                "only a guest from a registry",
            ),
            (
                entry(&format!("use = \"oci:a.b/c:1\"\n{good}")),
                4,
                "needs `manifest` too",
            ),
            (
                entry(&format!("use = \"oci:a.b/c:1\"\n{good}manifest = \"\"\n")),
                6,
                "manifest: was \"\"",
            ),
            (
                entry(&format!("use = \"builtin:lbaas@1\"\n{good}")),
                4,
                "must begin with",
            ),
            (
                entry(&format!("use = \"file:a\"\n{good}[[guest]]\nuse = \"file:a\"\n{good}")),
                7,
                "`file:a` is here twice",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE_NAME), &text).unwrap();
            let error = Lock::load(folder.path()).unwrap_err().to_string();
            let place = format!("{}:{line}: ", folder.path().join(FILE_NAME).display());
            assert!(error.starts_with(&place) && error.contains(said), "{text}\n{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn every_reference_is_said_to_be_new_moved_gone_or_as_it_was() {
        let before = lock([
            ("file:gone", pin("1", None)),
            ("file:same", pin("2", None)),
            ("oci:a.b/c:1", pin("3", Some("4"))),
        ]);
        let after = lock([
            ("file:new", pin("5", None)),
            ("file:same", pin("2", None)),
            ("oci:a.b/c:1", pin("3", Some("6"))),
        ]);
        let changes = after.changes_since(&before);
        let told: Vec<(&str, Kind)> = changes
            .iter()
            .map(|change| (change.reference.as_str(), change.change))
            .collect();
        assert_eq!(
            told,
            [
                ("file:gone", Kind::Removed),
                ("file:new", Kind::Added),
                ("file:same", Kind::Unchanged),
                ("oci:a.b/c:1", Kind::Moved),
            ]
        );
        assert_eq!(changes.last().unwrap().before, Some(pin("3", Some("4"))));
    }
}
