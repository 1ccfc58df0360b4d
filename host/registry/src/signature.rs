//! Checks that a guest was signed with a key in the configuration: signatures in the format of cosign with a key pair.
//!
//! ECDSA on P-256 with SHA-256, public keys as PEM, signatures in base64 of DER. `ring` does the mathematics;
//! this module knows what is signed and with which key. It fetches nothing, and ignores certificates,
//! transparency logs and time: a key is trusted as long as the configuration names it.
//!
//! ```text
//! a file's bytes                    <- FILE.sig                       (`cosign sign-blob`)
//! payload that names a manifest     <- annotation of the layer        (`cosign sign`)
//! ```

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::OciReference;
use super::store::NoGuest;
use trueup_base::regular;

/// A PEM file of a key has 200 bytes, a signature 100. A larger file is the wrong file.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;

/// How the DER of each P-256 public key begins: `SubjectPublicKeyInfo` with the object identifiers of RFC 5480. The
/// point of 65 bytes follows, uncompressed.
const P256_KEY_HEADER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A public key: a point of the curve.
type Key = UnparsedPublicKey<Vec<u8>>;

/// The required `critical.type` of a payload.
const PAYLOAD_TYPE: &str = "cosign container image signature";

/// The required signatures of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verify {
    /// Files of public keys, any of which may have signed. Empty: no signature is required.
    pub keys: Vec<PathBuf>,
}

impl Verify {
    /// Checks the files. A guest that ships with the host needs none of them, but a guest that replaces it does.
    ///
    /// # Errors
    /// One line: which file is no valid key.
    pub fn check(&self) -> Result<(), NoGuest> {
        Keys::read(&self.keys).map(drop)
    }
}

/// The trusted keys.
#[derive(Debug)]
pub(super) struct Keys(Vec<(PathBuf, Key)>);

/// A signature of a manifest, from a registry or the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signed {
    /// The signed text: base64 of JSON that names the manifest.
    pub(super) payload: String,
    /// Base64 of DER.
    pub(super) signature: String,
}

impl Keys {
    /// Reads public keys.
    ///
    /// # Errors
    /// One line: which file is no valid key.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, NoGuest> {
        let read = |file: &PathBuf| {
            let wrong = |why: &dyn std::fmt::Display| NoGuest(format!("key {}: {why}", file.display()));
            let text = read_small(file).map_err(|error| wrong(&error))?;
            if text.contains("PRIVATE KEY") {
                return Err(wrong(&"holds a private key, must be the public one (cosign.pub)"));
            }
            let what = "is no public key of ECDSA P-256 in PEM, as `cosign generate-key-pair` writes it";
            Ok((file.clone(), key_of(&text).ok_or_else(|| wrong(&what))?))
        };
        files.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The key that signed these bytes. `None` if it is none of these.
    fn signer(&self, message: &[u8], signature: &str) -> Option<&Path> {
        let signature = der_of(signature).ok()?;
        let (file, _) = self.0.iter().find(|(_, key)| key.verify(message, &signature).is_ok())?;
        Some(file)
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(file, _)| file.display().to_string()).collect();
        names.join(", ")
    }

    /// The key that signed a file's bytes, according to the signature beside it.
    ///
    /// # Errors
    /// One line: there is no signature, or none by these keys.
    pub(super) fn of_file(&self, file: &Path, bytes: &[u8]) -> Result<PathBuf, NoGuest> {
        let beside = signature_file(file);
        let shown = beside.display();
        let guest = file.display();
        let wrong = |why: String| NoGuest(format!("guest {guest}: {why}"));
        let signature = read_small(&beside).map_err(|error| {
            let sign = format!("cosign sign-blob --key cosign.key --output-signature {shown} {guest}");
            wrong(format!("is not signed: {shown}: {error}; sign it with `{sign}`"))
        })?;
        der_of(&signature).map_err(|why| wrong(format!("{shown}: {why}")))?;
        let signer = self.signer(bytes, &signature).map(Path::to_owned);
        let what = "is no signature of these bytes by any of the keys";
        signer.ok_or_else(|| wrong(format!("{shown} {what}: {}", self.names())))
    }

    /// The key that signed a manifest: the first valid signature by one of these keys.
    ///
    /// # Errors
    /// One line: there is no signature, none by these keys, or only signatures of other manifests.
    pub(super) fn of_manifest(&self, place: &OciReference, manifest: &str, all: &[Signed]) -> Result<PathBuf, NoGuest> {
        let mut wrong = None;
        for signed in all {
            let Ok(payload) = STANDARD.decode(&signed.payload) else {
                continue;
            };
            let Some(key) = self.signer(&payload, &signed.signature) else {
                continue;
            };
            match manifest_of(&payload) {
                Ok(named) if named == manifest => return Ok(key.to_owned()),
                Ok(other) => wrong = Some(format!("is of another manifest, {other}")),
                Err(why) => wrong = Some(why),
            }
        }
        let because = match (wrong, all.len()) {
            (Some(why), _) => format!("its signature {why}"),
            (None, 0) => format!(
                "is not signed; sign it with `cosign sign --key cosign.key {}`, and with `--new-bundle-format=false` where \
                 cosign writes bundles",
                place.at_digest(manifest)
            ),
            (None, count) => format!("none of its {count} signatures is by any of the keys: {}", self.names()),
        };
        Err(NoGuest(format!("guest oci:{place} (manifest {manifest}): {because}")))
    }
}

/// The path of a file's signature, beside the file.
pub(super) fn signature_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// Parses a public key in PEM. `None` if it is no uncompressed point of P-256.
fn key_of(text: &str) -> Option<Key> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?;
    let point = der.strip_prefix(&P256_KEY_HEADER)?;
    let is_point = point.len() == 65 && point.first() == Some(&4);
    is_point.then(|| UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.to_vec()))
}

/// Parses a signature in base64. `base64` and `openssl base64` break long lines.
///
/// # Errors
/// Why the text is invalid.
fn der_of(text: &str) -> Result<Vec<u8>, String> {
    let text: String = text.split_ascii_whitespace().collect();
    let der = STANDARD.decode(text).map_err(|error| {
        format!("is no base64 ({error}); a signature is made with `openssl dgst -sha256 -sign KEY FILE | base64`")
    })?;
    // A sequence of two integers of 32 bytes at most: its length is one byte. What is wrong inside, no key accepts.
    match der.as_slice() {
        [0x30, length, rest @ ..] if usize::from(*length) == rest.len() => Ok(der),
        _ => Err("is no signature of ECDSA P-256 in DER".to_owned()),
    }
}

fn manifest_of(payload: &[u8]) -> Result<String, String> {
    let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
    let text = |path: &str| payload.pointer(path).and_then(Value::as_str);
    match (text("/critical/type"), text("/critical/image/docker-manifest-digest")) {
        (Some(PAYLOAD_TYPE), Some(manifest)) => Ok(manifest.to_owned()),
        (Some(other), Some(_)) => Err(format!("is of the type {other:?}, must be {PAYLOAD_TYPE:?}")),
        _ => Err("is of something else than a manifest: its payload names none".to_owned()),
    }
}

fn read_small(file: &Path) -> Result<String, String> {
    regular::read_text(file, SMALL_FILE_BYTES_MAX).map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            format!("longer than {SMALL_FILE_BYTES_MAX} bytes, so neither key nor signature")
        }
        _ => trueup_base::text::cause(&error),
    })
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
