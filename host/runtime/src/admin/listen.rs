//! Where it listens, and that it goes on serving while the loops are busy: in tasks of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::{Reads, http};
use crate::config::{self, AdminAt};
use crate::run::SetupError;
use crate::socket::{Place, may_ask};

/// So many connections of each address are served at once; more wait to be accepted. Each is a file of the process, which
/// has 1024 by default, and the Engine needs some.
const CONNECTIONS_MAX: usize = 128;

/// After an accept that failed, such as for want of files, the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The addresses of `[admin]`, served until this is dropped.
pub struct Admin {
    tasks: Vec<AbortHandle>,
    /// Removes the socket when the host goes.
    _place: Option<Place>,
    /// Where it listens, as one would ask it.
    pub addresses: Vec<String>,
}

impl Admin {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// Where an address can't be had.
    pub async fn start(config: &config::Admin, reads: &Arc<Reads>) -> Result<Self, SetupError> {
        let mut this = Self {
            tasks: Vec::new(),
            _place: None,
            addresses: Vec::new(),
        };
        match &config.listen {
            Some(AdminAt::Tcp(address)) => {
                let listener = bind(*address, "admin.listen").await?;
                let routes = http::secured(http::local(http::read_only(super::routes(reads))));
                this.serve_tcp(listener, routes);
            }
            Some(AdminAt::Unix(path)) => {
                let mut place = Place::take(path).await?;
                let listener = place.listen()?;
                this._place = Some(place);
                this.addresses.push(format!("unix:{}", path.display()));
                this.serve(OwnUser(listener), http::secured(http::read_only(super::routes(reads))));
            }
            None => {}
        }
        if let Some(address) = config.metrics_listen {
            let listener = bind(address, "admin.metrics_listen").await?;
            this.serve_tcp(listener, http::secured(http::read_only(super::public_routes(reads))));
        }
        for address in &this.addresses {
            tracing::info!("admin address: {address}");
        }
        // It is begun once.
        let _ = reads.listens.set(this.addresses.clone());
        Ok(this)
    }

    fn serve_tcp(&mut self, listener: TcpListener, routes: Router) {
        if let Ok(address) = listener.local_addr() {
            self.addresses.push(format!("http://{address}"));
        }
        let listener = Limited {
            listener,
            free: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        };
        self.serve(listener, routes);
    }

    fn serve<L: Listener>(&mut self, listener: L, routes: Router)
    where
        L::Addr: std::fmt::Debug,
    {
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!("the admin address serves no more: {error}");
            }
        });
        self.tasks.push(task.abort_handle());
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, SetupError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| SetupError::Failed(format!("{key}: listening on {address}: {error}; give another address")))
}

/// Accepts no more than are served.
struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

/// A connection, and its place among those that are served.
type Placed = tokio_io::Placed<TcpStream>;

impl Listener for Limited {
    type Io = Placed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // Nobody closes it.
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else {
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => return (Placed::new(stream, permit), address),
                Err(error) => {
                    tracing::warn!("admin address: accepting a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Listens to root and the host's own user.
pub(crate) struct OwnUser(pub(crate) UnixListener);

impl Listener for OwnUser {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            match may_ask(&stream) {
                Ok(()) => return (stream, address),
                Err(why) => tracing::warn!("a socket of the host: {why}"),
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A stream that holds something until it ends.
mod tokio_io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::OwnedSemaphorePermit;

    pub(super) struct Placed<S> {
        stream: S,
        _permit: OwnedSemaphorePermit,
    }

    impl<S> Placed<S> {
        pub(super) fn new(stream: S, permit: OwnedSemaphorePermit) -> Self {
            Self {
                stream,
                _permit: permit,
            }
        }
    }

    impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }
}
