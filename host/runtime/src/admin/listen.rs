//! Where it listens, and that it goes on serving while the loops are busy: in tasks of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use super::{Reads, http};
use crate::config::{self, AdminAt};
use crate::run::SetupError;
use crate::socket::{Place, may_ask};

/// So many connections of each address are served at once; more wait to be accepted. Each is a file of the process, which
/// has 1024 by default, and the Engine needs some.
const CONNECTIONS_MAX: usize = 128;

/// A connection on which nothing moves for so long is closed: whoever leaves theirs open would keep others out. Prometheus
/// asks every minute at most, and opens another one then.
const IDLE_MAX: Duration = Duration::from_secs(90);

/// An address may still be held by what ran before in this process, under another configuration, for a moment.
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// So often it is tried.
const BINDS_MAX: u32 = 20;

/// After an accept that failed, such as for want of files, the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The addresses of `[admin]`, served until this is dropped.
pub struct Admin {
    tasks: JoinSet<()>,
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
            tasks: JoinSet::new(),
            _place: None,
            addresses: Vec::new(),
        };
        match &config.listen {
            Some(AdminAt::Tcp(address)) => {
                let listener = bind(*address, "admin.listen").await?;
                let routes = http::secured(http::local(http::read_only(http::complete(super::routes(reads)))));
                this.serve_tcp(listener, routes);
            }
            Some(AdminAt::Unix(path)) => {
                let mut place = Place::take(path).await?;
                let listener = place.listen()?;
                this._place = Some(place);
                this.addresses.push(format!("unix:{}", path.display()));
                this.serve(
                    OwnUser(listener),
                    http::secured(http::read_only(http::complete(super::routes(reads)))),
                );
            }
            None => {}
        }
        if let Some(address) = config.metrics_listen {
            let listener = bind(address, "admin.metrics_listen").await?;
            this.serve_tcp(
                listener,
                http::secured(http::read_only(http::complete(super::public_routes(reads)))),
            );
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
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!("the admin address serves no more: {error}");
            }
        });
    }

    /// Listens no more, and closes connections as soon as they were answered.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, SetupError> {
    let mut tries = 1;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BINDS_MAX => {
                tries += 1;
                tokio::time::sleep(BIND_PAUSE).await;
            }
            Err(error) => {
                return Err(SetupError::Failed(format!(
                    "{key}: listening on {address}: {error}; give another address"
                )));
            }
        }
    }
}

/// Accepts no more than are served.
struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Listener for Limited {
    type Io = Placed<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // Nobody closes it.
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else {
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => return (Placed::new(stream, permit, IDLE_MAX), address),
                Err(error) => {
                    tracing::warn!("admin address: accepting a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
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

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A connection with its place among those that are served, which ends where nothing moves on it.
struct Placed<S> {
    stream: S,
    idle: Pin<Box<Sleep>>,
    idle_max: Duration,
    _permit: OwnedSemaphorePermit,
}

impl<S> Placed<S> {
    fn new(stream: S, permit: OwnedSemaphorePermit, idle_max: Duration) -> Self {
        Self {
            stream,
            idle: Box::pin(tokio::time::sleep(idle_max)),
            idle_max,
            _permit: permit,
        }
    }

    /// The same answer, unless there is none yet and nothing moved for too long.
    fn or_idle<T>(&mut self, answer: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if answer.is_ready() {
            let until = Instant::now() + self.idle_max;
            self.idle.as_mut().reset(until);
            return answer;
        }
        let idle = self.idle.as_mut().poll(context);
        idle.map(|()| Err(io::Error::from(io::ErrorKind::TimedOut)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.or_idle(read, context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_idle(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_connection_ends_where_nothing_moves_on_it() {
        let places = Arc::new(Semaphore::new(1));
        let (mut theirs, ours) = tokio::io::duplex(64);
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let mut ours = Placed::new(ours, place, Duration::from_millis(10));
        let mut byte = [0];
        theirs.write_all(b"a").await.unwrap();
        ours.read_exact(&mut byte).await.unwrap();
        let ended = ours.read_exact(&mut byte).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        drop(ours);
        assert_eq!(places.available_permits(), 1);
    }
}
