//! Guests in a real registry, Debian's `docker-registry` on loopback: pushed, locked, pulled, run with and without it,
//! signed and unsigned, and the messages about guests that do not match their lock.
//!
//! Tests beside the rules, in `host/registry/`, cover them separately.

use needs::needs;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use support::{Ran, Site, openssl, program, ran, trueup};

/// The registry prints its address as soon as it listens; that may take a while on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";

/// `user:pass:word`, in the form of `htpasswd -B`.
const HTPASSWD: &str = "user:$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki\n";

/// The test's own registry; dropping the value ends it.
pub(crate) struct DockerRegistry {
    folder: TempDir,
    address: String,
    child: Option<Child>,
}

impl DockerRegistry {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    fn start_with(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("htpasswd"), HTPASSWD).unwrap();
        let mut registry = Self {
            folder,
            address: "127.0.0.1:0".to_owned(),
            child: None,
        };
        registry.go(more);
        registry
    }

    /// Starts the process, on its earlier port if it had one.
    fn go(&mut self, more: &str) {
        let (config, files) = (self.folder.path().join("config.yml"), self.folder.path().join("files"));
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{}\"}}\n{more}",
            files.display(),
            self.address
        );
        fs::write(&config, text).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("docker-registry: {error}: apt-get install docker-registry"));
        let said = BufReader::new(child.stderr.take().unwrap());
        let (tell, told) = mpsc::channel();
        // Reads to the end, so that the registry never blocks on its output.
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("listening on ") {
                    let address = rest.split(['"', ' ', ',']).next().unwrap_or_default();
                    let _ = tell.send(address.to_owned());
                }
            }
        });
        self.child = Some(child);
        self.address = told.recv_timeout(PATIENCE).unwrap();
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// `oci:HOST/lbaas:TAG`.
    pub(crate) fn tag(&self, tag: &str) -> String {
        format!("oci:{}/lbaas:{tag}", self.address)
    }

    /// Pushes a built-in version of `lbaas`, and returns the command's output.
    pub(crate) fn push(&self, version: &str, tag: &str) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lbaas.wasm");
        fs::write(&file, shipped(version)).unwrap();
        let file = file.display().to_string();
        trueup(["guest", "push", &file, &self.tag(tag), "--output", "json"])
            .exits(0)
            .json()
    }

    /// Adds signatures of a manifest, like cosign: each a payload, and the base64 of its signature.
    fn put_signatures(&self, manifest: &str, signed: &[(String, String)]) {
        let layers: Vec<Value> = signed
            .iter()
            .map(|(payload, signature)| {
                json!({
                    "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
                    "size": payload.len(),
                    "digest": self.put_blob(payload.as_bytes()),
                    "annotations": {"dev.cosignproject.cosign/signature": signature},
                })
            })
            .collect();
        let config = "{}";
        let image = json!({
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "size": config.len(),
                "digest": self.put_blob(config.as_bytes()),
            },
            "layers": layers,
        });
        let tag = format!("{}.sig", manifest.replace(':', "-"));
        self.put_manifest(&tag, &image);
    }

    fn put_manifest(&self, tag: &str, image: &Value) {
        let url = format!("http://{}/v2/lbaas/manifests/{tag}", self.address);
        http(|client| client.put(url).header("Content-Type", IMAGE).body(image.to_string()));
    }

    /// Where the registry keeps a blob.
    fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = self.folder.path().join("files/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }

    fn put_blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let begin = format!("http://{}/v2/lbaas/blobs/uploads/", self.address);
        let answer = http(|client| client.post(begin));
        let place = answer.headers["Location"].to_str().unwrap().to_owned();
        http(|client| client.put(format!("{place}&digest={digest}")).body(bytes.to_vec()));
        digest
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The registry's answer, unless it is an error.
struct Answer {
    headers: reqwest::header::HeaderMap,
    body: Vec<u8>,
}

fn http(request: impl FnOnce(reqwest::Client) -> reqwest::RequestBuilder) -> Answer {
    // The tests use only plain HTTP, but the client requires a TLS provider. Ignore the error: there may already be
    // one.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let answer = request(client).send().await.unwrap().error_for_status().unwrap();
        Answer {
            headers: answer.headers().clone(),
            body: answer.bytes().await.unwrap().to_vec(),
        }
    })
}

fn shipped(version: &str) -> &'static [u8] {
    trueup_guests_builtin::find("lbaas", version).unwrap().bytes
}

fn digest_of(version: &str) -> &'static str {
    trueup_guests_builtin::find("lbaas", version).unwrap().digest
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let digits: Vec<String> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", digits.concat())
}

/// The quickstart with another guest.
fn site_using(reference: &str) -> Site {
    let site = Site::quickstart();
    site.edit(
        "trueup.toml",
        "use = \"builtin:lbaas@1\"",
        &format!("use = \"{reference}\""),
    );
    site
}

fn lock(site: &Site) -> Ran {
    ran(&mut site.command_of(&["guest", "lock"], &[]))
}

/// The report of `guest verify` on `lbaas`, with this exit code.
fn verified(site: &Site, code: i32) -> Value {
    let all = ran(&mut site.command_of(&["guest", "verify"], &["--output", "json"]))
        .exits(code)
        .json();
    let all = all.as_array().unwrap();
    all.iter().find(|guest| guest["guest"] == "lbaas").unwrap().clone()
}

/// Runs once, and returns the guest that decided, according to the recordings.
fn run_by(site: &Site) -> String {
    let ran = site.run_once().exits(0);
    assert!(ran.last_line().starts_with("3 services: 3 true, 0 failed"), "{ran}");
    let journals = site.journals();
    let of_lbaas = site.state_dir().join("journals/lbaas");
    let newest = journals
        .iter()
        .filter(|file| file.starts_with(&of_lbaas))
        .max_by_key(|file| fs::metadata(file).unwrap().modified().unwrap())
        .unwrap();
    let text = fs::read_to_string(newest).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    header["header"]["digest"].as_str().unwrap().to_owned()
}

/// Checks for an error of one line, with this exit code and text.
#[track_caller]
fn refused(ran: Ran, code: i32, said: &str) {
    let ran = ran.exits(code);
    let errors = ran.said("error: ");
    assert!(
        errors.len() == 1 && errors.iter().all(|line| line.contains(said)),
        "`{said}`: {ran}"
    );
}

/// The registry is away: the active guest, which was verified earlier, stays active, with a warning that contains this.
#[track_caller]
fn goes_on(ran: Ran, said: &str) {
    let ran = ran.exits(0);
    let warnings = ran.said("stays active");
    assert!(
        warnings.len() == 1 && warnings.iter().all(|line| line.contains(said)),
        "`{said}`: {ran}"
    );
}

fn stored(site: &Site, digest: &str) -> PathBuf {
    site.state_dir()
        .join("registry/sha256")
        .join(digest.trim_start_matches("sha256:"))
}

#[needs(docker_registry)]
#[test]
fn a_guest_pushed_and_pulled_runs_without_the_registry() {
    let mut registry = DockerRegistry::start();
    let pushed = registry.push("2", "2");
    assert_eq!((&pushed["name"], &pushed["version"]), (&json!("lbaas"), &json!("2")));
    assert_eq!(pushed["digest"], digest_of("2"));
    assert_eq!(
        registry.push("2", "2")["manifest"],
        pushed["manifest"],
        "the same guest makes the same manifest"
    );
    let exact = pushed["reference"].as_str().unwrap();

    // What other programs read: the layout, and the identity.
    let url = format!("http://{}/v2/lbaas/manifests/2", registry.address);
    let answer = http(|client| client.get(url).header("Accept", IMAGE));
    assert_eq!(
        answer.headers["Docker-Content-Digest"],
        pushed["manifest"].as_str().unwrap()
    );
    let manifest: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    assert_eq!(manifest["layers"][0]["digest"], digest_of("2"));
    assert_eq!(manifest["annotations"]["org.opencontainers.image.title"], "lbaas");
    assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], "2");

    let inspected = trueup(["guest", "inspect", &registry.tag("2"), "--output", "json"])
        .exits(0)
        .json();
    let ships = trueup(["guest", "inspect", "lbaas@2", "--output", "json"])
        .exits(0)
        .json();
    assert_eq!(inspected, ships);

    // By tag: only after it is locked, and then also without the registry.
    let by_tag = site_using(&registry.tag("2"));
    refused(
        by_tag.run_once(),
        2,
        "this one is not pinned: name it by digest (`@sha256:...`, as `trueup guest push` printed it), or run \
         `trueup guest lock ",
    );
    // Plain HTTP does not leave this machine, whatever proxy other requests use.
    let mut command = by_tag.command_of(&["guest", "lock"], &[]);
    let said = ran(command
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1"))
    .exits(0);
    assert!(
        said.stdout
            .starts_with(&format!("added     {}  {}\n", registry.tag("2"), digest_of("2"))),
        "{said}"
    );
    let text = fs::read_to_string(by_tag.path("trueup.lock")).unwrap();
    assert!(
        text.contains(pushed["manifest"].as_str().unwrap()) && text.contains(digest_of("2")),
        "{text}"
    );

    // By digest: without a lock file, the host asks the registry once.
    let by_digest = site_using(exact);
    assert_eq!(run_by(&by_digest), digest_of("2"));
    assert_eq!(verified(&by_digest, 0)["pinned"], "reference");
    let fresh = site_using(exact);

    registry.stop();
    assert_eq!(run_by(&by_tag), digest_of("2"));
    assert_eq!(run_by(&by_digest), digest_of("2"));
    let verified = verified(&by_tag, 0);
    assert_eq!(
        (&verified["pinned"], &verified["signature"]),
        (&json!("lock"), &json!("not asked for"))
    );
    assert_eq!(verified["manifest"], pushed["manifest"]);
    refused(fresh.run_once(), 1, "asking for its manifest: ");
    refused(lock(&by_tag), 1, "asking for its manifest: ");
    assert_eq!(
        fs::read_to_string(by_tag.path("trueup.lock")).unwrap(),
        text,
        "a lock that failed changes nothing"
    );
}

#[needs(docker_registry)]
#[test]
fn a_tag_that_moved_means_what_was_locked_until_it_is_locked_again() {
    let registry = DockerRegistry::start();
    registry.push("1", "stable");
    let site = site_using(&registry.tag("stable"));
    lock(&site).exits(0);
    let moved = registry.push("2", "stable");
    assert_eq!(run_by(&site), digest_of("1"));
    let said = lock(&site).exits(0);
    let line = format!(
        "moved     {}  {} -> {}\n",
        registry.tag("stable"),
        digest_of("1"),
        digest_of("2")
    );
    assert!(said.stdout.starts_with(&line), "{said}");
    assert_eq!(run_by(&site), digest_of("2"));
    let again = ran(&mut site.command_of(&["guest", "lock"], &["--output", "json"]))
        .exits(0)
        .json();
    assert_eq!(
        again,
        json!([{"use": registry.tag("stable"), "change": "unchanged", "digest": digest_of("2"), "manifest": moved["manifest"]}])
    );
    // After an edit of the configuration, the lock no longer pins what the configuration no longer names.
    site.edit("trueup.toml", &registry.tag("stable"), "builtin:lbaas@1");
    let said = lock(&site).exits(0);
    assert!(
        said.stdout
            .starts_with(&format!("removed   {}", registry.tag("stable"))),
        "{said}"
    );
    assert!(said.last_line().ends_with("trueup.lock: 0 guests pinned"), "{said}");
}

#[needs(docker_registry)]
#[test]
fn a_stored_guest_that_was_tampered_with_is_fetched_again_or_refused() {
    let mut registry = DockerRegistry::start();
    registry.push("1", "1");
    let site = site_using(&registry.tag("1"));
    lock(&site).exits(0);
    let entry = stored(&site, digest_of("1"));
    tamper_with(&entry);
    let mended = site.run_once().exits(0);
    assert_eq!(mended.said("is damaged").len(), 1, "{mended}");
    assert_eq!(digest(&fs::read(&entry).unwrap()), digest_of("1"), "it was mended");
    tamper_with(&entry);
    registry.stop();
    goes_on(
        site.run_once(),
        "then `trueup guest lock` fetches what the lock file pins; fetching it again failed: ",
    );
    fs::remove_file(&entry).unwrap();
    goes_on(site.run_once(), "asking for its manifest: ");
    registry.go("");
    let pulled = ran_json(&site, &["guest", "pull"]);
    assert_eq!(
        (&pulled[0]["fetched"], &pulled[0]["digest"]),
        (&json!(true), &json!(digest_of("1")))
    );
    assert_eq!(ran_json(&site, &["guest", "pull"])[0]["fetched"], false);
    registry.stop();
    assert_eq!(run_by(&site), digest_of("1"));

    // The host takes no other bytes from the registry either.
    fs::remove_file(&entry).unwrap();
    registry.go("");
    tamper_with(&registry.blob_file(digest_of("1")));
    let pulled = ran(&mut site.command_of(&["guest", "pull"], &[])).exits(1);
    let said = format!(
        "pulling it: Digest error: Invalid digest. Expected {}, got ",
        digest_of("1")
    );
    assert!(pulled.stderr.contains(&said), "{pulled}");
    assert!(!entry.exists(), "{pulled}");
}

/// Changes the last byte.
fn tamper_with(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

fn ran_json(site: &Site, command: &[&str]) -> Value {
    ran(&mut site.command_of(command, &["--output", "json"]))
        .exits(0)
        .json()
}

/// A key pair; the public half is a file of a site.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new(site: &Site, name: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        // `SubjectPublicKeyInfo` of RFC 5480, up to the point.
        let header = b"0Y0\x13\x06\x07*\x86H\xce=\x02\x01\x06\x08*\x86H\xce=\x03\x01\x07\x03B\0";
        let public = STANDARD.encode([header, key.public_key().as_ref()].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
        fs::write(site.path(name), pem).unwrap();
        Self(key)
    }

    fn sign(&self, bytes: &[u8]) -> String {
        STANDARD.encode(self.0.sign(&SystemRandom::new(), bytes).unwrap())
    }

    /// Like `cosign sign`.
    fn signed(&self, manifest: &str) -> (String, String) {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": ""},
                "image": {"docker-manifest-digest": manifest},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let signature = self.sign(payload.as_bytes());
        (payload, signature)
    }
}

fn verify_with(site: &Site, reference: &str, keys: &str) {
    let uses = format!("use = \"{reference}\"");
    site.edit("trueup.toml", &uses, &format!("{uses}\nverify = {{ keys = [{keys}] }}"));
}

#[needs(docker_registry)]
#[test]
fn a_guest_of_a_registry_must_be_signed_by_one_of_the_keys() {
    let mut registry = DockerRegistry::start();
    let (one, two) = (registry.push("1", "1"), registry.push("2", "2"));
    let (one, two) = (one["manifest"].as_str().unwrap(), two["manifest"].as_str().unwrap());
    let site = site_using(&registry.tag("1"));
    verify_with(&site, &registry.tag("1"), "\"mine.pub\", \"yours.pub\"");
    let _mine = Signer::new(&site, "mine.pub");
    let yours = Signer::new(&site, "yours.pub");
    let unlisted = Signer::new(&site, "unlisted.pub");

    refused(lock(&site), 2, "is not signed; sign it with `cosign sign");
    registry.put_signatures(one, &[unlisted.signed(one)]);
    refused(lock(&site), 2, "none of its 1 signatures is by any of the keys");
    registry.put_signatures(one, &[yours.signed(two)]);
    refused(lock(&site), 2, &format!("its signature is of another manifest, {two}"));
    registry.put_signatures(one, &[(yours.signed(one).0, yours.signed(two).1)]);
    refused(lock(&site), 2, "none of its 1 signatures");
    assert!(!site.path("trueup.lock").exists(), "what is not signed is not locked");

    registry.put_signatures(one, &[unlisted.signed(one), yours.signed(one)]);
    lock(&site).exits(0);
    registry.stop();
    assert_eq!(run_by(&site), digest_of("1"));
    let found = verified(&site, 0);
    assert_eq!(
        (&found["signature"], &found["key"]),
        (&json!("key"), &json!(site.path("yours.pub").display().to_string()))
    );

    // A key that is no longer trusted: at once, and without the registry.
    site.edit("trueup.toml", "\"mine.pub\", \"yours.pub\"", "\"mine.pub\"");
    refused(site.run_once(), 2, "none of its 2 signatures is by any of the keys");
    assert!(
        verified(&site, 1)["problem"]
            .as_str()
            .unwrap()
            .contains("none of its 2 signatures")
    );
    // The host does not trust a signature just because it is stored beside the guest.
    site.edit("trueup.toml", "\"mine.pub\"", "\"yours.pub\"");
    let kept = site
        .state_dir()
        .join("registry/signatures")
        .join(one.trim_start_matches("sha256:"));
    let text = fs::read_to_string(&kept).unwrap();
    let good = STANDARD.encode(yours.signed(one).0);
    assert!(text.contains(&good), "{text}");
    fs::write(&kept, text.replace(&good, &STANDARD.encode(yours.signed(two).0))).unwrap();
    refused(site.run_once(), 2, "none of its 2 signatures");
    fs::write(&kept, "torn").unwrap();
    goes_on(site.run_once(), "asking for its manifest: ");
    registry.go("");
    assert_eq!(run_by(&site), digest_of("1"));
}

#[needs(openssl)]
#[test]
fn a_file_must_be_signed_by_one_of_the_keys_and_openssl_can_sign_it() {
    let site = site_using("file:lbaas.wasm");
    verify_with(&site, "file:lbaas.wasm", "\"theirs.pub\"");
    fs::write(site.path("lbaas.wasm"), shipped("1")).unwrap();
    openssl(site.folder(), "ecparam -name prime256v1 -genkey -noout -out theirs.key");
    openssl(site.folder(), "ec -in theirs.key -pubout -out theirs.pub");
    refused(site.run_once(), 2, "is not signed: ");
    // As in docs/registry.md: `base64` breaks the line.
    let sign = "openssl dgst -sha256 -sign theirs.key lbaas.wasm | base64 > lbaas.wasm.sig";
    let signed = Command::new("sh")
        .args(["-c", sign])
        .current_dir(site.folder())
        .status();
    assert!(signed.unwrap().success());
    assert_eq!(
        fs::read_to_string(site.path("lbaas.wasm.sig")).unwrap().lines().count(),
        2
    );
    assert_eq!(run_by(&site), digest_of("1"));
    assert_eq!(verified(&site, 0)["pinned"], "no");
    fs::write(site.path("lbaas.wasm"), shipped("2")).unwrap();
    refused(site.run_once(), 2, "is no signature of these bytes by any of the keys");
    fs::write(site.path("theirs.pub"), "no key").unwrap();
    refused(site.run_once(), 2, "is no public key of ECDSA P-256 in PEM");
}

#[test]
fn a_folder_of_versions_gives_the_newest_or_the_one_that_is_named() {
    let site = site_using("file:guests");
    fs::create_dir(site.path("guests")).unwrap();
    refused(site.run_once(), 2, "holds no *.wasm, so no version of a guest");
    fs::write(site.path("guests/z.wasm"), shipped("1")).unwrap();
    let said = lock(&site).exits(0);
    assert!(
        said.stdout
            .starts_with(&format!("added     file:guests  {}\n", digest_of("1"))),
        "{said}"
    );
    assert_eq!(run_by(&site), digest_of("1"));
    assert_eq!(verified(&site, 0)["pinned"], "lock");

    // A newer file does not become active by its presence.
    fs::write(site.path("guests/a.wasm"), shipped("2")).unwrap();
    let both = format!(
        "its digest is {}, the lock file pins {}",
        digest_of("2"),
        digest_of("1")
    );
    refused(site.run_once(), 2, &both);
    refused(
        site.run_once(),
        2,
        &format!("run `trueup guest lock {}`", site.path("trueup.toml").display()),
    );
    lock(&site).exits(0);
    assert_eq!(run_by(&site), digest_of("2"));
    site.edit("trueup.toml", "file:guests", "file:guests@1");
    assert_eq!(run_by(&site), digest_of("1"));
    site.edit("trueup.toml", "file:guests@1", "file:guests@3");
    refused(site.run_once(), 2, "has no version 3; there are: 1, 2");
    let inspect = |guest: &str| {
        let guest = format!("file:{}", site.path(guest).display());
        trueup(["guest", "inspect", &guest, "--output", "json"])
    };
    assert_eq!(inspect("guests").exits(0).json()["digest"], digest_of("2"));
    assert_eq!(inspect("guests@1").exits(0).json()["digest"], digest_of("1"));
    fs::write(site.path("guests/b.wasm"), shipped("2")).unwrap();
    refused(inspect("guests"), 2, "holds version 2 twice: ");
}

#[test]
fn a_lock_file_that_is_wrong_is_one_line_and_nothing_runs() {
    let site = Site::quickstart();
    let said = lock(&site).exits(0);
    let nothing = "nothing to pin: every guest ships with this host";
    assert_eq!(said.said(nothing).len(), 1, "{said}");
    assert!(!site.path("trueup.lock").exists());
    for (text, said) in [
        ("", "trueup.lock:1: no `version`, must begin with `version = 1`"),
        ("version = 2\n", "trueup.lock:1: version: was 2, must be 1"),
        (
            "version = 1\n[[guest]]\nuse = \"file:a\"\ndigest = \"x\"\n",
            "trueup.lock:4: digest: was \"x\", must be",
        ),
        ("version = 1\n[[guests]]\n", "trueup.lock:2: unknown field `guests`"),
    ] {
        fs::write(site.path("trueup.lock"), text).unwrap();
        refused(site.run_once(), 2, said);
        refused(site.plan(), 2, said);
        refused(lock(&site), 2, said);
    }
    assert!(site.journals().is_empty());
    // A lock with other bytes for the digest that the configuration names.
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let reference = format!("oci:127.0.0.1:1/lbaas@{}", digest("a"));
    let site = site_using(&reference);
    let text = format!(
        "version = 1\n[[guest]]\nuse = \"{reference}\"\ndigest = \"{}\"\nmanifest = \"{}\"\n",
        digest("b"),
        digest("c")
    );
    fs::write(site.path("trueup.lock"), text).unwrap();
    let both = format!("its manifest is {}, the lock file pins {}", digest("a"), digest("c"));
    refused(site.run_once(), 2, &both);
}

#[needs(docker_registry)]
#[test]
fn what_is_no_guest_is_neither_pushed_nor_pulled() {
    let registry = DockerRegistry::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).unwrap();
        folder.path().join(name).display().to_string()
    };
    let to = registry.tag("1");
    refused(
        trueup(["guest", "push", &file("text.wasm", b"text"), &to]),
        2,
        "not WebAssembly",
    );
    // A component without exports, and so of no world.
    let empty = file("empty.wasm", b"\0asm\x0d\0\x01\0");
    refused(
        trueup(["guest", "push", &empty, &to]),
        2,
        "which is no world of this host",
    );
    let guest = file("lbaas.wasm", shipped("1"));
    refused(
        trueup(["guest", "push", &guest, "lbaas.wasm"]),
        2,
        "is no place in a registry",
    );
    let by_digest = format!("oci:{}/lbaas@{}", registry.address, digest_of("1"));
    refused(
        trueup(["guest", "push", &guest, &by_digest]),
        2,
        "must be pushed under a tag",
    );

    refused(
        trueup(["guest", "inspect", &registry.tag("nobody")]),
        1,
        "the registry has no such manifest",
    );
    let bytes = b"an archive";
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": bytes.len(), "digest": registry.put_blob(bytes)});
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "size": bytes.len(), "digest": registry.put_blob(bytes)});
    registry.put_manifest(
        "image",
        &json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer]}),
    );
    refused(
        trueup(["guest", "inspect", &registry.tag("image")]),
        1,
        "a guest is `application/wasm`",
    );

    registry.push("1", "1");
    let out = folder.path().join("out.wasm").display().to_string();
    trueup(["guest", "pull", &to, "--to", &out]).exits(0);
    assert_eq!(fs::read(&out).unwrap(), shipped("1"));
    refused(
        trueup(["guest", "pull", &to, &to, "--to", &out]),
        2,
        "`--to` goes with one reference, here are 2",
    );
    refused(
        trueup(["guest", "pull", folder.path().to_str().unwrap(), &to]),
        2,
        "not both",
    );
    let site = site_using(&to);
    let config = site.folder().display().to_string();
    let pulled = trueup(["guest", "pull", &to, "--config", &config, "--output", "json"])
        .exits(0)
        .json();
    assert_eq!((&pulled[0]["use"], &pulled[0]["fetched"]), (&json!(to), &json!(true)));
    assert_eq!(
        digest(&fs::read(stored(&site, digest_of("1"))).unwrap()),
        digest_of("1")
    );
    assert!(!site.path("trueup.lock").exists());
}

#[needs(docker_registry)]
#[test]
fn a_registry_that_asks_who_we_are_is_told_what_docker_login_wrote() {
    let auth = "auth: {htpasswd: {realm: here, path: htpasswd}}\n";
    let registry = DockerRegistry::start_with(auth);
    let folder = tempfile::tempdir().unwrap();
    let guest = folder.path().join("lbaas.wasm");
    fs::write(&guest, shipped("1")).unwrap();
    let push = |config: &Path| {
        let mut command = program();
        command
            .env("DOCKER_CONFIG", config)
            .args(["guest", "push"])
            .arg(&guest)
            .arg(registry.tag("1"));
        ran(&mut command)
    };
    let log_in = |text: &str| fs::write(folder.path().join("config.json"), text).unwrap();
    refused(push(folder.path()), 1, "docker login");
    log_in(&json!({"auths": {(registry.address.clone()): {}}, "credsStore": "desktop"}).to_string());
    refused(
        push(folder.path()),
        1,
        "the helper `desktop`, which trueup does not run",
    );
    log_in(&json!({"auths": {(registry.address.clone()): {"auth": STANDARD.encode("user:wrong")}}}).to_string());
    refused(push(folder.path()), 1, "it was given the credentials in ");
    log_in("{");
    refused(push(folder.path()), 2, "not as `docker login` writes them");
    log_in(&json!({"auths": {(registry.address.clone()): {"auth": STANDARD.encode("user:pass:word")}}}).to_string());
    push(folder.path()).exits(0);
    let mut inspect = program();
    inspect
        .env("DOCKER_CONFIG", folder.path())
        .args(["guest", "inspect", &registry.tag("1")]);
    ran(&mut inspect).exits(0);
}
