//! Guests in an OCI registry: the manifest of one, its bytes, who signed it, and putting one there.
//!
//! ```text
//! REPO:TAG -> manifest (config application/vnd.wasm.config.v0+json, one layer application/wasm) -> the guest
//! REPO:sha256-<hex of the manifest's digest>.sig -> payloads and signatures, as cosign puts them
//! ```
//!
//! What arrives is held against the digest that it was asked by, and against a limit. Decides nothing about locks, keys or
//! where things are kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::{Client, annotations};
use reqwest::header::HeaderValue;
use tokio::sync::OnceCell;
use trueup_engine::{Digest, Guest};

use super::credentials::{self, Credentials};
use super::manifest::{CONFIG, LAYER, Parts, config_json, layer_of};
use super::realm;
use super::reference::OciReference;
use super::signature::Signed;
use super::store::is_digest;
use super::{GUEST_BYTES_MAX, NotLoaded, one_line};

/// The layer of a signature.
const SIGNATURE_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Where its layer has a signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// A manifest of one layer has 1 KB, one of signatures 500 bytes a signature. Registries themselves take up to 4 MiB.
const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// A payload has 250 bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Each is one more request. Nobody has this many who sign.
const SIGNATURES_MAX: usize = 64;

/// A registry that does not even connect by now is away.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Nothing arrives for so long: it does not go on.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A guest of 60 MB over a slow line, with room.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// One place in a registry, and how we get in there.
pub(super) struct Remote {
    client: Client,
    place: OciReference,
    credentials: Credentials,
    /// The registry has said where it has credentials sent, and they may go there.
    admitted: OnceCell<()>,
}

/// What is pulled of a guest.
pub(super) struct Manifest {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
    /// Digest of the guest.
    pub(super) layer: String,
}

impl Remote {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// Where the file of credentials is none.
    pub(super) fn new(place: &OciReference) -> Result<Self, NotLoaded> {
        // Another part of the program may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = place.is_loopback().then(|| place.host.clone());
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(http.into_iter().collect()),
            platform_resolver: None,
            read_timeout: Some(SILENCE_MAX),
            connect_timeout: Some(CONNECT_MAX),
            user_agent: concat!("trueup/", env!("CARGO_PKG_VERSION")),
            // Plain HTTP stays on this machine: a proxy for nobody takes the place of the environment's.
            http_proxy: place.is_loopback().then(|| "http://localhost".to_owned()),
            no_proxy: place.is_loopback().then(|| "*,0.0.0.0/0,::/0".to_owned()),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config)
            .map_err(|error| NotLoaded::Failed(format!("oci:{place}: starting an HTTP client: {}", causes(&error))))?;
        Ok(Self {
            client,
            place: place.clone(),
            credentials: credentials::of(client_reference(place).resolve_registry())?,
            admitted: OnceCell::new(),
        })
    }

    /// The manifest of a guest.
    ///
    /// # Errors
    /// It can't be had, is not what was asked for, or is not that of a guest.
    pub(super) async fn manifest(&self) -> Result<Manifest, NotLoaded> {
        let bytes = self
            .raw_manifest(&self.place)
            .await?
            .ok_or_else(|| self.wrong("the registry has no such manifest"))?;
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
    /// They can't be had, are too many, or are others.
    pub(super) async fn guest(&self, layer: &str) -> Result<Vec<u8>, NotLoaded> {
        self.blob(layer, GUEST_BYTES_MAX).await
    }

    /// Every signature that the registry has of a manifest; none where nobody signed it.
    ///
    /// # Errors
    /// They can't be had.
    pub(super) async fn signatures(&self, manifest: &str) -> Result<Vec<Signed>, NotLoaded> {
        let tag = format!("{}.sig", manifest.replace(':', "-"));
        let Some(bytes) = self.raw_manifest(&self.place.at_tag(&tag)).await? else {
            return Ok(Vec::new());
        };
        let parts: Parts = serde_json::from_slice(&bytes)
            .map_err(|error| self.wrong(&format!("the manifest of its signatures is none: {error}")))?;
        let mut all = Vec::new();
        for layer in parts
            .layers
            .iter()
            .filter(|layer| layer.media_type == SIGNATURE_LAYER)
            .take(SIGNATURES_MAX)
        {
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

    /// Puts a guest there under the tag, and answers the manifest's digest. The same guest makes the same manifest.
    ///
    /// # Errors
    /// The registry does not take it.
    pub(super) async fn push(&self, guest: &Guest, bytes: &[u8]) -> Result<String, NotLoaded> {
        self.admit("pushing it").await?;
        let reference = client_reference(&self.place);
        let layer = ImageLayer::new(bytes.to_vec(), LAYER.to_owned(), None);
        let config = Config::new(config_json(guest), CONFIG.to_owned(), None);
        let about = [
            (annotations::ORG_OPENCONTAINERS_IMAGE_TITLE, &guest.name),
            (annotations::ORG_OPENCONTAINERS_IMAGE_VERSION, &guest.version),
        ];
        let about = about.map(|(key, value)| (key.to_owned(), value.clone())).into();
        let mut manifest = OciImageManifest::build(std::slice::from_ref(&layer), &config, Some(about));
        manifest.media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
        let body =
            serde_json::to_vec(&manifest).map_err(|error| self.wrong(&format!("writing its manifest: {error}")))?;
        let digest = Digest::of(&body).to_string();
        let auth = &self.credentials.auth;
        // A registry may answer under another name than it is called by (`docker.io`).
        self.client
            .store_auth_if_needed(reference.resolve_registry(), auth)
            .await;
        let push = async {
            for (data, digest) in [
                (layer.data, layer_digest(&manifest)),
                (config.data, manifest.config.digest.clone()),
            ] {
                self.client.push_blob(&reference, data, &digest).await?;
            }
            let kind = HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
            self.client.push_manifest_raw(&reference, body, kind).await
        };
        self.in_time("pushing it", push).await?;
        Ok(digest)
    }

    /// None where the registry has no such manifest.
    async fn raw_manifest(&self, place: &OciReference) -> Result<Option<Vec<u8>>, NotLoaded> {
        const ACCEPTED: [&str; 3] = [
            OCI_IMAGE_MEDIA_TYPE,
            "application/vnd.docker.distribution.manifest.v2+json",
            // To say what it is where somebody names one.
            "application/vnd.oci.image.index.v1+json",
        ];
        self.admit("asking for its manifest").await?;
        let reference = client_reference(place);
        let pull = self
            .client
            .pull_manifest_raw(&reference, &self.credentials.auth, &ACCEPTED);
        let bytes = match tokio::time::timeout(ANSWER_MAX, pull).await {
            Ok(Ok((bytes, _))) => bytes,
            Ok(Err(error)) if is_missing(&error) => return Ok(None),
            Ok(Err(error)) => return Err(self.failed("asking for its manifest", &error)),
            Err(_) => return Err(self.too_slow("asking for its manifest")),
        };
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(self.wrong(&format!("its manifest is longer than {MANIFEST_BYTES_MAX} bytes")));
        }
        let found = Digest::of(&bytes).to_string();
        match &place.digest {
            Some(asked) if *asked != found => {
                Err(self.wrong(&format!("the registry answered another manifest, {found}, for {asked}")))
            }
            _ => Ok(Some(bytes.to_vec())),
        }
    }

    async fn blob(&self, digest: &str, max: usize) -> Result<Vec<u8>, NotLoaded> {
        self.admit("pulling it").await?;
        let reference = client_reference(&self.place);
        let auth = &self.credentials.auth;
        self.client
            .store_auth_if_needed(reference.resolve_registry(), auth)
            .await;
        let mut out = Bounded { bytes: Vec::new(), max };
        self.in_time("pulling it", self.client.pull_blob(&reference, digest, &mut out))
            .await?;
        let found = Digest::of(&out.bytes).to_string();
        if found == digest {
            Ok(out.bytes)
        } else {
            Err(self.wrong(&format!("the registry answered other bytes, {found}, for {digest}")))
        }
    }

    /// Before credentials are given to a client that takes them wherever the registry says: whether they may go there.
    async fn admit(&self, what: &str) -> Result<(), NotLoaded> {
        if !realm::is_secret(&self.credentials.auth) {
            return Ok(());
        }
        let reference = client_reference(&self.place);
        let is_loopback = self.place.is_loopback();
        let scheme = if is_loopback { "http" } else { "https" };
        let base = format!("{scheme}://{}", reference.resolve_registry());
        let check = async || match tokio::time::timeout(ANSWER_MAX, realm::check(&base, is_loopback)).await {
            Ok(checked) => checked.map_err(|why| self.wrong(&format!("{what}: {why}"))),
            Err(_) => Err(self.too_slow(what)),
        };
        self.admitted.get_or_try_init(check).await?;
        Ok(())
    }

    async fn in_time<T>(
        &self,
        what: &str,
        answer: impl Future<Output = Result<T, OciDistributionError>>,
    ) -> Result<T, NotLoaded> {
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(what, &error)),
            Err(_) => Err(self.too_slow(what)),
        }
    }

    fn too_slow(&self, what: &str) -> NotLoaded {
        NotLoaded::Failed(format!(
            "guest oci:{}: {what}: not done after {} s",
            self.place,
            ANSWER_MAX.as_secs()
        ))
    }

    fn failed(&self, what: &str, error: &OciDistributionError) -> NotLoaded {
        let hint = if is_refused(error) {
            format!("; {}", self.credentials.hint)
        } else {
            String::new()
        };
        NotLoaded::Failed(format!("guest oci:{}: {what}: {}{hint}", self.place, causes(error)))
    }

    fn wrong(&self, what: &str) -> NotLoaded {
        NotLoaded::Failed(format!("guest oci:{}: {what}", self.place))
    }
}

fn layer_digest(manifest: &OciImageManifest) -> String {
    manifest
        .layers
        .first()
        .map(|layer| layer.digest.clone())
        .unwrap_or_default()
}

fn client_reference(place: &OciReference) -> oci_client::Reference {
    let (host, repository) = (place.host.clone(), place.repository.clone());
    match (&place.digest, &place.tag) {
        (Some(digest), _) => oci_client::Reference::with_digest(host, repository, digest.clone()),
        (None, tag) => oci_client::Reference::with_tag(host, repository, tag.clone().unwrap_or_default()),
    }
}

fn is_missing(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => envelope.errors.iter().any(|error| {
            matches!(
                error.code,
                OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown | OciErrorCode::NotFound
            )
        }),
        _ => false,
    }
}

fn is_refused(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => true,
        OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403),
        OciDistributionError::RegistryError { envelope, .. } => envelope
            .errors
            .iter()
            .any(|error| matches!(error.code, OciErrorCode::Unauthorized | OciErrorCode::Denied)),
        _ => false,
    }
}

/// With its causes, on one line.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    one_line(&causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

/// Takes bytes up to a limit, whatever the other side said there would be.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl tokio::io::AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.bytes.len() + bytes.len() > self.max {
            let error = io::Error::other(format!("it is longer than {} bytes", self.max));
            return Poll::Ready(Err(error));
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

    /// A registry that answers everything with this challenge, or this redirect; and how often it was given credentials.
    async fn registry(header: &'static str) -> (OciReference, Arc<AtomicUsize>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("{}/lbaas:2", listener.local_addr().unwrap());
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
                // Where it is gone, it does not want to know.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (OciReference::parse(&place).unwrap(), given)
    }

    async fn asked_with_credentials(header: &'static str) -> (String, usize) {
        let (place, given) = registry(header).await;
        let mut remote = Remote::new(&place).unwrap();
        remote.credentials.auth = oci_client::secrets::RegistryAuth::Basic("me".into(), "pa55word".into());
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
        // The registry's own are asked for and given.
        let (error, given) = asked_with_credentials(r#"WWW-Authenticate: Basic realm="Registry""#).await;
        assert!(given > 0, "{error}");
    }

    #[tokio::test]
    async fn more_bytes_than_allowed_are_not_taken() {
        use tokio::io::AsyncWriteExt as _;
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
