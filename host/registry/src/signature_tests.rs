//! Signatures in the formats of cosign and openssl: valid ones, and each kind of invalid one.

use std::process::Command;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// Indexes of the keys of [`Desk`].
const MINE: usize = 0;
const YOURS: usize = 1;

/// The keys of two people, each with its public half in a file.
struct Desk {
    folder: TempDir,
    keys: [EcdsaKeyPair; 2],
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = ["mine.pub", "yours.pub"].map(|name| {
            let key = new_key();
            let der = [P256_KEY_HEADER.as_slice(), key.public_key().as_ref()].concat();
            let text = format!(
                "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
                STANDARD.encode(der)
            );
            std::fs::write(folder.path().join(name), text).unwrap();
            key
        });
        Self { folder, keys }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn keys(&self, names: &[&str]) -> Keys {
        let files: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        Keys::read(&files).unwrap()
    }

    /// Base64 of what the owner of a key writes under these bytes.
    fn sign(&self, bytes: &[u8], owner: usize) -> String {
        STANDARD.encode(self.keys[owner].sign(&SystemRandom::new(), bytes).unwrap())
    }

    fn signed_payload(&self, payload: &str, owner: usize) -> Signed {
        Signed {
            payload: STANDARD.encode(payload),
            signature: self.sign(payload.as_bytes(), owner),
        }
    }

    /// A file, signed by the owner of that key.
    fn signed(&self, bytes: &[u8], owner: usize) -> PathBuf {
        let file = self.path("guest.wasm");
        std::fs::write(&file, bytes).unwrap();
        std::fs::write(signature_file(&file), self.sign(bytes, owner)).unwrap();
        file
    }
}

fn new_key() -> EcdsaKeyPair {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn payload(manifest: &str, kind: &str) -> String {
    json!({
        "critical": {
            "identity": {"docker-reference": "registry.example/lbaas"},
            "image": {"docker-manifest-digest": manifest},
            "type": kind,
        },
        "optional": null,
    })
    .to_string()
}

#[test]
fn any_of_the_keys_may_have_signed_a_file() {
    let desk = Desk::new();
    let file = desk.signed(b"a guest", YOURS);
    let both = desk.keys(&["mine.pub", "yours.pub"]);
    assert_eq!(both.of_file(&file, b"a guest").unwrap(), desk.path("yours.pub"));
    let error = desk
        .keys(&["mine.pub"])
        .of_file(&file, b"a guest")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is no signature of these bytes by any of the keys") && error.contains("mine.pub"),
        "{error}"
    );
    assert!(
        both.of_file(&file, b"A guest").is_err(),
        "one other byte is another guest"
    );
    for damage in ["", "no base64!", "AAAA", &desk.sign(b"another", YOURS)] {
        std::fs::write(signature_file(&file), damage).unwrap();
        assert!(both.of_file(&file, b"a guest").is_err(), "{damage}");
    }
    for (text, says) in [
        ("no base64!", "is no base64 ("),
        ("AAAA", "is no signature of ECDSA P-256 in DER"),
    ] {
        std::fs::write(signature_file(&file), text).unwrap();
        let error = both.of_file(&file, b"a guest").unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("mine.pub"), "{error}");
    }
    std::fs::remove_file(signature_file(&file)).unwrap();
    let error = both.of_file(&file, b"a guest").unwrap_err().to_string();
    assert!(
        error.contains("is not signed") && error.contains("cosign sign-blob"),
        "{error}"
    );
}

#[test]
fn openssl_signs_what_we_take() {
    let desk = Desk::new();
    let bytes = b"signed by another program than ours";
    let file = desk.path("guest.wasm");
    std::fs::write(&file, bytes).unwrap();
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl")
            .args(args)
            .current_dir(desk.folder.path())
            .output()
            .unwrap_or_else(|error| panic!("openssl: {error}: apt-get install openssl"));
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    openssl(&[
        "ecparam",
        "-name",
        "prime256v1",
        "-genkey",
        "-noout",
        "-out",
        "theirs.key",
    ]);
    openssl(&["ec", "-in", "theirs.key", "-pubout", "-out", "theirs.pub"]);
    let keys = desk.keys(&["mine.pub", "theirs.pub"]);
    // Half of all signatures have a high S. Sixteen contain both kinds, except once in 32,000 runs.
    for _ in 0..16 {
        let der = openssl(&["dgst", "-sha256", "-sign", "theirs.key", "guest.wasm"]);
        // Like `base64` output: lines have at most 76 characters.
        let text = STANDARD.encode(der);
        let (first, second) = text.split_at(76);
        std::fs::write(signature_file(&file), format!("{first}\n{second}\n")).unwrap();
        assert_eq!(keys.of_file(&file, bytes).unwrap(), desk.path("theirs.pub"));
    }
    assert!(keys.of_file(&file, b"other bytes").is_err());
}

#[test]
fn openssl_takes_what_cosign_would_write_for_our_key() {
    // The other direction: other tools accept the keys and signatures of these tests.
    let desk = Desk::new();
    let file = desk.signed(b"a guest", MINE);
    let der = STANDARD
        .decode(std::fs::read_to_string(signature_file(&file)).unwrap())
        .unwrap();
    std::fs::write(desk.path("der"), der).unwrap();
    let output = Command::new("openssl")
        .args([
            "dgst",
            "-sha256",
            "-verify",
            "mine.pub",
            "-signature",
            "der",
            "guest.wasm",
        ])
        .current_dir(desk.folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_signature_of_a_manifest_counts_for_that_manifest_alone() {
    let desk = Desk::new();
    let keys = desk.keys(&["mine.pub"]);
    let (this, other) = (digest('a'), digest('b'));
    let good = desk.signed_payload(&payload(&this, PAYLOAD_TYPE), MINE);
    let foreign = desk.signed_payload(&payload(&this, PAYLOAD_TYPE), YOURS);
    let of_other = desk.signed_payload(&payload(&other, PAYLOAD_TYPE), MINE);
    let of_else = desk.signed_payload(&payload(&this, "something else"), MINE);
    let no_payload = desk.signed_payload("{}", MINE);
    let forged = Signed {
        payload: good.payload.clone(),
        signature: of_other.signature.clone(),
    };
    let place = OciReference::parse("a.b/c:1").unwrap();
    let check = |all: &[&Signed]| {
        let all: Vec<Signed> = all.iter().map(|signed| (*signed).clone()).collect();
        keys.of_manifest(&place, &this, &all).map_err(|error| error.to_string())
    };
    assert_eq!(check(&[&good]).unwrap(), desk.path("mine.pub"));
    assert_eq!(
        check(&[&forged, &foreign, &of_other, &of_else, &no_payload, &good]).unwrap(),
        desk.path("mine.pub"),
        "others' signatures do not make a good one bad"
    );
    for (all, said) in [
        (
            &[][..],
            format!("is not signed; sign it with `cosign sign --key cosign.key a.b/c@{this}`, and with `--new-bundle"),
        ),
        (
            &[&foreign, &forged][..],
            "none of its 2 signatures is by any of the keys".to_owned(),
        ),
        (&[&of_other][..], format!("is of another manifest, {other}")),
        (&[&of_else][..], "is of the type \"something else\"".to_owned()),
        (&[&no_payload][..], "is of something else than a manifest".to_owned()),
    ] {
        let error = check(all).unwrap_err();
        assert!(error.contains(&said) && error.contains("oci:a.b/c:1"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_file_that_is_no_public_key_is_named() {
    let desk = Desk::new();
    std::fs::write(desk.path("text"), "no key").unwrap();
    std::fs::write(desk.path("private"), "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n").unwrap();
    let p384 = "-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE\n-----END PUBLIC KEY-----\n";
    std::fs::write(desk.path("curve"), p384).unwrap();
    for (name, said) in [
        ("nowhere", "No such file"),
        ("text", "is no public key of ECDSA P-256 in PEM"),
        ("private", "holds a private key, must be the public one"),
        ("curve", "is no public key of ECDSA P-256 in PEM"),
    ] {
        let error = Keys::read(&[desk.path(name)]).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("key {}: ", desk.path(name).display())),
            "{error}"
        );
        assert!(error.contains(said), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
