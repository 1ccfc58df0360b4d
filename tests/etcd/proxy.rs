//! What stands between a client and its etcd, and can be bad at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// Passes bytes on, both ways, as long as it is told nothing else.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Answers get lost: what the server says is read and thrown away.
    swallows: AtomicBool,
    /// Questions too: a member that hangs.
    hangs: AtomicBool,
    swallowed: Notify,
    connections: AtomicU64,
    /// Moves when all connections end.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(pass(client, address.clone(), Arc::clone(&shared)));
                }
            }
        });
        Self {
            port,
            shared,
            accepting,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends every connection there is. New ones are taken.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on answers are lost.
    pub fn swallow(&self, swallows: bool) {
        self.shared.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Waits until an answer was lost.
    pub async fn swallowed(&self) {
        self.shared.swallowed.notified().await;
    }

    /// From now on neither questions nor answers pass.
    pub fn hang(&self, hangs: bool) {
        self.shared.hangs.store(hangs, Ordering::SeqCst);
    }

    /// How many connections were made.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn pass(client: TcpStream, address: String, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    // An etcd that is down is a connection that ends.
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = cuts.changed() => {}
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
