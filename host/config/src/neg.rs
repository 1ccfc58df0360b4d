//! `[adapter.neg]`, `[backend.neg]` and `[sim.compute]`: which Services have NEGs, how the NEGs are named, which
//! Compute Engine holds them, how the host calls it, and whether it is simulated. The three must fit together with
//! `[source]` and `[guests.neg]`; otherwise an error names the lines to add.
//!
//! This module never reads a token or a key: [`CredentialsAt`] says where to find them.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use trueup_capabilities::lbaas::anexia::TokenAt;
use trueup_capabilities::neg::compute::Settings;
use trueup_sims::compute::ServerConfig;
use trueup_sources::Kind;

use super::keyed::{At, Beside, Calls, Keyed, KeyedWorld, PlainWorld, Remote, Served, SimServer, read_rate_limit};
use super::lbaas::read_token;
use super::section::{Given, LABEL, Layer, Section, is_label};
use super::world::World;

/// The setting of the guest that names NEGs by subnet. The adapter sets it, and the configuration must not.
pub const NEG_NAMES: &str = "neg_names";

/// The setting of the guest that lists zones. The same rule applies.
pub const ZONES: &str = "zones";

/// The maximum length of a resource's name in Compute Engine (RFC 1035).
pub const RESOURCE_NAME_MAX: usize = 63;

/// What [`is_resource_name`] requires.
const RESOURCE: &str = "be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";

/// How Services become desired NEGs: `[adapter.neg]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NegAdapter {
    /// The cluster's name, which is part of the generated names of NEGs.
    pub cluster: String,
    /// The subnet of Nodes that name none, whose NEGs have the plain name. `None`: each Node names its own.
    #[serde(default)]
    pub subnet: Option<String>,
    /// The label by which Nodes name their subnet. `None`: all Nodes are in `subnet`.
    #[serde(default)]
    pub subnet_label: Option<String>,
    /// Zones that are always examined, with or without Nodes.
    #[serde(default)]
    pub zones: Vec<String>,
}

/// Everything about network endpoint groups. The adapter, not the guest's settings, names NEGs and zones.
pub type Neg = Keyed<NegAdapter, NegBackend, ComputeSim>;

/// The sections about NEGs.
pub const NEG: &dyn World = &KeyedWorld {
    plain: PlainWorld {
        name: "neg",
        subject: "network endpoint groups",
        adapter: "`[adapter.neg]` with `cluster = \"c1\"` and `subnet = \"default\"`",
        guest: "`[guests.neg]` with `use = \"builtin:neg@1\"` and \
                `grants = { neg = { read = [\"*\"], write = [\"*\"] } }`",
        needs: &[Kind::Service, Kind::Node, Kind::EndpointSlice],
        of: PhantomData,
    },
    backend: "`[backend.neg]` with `kind = \"compute\"` and `project = \"my-project\"`, or with \
              `kind = \"simulated\"`",
    kind: "compute",
    listen: "127.0.0.1:9481",
    settings_of_adapter: &[NEG_NAMES, ZONES],
    read_adapter,
    read_backend,
    read_sim,
};

fn read_adapter(mut section: Section<'_>) -> Option<NegAdapter> {
    // It is part of the generated names of NEGs.
    let cluster = section.needs("cluster", LABEL, |given| given.fitting(is_label));
    let subnet = section.text("subnet", RESOURCE, is_resource_name);
    let label = "be the name of a label of Nodes, such as `example.com/subnet`";
    // `[PREFIX/]NAME`, as in Kubernetes. Checks each character; the API server checks the lengths.
    let subnet_label = section.text("subnet_label", label, |text| {
        let (prefix, name) = text.rsplit_once('/').unwrap_or(("a", text));
        is_label(name) && !prefix.is_empty() && prefix.split('.').all(is_label)
    });
    if subnet.is_none() && subnet_label.is_none() && !section.has("subnet") && !section.has("subnet_label") {
        let text = format_args!("must {RESOURCE}; or `subnet_label` says which Node is in which");
        section.missing("subnet", text);
    }
    Some(NegAdapter {
        subnet,
        subnet_label,
        zones: section.texts("zones", RESOURCE, is_resource_name),
        // The last: what is wrong with the other keys is reported in any case.
        cluster: cluster?,
    })
}

/// Whether Compute Engine accepts it as a resource name: 1 to 63 lower case letters, digits and `-`, beginning with a
/// letter and not ending with `-`.
pub fn is_resource_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=RESOURCE_NAME_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(allowed)
}

/// The token of a backend that follows `[sim.compute]` and names none: the simulation then accepts any token.
pub const SIM_TOKEN: &str = "simulated";

/// `[backend.neg]`: the Compute Engine that the host reads from and writes to.
pub type NegBackend = Served<Settings, CredentialsAt>;

/// `[backend.neg]` of the kind `compute`.
pub type ComputeBackend = Remote<Settings, CredentialsAt>;

impl Calls for Settings {
    const SIM: &'static str = "compute";

    fn use_sim(&mut self, address: SocketAddr) {
        self.endpoint = format!("http://{address}/compute/v1");
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

fn read_backend(section: &mut Section<'_>, at: At<'_>) -> (Settings, CredentialsAt) {
    let project = read_project(section, "project");
    if at.is_remote && project.is_none() && !section.has("project") {
        section.missing("project", "must be the id of a project, such as `my-project`");
    }
    let credentials = read_credentials(section, at.at_sim);
    // A placeholder never leaves this crate: the missing key is already reported.
    let mut settings = read_settings(section, Settings::new(project.unwrap_or_default()));
    if let Some(url) = at.url {
        url.clone_into(&mut settings.endpoint);
    }
    (settings, credentials)
}

/// Everything but the project, the URL and the credentials.
fn read_settings(section: &mut Section<'_>, default: Settings) -> Settings {
    /// Up to an hour: a longer timeout for one answer is a wrong unit.
    const TIMEOUT_MS: RangeInclusive<u64> = 1..=3_600_000;

    let poll_min_ms = section.whole("poll_min_ms", default.poll_min_ms, TIMEOUT_MS);
    let poll_max_ms = section.whole("poll_max_ms", default.poll_max_ms.max(poll_min_ms), TIMEOUT_MS);
    if poll_max_ms < poll_min_ms {
        let text = format_args!("was {poll_max_ms}, must be at least `poll_min_ms`, {poll_min_ms}");
        section.wrong_key("poll_max_ms", text);
    }
    Settings {
        network: section.text("network", RESOURCE, is_resource_name),
        network_project: read_project(section, "network_project"),
        // A project may send some dozens a second; a simulation takes more.
        requests_per_second: section.whole("requests_per_second", default.requests_per_second, 1..=1_000),
        // More connections than this to one API would look like an attack.
        max_concurrent_requests: section.whole("concurrent", default.max_concurrent_requests, 1..=1000),
        // Up to a week: no operation runs that long.
        operation_timeout_ms: section.whole("operation_timeout_ms", default.operation_timeout_ms, 1..=604_800_000),
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
    // Lower case letters, digits and `-`. Older projects have a domain prefix: `example.com:my-project`.
    section.text(key, "be the id of a project, such as `my-project`", |text| {
        let (domain, project) = text.rsplit_once(':').unwrap_or(("a", text));
        is_resource_name(project) && domain.split('.').all(is_resource_name)
    })
}

/// Where the credentials are. If a token and a key are given in the same layer, that is an error.
fn read_credentials(section: &mut Section<'_>, at_sim: bool) -> CredentialsAt {
    let has_token_in_file = section.has("token_file") || section.has("token_env");
    let key = section.value("credentials_file", "be a path", Given::layered_path);
    let token = read_token(section);
    match (token, key) {
        (Some(token), Some((_, Layer::File))) => {
            if has_token_in_file {
                let text = "goes without `token_file` and `token_env`: leave one of them out";
                section.wrong_key("credentials_file", text);
            }
            CredentialsAt::Token(token)
        }
        (_, Some((path, _))) => CredentialsAt::KeyFile(path),
        (Some(token), None) => CredentialsAt::Token(token),
        (None, None) if at_sim => CredentialsAt::Simulated,
        (None, None) => CredentialsAt::ApplicationDefault,
    }
}

fn read_sim(sim: &mut Section<'_>, of: Beside<'_, NegAdapter, NegBackend>) -> Option<(Option<TokenAt>, ServerConfig)> {
    /// Up to ten minutes: the backend's own timeout is shorter by default.
    const PAUSE_MS: RangeInclusive<u64> = 0..=600_000;

    let (_, _, backend) = of;
    let mut token = read_token(sim);
    let default = ServerConfig::default();
    let server = ServerConfig {
        token: None,
        operation_ms: sim.whole("operation_ms", default.operation_ms, PAUSE_MS),
        wait_ms: sim.whole("wait_ms", default.wait_ms, PAUSE_MS),
        latency_ms: sim.whole("latency_ms", default.latency_ms, PAUSE_MS),
        rate_limit_per_second: read_rate_limit(sim),
        retry_after: sim.truth("retry_after", default.retry_after),
        endpoints_max: sim.optional_whole("endpoints_max", 0..=u32::MAX),
        ipv6_long: sim.truth("ipv6_long", default.ipv6_long),
        state_file: sim.path("state_file"),
        is_trial: false,
        faults: sim.items("faults").unwrap_or_default(),
    };
    if let (None, NegBackend::Remote(backend)) = (&token, backend)
        && let CredentialsAt::Token(of_backend) = &backend.credentials
    {
        token = Some(of_backend.clone());
    }
    Some((token, server))
}
