//! TLS on a connection, and its certificates, made by the tool `openssl`.

use std::fs;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::openssl;

/// What a server needs for TLS, and what its clients need.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    pub server: Arc<ServerConfig>,
    /// The authority's certificate, PEM.
    pub authority: String,
}

/// Makes an authority, and its certificate for 127.0.0.1 and localhost, valid for two days.
///
/// # Panics
///
/// Without the tool `openssl`.
pub(super) fn certificates() -> Certificates {
    let folder = tempfile::TempDir::new().unwrap();
    let folder = folder.path();
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=critical,CA:FALSE\n";
    fs::write(folder.join("names"), names).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = "-subj /CN=tests-ca -addext keyUsage=critical,keyCertSign -days 2";
    openssl(
        folder,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem {authority}"),
    );
    openssl(
        folder,
        &format!("req {key} -keyout server.key -out server.csr -subj /CN=tests"),
    );
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );

    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Certificates {
        server: Arc::new(config),
        authority: fs::read_to_string(folder.join("ca.pem")).unwrap(),
    }
}

/// The bytes within TLS. The handshake is a part of the first reading or writing, so that no client waits for another
/// one's.
pub(super) enum Tls {
    Greeting(Accept<TcpStream>),
    /// Or why the handshake failed.
    Greeted(Result<TlsStream<TcpStream>, io::ErrorKind>),
}

impl Tls {
    /// Starts to serve a connection.
    pub(super) fn new(stream: TcpStream, config: Arc<ServerConfig>) -> Self {
        Self::Greeting(TlsAcceptor::from(config).accept(stream))
    }

    /// The stream, once the handshake has succeeded.
    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<TcpStream>>>> {
        if let Self::Greeting(greeting) = self {
            let greeted = ready!(Pin::new(greeting).poll(context));
            *self = Self::Greeted(greeted.map_err(|error| error.kind()));
        }
        match self {
            Self::Greeting(_) => Poll::Pending,
            Self::Greeted(Ok(stream)) => Poll::Ready(Ok(Pin::new(stream))),
            Self::Greeted(Err(kind)) => Poll::Ready(Err((*kind).into())),
        }
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_stream(context))?.poll_read(context, to)
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_stream(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_stream(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_stream(context))?.poll_shutdown(context)
    }
}
