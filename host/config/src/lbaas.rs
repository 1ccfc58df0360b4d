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

use super::keyed::{At, Beside, Calls, Keyed, KeyedWorld, PlainWorld, Remote, Served, SimServer, read_rate_limit};
use super::section::{LABEL, Section, is_filled, is_label};
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

/// `[backend.lbaas]`: the Engine that the host reads from and writes to. Its settings say where the token is.
pub type LbaasBackend = Served<Settings, ()>;

/// `[backend.lbaas]` of the kind `anexia`.
pub type AnexiaBackend = Remote<Settings, ()>;

impl Calls for Settings {
    const SIM: &'static str = "lbaas";

    fn use_sim(&mut self, address: SocketAddr) {
        self.url = format!("http://{address}");
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
    kind: "anexia",
    listen: "127.0.0.1:9480",
    settings_of_adapter: &[],
    read_adapter,
    read_backend,
    read_sim,
};

fn read_adapter(mut section: Section<'_>) -> Option<LbaasAdapter> {
    // Every resource's name ends with the cluster's name.
    let cluster = section.needs("cluster", LABEL, |given| given.fitting(is_label));
    let identifier = |text: &str| is_filled(text).then(|| text.to_owned());
    let least = "at least one identifier";
    // An IPv4 address in IPv6 form counts as the IPv4 address.
    let address = |text: &str| Some(text.parse::<IpAddr>().ok()?.to_canonical());
    let external = |text: &str| address(text).filter(|address| !address.is_unspecified());
    let must = "be an IP address that is not the unspecified one";
    let addresses = section.list("addresses", must, external).unwrap_or_default();
    Some(LbaasAdapter {
        load_balancers: section.filled_list("load_balancers", "be an identifier", least, identifier),
        addresses: addresses.iter().map(IpAddr::to_string).collect(),
        // A check a second for three hours: a longer wait is a wrong unit.
        backoff_steps: section.whole("backoff_steps", BACKOFF_STEPS_DEFAULT, 1..=10_000),
        // The last: what is wrong with the other keys is reported in any case.
        cluster: cluster?,
    })
}

fn read_backend(section: &mut Section<'_>, at: At<'_>) -> (Settings, ()) {
    /// Up to an hour: a longer timeout for one answer is a wrong unit.
    const TIMEOUT_MS: RangeInclusive<u64> = 1..=3_600_000;

    let default = Settings::default();
    let settings = Settings {
        url: at.url.map_or(default.url, str::to_owned),
        token: read_token(section).unwrap_or(default.token),
        // More connections than this to one Engine would look like an attack.
        max_concurrent_requests: section.whole("max_concurrent_requests", default.max_concurrent_requests, 1..=1000),
        // The limit of the backend. It fetches each entry of a page separately, so longer pages save nothing.
        page_size: section.whole("page_size", default.page_size, 1..=1_000),
        request_timeout_ms: section.whole("request_timeout_ms", default.request_timeout_ms, TIMEOUT_MS),
        connect_timeout_ms: section.whole("connect_timeout_ms", default.connect_timeout_ms, TIMEOUT_MS),
        allow_http: section.truth("allow_http", default.allow_http),
        adopt_orphans: section.truth("adopt_orphans", default.adopt_orphans),
    };
    (settings, ())
}

/// Where the token is, if it is set. If a file and a variable are given in the same layer, that is an error.
pub(super) fn read_token(section: &mut Section<'_>) -> Option<TokenAt> {
    let text = "a token does not stand here: put it into a file, and the file's path into `token_file`";
    section.refuse("token", text);
    let file = section.value("token_file", "be a path", |given| {
        Some((TokenAt::File(given.path()?), given.layer()))
    });
    let variable = section.given("token_env").and_then(|given| {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = given.fitting(|text| text.starts_with(starts) && text.chars().all(allowed));
        match &name {
            Some(name) => section.document.leave(name),
            // An operator may put the token itself here by mistake: do not log it.
            None => section.wrong_given(&given, "must be the name of a variable"),
        }
        Some((TokenAt::Variable(name?), given.layer()))
    });
    if let (Some((_, one)), Some((_, other))) = (&file, &variable)
        && one == other
    {
        section.wrong_key("token_env", "goes without `token_file`: leave one of them out");
        return None;
    }
    let stronger = file.into_iter().chain(variable).max_by_key(|(_, layer)| *layer);
    stronger.map(|(token, _)| token)
}

fn read_sim(sim: &mut Section<'_>, of: Beside<'_, LbaasAdapter, LbaasBackend>) -> Option<(TokenAt, ServerConfig)> {
    /// Up to a minute: the backend's own timeouts are shorter by default.
    const PAUSE_MS: RangeInclusive<u64> = 0..=60_000;

    let (seed, adapter, backend) = of;
    let token = read_token(sim);
    let default = ServerConfig::default();
    let load_balancers = sim.items("load_balancers");
    let of_adapter = || Some(adapter?.load_balancers.clone());
    let server = ServerConfig {
        settle_ms: sim.whole("settle_ms", default.settle_ms, PAUSE_MS),
        latency_ms: sim.whole("latency_ms", default.latency_ms, PAUSE_MS),
        rate_limit_per_second: read_rate_limit(sim),
        retry_after: sim.truth("retry_after", default.retry_after),
        seed: sim.whole("seed", seed, 0..=u64::MAX),
        state_file: sim.path("state_file"),
        is_trial: false,
        resource_type_in_lists: sim.truth("resource_type_in_lists", default.resource_type_in_lists),
        lose_overlapping_taggings: sim.truth("lose_overlapping_taggings", default.lose_overlapping_taggings),
        faults: sim.items("faults").unwrap_or_default(),
        load_balancers: load_balancers.or_else(of_adapter).unwrap_or_default(),
        token: default.token,
    };
    let of_backend = || match backend {
        LbaasBackend::Remote(backend) => Some(backend.settings.token.clone()),
        LbaasBackend::Simulated => None,
    };
    Some((token.or_else(of_backend)?, server))
}
