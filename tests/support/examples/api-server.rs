//! The tests' API server by itself, to try kubectl and trueup by hand:
//!
//! ```text
//! cargo run -p trueup-test-support --example api-server -- --listen 127.0.0.1:8001 --kubeconfig kubeconfig
//! kubectl --kubeconfig kubeconfig get services --all-namespaces
//! trueup run --config trueup.toml
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use trueup_test_support::api_server;

/// A Kubernetes API server for tests, initially empty. It ends with Ctrl-C, and loses its objects.
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
