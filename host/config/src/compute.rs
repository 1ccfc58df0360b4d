//! `[backend.neg]` and `[sim.compute]`: which Compute Engine holds the NEGs, how the host calls it, and whether it is
//! simulated.
//!
//! This module never reads a token or a key: [`CredentialsAt`] says where to find them.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use trueup_capabilities::lbaas::anexia::TokenAt;
use trueup_capabilities::neg::compute::Settings;
use trueup_sims::compute::ServerConfig;

use super::keyed::{Backend, SimServer, Url, goes_alone, read_listen};
use super::lbaas::{read_token, read_url};
use super::neg::{NegAdapter, RESOURCE, is_resource_name};
use super::section::{Given, Layer, Section};

/// The token of a backend that follows `[sim.compute]` and names none: the simulation then accepts any token.
pub const SIM_TOKEN: &str = "simulated";

/// `[backend.neg]`: the Compute Engine that the host reads from and writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NegBackend {
    /// `kind = "compute"`: a Compute Engine over HTTP.
    Compute(Box<ComputeBackend>),
    /// `kind = "simulated"`: one in this process, empty at every start.
    Simulated,
}

/// `[backend.neg]` of the kind `compute`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeBackend {
    /// Its `endpoint` is valid only as [`ComputeBackend::settings`] describes.
    settings: Settings,
    /// The file has no `url`, but a `[sim.compute]`.
    at_sim: bool,
    /// Where the host's credentials are.
    pub credentials: CredentialsAt,
}

impl Backend for NegBackend {
    const SIM: &'static str = "compute";

    fn is_simulated(&self) -> bool {
        *self == Self::Simulated
    }

    fn use_sim(&mut self, address: SocketAddr) {
        if let Self::Compute(backend) = self {
            backend.settings = backend.settings(Some(address));
            backend.at_sim = false;
        }
    }
}

impl ComputeBackend {
    /// The settings. `sim` is the address of `[sim.compute]`, if there is one; without its own `url`, the backend uses
    /// that address.
    pub fn settings(&self, sim: Option<SocketAddr>) -> Settings {
        let mut settings = self.settings.clone();
        if let (true, Some(address)) = (self.at_sim, sim) {
            settings.endpoint = format!("http://{address}/compute/v1");
        }
        settings
    }
}

/// Where the host's credentials for Compute Engine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsAt {
    /// `token_file` or `token_env`: a token that is sent unchanged.
    Token(TokenAt),
    /// `credentials_file`: the key of a service account.
    KeyFile(PathBuf),
    /// No key is set: the host uses the key that `GOOGLE_APPLICATION_CREDENTIALS` names, else the metadata server.
    ApplicationDefault,
    /// No key is set, and the backend follows `[sim.compute]`: [`SIM_TOKEN`].
    Simulated,
}

impl fmt::Display for CredentialsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(token) => token.fmt(f),
            Self::KeyFile(path) => write!(f, "the key file `{}`", path.display()),
            Self::ApplicationDefault => f.write_str("GOOGLE_APPLICATION_CREDENTIALS, else the metadata server"),
            Self::Simulated => f.write_str("none: [sim.compute] lets in any"),
        }
    }
}

/// `[sim.compute]`: a simulated Compute Engine that the host starts. Without a token it accepts any.
pub type ComputeSim = SimServer<Option<TokenAt>, ServerConfig>;

impl ComputeSim {
    /// The server's settings. It accepts `token`, or any if that is `None`.
    pub fn server(&self, token: Option<String>) -> ServerConfig {
        ServerConfig {
            token: token.map(Into::into),
            ..self.server.clone()
        }
    }
}

/// The backend, and its `url` if it has one.
pub(super) fn read_backend(mut section: Section<'_>, sim: &Section<'_>) -> Option<(NegBackend, Option<Url>)> {
    let kind = section.kind(&["compute", "simulated"], None);
    let project = read_project(&mut section, "project");
    let has_project = project.is_some() || section.has("project");
    let url = read_url(&mut section);
    let at_sim = url.is_none() && sim.is_present();
    let credentials = read_credentials(&mut section, at_sim);
    // A placeholder never leaves this function: the missing key is already reported.
    let mut settings = read_settings(&mut section, Settings::new(project.unwrap_or_default()));
    if let Some((url, _)) = &url {
        settings.endpoint.clone_from(url);
    }
    let backend = ComputeBackend {
        settings,
        at_sim,
        credentials,
    };
    if kind == Some(("simulated", true)) {
        goes_alone(&section, sim, "compute");
    }
    if matches!(kind, Some(("compute", _))) && !has_project {
        section.missing("project", "must be the id of a project, such as `my-project`");
    }
    let backend = match kind? {
        ("simulated", _) => NegBackend::Simulated,
        _ => NegBackend::Compute(Box::new(backend)),
    };
    Some((backend, url))
}

/// Everything but the project, the URL and the credentials.
fn read_settings(section: &mut Section<'_>, default: Settings) -> Settings {
    /// Up to a week: no operation runs that long.
    const OPERATION_MS: RangeInclusive<u64> = 1..=604_800_000;
    /// Up to an hour: a longer timeout for one answer is a wrong unit.
    const TIMEOUT_MS: RangeInclusive<u64> = 1..=3_600_000;
    /// A project may send some dozens a second; a simulation takes more.
    const REQUESTS_PER_SECOND: RangeInclusive<u32> = 1..=1_000;
    /// More connections than this to one API would look like an attack.
    const CONCURRENT: RangeInclusive<u16> = 1..=1000;

    let network_project = read_project(section, "network_project");
    let network = section.text("network", RESOURCE, is_resource_name);
    let poll_min_ms = section.whole("poll_min_ms", default.poll_min_ms, TIMEOUT_MS);
    let poll_max_ms = section.whole("poll_max_ms", default.poll_max_ms.max(poll_min_ms), TIMEOUT_MS);
    if poll_max_ms < poll_min_ms {
        section.wrong_key(
            "poll_max_ms",
            format_args!("was {poll_max_ms}, must be at least `poll_min_ms`, {poll_min_ms}"),
        );
    }
    Settings {
        network,
        network_project,
        requests_per_second: section.whole("requests_per_second", default.requests_per_second, REQUESTS_PER_SECOND),
        max_concurrent_requests: section.whole("concurrent", default.max_concurrent_requests, CONCURRENT),
        operation_timeout_ms: section.whole("operation_timeout_ms", default.operation_timeout_ms, OPERATION_MS),
        request_timeout_ms: section.whole("request_timeout_ms", default.request_timeout_ms, TIMEOUT_MS),
        connect_timeout_ms: section.whole("connect_timeout_ms", default.connect_timeout_ms, TIMEOUT_MS),
        allow_http: section.truth("allow_http", default.allow_http),
        ensure_timeout_ms: section.whole("ensure_timeout_ms", default.ensure_timeout_ms, TIMEOUT_MS),
        poll_min_ms,
        poll_max_ms,
        ..default
    }
}

fn read_project(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    section.text(key, "be the id of a project, such as `my-project`", is_project)
}

/// Lower case letters, digits and `-`. Older projects have a domain prefix: `example.com:my-project`.
fn is_project(text: &str) -> bool {
    let (domain, project) = text.rsplit_once(':').unwrap_or(("a", text));
    is_resource_name(project) && domain.split('.').all(is_resource_name)
}

/// Where the credentials are. If a token and a key are given in the same layer, that is an error.
fn read_credentials(section: &mut Section<'_>, at_sim: bool) -> CredentialsAt {
    let has_token_in_file = section.has("token_file") || section.has("token_env");
    let key = section.with_layer("credentials_file", "be a path", Given::path);
    let token = read_token(section);
    match (token, key) {
        (Some(token), Some((_, Layer::File))) => {
            if has_token_in_file {
                section.wrong_key(
                    "credentials_file",
                    "goes without `token_file` and `token_env`: leave one of them out",
                );
            }
            CredentialsAt::Token(token)
        }
        (_, Some((path, _))) => CredentialsAt::KeyFile(path),
        (Some(token), None) => CredentialsAt::Token(token),
        (None, None) if at_sim => CredentialsAt::Simulated,
        (None, None) => CredentialsAt::ApplicationDefault,
    }
}

pub(super) fn read_sim(
    mut section: Section<'_>,
    _seed: u64,
    _adapter: Option<&NegAdapter>,
    backend: Option<&NegBackend>,
    url: Option<&Url>,
) -> Option<ComputeSim> {
    /// Up to ten minutes: the backend's own timeout is shorter by default.
    const PAUSE_MS: RangeInclusive<u64> = 0..=600_000;
    /// Up to what a simulation on one machine can answer.
    const REQUESTS_PER_SECOND: RangeInclusive<u32> = 1..=1_000_000;

    let must = "be a loopback address with a port, such as `127.0.0.1:9481`";
    let listen = read_listen(&mut section, must, "backend.neg", url);
    let token = read_token(&mut section);
    let default = ServerConfig::default();
    let server = ServerConfig {
        token: None,
        operation_ms: section.whole("operation_ms", default.operation_ms, PAUSE_MS),
        wait_ms: section.whole("wait_ms", default.wait_ms, PAUSE_MS),
        latency_ms: section.whole("latency_ms", default.latency_ms, PAUSE_MS),
        rate_limit_per_second: section
            .optional_whole("rate_limit_per_second", REQUESTS_PER_SECOND)
            .and_then(NonZeroU32::new),
        retry_after: section.truth("retry_after", default.retry_after),
        endpoints_max: section.optional_whole("endpoints_max", 0..=u32::MAX),
        ipv6_long: section.truth("ipv6_long", default.ipv6_long),
        state_file: section.path("state_file"),
        is_trial: false,
        faults: section.items("faults").unwrap_or_default(),
    };
    let token = token.or_else(|| match backend {
        Some(NegBackend::Compute(backend)) => match &backend.credentials {
            CredentialsAt::Token(token) => Some(token.clone()),
            _ => None,
        },
        _ => None,
    });
    Some(SimServer { listen, token, server })
}
