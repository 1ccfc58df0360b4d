//! The port and its connections. A test can cut, close and open them.
//!
//! Knows nothing of the contents of a connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::tls::Tls;

/// The pause before the next try after the port could not be opened, or a connection not accepted.
const RETRY: Duration = Duration::from_millis(5);

/// The desired and the actual state of the port.
#[derive(Debug)]
pub(super) struct Gate {
    wanted: watch::Sender<bool>,
    is_open: AtomicBool,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
}

impl Gate {
    /// Open.
    pub(super) fn new() -> Self {
        Self {
            wanted: watch::Sender::new(true),
            is_open: AtomicBool::new(true),
            cuts: watch::Sender::new(0),
        }
    }

    /// Opens or closes the port, and returns once that is done. Closing cuts every connection too.
    pub(super) fn set_open(&self, open: bool) {
        self.wanted.send_replace(open);
        while self.is_open.load(Ordering::SeqCst) != open {
            std::thread::sleep(RETRY);
        }
        if !open {
            self.cut();
        }
    }

    /// Cuts every connection.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// The port.
#[derive(Debug)]
pub(super) struct Door {
    listener: Option<TcpListener>,
    address: SocketAddr,
    gate: Arc<Gate>,
    wanted: watch::Receiver<bool>,
    tls: Option<Arc<ServerConfig>>,
}

impl Door {
    /// Takes an open port; with TLS if there are certificates.
    pub(super) fn new(listener: TcpListener, gate: Arc<Gate>, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        Ok(Self {
            tls,
            address: listener.local_addr()?,
            wanted: gate.wanted.subscribe(),
            listener: Some(listener),
            gate,
        })
    }

    /// Opens or closes the port as desired.
    async fn settle(&mut self) {
        let open = *self.wanted.borrow_and_update();
        if !open {
            self.listener = None;
        }
        while open && self.listener.is_none() {
            match TcpListener::bind(self.address).await {
                Ok(listener) => self.listener = Some(listener),
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        self.gate.is_open.store(open, Ordering::SeqCst);
    }
}

impl Listener for Door {
    type Io = Wire;
    type Addr = Connection;

    async fn accept(&mut self) -> (Wire, Connection) {
        loop {
            self.settle().await;
            let Some(listener) = &self.listener else {
                // The gate lives as long as the port.
                _ = self.wanted.changed().await;
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => return Wire::new(stream, &self.gate, self.tls.clone()),
                    Err(_) => tokio::time::sleep(RETRY).await,
                },
                _ = self.wanted.changed() => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<Connection> {
        Ok(Connection(Arc::new(watch::Sender::new(false))))
    }
}

/// One connection, as its handlers see it.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<watch::Sender<bool>>);

impl Connection {
    /// Cuts the connection.
    pub(super) fn cut(&self) {
        self.0.send_replace(true);
    }
}

impl Connected<IncomingStream<'_, Door>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.remote_addr().clone()
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Plain, or within TLS.
type Bytes = Box<dyn Stream>;

/// The bytes of a connection, until it is cut.
pub(super) struct Wire {
    stream: Bytes,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_cut: bool,
}

impl Wire {
    fn new(stream: TcpStream, gate: &Gate, tls: Option<Arc<ServerConfig>>) -> (Self, Connection) {
        let (mut all, connection) = (gate.cuts.subscribe(), Connection(Arc::new(watch::Sender::new(false))));
        let mut this = connection.0.subscribe();
        // Send small answers at once instead of together.
        _ = stream.set_nodelay(true);
        let cut = async move {
            tokio::select! {
                _ = all.changed() => {}
                () = async { if this.changed().await.is_err() { std::future::pending().await } } => {}
            }
        };
        let stream: Bytes = match tls {
            Some(config) => Box::new(Tls::new(stream, config)),
            None => Box::new(stream),
        };
        let wire = Self {
            stream,
            cut: Box::pin(cut),
            is_cut: false,
        };
        (wire, connection)
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(context).is_ready();
        if self.is_cut {
            Err(io::ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
