//! `[admin]` and `[telemetry]`: what operators see of a running host.
//!
//! `[admin]` adds HTTP addresses to the control socket. The data names every Service and address, so only this machine
//! may read it. Liveness and metrics, which a kubelet and Prometheus read from outside, have their own address.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::section::{Section, chosen, words};

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

pub(super) fn read_admin(mut section: Section<'_>) -> Admin {
    let must = "be a loopback address with a port, such as `127.0.0.1:9482`, or `unix:PATH`; health and metrics alone \
                may be on any address: `metrics_listen`";
    let listen = section.value("listen", must, |given| {
        let text = given.filled()?;
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| AdminAt::Unix(given.folder.join(path)));
        }
        let address: SocketAddr = text.parse().ok()?;
        address.ip().is_loopback().then_some(AdminAt::Tcp(address))
    });
    let must = "be an address with a port, such as `0.0.0.0:9483`";
    let metrics_listen = section.value("metrics_listen", must, |given| given.text()?.parse().ok());
    Admin { listen, metrics_listen }
}

/// `[telemetry]`: what the host reports beyond its metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// The format of log lines on stderr. Default: text.
    pub log: LogFormat,
    /// The base URL of a collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. `None`: no traces, unless the
    /// standard variable `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.
    pub otlp: Option<String>,
    /// The sampled fraction of decisions, 0 to 1. Default: 1.
    pub sample: f64,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// The names of the formats.
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

impl LogFormat {
    /// The variable for the key.
    pub const VARIABLE: &'static str = "TRUEUP_TELEMETRY_LOG";

    /// The format with this name, for commands that read no configuration.
    ///
    /// # Errors
    /// One line that says what the name must be.
    pub fn named(word: &str) -> Result<Self, String> {
        let must = || format!("{}: was \"{word}\", must be {}", Self::VARIABLE, words(&FORMATS));
        chosen(word, &FORMATS).ok_or_else(must)
    }
}

pub(super) fn read(mut section: Section<'_>) -> Telemetry {
    let url = "be the URL of a collector, such as http://127.0.0.1:4318";
    let sample = section.value("sample", "be a number from 0 to 1", |given| {
        given.number().filter(|part| (0.0..=1.0).contains(part))
    });
    Telemetry {
        log: section.choice("log", LogFormat::default(), &FORMATS),
        otlp: section.value("otlp", url, |given| {
            let text = given.filled()?;
            let url = url::Url::parse(text).ok()?;
            let is_http = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
            // The log shows the URL. Secrets belong in `OTEL_EXPORTER_OTLP_HEADERS`.
            let is_public = url.username().is_empty() && url.password().is_none();
            (is_http && is_public).then(|| text.trim_end_matches('/').to_owned())
        }),
        sample: sample.unwrap_or(1.0),
    }
}
