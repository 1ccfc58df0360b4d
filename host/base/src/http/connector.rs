//! Connections to a server, through the environment's proxy if there is one, and with TLS if the URL asks for it.
//!
//! ```text
//! http:  Connection -> Socket -> server             Connection -> Socket -> proxy (asked by full URL) -> server
//! https: Connection -> TLS -> Socket -> server      Connection -> TLS -> tunnel -> Socket -> proxy -> server
//! ```

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
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};

use super::socket::{BoxError, Refused, dialer};
use crate::fence::Fence;

/// Opens connections.
pub type Connector = BoxCloneSyncService<Uri, Connection, BoxError>;

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

impl Way {
    /// A connector whose connections carry requests while `fence` lets them through. The route is chosen once because
    /// there is only one server.
    pub fn connector(&self, fence: &Fence) -> Connector {
        let (fence, timeout, tls) = (fence.clone(), self.connect_timeout, self.tls.clone());
        // The protocol to a proxy is not the protocol to the server behind it.
        let mut tls_to_proxy = tls.clone();
        tls_to_proxy.alpn_protocols.clear();
        let dialer = dialer(fence.clone(), timeout);
        let route = match &self.proxy {
            // The proxy forwards bytes.
            Some(proxy) if self.scheme == Scheme::HTTPS.as_str() => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpsConnector::from((dialer, tls_to_proxy)));
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                tunnel = tunnel.with_headers(HeaderMap::from_iter([(USER_AGENT, self.agent.clone())]));
                Connector::new(HttpsConnector::from((tunnel, tls)).map_response(|io| Connection::new(io, false)))
            }
            // To the server, or to this proxy, which forwards each request.
            proxy => {
                let proxy = proxy.as_ref().map(|proxy| proxy.uri().clone());
                let is_forwarded = proxy.is_some();
                let direct = HttpsConnector::from((dialer, tls));
                let direct = direct.map_response(move |io| Connection::new(io, is_forwarded));
                Connector::new(direct.map_request(move |server: Uri| proxy.clone().unwrap_or(server)))
            }
        };
        // The timeout is here and not around the request, because a connection is completed even if the request got
        // another one.
        Connector::new(service_fn(move |server: Uri| {
            let connecting = route.clone().oneshot(server);
            let fence = fence.clone();
            async move {
                tokio::select! {
                    biased;
                    connected = connecting => connected,
                    () = fence.over() => Err(Refused { begun: false }.into()),
                    () = tokio::time::sleep(timeout) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                }
            }
        }))
    }
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
    fn new(io: impl Io + 'static, is_forwarded: bool) -> Self {
        Self {
            io: Box::new(io),
            is_forwarded,
            unanswered: false,
        }
    }

    /// Records what was written, so that a refusal knows what was written before.
    fn written(&mut self, written: io::Result<usize>) -> io::Result<usize> {
        match &written {
            Ok(bytes) => self.unanswered |= *bytes > 0,
            Err(error) if Refused::among(error).is_some() => {
                return Err(Refused { begun: self.unanswered }.into_io());
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
