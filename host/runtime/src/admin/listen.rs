//! The admin listeners. Their tasks are separate, so they keep serving while the loops are busy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use tokio::net::{TcpListener, UnixStream, unix};
use tokio::task::JoinSet;
use trueup_config::{self as config, AdminAt};
use trueup_work::setup::SetupError;
use trueup_work::socket::{OwnSocket, SocketPath, may_ask};

use super::Reads;
use super::connections::{self, HEAD_MAX};
use crate::http;

/// Right after a configuration change, a previous host in this process may still hold an address.
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// How many times the host tries to bind an address.
const BINDS_MAX: u32 = 20;

/// Serves the addresses of `[admin]` until dropped.
#[derive(Default)]
pub struct Admin {
    tasks: JoinSet<()>,
    /// The addresses it listens on, in the form a client uses.
    pub addresses: Vec<String>,
}

impl Admin {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// If an address cannot be bound.
    pub async fn start(config: &config::Admin, reads: &Arc<Reads>) -> Result<Self, SetupError> {
        let mut this = Self::default();
        match &config.listen {
            Some(AdminAt::Tcp(address)) => {
                let routes = http::local(http::read_only(http::complete(super::routes(reads))));
                this.serve_tcp("admin.listen", *address, routes).await?;
            }
            Some(AdminAt::Unix(path)) => {
                let listener = own_socket(path).await?;
                this.addresses.push(format!("unix:{}", path.display()));
                let routes = http::secured(http::read_only(http::complete(super::routes(reads))));
                this.tasks.spawn(serve_own_user("the admin address", listener, routes));
            }
            None => {}
        }
        if let Some(address) = config.metrics_listen {
            let routes = http::read_only(http::complete(super::public_routes(reads)));
            this.serve_tcp("admin.metrics_listen", address, routes).await?;
        }
        for address in &this.addresses {
            tracing::info!("admin address: {address}");
        }
        // Ignore the error: it is set only once.
        let _ = reads.listens.set(this.addresses.clone());
        Ok(this)
    }

    async fn serve_tcp(&mut self, key: &str, address: SocketAddr, routes: Router) -> Result<(), SetupError> {
        let listener = bind(address, key).await?;
        if let Ok(address) = listener.local_addr() {
            self.addresses.push(format!("http://{address}"));
        }
        self.tasks
            .spawn(connections::serve(listener, http::secured(routes), HEAD_MAX));
        Ok(())
    }

    /// Stops listening, and closes each connection after its current answer.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// What to do if this host can't listen there.
pub(crate) fn who_listens(address: SocketAddr, key: &str) -> String {
    let port = address.port();
    format!("ss -ltnp 'sport = :{port}' shows who has it; stop that, or give another `{key}`")
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, SetupError> {
    let mut bound = TcpListener::bind(address).await;
    for _ in 1..BINDS_MAX {
        if bound.as_ref().map_err(io::Error::kind).err() != Some(io::ErrorKind::AddrInUse) {
            break;
        }
        tokio::time::sleep(BIND_PAUSE).await;
        bound = TcpListener::bind(address).await;
    }
    bound.map_err(|error| {
        let next = who_listens(address, key);
        SetupError::Failed(format!("{key}: listening on {address}: {error}; {next}"))
    })
}

/// A unix socket for root and the host's own user.
///
/// # Errors
/// If it cannot be bound.
pub(crate) async fn own_socket(path: &Path) -> Result<OwnUser, SetupError> {
    Ok(OwnUser(SocketPath::take(path).await?.listen()?))
}

/// Serves until dropped.
pub(crate) async fn serve_own_user(name: &str, listener: OwnUser, routes: Router) {
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!("{name} serves no more: {error}");
    }
}

/// Accepts root and the host's own user only.
pub(crate) struct OwnUser(OwnSocket);

impl Listener for OwnUser {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.0.accept().await;
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
