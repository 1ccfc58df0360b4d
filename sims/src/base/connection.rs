//! Connections that a handler can end without an answer.
//!
//! A handler can only answer; it cannot close its connection. So the handler marks the connection, and the stream then
//! refuses to write. The HTTP library drops the connection, and the client sees it end where the answer should begin.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    extract::connect_info::Connected,
    response::Response,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// The connection of a request, as its handler sees it.
#[derive(Clone, Default)]
pub(crate) struct Connection {
    is_cut: Arc<AtomicBool>,
}

impl Connection {
    /// Ends the connection in place of an answer. The returned response never reaches the client.
    pub(crate) fn cut(&self) -> Response {
        self.is_cut.store(true, Ordering::Release);
        Response::default()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_cut() {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            Ok(())
        }
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Connection {
    fn connect_info(incoming: IncomingStream<'_, CuttableListener>) -> Self {
        incoming.io().connection.clone()
    }
}

/// Accepts connections that can be cut.
pub(crate) struct CuttableListener(pub(crate) TcpListener);

impl Listener for CuttableListener {
    type Io = CuttableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CuttableStream, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.0).await;
        // An answer is one small write: waiting for more data would only add latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(target: "trueup::sim", %error, "TCP_NODELAY was not set");
        }
        (
            CuttableStream {
                stream,
                connection: Connection::default(),
            },
            peer,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A TCP stream that refuses to write once it is cut.
pub(crate) struct CuttableStream {
    stream: TcpStream,
    connection: Connection,
}

impl AsyncRead for CuttableStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.connection.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
