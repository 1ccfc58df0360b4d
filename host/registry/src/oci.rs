//! Guests in an OCI registry: reads the manifest, the bytes and the signatures of a guest, and pushes one.
//!
//! ```text
//! REPO:TAG -> manifest (config application/vnd.wasm.config.v0+json, one layer application/wasm) -> the guest
//! REPO:sha256-<hex of the manifest's digest>.sig -> payloads and signatures, as cosign puts them
//! ```
//!
//! This module checks everything it receives against the requested digest and a limit. It does not decide about locks,
//! keys or storage.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, RegistryOperation, annotations};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OnceCell;
use trueup_base::component::{Digest, GUEST_BYTES_MAX};
use trueup_base::progress;

use super::credentials::{self, Credentials};
use super::manifest::{About, CONFIG, LAYER, Manifest, Parts, config_json, layer_of};
use super::reference::OciReference;
use super::signature::Signed;
use super::store::{NotLoaded, is_digest, one_line};

/// The media type of a signature's layer.
const SIGNATURE_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The annotation of its layer that holds a signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A manifest with one layer has 1 KB, one of signatures 500 bytes per signature. Registries accept up to 4 MiB.
const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// A payload has 250 bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Each one costs another request, and no guest has this many signers.
const SIGNATURES_MAX: usize = 64;

/// How requests name this program.
pub(super) const AGENT: &str = concat!("trueup/", env!("CARGO_PKG_VERSION"));

/// The maximum number of characters of a server's own words in an error.
const SAID_CHARS_MAX: usize = 200;

/// A registry that has not accepted the connection by then is unreachable.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A transfer without any data for this long has failed.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Enough for a guest of 60 MB over a slow line.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// One image in a registry, and our access to it.
pub(super) struct Remote {
    client: Client,
    image: OciReference,
    credentials: Credentials,
    /// Set when the registry has named its token server, and that server is safe.
    admitted: OnceCell<()>,
}

impl Remote {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// If the credentials file is invalid.
    pub(super) fn new(image: &OciReference) -> Result<Self, NotLoaded> {
        // Ignore the error: another part of the program may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = image.is_loopback().then(|| image.host.clone());
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(http.into_iter().collect()),
            platform_resolver: None,
            read_timeout: Some(SILENCE_MAX),
            connect_timeout: Some(CONNECT_MAX),
            user_agent: AGENT,
            // Plain HTTP stays on this machine: this proxy, which no request uses, overrides the environment's.
            http_proxy: image.is_loopback().then(|| "http://localhost".to_owned()),
            no_proxy: image.is_loopback().then(|| "*,0.0.0.0/0,::/0".to_owned()),
            ..ClientConfig::default()
        };
        let failed = |error| NotLoaded::Failed(format!("oci:{image}: starting an HTTP client: {}", causes(&error)));
        Ok(Self {
            client: Client::try_from(config).map_err(failed)?,
            image: image.clone(),
            credentials: credentials::of(client_reference(image).resolve_registry())?,
            admitted: OnceCell::new(),
        })
    }

    /// The manifest of a guest.
    ///
    /// # Errors
    /// If it is unavailable, not the requested one, or not that of a guest.
    pub(super) async fn manifest(&self) -> Result<Manifest, NotLoaded> {
        let none = || self.wrong("the registry has no such manifest");
        let bytes = self.raw_manifest(&self.image).await?.ok_or_else(none)?;
        let layer = layer_of(&bytes).map_err(|what| self.wrong(&what))?;
        Ok(Manifest {
            digest: Digest::of(&bytes).to_string(),
            bytes,
            layer,
        })
    }

    /// The guest's bytes, by the digest in its manifest.
    ///
    /// # Errors
    /// If they are unavailable, too many, or do not match.
    pub(super) async fn guest(&self, layer: &str) -> Result<Vec<u8>, NotLoaded> {
        let _doing = progress::doing(|| format!("fetching oci:{}", self.image));
        self.blob(layer, GUEST_BYTES_MAX).await
    }

    /// Every signature of a manifest in the registry. Empty if there is none.
    ///
    /// # Errors
    /// If they are unavailable.
    pub(super) async fn signatures(&self, manifest: &str) -> Result<Vec<Signed>, NotLoaded> {
        let signed = OciReference {
            tag: Some(format!("{}.sig", manifest.replace(':', "-"))),
            digest: None,
            ..self.image.clone()
        };
        let Some(bytes) = self.raw_manifest(&signed).await? else {
            return Ok(Vec::new());
        };
        let unreadable = |error| self.wrong(&format!("can't read the manifest of its signatures: {error}"));
        let parts: Parts = serde_json::from_slice(&bytes).map_err(unreadable)?;
        let mut all = Vec::new();
        let layers = parts.layers.iter().filter(|layer| layer.media_type == SIGNATURE_LAYER);
        for layer in layers.take(SIGNATURES_MAX) {
            let signature = layer.annotations.as_ref().and_then(|all| all.get(SIGNATURE));
            let Some(signature) = signature.filter(|_| is_digest(&layer.digest)) else {
                continue;
            };
            let payload = self.blob(&layer.digest, PAYLOAD_BYTES_MAX).await?;
            all.push(Signed {
                payload: STANDARD.encode(payload),
                signature: signature.clone(),
            });
        }
        Ok(all)
    }

    /// Pushes a guest under the tag, and returns the manifest's digest. The same guest always has the same manifest.
    ///
    /// # Errors
    /// If the registry refuses it.
    pub(super) async fn push(&self, guest: &About, bytes: &[u8]) -> Result<String, NotLoaded> {
        self.admit("pushing it").await?;
        let reference = client_reference(&self.image);
        let layer = ImageLayer::new(bytes.to_vec(), LAYER.to_owned(), None);
        let config = Config::new(config_json(guest), CONFIG.to_owned(), None);
        let about = [
            (annotations::ORG_OPENCONTAINERS_IMAGE_TITLE, &guest.name),
            (annotations::ORG_OPENCONTAINERS_IMAGE_VERSION, &guest.version),
        ];
        let about = about.map(|(key, value)| (key.to_owned(), value.clone())).into();
        let mut manifest = OciImageManifest::build(std::slice::from_ref(&layer), &config, Some(about));
        manifest.media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
        let failed = |error| self.wrong(&format!("writing its manifest: {error}"));
        let body = serde_json::to_vec(&manifest).map_err(failed)?;
        let digest = Digest::of(&body).to_string();
        let push = async {
            let digest = guest.digest.to_string();
            self.client.push_blob(&reference, layer.data, &digest).await?;
            let digest = &manifest.config.digest;
            self.client.push_blob(&reference, config.data, digest).await?;
            let kind = HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
            self.client.push_manifest_raw(&reference, body, kind).await
        };
        let pushed = self.in_time("pushing it", push).await?;
        pushed.map_err(|error| self.failed("pushing it", &error))?;
        Ok(digest)
    }

    /// `None` if the registry has no such manifest.
    async fn raw_manifest(&self, image: &OciReference) -> Result<Option<Vec<u8>>, NotLoaded> {
        self.admit("asking for its manifest").await?;
        let pull = async {
            match self.manifest_body(&client_reference(image)).await {
                Err(error) if is_missing(&error) => Ok(None),
                answer => answer.map(Some),
            }
        };
        let asking = "asking for its manifest";
        let pulled = self.in_time(asking, pull).await?;
        let Some(bytes) = pulled.map_err(|error| self.failed(asking, &error))? else {
            return Ok(None);
        };
        let found = Digest::of(&bytes).to_string();
        match &image.digest {
            Some(asked) if *asked != found => {
                Err(self.wrong(&format!("the registry answered another manifest, {found}, for {asked}")))
            }
            _ => Ok(Some(bytes)),
        }
    }

    /// Asks for a manifest without `oci-client`, which holds a body of any length in memory.
    async fn manifest_body(&self, reference: &oci_client::Reference) -> Result<Vec<u8>, OciDistributionError> {
        const ACCEPTED: [&str; 3] = [
            OCI_IMAGE_MEDIA_TYPE,
            "application/vnd.docker.distribution.manifest.v2+json",
            // Accepted only to report what it is.
            "application/vnd.oci.image.index.v1+json",
        ];
        let auth = &self.credentials.auth;
        let which = reference.digest().or(reference.tag()).unwrap_or("latest");
        let url = format!("{}/v2/{}/manifests/{which}", self.base(), reference.repository());
        let request = credentials::client(self.image.is_loopback())?.get(&url);
        let request = request.header(ACCEPT, ACCEPTED.join(", "));
        let token = self.client.auth(reference, auth, RegistryOperation::Pull).await;
        let request = match (token, auth) {
            (Ok(Some(token)), _) => request.bearer_auth(token),
            (Ok(None), RegistryAuth::Basic(name, password)) => request.basic_auth(name, Some(password)),
            // The registry's answer to a request without credentials says what is wrong.
            _ => request,
        };
        let mut answer = request.send().await?;
        let bytes = Vec::new();
        let max = MANIFEST_BYTES_MAX;
        let mut body = Bounded { bytes, max };
        while let Some(chunk) = answer.chunk().await? {
            body.write_all(&chunk).await?;
        }
        refusal_of(answer.status(), &body.bytes, url).map_or(Ok(body.bytes), Err)
    }

    /// Scheme and host of the registry.
    fn base(&self) -> String {
        let scheme = if self.image.is_loopback() { "http" } else { "https" };
        format!("{scheme}://{}", client_reference(&self.image).resolve_registry())
    }

    async fn blob(&self, digest: &str, max: usize) -> Result<Vec<u8>, NotLoaded> {
        self.admit("pulling it").await?;
        let reference = client_reference(&self.image);
        let mut out = Bounded { bytes: Vec::new(), max };
        // The client compares the bytes with the digest.
        let pull = self.client.pull_blob(&reference, digest, &mut out);
        let pulled = self.in_time("pulling it", pull).await?;
        pulled.map_err(|error| self.failed("pulling it", &error))?;
        Ok(out.bytes)
    }

    /// Gives the client the credentials. Checks before where they may go, since the client sends them wherever the
    /// registry says.
    async fn admit(&self, what: &str) -> Result<(), NotLoaded> {
        let (base, is_loopback, auth) = (self.base(), self.image.is_loopback(), &self.credentials.auth);
        let check = async || {
            let checked = self.in_time(what, credentials::check(&base, is_loopback)).await?;
            checked.map_err(|why| self.wrong(&format!("{what}: {why}")))
        };
        if *auth != RegistryAuth::Anonymous {
            self.admitted.get_or_try_init(check).await?;
        }
        // A registry may answer under another name (`docker.io`).
        let named = client_reference(&self.image);
        self.client.store_auth_if_needed(named.resolve_registry(), auth).await;
        Ok(())
    }

    async fn in_time<T>(&self, what: &str, answer: impl Future<Output = T>) -> Result<T, NotLoaded> {
        let too_slow = |_| self.wrong(&format!("{what}: not done after {} s", ANSWER_MAX.as_secs()));
        tokio::time::timeout(ANSWER_MAX, answer).await.map_err(too_slow)
    }

    fn failed(&self, what: &str, error: &OciDistributionError) -> NotLoaded {
        let causes = causes(error);
        match is_refused(error) {
            true => self.wrong(&format!("{what}: {causes}; {}", self.credentials.hint)),
            false => self.wrong(&format!("{what}: {causes}")),
        }
    }

    fn wrong(&self, what: &str) -> NotLoaded {
        NotLoaded::Failed(format!("guest oci:{}: {what}", self.image))
    }
}

fn client_reference(image: &OciReference) -> oci_client::Reference {
    let (host, repository) = (image.host.clone(), image.repository.clone());
    match (&image.digest, &image.tag) {
        (Some(digest), _) => oci_client::Reference::with_digest(host, repository, digest.clone()),
        (None, tag) => oci_client::Reference::with_tag(host, repository, tag.clone().unwrap_or_default()),
    }
}

/// The error in an answer, as `oci-client` has it. `None` if the answer is what was asked for.
fn refusal_of(status: StatusCode, body: &[u8], url: String) -> Option<OciDistributionError> {
    if status == StatusCode::OK {
        return None;
    }
    if status == StatusCode::UNAUTHORIZED {
        return Some(OciDistributionError::UnauthorizedError { url });
    }
    Some(match serde_json::from_slice(body) {
        Ok(envelope) if status.is_client_error() => OciDistributionError::RegistryError { envelope, url },
        _ => OciDistributionError::ServerError {
            code: status.as_u16(),
            url,
            message: String::from_utf8_lossy(body).chars().take(SAID_CHARS_MAX).collect(),
        },
    })
}

fn is_missing(error: &OciDistributionError) -> bool {
    use OciErrorCode::{ManifestUnknown, NameUnknown, NotFound};
    match error {
        OciDistributionError::ServerError { code, .. } => *code == 404,
        error => has_code(error, &[ManifestUnknown, NameUnknown, NotFound]),
    }
}

fn is_refused(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => true,
        OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403),
        error => has_code(error, &[OciErrorCode::Unauthorized, OciErrorCode::Denied]),
    }
}

/// Whether a registry names one of these codes in its error.
fn has_code(error: &OciDistributionError, codes: &[OciErrorCode]) -> bool {
    let OciDistributionError::RegistryError { envelope, .. } = error else {
        return false;
    };
    envelope.errors.iter().any(|error| codes.contains(&error.code))
}

/// An error with its causes, on one line.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    one_line(&trueup_base::text::causes(error))
}

/// Collects bytes up to a limit, independent of the announced length.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl tokio::io::AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.bytes.len() + bytes.len() > self.max {
            return Poll::Ready(Err(io::Error::other(format!("it is longer than {} bytes", self.max))));
        }
        self.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A registry that answers everything with this challenge or redirect, and counts how often it receives
    /// credentials.
    async fn registry(header: &'static str) -> (OciReference, Arc<AtomicUsize>) {
        use tokio::io::AsyncReadExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let image = format!("{}/lbaas:2", listener.local_addr().unwrap());
        let given = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&given);
        tokio::spawn(async move {
            let status = if header.starts_with("Location") {
                "307 Temporary Redirect"
            } else {
                "401 Unauthorized"
            };
            let answer = format!("HTTP/1.1 {status}\r\n{header}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0)
                {
                }
                if String::from_utf8_lossy(&request)
                    .to_lowercase()
                    .contains("authorization:")
                {
                    counting.fetch_add(1, Ordering::SeqCst);
                }
                // If the client has disconnected, it does not need the answer.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (OciReference::parse(&image).unwrap(), given)
    }

    async fn asked_with_credentials(header: &'static str) -> (String, usize) {
        let (image, given) = registry(header).await;
        let mut remote = Remote::new(&image).unwrap();
        remote.credentials.auth = RegistryAuth::Basic("me".into(), "pa55word".into());
        let error = remote.manifest().await.err().unwrap().to_string();
        (error, given.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn credentials_go_nowhere_in_the_open() {
        let realm = r#"WWW-Authenticate: Bearer realm="http://tokens.invalid/token",service="r""#;
        let (error, given) = asked_with_credentials(realm).await;
        let said = "wants the credentials sent to `http://tokens.invalid/token`, which is not HTTPS: they are not sent";
        assert!(error.contains(said), "{error}");
        assert_eq!(given, 0);
        let (error, _) = asked_with_credentials("Location: http://other.invalid/v2/").await;
        assert!(
            error.contains("redirected to `http://other.invalid/v2/`, which is not HTTPS"),
            "{error}"
        );
        // The registry's own challenge: it receives the credentials.
        let (error, given) = asked_with_credentials(r#"WWW-Authenticate: Basic realm="Registry""#).await;
        assert!(given > 0, "{error}");
    }

    #[tokio::test]
    async fn an_endless_manifest_is_refused_in_one_line() {
        use tokio::io::AsyncReadExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let image = format!("{}/lbaas:2", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n")
                        && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0)
                    {}
                    let is_manifest = String::from_utf8_lossy(&request).contains("/manifests/");
                    let length = if is_manifest { "" } else { "Content-Length: 0\r\n" };
                    let head = format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n");
                    let mut going = stream.write_all(head.as_bytes()).await;
                    while is_manifest && going.is_ok() {
                        going = stream.write_all(&[b' '; 1 << 16]).await;
                    }
                });
            }
        });
        let remote = Remote::new(&OciReference::parse(&image).unwrap()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(30), remote.manifest());
        let error = answer.await.expect("it ends").err().unwrap().to_string();
        let said = "asking for its manifest: it is longer than 4194304 bytes";
        assert!(error.ends_with(said) && !error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn more_bytes_than_allowed_are_not_taken() {
        let mut out = Bounded {
            bytes: Vec::new(),
            max: 4,
        };
        out.write_all(b"1234").await.unwrap();
        let error = out.write_all(b"5").await.unwrap_err().to_string();
        assert!(error.contains("longer than 4 bytes"), "{error}");
        assert_eq!(out.bytes, b"1234");
    }
}
