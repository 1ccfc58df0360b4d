//! The tests' API server by itself, to try kubectl and trueup by hand:
//!
//! ```text
//! cargo run --example api-server -- --listen 127.0.0.1:8001 --kubeconfig kubeconfig
//! kubectl --kubeconfig kubeconfig get services --all-namespaces
//! trueup run --config trueup.toml
//! ```

#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "written for tests, which fail where they stand and use more of it"
)]
#[path = "mod.rs"]
mod api_server;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// A Kubernetes API server for tests, with nothing in it. It ends with Ctrl-C, and its objects with it.
#[derive(Debug, Parser)]
struct Args {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8001")]
    listen: SocketAddr,
    /// Write a kubeconfig file for it here.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Speak TLS, with a certificate by an authority that the kubeconfig file names (made by `openssl`).
    #[arg(long)]
    tls: bool,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let server = api_server::ApiServer::start_on(args.listen, args.tls)?;
    println!("listening on {}", server.url());
    if let Some(file) = args.kubeconfig {
        std::fs::write(&file, server.kubeconfig(api_server::ADMIN, "a-token-for-tests"))?;
        println!("kubectl --kubeconfig {} get services --all-namespaces", file.display());
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(tokio::signal::ctrl_c())
}
