//! TLS on a connection, and its certificates, made by the tool `openssl`.
//!
//! rustls handles bytes, not connections; this module joins the two, without blocking.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

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

fn openssl(folder: &Path, args: &str) {
    let output = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(folder)
        .output();
    let output = output.unwrap_or_else(|error| panic!("`openssl`: {error}: `apt-get install openssl`"));
    assert!(
        output.status.success(),
        "`openssl {args}`: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The bytes within TLS.
#[derive(Debug)]
pub(super) struct Tls {
    stream: TcpStream,
    session: ServerConnection,
}

/// The connection for rustls: returns an error instead of blocking.
struct Now<'a, 'b> {
    stream: &'a mut TcpStream,
    context: &'a mut Context<'b>,
}

fn now<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn later<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl io::Read for Now<'_, '_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut to = ReadBuf::new(to);
        now(Pin::new(&mut *self.stream).poll_read(self.context, &mut to))?;
        Ok(to.filled().len())
    }
}

impl io::Write for Now<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now(Pin::new(&mut *self.stream).poll_write(self.context, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Starts to serve a connection.
    pub(super) fn new(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self { stream, session })
    }

    /// Sends pending TLS data.
    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut to = Now {
                stream: &mut self.stream,
                context,
            };
            ready!(later(self.session.write_tls(&mut to)))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            // Unsent data must not block reading; the next turn sends it.
            if let Poll::Ready(Err(error)) = self.send(context) {
                return Poll::Ready(Err(error));
            }
            match self.session.reader().read(to.initialize_unfilled()) {
                Ok(count) => {
                    to.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let this = &mut *self;
            let mut from = Now {
                stream: &mut this.stream,
                context,
            };
            ready!(later(this.session.read_tls(&mut from)))?;
            this.session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // The session holds written data, and takes no more before it has sent that.
        ready!(self.send(context))?;
        let count = self.session.writer().write(bytes)?;
        if let Poll::Ready(Err(error)) = self.send(context) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
