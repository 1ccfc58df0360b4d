//! A Debian `etcd-server` for one test: free loopback ports, a temporary folder; it ends with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest time for one start on a loaded machine. The ports were free a moment ago: another try gets others.
const START_MAX: Duration = Duration::from_secs(60);
const STARTS_MAX: u32 = 5;

/// Certificates for 127.0.0.1 and localhost, made for these tests; `README.md` beside them describes how.
pub fn certificate(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/certificates")).join(name)
}

pub fn pem(name: &str) -> Vec<u8> {
    std::fs::read(certificate(name)).unwrap()
}

pub struct Server {
    folder: TempDir,
    port: u16,
    peer_port: u16,
    tls: bool,
    child: Option<Child>,
}

impl Server {
    pub async fn start() -> Self {
        Self::started(false).await
    }

    /// Shows `server.pem`, and requires a certificate signed by `ca.pem`.
    pub async fn start_with_tls() -> Self {
        Self::started(true).await
    }

    async fn started(tls: bool) -> Self {
        for _ in 0..STARTS_MAX {
            // Take both at once, or the system might give one twice.
            let (one, two) = (free(), free());
            let [port, peer_port] = [&one, &two].map(|listener| listener.local_addr().unwrap().port());
            drop((one, two));
            let mut server = Self {
                folder: tempfile::tempdir().unwrap(),
                port,
                peer_port,
                tls,
                child: None,
            };
            if server.try_start().await {
                return server;
            }
        }
        panic!("etcd did not start in {STARTS_MAX} tries");
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it like a service manager.
    pub fn stop(&mut self) {
        if self.child.is_some() {
            self.signal(Signal::TERM);
        }
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// Sends a signal to the running process.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    /// Restarts it with its stored data, on the same ports.
    pub async fn start_again(&mut self) {
        for _ in 0..STARTS_MAX {
            if self.try_start().await {
                return;
            }
            // A connection of another process may have the port for a moment.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("etcd did not start again in {STARTS_MAX} tries");
    }

    /// Restarts it without data.
    pub async fn start_empty(&mut self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.start_again().await;
    }

    async fn try_start(&mut self) -> bool {
        let client = self.url();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--logger", "zap", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        if self.tls {
            command
                .arg("--client-cert-auth")
                .arg("--cert-file")
                .arg(certificate("server.pem"))
                .arg("--key-file")
                .arg(certificate("server.key"))
                .arg("--trusted-ca-file")
                .arg(certificate("ca.pem"));
        }
        // Ignore variables from the environment of the test run.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"ETCD_") {
                command.env_remove(name);
            }
        }
        let spawned = command.spawn();
        let child = spawned.expect("etcd is needed: `apt-get install etcd-server`");
        self.child = Some(child);
        self.is_up().await
    }

    /// Waits until it answers; false if it ended instead, for instance because another process took its port.
    async fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            // Read a key that no test has; any answer will do: with authentication it is a refusal.
            if let Ok(mut client) = Client::connect([self.url()], Some(self.options())).await {
                match client.get("up", None).await {
                    Ok(_) => return true,
                    Err(etcd_client::Error::GRpcStatus(status)) if status.message().starts_with("etcdserver: user") => {
                        return true;
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        panic!("etcd does not answer: {log}");
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new();
        if self.tls {
            let tls = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(pem("ca.pem")))
                .identity(Identity::from_pem(pem("client.pem"), pem("client.key")));
            options = options.with_tls(tls);
        }
        options
    }

    /// A client that can do more than any guest may.
    pub async fn client(&self) -> Client {
        Client::connect([self.url()], Some(self.options())).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}
