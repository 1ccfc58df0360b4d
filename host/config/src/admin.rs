//! `[admin]`: HTTP addresses of a running host, in addition to its control socket.
//!
//! The data names every Service and address, so only this machine may read it. Liveness and metrics, which a kubelet
//! and Prometheus read from outside, have their own address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::Section;

/// `[admin]`. Keys: `listen` and `metrics_listen`; default: neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// Serves everything. `None`: only the control socket does.
    pub listen: Option<AdminAt>,
    /// Serves only `/healthz`, `/readyz` and `/metrics`. `None`: there is no such address.
    pub metrics_listen: Option<SocketAddr>,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAt {
    /// On loopback. Port 0 takes a free port.
    Tcp(SocketAddr),
    /// On a unix socket, for the host's user and root.
    Unix(PathBuf),
}

impl fmt::Display for AdminAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Admin {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let must = "be a loopback address with a port, such as `127.0.0.1:9482`, or `unix:PATH`; health and metrics alone \
                    may be on any address: `metrics_listen`";
        let folder = section.folder();
        let listen = section.value("listen", must, |given| {
            let text = given.filled()?;
            match text.strip_prefix("unix:") {
                Some("") => None,
                Some(path) => Some(AdminAt::Unix(folder.join(path))),
                None => {
                    let address: SocketAddr = text.parse().ok()?;
                    address.ip().is_loopback().then_some(AdminAt::Tcp(address))
                }
            }
        });
        let must = "be an address with a port, such as `0.0.0.0:9483`";
        let metrics_listen = section.value("metrics_listen", must, |given| given.text()?.parse().ok());
        Self { listen, metrics_listen }
    }
}
