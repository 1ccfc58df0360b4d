//! Connections to a server, through the environment's proxy if there is one, and with TLS if the URL asks for it.
//!
//! ```text
//! http:  Connection -> Socket -> server             Connection -> Socket -> proxy (asked by full URL) -> server
//! https: Connection -> TLS -> Socket -> server      Connection -> TLS -> tunnel -> Socket -> proxy -> server
//! ```

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::uri::{Scheme, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection as Connects};
use hyper_util::client::proxy::matcher::Intercept;
use rustls::ClientConfig;
use tower::Service;

use super::socket::{Dialer, Refused};
use crate::fence::Fence;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Connection, BoxError>> + Send>>;

/// Opens connections.
#[derive(Clone)]
pub struct Connector {
    route: Route,
    fence: Fence,
    timeout: Duration,
}

/// The route to the server. It is chosen once because there is only one server.
#[derive(Clone)]
enum Route {
    /// To the server, or to this proxy, which forwards each request.
    Direct(Option<Uri>, HttpsConnector<Dialer>),
    /// The proxy forwards bytes.
    Tunnelled(HttpsConnector<Tunnel<HttpsConnector<Dialer>>>),
}

/// How to connect to the server.
pub struct Way {
    /// For the server, and for a proxy but for its protocol.
    pub tls: ClientConfig,
    /// The proxy; `None` for a direct connection.
    pub proxy: Option<Intercept>,
    /// The scheme of the server's URL.
    pub scheme: String,
    /// The user agent that a tunnel's proxy sees.
    pub agent: HeaderValue,
    /// For one connection, including TLS and a tunnel if there are any.
    pub connect_timeout: Duration,
}

impl Connector {
    /// Its connections carry requests while `fence` lets them through.
    pub fn new(way: &Way, fence: &Fence) -> Self {
        let (fence, timeout, tls) = (fence.clone(), way.connect_timeout, way.tls.clone());
        // The protocol to a proxy is not the protocol to the server behind it.
        let mut tls_to_proxy = tls.clone();
        tls_to_proxy.alpn_protocols.clear();
        let dialer = Dialer::new(fence.clone(), timeout);
        let route = match &way.proxy {
            Some(proxy) if way.scheme == Scheme::HTTPS.as_str() => {
                let to_proxy = HttpsConnector::from((dialer, tls_to_proxy));
                let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                tunnel = tunnel.with_headers(HeaderMap::from_iter([(USER_AGENT, way.agent.clone())]));
                Route::Tunnelled(HttpsConnector::from((tunnel, tls)))
            }
            proxy => {
                let proxy = proxy.as_ref().map(|proxy| proxy.uri().clone());
                Route::Direct(proxy, HttpsConnector::from((dialer, tls)))
            }
        };
        Self { route, fence, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.route {
            Route::Direct(_, connector) => connector.poll_ready(cx),
            Route::Tunnelled(connector) => connector.poll_ready(cx),
        }
    }

    fn call(&mut self, engine: Uri) -> Connecting {
        let connecting: Connecting = match &mut self.route {
            Route::Direct(proxy, connector) => {
                connection(connector.call(proxy.clone().unwrap_or(engine)), proxy.is_some())
            }
            Route::Tunnelled(connector) => connection(connector.call(engine), false),
        };
        let (fence, timeout) = (self.fence.clone(), self.timeout);
        // The timeout is here and not around the request, because a connection is completed even if the request got
        // another one.
        Box::pin(async move {
            tokio::select! {
                biased;
                connected = connecting => connected,
                () = fence.over() => Err(Refused { begun: false }.into()),
                () = tokio::time::sleep(timeout) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

fn connection<T: Io + 'static>(
    connecting: impl Future<Output = Result<T, BoxError>> + Send + 'static,
    is_forwarded: bool,
) -> Connecting {
    Box::pin(async move {
        Ok(Connection {
            io: Box::new(connecting.await?),
            is_forwarded,
            unanswered: false,
        })
    })
}

trait Io: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> Io for T {}

/// One connection, on which requests and answers alternate.
pub struct Connection {
    io: Box<dyn Io>,
    /// The other end is a proxy that wants full URLs.
    is_forwarded: bool,
    /// Whether anything was written since the last read.
    unanswered: bool,
}

impl Connection {
    /// Records what was written, so that a refusal knows what was written before.
    fn written(&mut self, written: io::Result<usize>) -> io::Result<usize> {
        match &written {
            Ok(bytes) => self.unanswered |= *bytes > 0,
            Err(error) if Refused::among(error).is_some() => {
                let begun = self.unanswered;
                return Err(Refused { begun }.into_io());
            }
            Err(_) => {}
        }
        written
    }
}

impl Connects for Connection {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_forwarded)
    }
}

impl Read for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        // An answer, or the end of the connection, after which nothing is written.
        self.unanswered = false;
        Poll::Ready(Ok(()))
    }
}

impl Write for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf));
        Poll::Ready(self.written(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS now writes the bytes that it took earlier.
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
        Poll::Ready(self.written(flushed.map(|()| 0)).map(drop))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
