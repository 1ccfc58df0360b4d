//! Starting and stopping a simulated server.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::pipeline::{Pipeline, Service};
use super::state_file::{self, StateFileError};

/// A stop takes no longer, whatever clients do.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated server could not start.
#[derive(Debug)]
pub struct StartError {
    server: &'static str,
    problem: Problem,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.problem)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

/// What is wrong with an address, a configuration or a state file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Loopback is the server's only protection.
    #[error("cannot listen on `{0}`: only loopback addresses, such as `127.0.0.1:0`, are allowed")]
    NotLoopback(SocketAddr),
    #[error("cannot listen on `{listen}`")]
    Listen { listen: SocketAddr, source: io::Error },
    /// The configuration contradicts itself or the state file.
    #[error("{0}")]
    Config(String),
    #[error("its state cannot be kept")]
    StateFile(#[from] StateFileError),
}

/// A simulated server that is running. It stops when it is stopped or dropped.
pub struct Server {
    local_addr: SocketAddr,
    /// Dropping it stops the server.
    stop: watch::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Starts to listen, on tasks of the current tokio runtime.
    pub(crate) async fn start<S: Service>(config: S::Config, listen: SocketAddr) -> Result<Self, StartError> {
        let started = Self::listen::<S>(config, listen).await;
        started.map_err(|problem| StartError {
            server: S::NAME,
            problem,
        })
    }

    async fn listen<S: Service>(config: S::Config, listen: SocketAddr) -> Result<Self, Problem> {
        if !listen.ip().is_loopback() {
            return Err(Problem::NotLoopback(listen));
        }
        let failed = |source| Problem::Listen { listen, source };
        // Before the state file: a second server on the same port must not touch it.
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let mut service = S::open(config)?;
        if let Some(path) = service.common().state_file.clone() {
            // Finds out now whether the file can be written, rather than at the first request.
            state_file::save(&path, service.state())?;
        }

        let (stop, mut stopping) = watch::channel(());
        let router = Pipeline::router(service, stopping.clone());
        // An answer is one small write: waiting for more data would only add latency.
        let listener = listener.tap_io(|connection| _ = connection.set_nodelay(true));
        let server = axum::serve(listener, router).with_graceful_shutdown(async move { _ = stopping.changed().await });
        let task = tokio::spawn(server.into_future());
        Ok(Self { local_addr, stop, task })
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops it. Requests in flight are dropped as if their clients had disconnected; their connections are closed.
    pub async fn stop(self) {
        drop(self.stop);
        let mut task = self.task;
        // Only a client that never ends its request can delay this.
        if tokio::time::timeout(STOP_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}
