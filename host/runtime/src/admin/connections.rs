//! The connections of one address: a fixed maximum, and no client can keep the others out.
//!
//! Any client that reaches an address can open connections and send as slowly as it likes. So a request's head has a
//! deadline, and if all slots are taken, the next connection replaces the one that has been without a request for the
//! longest time, also one whose client reads no answer. A `/healthz` probe must never wait: Kubernetes restarts a host
//! that does not answer it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The maximum number of connections per address. Each needs a file descriptor. A process has 1024 by default, and the
/// Engine needs some of them.
const CONNECTIONS_MAX: usize = 128;

/// How long a request's head may take, counted from when the connection opened or from its last answer. A probe sends
/// its request in a single packet. Prometheus scrapes every 15 s or less often, and opens a new connection then.
pub(super) const HEAD_MAX: Duration = Duration::from_secs(5);

/// The pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until dropped. Then each connection ends after its current answer.
pub(super) async fn serve(listener: TcpListener, routes: Router, head_max: Duration) {
    let connections = Arc::new(Connections::default());
    let mut came = 0;
    // Receivers learn from it when this future is dropped.
    let (_serving, served) = watch::channel(());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                came += 1;
                let slot = (Arc::clone(&connections), came);
                let task = connection(stream, slot, routes.clone(), head_max, served.clone());
                connections.enter(came, || tokio::spawn(task).abort_handle());
            }
            Err(error) => {
                tracing::warn!("admin address: accepting a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    (all, id): (Arc<Connections>, u64),
    routes: Router,
    head_max: Duration,
    mut served: watch::Receiver<()>,
) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|request| {
        all.asked(id);
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_max)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends does not matter here.
    tokio::select! {
        _ = &mut connection => {}
        _ = served.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
    all.0.lock().remove(&id);
}

/// The open connections, in the order of their arrival.
#[derive(Debug, Default)]
struct Connections(Mutex<BTreeMap<u64, Connection>>);

#[derive(Debug)]
struct Connection {
    /// The time of the last request, or of the arrival before the first request.
    asked: Instant,
    task: AbortHandle,
}

impl Connections {
    /// Enters a connection. If no slot is free, it takes the slot of the connection that has been without a request
    /// for the longest time.
    fn enter(&self, id: u64, start: impl FnOnce() -> AbortHandle) {
        let mut open = self.0.lock();
        if open.len() >= CONNECTIONS_MAX {
            let longest = open.iter().min_by_key(|(_, connection)| connection.asked);
            if let Some(taken) = longest.map(|(id, _)| *id).and_then(|id| open.remove(&id)) {
                taken.task.abort();
            }
        }
        // A connection that ends at once waits for the lock, to remove what is inserted here.
        let asked = Instant::now();
        open.insert(id, Connection { asked, task: start() });
    }

    fn asked(&self, id: u64) {
        if let Some(connection) = self.0.lock().get_mut(&id) {
            connection.asked = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// Ends a test that hangs.
    const GUARD: Duration = Duration::from_secs(60);

    async fn serving(head_max: Duration) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/healthz", get(async || "ok\n"));
        (address, tokio::spawn(serve(listener, routes, head_max)))
    }

    async fn healthz(stream: &mut TcpStream) -> String {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{answer:?}");
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn health_is_answered_while_slow_clients_take_every_place() {
        let (address, serving) = serving(GUARD).await;
        let mut others = Vec::new();
        for _ in 0..CONNECTIONS_MAX + 12 {
            others.push(TcpStream::connect(address).await.unwrap());
        }
        let trickle = tokio::spawn(async move {
            let mut bytes = b"GET /healthz HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'a'));
            loop {
                let byte = [*bytes.next().unwrap()];
                for other in &mut others {
                    // The host closes the connections that lost their slot.
                    let _ = other.write_all(&byte).await;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let probe = async {
            for _ in 0..3 {
                let mut stream = TcpStream::connect(address).await.unwrap();
                assert!(healthz(&mut stream).await.starts_with("HTTP/1.1 200"));
            }
        };
        timeout(GUARD, probe).await.unwrap();
        trickle.abort();
        serving.abort();
    }

    #[tokio::test]
    async fn a_head_that_trickles_has_a_deadline() {
        let (address, serving) = serving(Duration::from_millis(50)).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
        let trickled = async {
            while stream.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(GUARD, trickled).await.unwrap();
        serving.abort();
    }

    #[tokio::test]
    async fn the_place_of_who_asked_nothing_for_longest_is_taken() {
        let all = Connections::default();
        let sleeper = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let count = CONNECTIONS_MAX as u64;
        (0..count).for_each(|id| all.enter(id, sleeper));
        all.asked(0);
        all.enter(count, sleeper);
        let open: Vec<u64> = all.0.lock().keys().copied().collect();
        let without_the_second: Vec<u64> = (0..=count).filter(|id| *id != 1).collect();
        assert_eq!(open, without_the_second);
    }

    #[tokio::test]
    async fn a_connection_that_waits_ends_with_the_address() {
        let (address, serving) = serving(GUARD).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        healthz(&mut stream).await;
        serving.abort();
        let mut rest = Vec::new();
        timeout(GUARD, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{rest:?}");
    }
}
