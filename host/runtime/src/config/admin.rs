//! `[admin]`: where a host that runs can be looked at over HTTP, beside its control socket.
//!
//! What can be read there names every Service and address, so it is for this machine alone; liveness and metrics, which a
//! kubelet and Prometheus ask for from outside, have an address of their own.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::section::Section;

/// `[admin]`. Keys: `listen` and `metrics_listen`; default: neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// Where everything can be read; none: on the control socket alone.
    pub listen: Option<AdminAt>,
    /// Where `/healthz`, `/readyz` and `/metrics` alone can be read; none: nowhere else.
    pub metrics_listen: Option<SocketAddr>,
}

/// Where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAt {
    /// On loopback. Port 0 takes a free one.
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
    pub(super) fn read(mut section: Section<'_>, folder: &Path) -> Self {
        let must = "be a loopback address with a port, such as `127.0.0.1:9482`, or `unix:PATH`; health and metrics alone \
                    may be on any address: `metrics_listen`";
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
        section.end();
        Self { listen, metrics_listen }
    }
}
