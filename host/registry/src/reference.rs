//! References to guests: by name, by file, or by place in a registry.
//!
//! This module only parses text: loading the guest checks whether it exists.
//!
//! ```text
//! builtin:lbaas@2 · lbaas@2        one that ships
//! file:PATH · PATH                 a file; a folder of versions, the newest; FOLDER@VERSION, that one
//! oci:HOST/REPO:TAG                what the tag means there
//! oci:HOST/REPO@sha256:...         the manifest of that digest
//! ```

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::store::{NoGuest, is_digest};

/// What a reference in a configuration must be.
pub const MUST: &str = "must be `builtin:NAME@VERSION`, `file:PATH` or `oci:HOST/REPO:TAG`";

/// A reference to a guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A built-in guest: name and version.
    Builtin {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// A file: a component, or a core module with wit-bindgen's type section. Or a folder of versions: the newest of
    /// them, or with `@VERSION` after its name that version.
    File(PathBuf),
    /// In an OCI registry.
    Oci(OciReference),
}

/// A guest in an OCI registry, by tag, by digest, or by both: then the digest decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OciReference {
    /// The host, with a port if given.
    pub host: String,
    /// The repository there.
    pub repository: String,
    /// A name that may mean another guest tomorrow.
    pub tag: Option<String>,
    /// The digest of the manifest, so always the same guest.
    pub digest: Option<String>,
}

impl Reference {
    /// `lbaas` or `lbaas@2`. A bare name always means version 1.
    pub fn builtin(text: &str) -> Self {
        let (name, version) = text.split_once('@').unwrap_or((text, "1"));
        Self::Builtin {
            name: name.to_owned(),
            version: version.to_owned(),
        }
    }

    /// Parses what an operator types: any form of the configuration. Without `builtin:` and `file:` it is a name, or a
    /// path if it contains a `/`, ends in `.wasm` or `.wat`, or exists. A relative path is relative to `folder`.
    ///
    /// # Errors
    /// One line: what the text must be.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, NoGuest> {
        let is_path = |text: &str| looks_like_path(text) || folder.join(text).is_file();
        let wrong = |must: String| NoGuest(format!("`{text}` {must}"));
        match text.split_once(':') {
            Some(("builtin", name)) if !name.is_empty() => Ok(Self::builtin(name)),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(folder.join(path))),
            Some(("oci", rest)) => OciReference::parse(rest).map(Self::Oci).map_err(wrong),
            Some(("builtin" | "file", _)) | None if text.is_empty() || text.ends_with(':') => Err(wrong(
                "names no guest, must be `NAME@VERSION`, a file, or `oci:HOST/REPO:TAG`".to_owned(),
            )),
            _ if is_path(text) => Ok(Self::File(folder.join(text))),
            _ => Ok(Self::builtin(text)),
        }
    }

    /// Parses what a configuration holds: `builtin:NAME[@VERSION]`, `file:PATH` or `oci:...`. A relative path is
    /// relative to `folder`.
    ///
    /// # Errors
    /// What the text must be.
    pub fn configured(text: &str, folder: &Path) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("builtin", rest)) => {
                let (name, version) = rest.split_once('@').unwrap_or((rest, "1"));
                let version = version.parse::<u32>().ok().filter(|version| *version > 0);
                match version {
                    Some(version) if is_name(name) => Ok(Self::builtin(&format!("{name}@{version}"))),
                    _ => Err("must be `builtin:NAME@VERSION`, the version a whole number from 1".to_owned()),
                }
            }
            Some(("file", "")) => Err("must be `file:PATH`".to_owned()),
            Some(("file", path)) => Ok(Self::File(folder.join(path))),
            Some(("oci", rest)) => OciReference::parse(rest).map(Self::Oci),
            None if looks_like_path(text) => Err(format!("must say what it is: `file:{text}`")),
            None if is_name(text.split('@').next().unwrap_or_default()) => {
                Err(format!("must say what it is: `builtin:{text}`, or `file:{text}`"))
            }
            _ => Err(MUST.to_owned()),
        }
    }
}

fn looks_like_path(text: &str) -> bool {
    text.contains('/') || text.ends_with(".wasm") || text.ends_with(".wat")
}

/// The rules for crate names, since a built-in guest is a crate.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin { name, version } => write!(f, "builtin:{name}@{version}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Oci(reference) => write!(f, "oci:{reference}"),
        }
    }
}

impl OciReference {
    /// Reads `HOST/REPO:TAG` or `HOST/REPO@sha256:...`. There are no defaults: a missing host or tag is more often a
    /// mistake than intended.
    ///
    /// # Errors
    /// What the text must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let must = "must be `oci:HOST/REPO:TAG` or `oci:HOST/REPO@sha256:DIGEST`";
        let (host, rest) = text.split_once('/').ok_or(must)?;
        if !(host == "localhost" || host.contains(['.', ':'])) {
            let host = "a host such as `registry.example` or `localhost:5000`";
            return Err(format!("{must}, with {host}"));
        }
        if !rest.contains([':', '@']) {
            return Err(format!("{must}: it has neither tag nor digest"));
        }
        if rest.split_once('@').is_some_and(|(_, digest)| !is_digest(digest)) {
            return Err(format!("{must}, the digest in 64 lower-case hexadecimal digits"));
        }
        #[cfg(not(feature = "oci"))]
        return Err("this trueup is built without registries (cargo feature `oci`)".to_owned());
        #[cfg(feature = "oci")]
        {
            let parsed = oci_client::Reference::try_from(text).map_err(|error| format!("{must}: {error}"))?;
            Ok(Self {
                host: parsed.registry().to_owned(),
                repository: parsed.repository().to_owned(),
                tag: parsed.tag().map(str::to_owned),
                digest: parsed.digest().map(str::to_owned),
            })
        }
    }

    /// The same place with the digest of a manifest.
    pub fn at_digest(&self, digest: &str) -> Self {
        Self {
            tag: None,
            digest: Some(digest.to_owned()),
            ..self.clone()
        }
    }

    /// Whether the registry is on this machine: then plain HTTP is safe.
    #[cfg_attr(not(feature = "oci"), expect(dead_code, reason = "no registry is spoken to"))]
    pub(super) fn is_loopback(&self) -> bool {
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_types_is_a_name_a_path_or_a_place_in_a_registry() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there"), "").unwrap();
        let at = |name: &str| format!("file:{}", folder.path().join(name).display());
        for (typed, meant) in [
            ("lbaas", "builtin:lbaas@1".to_owned()),
            ("lbaas@2", "builtin:lbaas@2".to_owned()),
            ("builtin:lbaas@2", "builtin:lbaas@2".to_owned()),
            ("there", at("there")),
            ("not-there.wasm", at("not-there.wasm")),
            ("guests/", at("guests/")),
            ("file:not-there", at("not-there")),
            ("file:guests@2", at("guests@2")),
            ("file:/opt/a:b", "file:/opt/a:b".to_owned()),
            ("oci:localhost:5000/a/b:1.0", "oci:localhost:5000/a/b:1.0".to_owned()),
        ] {
            let reference = Reference::parse(typed, folder.path()).unwrap();
            assert_eq!(reference.to_string(), meant, "{typed}");
        }
        for wrong in ["", "builtin:", "file:", "oci:", "oci:lbaas:1"] {
            assert!(Reference::parse(wrong, folder.path()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_in_a_registry_says_everything_itself() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for good in [
            "registry.example/lbaas:2".to_owned(),
            "localhost/lbaas:2".to_owned(),
            format!("127.0.0.1:5000/team/lbaas@{digest}"),
            format!("registry.example/lbaas:2@{digest}"),
        ] {
            assert_eq!(OciReference::parse(&good).unwrap().to_string(), good);
        }
        for (wrong, said) in [
            ("lbaas:2", "must be `oci:HOST/REPO:TAG`"),
            ("team/lbaas:2", "with a host such as"),
            ("registry.example/lbaas", "neither tag nor digest"),
            ("localhost:5000/lbaas", "neither tag nor digest"),
            ("registry.example/Lbaas:2", "invalid reference format"),
            ("registry.example/lbaas@sha256:12", "must be `oci:HOST/REPO:TAG`"),
            (
                &format!("registry.example/lbaas@sha256:{}", "0A".repeat(32)),
                "lower-case",
            ),
            (
                &format!("registry.example/lbaas@sha512:{}", "0a".repeat(64)),
                "lower-case",
            ),
        ] {
            let error = OciReference::parse(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn only_this_machine_is_spoken_to_without_tls() {
        let is_loopback = |text: &str| OciReference::parse(text).unwrap().is_loopback();
        assert!(is_loopback("localhost/a:1") && is_loopback("127.0.0.1:5000/a:1") && is_loopback("127.1.2.3/a:1"));
        assert!(!is_loopback("localhost.example/a:1") && !is_loopback("10.0.0.1:5000/a:1"));
    }
}
