//! `[source]`, `[adapter.lbaas]`, `[backend.lbaas]` and `[sim.lbaas]`: the desired state, the load balancers, the
//! Engine, and whether that Engine is simulated. The four and `[guests.lbaas]` must fit together; otherwise an error
//! names the lines to add.
//!
//! This module never reads a token: [`TokenAt`] says where to find it.

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use trueup_capabilities::lbaas::anexia::{Settings, TokenAt};
use trueup_sims::lbaas::ServerConfig;
use trueup_sources::Kind;

use super::keyed::{Backend, Keyed, KeyedWorld, PlainWorld, SimServer, Url, goes_alone, read_listen, read_rate_limit};
use super::section::{Given, LABEL, Section, is_filled, is_label};
use super::world::World;

/// The default number of checks before a wait for resources gives up.
const BACKOFF_STEPS_DEFAULT: u32 = 30;

/// How Services become desired objects: `[adapter.lbaas]`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LbaasAdapter {
    /// The cluster's name, the last part of every resource's name.
    pub cluster: String,
    /// The load balancers that serve every Service.
    pub load_balancers: Vec<String>,
    /// The external addresses of Services that name none.
    pub addresses: Vec<String>,
    /// The number of checks before a wait for resources gives up.
    pub backoff_steps: u32,
}

/// Everything about load balancers at an Anexia Engine.
pub type Lbaas = Keyed<LbaasAdapter, LbaasBackend, LbaasSim>;

/// `[sim.lbaas]`: a simulated Engine that the host starts.
pub type LbaasSim = SimServer<TokenAt, ServerConfig>;

/// `[backend.lbaas]`: the Engine that the host reads from and writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LbaasBackend {
    /// `kind = "anexia"`: an Engine over HTTP.
    Anexia(AnexiaBackend),
    /// `kind = "simulated"`: an Engine in this process, empty at every start.
    Simulated,
}

/// `[backend.lbaas]` of the kind `anexia`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnexiaBackend {
    settings: Settings,
    /// The file has no `url`, but a `[sim.lbaas]`.
    at_sim: bool,
}

impl Backend for LbaasBackend {
    const SIM: &'static str = "lbaas";

    fn is_simulated(&self) -> bool {
        *self == Self::Simulated
    }

    fn use_sim(&mut self, address: SocketAddr) {
        if let Self::Anexia(backend) = self {
            backend.settings = backend.settings(Some(address));
        }
    }
}

impl AnexiaBackend {
    /// The settings. `sim` is the address of `[sim.lbaas]`, if there is one; without its own `url`, the backend uses
    /// that address.
    pub fn settings(&self, sim: Option<SocketAddr>) -> Settings {
        let mut settings = self.settings.clone();
        if let (true, Some(address)) = (self.at_sim, sim) {
            settings.url = format!("http://{address}");
        }
        settings
    }
}

impl LbaasSim {
    /// The server's settings. It accepts `token`. Its load balancers default to those of `[adapter.lbaas]`, its seed to
    /// the host's.
    pub fn server(&self, token: impl Into<String>) -> ServerConfig {
        ServerConfig {
            token: token.into().into(),
            ..self.server.clone()
        }
    }
}

/// The sections about load balancers.
pub const LBAAS: &dyn World = &KeyedWorld {
    plain: PlainWorld {
        name: "lbaas",
        subject: "load balancers",
        adapter: "`[adapter.lbaas]` with `cluster = \"c1\"` and `load_balancers = [\"lb-1\"]`",
        guest: "`[guests.lbaas]` with `use = \"builtin:lbaas@1\"` and \
                `grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\"] } }`",
        needs: &[Kind::Service, Kind::Node],
        of: PhantomData,
    },
    backend: "`[backend.lbaas]` with `kind = \"anexia\"` and `token_file = \"token\"`, \
              or with `kind = \"simulated\"`",
    settings_of_adapter: &[],
    read_adapter,
    read_backend,
    read_sim,
};

fn read_adapter(mut section: Section<'_>) -> Option<LbaasAdapter> {
    // Every resource's name ends with the cluster's name.
    let cluster = section.required("cluster", LABEL, |given| given.fitting(is_label));
    let identifier = |text: &str| is_filled(text).then(|| text.to_owned());
    let least = "at least one identifier";
    let load_balancers = section.filled_list("load_balancers", "be an identifier", least, identifier);
    // An IPv4 address in IPv6 form counts as the IPv4 address.
    let address = |text: &str| Some(text.parse::<IpAddr>().ok()?.to_canonical());
    let external = |text: &str| address(text).filter(|address| !address.is_unspecified());
    let must = "be an IP address that is not the unspecified one";
    let addresses = section.list("addresses", must, external).unwrap_or_default();
    // A check a second for three hours: a longer wait is a wrong unit.
    let backoff_steps = section.whole("backoff_steps", BACKOFF_STEPS_DEFAULT, 1..=10_000);
    Some(LbaasAdapter {
        cluster: cluster?,
        load_balancers,
        addresses: addresses.iter().map(IpAddr::to_string).collect(),
        backoff_steps,
    })
}

/// The backend, and its `url` if it has one.
fn read_backend(mut section: Section<'_>, sim: &Section<'_>) -> Option<(LbaasBackend, Option<Url>)> {
    /// Up to an hour: a longer timeout for one answer is a wrong unit.
    const TIMEOUT_MS: RangeInclusive<u64> = 1..=3_600_000;

    let kind = section.kind(&["anexia", "simulated"], None);
    let default = Settings::default();
    let url = read_url(&mut section);
    let settings = Settings {
        url: url.as_ref().map_or(default.url, |(url, _)| url.clone()),
        token: read_token(&mut section).unwrap_or(default.token),
        // More connections than this to one Engine would look like an attack.
        max_concurrent_requests: section.whole("max_concurrent_requests", default.max_concurrent_requests, 1..=1000),
        // The limit of the backend. It fetches each entry of a page separately, so longer pages save nothing.
        page_size: section.whole("page_size", default.page_size, 1..=1_000),
        request_timeout_ms: section.whole("request_timeout_ms", default.request_timeout_ms, TIMEOUT_MS),
        connect_timeout_ms: section.whole("connect_timeout_ms", default.connect_timeout_ms, TIMEOUT_MS),
        allow_http: section.truth("allow_http", default.allow_http),
        adopt_orphans: section.truth("adopt_orphans", default.adopt_orphans),
    };
    if kind == Some(("simulated", true)) {
        goes_alone(&section, sim, "anexia");
    }
    let backend = match kind {
        Some(("simulated", _)) => LbaasBackend::Simulated,
        _ => LbaasBackend::Anexia(AnexiaBackend {
            at_sim: url.is_none() && sim.is_present,
            settings,
        }),
    };
    Some((backend, url))
}

/// `url`: the base URL without its trailing slash, and its layer. An error does not show it if it may contain a
/// password.
pub(super) fn read_url(section: &mut Section<'_>) -> Option<Url> {
    let given = &section.given("url")?;
    let Some(url) = given.text() else {
        section.wrong_value(given, "must be a URL");
        return None;
    };
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let is_url = |rest: &str| !rest.is_empty() && !rest.starts_with(['/', ':']) && !rest.contains(['?', '#', ' ']);
    if url.contains('@') {
        let text = "must hold no user name and no password: the token is in `token_file`";
        section.wrong_given(given, text);
    } else if !rest.is_some_and(is_url) {
        let text = "must be `http://HOST` or `https://HOST`, without query and fragment";
        section.wrong_value(given, text);
    } else {
        return Some((url.trim_end_matches('/').to_owned(), given.layer()));
    }
    None
}

/// Where the token is, if it is set. If a file and a variable are given in the same layer, that is an error.
pub(super) fn read_token(section: &mut Section<'_>) -> Option<TokenAt> {
    let text = "a token does not stand here: put it into a file, and the file's path into `token_file`";
    section.refuse("token", text);
    let file = section.value("token_file", "be a path", Given::layered_path);
    let variable = section.given("token_env").and_then(|given| {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = given.fitting(|text| text.starts_with(starts) && text.chars().all(allowed));
        match &name {
            Some(name) => section.leave_variable(name),
            // An operator may put the token itself here by mistake: do not log it.
            None => section.wrong_given(&given, "must be the name of a variable"),
        }
        Some((name?, given.layer()))
    });
    match (file, variable) {
        (Some((_, one)), Some((_, other))) if one == other => {
            section.wrong_key("token_env", "goes without `token_file`: leave one of them out");
            None
        }
        (Some((path, one)), Some((_, other))) if one > other => Some(TokenAt::File(path)),
        (_, Some((name, _))) => Some(TokenAt::Variable(name)),
        (Some((path, _)), None) => Some(TokenAt::File(path)),
        (None, None) => None,
    }
}

fn read_sim(
    mut section: Section<'_>,
    seed: u64,
    adapter: Option<&LbaasAdapter>,
    backend: Option<&LbaasBackend>,
    url: Option<&Url>,
) -> Option<LbaasSim> {
    /// Up to a minute: the backend's own timeouts are shorter by default.
    const PAUSE_MS: RangeInclusive<u64> = 0..=60_000;

    let must = "be a loopback address with a port, such as `127.0.0.1:9480`";
    let listen = read_listen(&mut section, must, "backend.lbaas", url);
    let token = read_token(&mut section);
    let default = ServerConfig::default();
    let load_balancers = section.items("load_balancers");
    let of_adapter = || Some(adapter?.load_balancers.clone());
    let server = ServerConfig {
        settle_ms: section.whole("settle_ms", default.settle_ms, PAUSE_MS),
        latency_ms: section.whole("latency_ms", default.latency_ms, PAUSE_MS),
        rate_limit_per_second: read_rate_limit(&mut section),
        retry_after: section.truth("retry_after", default.retry_after),
        seed: section.whole("seed", seed, 0..=u64::MAX),
        state_file: section.path("state_file"),
        is_trial: false,
        resource_type_in_lists: section.truth("resource_type_in_lists", default.resource_type_in_lists),
        lose_overlapping_taggings: section.truth("lose_overlapping_taggings", default.lose_overlapping_taggings),
        faults: section.items("faults").unwrap_or_default(),
        load_balancers: load_balancers.or_else(of_adapter).unwrap_or_default(),
        token: default.token,
    };
    let of_backend = || match backend? {
        LbaasBackend::Anexia(backend) => Some(backend.settings.token.clone()),
        LbaasBackend::Simulated => None,
    };
    let token = token.or_else(of_backend);
    Some(SimServer {
        listen,
        token: token?,
        server,
    })
}
