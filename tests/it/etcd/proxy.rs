//! A proxy between a client and its etcd that can misbehave.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Passes bytes on, both ways, by default.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Loses answers: reads the server's bytes and drops them.
    swallows: AtomicBool,
    /// Loses questions too, like a member that hangs.
    hangs: AtomicBool,
    swallowed: Notify,
    connections: AtomicU64,
    /// The open connections, and some that have ended.
    passing: Mutex<Vec<JoinHandle<()>>>,
}

impl Proxy {
    pub(crate) async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let passing = tokio::spawn(pass(client, address.clone(), Arc::clone(&shared)));
                    shared.passing.lock().unwrap().push(passing);
                }
            }
        });
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections, and waits for that. Accepts new ones.
    pub(crate) async fn cut(&self) {
        for passing in self.abort() {
            let _ = passing.await;
        }
    }

    fn abort(&self) -> Vec<JoinHandle<()>> {
        let passing = std::mem::take(&mut *self.shared.passing.lock().unwrap());
        passing.iter().for_each(JoinHandle::abort);
        passing
    }

    /// Starts or stops losing answers.
    pub(crate) fn swallow(&self, swallows: bool) {
        self.shared.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Waits until an answer was lost.
    pub(crate) async fn swallowed(&self) {
        self.shared.swallowed.notified().await;
    }

    /// Starts or stops blocking questions and answers.
    pub(crate) fn hang(&self, hangs: bool) {
        self.shared.hangs.store(hangs, Ordering::SeqCst);
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.abort();
    }
}

async fn pass(client: TcpStream, address: String, shared: Arc<Shared>) {
    // If etcd is down, the connection ends.
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = copy(from_client, to_server, &shared, false) => {}
        () = copy(from_server, to_client, &shared, true) => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    shared: &Shared,
    is_answers: bool,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if shared.hangs.load(Ordering::SeqCst) {
            continue;
        }
        if is_answers && shared.swallows.load(Ordering::SeqCst) {
            shared.swallowed.notify_one();
            continue;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
