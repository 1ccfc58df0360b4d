//! Connections with TLS: direct, through a tunnel, and after the lease.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use http::{HeaderValue, Uri};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::Service as _;
use trueup_base::http::connector::{Connection, Connector, Way};
use trueup_base::http::socket::Refused;

use super::*;

/// A self-signed certificate of `engine.test` and its key, for these tests only; valid for a century.
const CERTIFICATE: &[u8] = include_bytes!("engine.test.pem");

fn trusting() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    client_config(roots)
}

fn client_config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn connector(fence: &Fence, tls: ClientConfig, proxies: &Matcher, engine: &Uri) -> Connector {
    let way = Way {
        tls,
        proxy: proxies.intercept(engine),
        scheme: "https".to_owned(),
        agent: HeaderValue::from_static("trueup/test"),
        connect_timeout: Duration::from_secs(60),
    };
    way.connector(fence)
}

/// A socket that counts received bytes, whatever they mean.
struct Counting {
    tcp: TcpStream,
    bytes: Arc<AtomicUsize>,
}

impl Read for Counting {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.tcp.read(buf)?;
        self.bytes.fetch_add(count, SeqCst);
        Ok(count)
    }
}

impl Write for Counting {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.tcp.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// An Engine that takes one connection and answers each `ping` with `pong`, optionally behind a proxy.
struct Pongs {
    address: SocketAddr,
    bytes: Arc<AtomicUsize>,
    /// The request that a proxy received, if any.
    ended: JoinHandle<String>,
}

impl Pongs {
    fn start(behind_proxy: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&bytes);
        let ended = std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            let asked = if behind_proxy { tunnel(&mut tcp) } else { String::new() };
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(
                    vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
                    PrivateKeyDer::from_pem_slice(CERTIFICATE).unwrap(),
                )
                .unwrap();
            let tls = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(tls, Counting { tcp, bytes: counted });
            let mut ping = [0; 4];
            while stream.read_exact(&mut ping).is_ok() {
                assert_eq!(&ping, b"ping");
                stream.write_all(b"pong").unwrap();
            }
            asked
        });
        Self { address, bytes, ended }
    }
}

/// A proxy: reads the request for a tunnel, and grants it.
fn tunnel(tcp: &mut TcpStream) -> String {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).unwrap();
        asked.extend(byte);
    }
    tcp.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    String::from_utf8(asked).unwrap()
}

async fn ping(connection: &mut TokioIo<Connection>) -> io::Result<()> {
    connection.write_all(b"ping").await?;
    connection.flush().await?;
    let mut pong = [0; 4];
    connection.read_exact(&mut pong).await?;
    assert_eq!(&pong, b"pong");
    Ok(())
}

#[tokio::test]
async fn below_tls_nothing_is_written_after_the_lease() {
    // The name has no address: only a tunnel leads there.
    let engine = Uri::from_static("https://engine.test/");
    let pongs = Pongs::start(true);
    let proxies = Matcher::builder()
        .https(format!("http://someone:secret@{}", pongs.address))
        .build();
    let (fence, hand) = leased();
    let mut connector = connector(&fence, trusting(), &proxies, &engine);
    let mut connection = TokioIo::new(connector.call(engine.clone()).await.unwrap());
    for _ in 0..3 {
        ping(&mut connection).await.unwrap();
    }
    let before = pongs.bytes.load(SeqCst);
    hand.store(AFTER_THE_LEASE, SeqCst);
    let refused = ping(&mut connection).await.unwrap_err();
    assert!(!Refused::among(&refused).unwrap().begun, "{refused}");
    let refused = connector.call(engine).await.err().unwrap();
    assert!(Refused::among(refused.as_ref()).is_some(), "{refused}");
    drop(connection);
    let bytes = Arc::clone(&pongs.bytes);
    let asked = tokio::task::spawn_blocking(|| pongs.ended.join())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(bytes.load(SeqCst), before, "not even that TLS ends");
    assert!(asked.starts_with("CONNECT engine.test:443 HTTP/1.1\r\n"), "{asked}");
    for header in [
        "proxy-authorization: basic c29tzw9uztpzzwnyzxq=\r\n",
        "user-agent: trueup/test\r\n",
    ] {
        assert!(asked.to_lowercase().contains(header), "{asked}");
    }
}

#[tokio::test]
async fn a_certificate_of_another_or_of_an_unknown_issuer_is_refused() {
    let trusting_none = client_config(RootCertStore::empty());
    for (tls, expected) in [(trusting(), "not valid for name"), (trusting_none, "UnknownIssuer")] {
        let pongs = Pongs::start(false);
        let engine: Uri = format!("https://{}/", pongs.address).parse().unwrap();
        let mut connector = connector(&Fence::open(), tls, &Matcher::builder().build(), &engine);
        let error = connector.call(engine).await.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        drop(connector);
        tokio::task::spawn_blocking(|| pongs.ended.join())
            .await
            .unwrap()
            .unwrap();
    }
}
