//! Starting and stopping a simulated server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::pipeline::{Pipeline, Service};
use super::state_file;

/// A stop takes no longer, whatever clients do.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated server could not start: what is wrong with an address, a configuration or a state file.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct StartError {
    problem: String,
    source: Option<io::Error>,
}

/// The configuration contradicts itself or the state file.
impl From<String> for StartError {
    fn from(problem: String) -> Self {
        let source = None;
        Self { problem, source }
    }
}

/// The state file can't be used.
impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        let problem = "its state cannot be kept".to_owned();
        let source = Some(error);
        Self { problem, source }
    }
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
        started.map_err(|error| StartError {
            problem: format!("{}: {}", S::NAME, error.problem),
            ..error
        })
    }

    async fn listen<S: Service>(config: S::Config, listen: SocketAddr) -> Result<Self, StartError> {
        // Loopback is the server's only protection.
        if !listen.ip().is_loopback() {
            return Err(StartError::from(format!(
                "cannot listen on `{listen}`: only loopback addresses, such as `127.0.0.1:0`, are allowed"
            )));
        }
        let failed = |error| StartError {
            problem: format!("cannot listen on `{listen}`"),
            source: Some(error),
        };
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
