//! `[backend.etcd]`: the store for guests that use etcd. By default it is the host's own, a file.
//!
//! This module never reads a password, a certificate or a key, only the paths to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use trueup_capabilities::etcd::remote::REQUEST_TIMEOUT;

use super::section::{Section, is_filled};

/// `[backend.etcd]`: where guests' keys are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdBackend {
    /// `kind = "etcd"`: a cluster.
    Etcd(EtcdCluster),
    /// `kind = "embedded"`, the default: the host itself, in this file. Default: `etcd.redb` in the state folder.
    Embedded(PathBuf),
    /// `kind = "simulated"`: in memory; the data is lost when the process ends.
    Simulated,
}

/// `[backend.etcd]` of the kind `etcd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdCluster {
    /// The members' client URLs, all with the same scheme.
    pub endpoints: Vec<String>,
    /// `user` and `password_file`: the name, and the file with the password. Surrounding whitespace is ignored.
    pub user: Option<(String, PathBuf)>,
    /// `ca_file`: the authorities that sign the members' certificates. `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// `cert_file` and `key_file`: our own certificate.
    pub own: Option<(PathBuf, PathBuf)>,
    /// `server_name`: the name in the members' certificates. `None`: the endpoint's host.
    pub server_name: Option<String>,
    /// `request_timeout_ms`: the timeout of a request. Default: 8 s.
    pub request_timeout: Duration,
}

/// The value of the section; a placeholder if it has a problem.
pub(super) fn read(mut section: Section<'_>, state_dir: &Path) -> EtcdBackend {
    let (kind, in_file) = section.kind(&["etcd", "embedded", "simulated"], Some("embedded"));
    let path = section.path("path");
    let cluster = read_cluster(&mut section, kind == "etcd");
    if in_file {
        if kind != "embedded" && section.has("path") {
            section.wrong_key("path", "goes with `kind = \"embedded\"` alone");
        }
        if kind != "etcd" {
            section.go_alone("etcd", &["kind", "path"]);
        }
    }
    match kind {
        "etcd" => EtcdBackend::Etcd(cluster),
        "simulated" => EtcdBackend::Simulated,
        _ => EtcdBackend::Embedded(path.unwrap_or_else(|| state_dir.join("etcd.redb"))),
    }
}

fn read_cluster(section: &mut Section<'_>, is_wanted: bool) -> EtcdCluster {
    let text = "a password does not stand here: put it into a file, and the file's path into `password_file`";
    section.refuse("password", text);
    let endpoint = |text: &str| is_endpoint(text).then(|| text.trim_end_matches('/').to_owned());
    let must = "be `http://HOST:PORT` or `https://HOST:PORT`";
    let endpoints = if is_wanted {
        section.filled_list("endpoints", must, "the members' client URLs", endpoint)
    } else {
        section.list("endpoints", must, endpoint).unwrap_or_default()
    };
    let is_tls = endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
    if is_tls && endpoints.iter().any(|endpoint| endpoint.starts_with("http://")) {
        section.wrong_key("endpoints", "are with TLS or without, not both");
    }
    let pairs = [("cert_file", "key_file"), ("user", "password_file")];
    for (one, other) in pairs.into_iter().flat_map(|(one, other)| [(one, other), (other, one)]) {
        if section.has(one) && !section.has(other) {
            section.wrong_key(one, format_args!("goes with `{other}`: add it"));
        }
    }
    if is_wanted && !is_tls && !endpoints.is_empty() {
        for key in ["ca_file", "cert_file", "key_file", "server_name"] {
            if section.has(key) {
                section.wrong_key(key, "goes with endpoints that begin with `https://`");
            }
        }
    }
    let user = section.text("user", "be a name", is_filled);
    EtcdCluster {
        endpoints,
        user: user.zip(section.path("password_file")),
        ca_file: section.path("ca_file"),
        own: section.path("cert_file").zip(section.path("key_file")),
        server_name: section.text("server_name", "be a name", is_filled),
        // Up to ten minutes: a longer timeout for one answer is a wrong unit.
        request_timeout: section.duration("request_timeout_ms", REQUEST_TIMEOUT, 1..=600_000),
    }
}

/// A URL with a port and nothing after it.
fn is_endpoint(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let Some((host, port)) = rest.and_then(|rest| rest.trim_end_matches('/').rsplit_once(':')) else {
        return false;
    };
    !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
}
