//! `[source]`, `[adapter.lbaas]`, `[backend.lbaas]` and `[sim.lbaas]`: what should be, on which load balancers, at which
//! Engine, and whether that Engine is simulated. The four and `[guests.lbaas]` must fit together; what does not is said
//! with the lines to add.
//!
//! Never reads a token: [`TokenAt`] says where one is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use trueup_capabilities::lbaas::anexia::{Settings, TOKEN_ENV_DEFAULT};
use trueup_sims::lbaas::{RetryAfter, ServerConfig};

use super::Source;
use super::document::Document;
use super::guest::Guest;
use super::section::{Given, LABEL, Place, Section, chosen, is_label, words};
use crate::guests::lbaas::adapter;

/// Everything about load balancers at an Anexia Engine.
#[derive(Debug, Clone)]
pub struct Lbaas {
    /// `[source]`: where the Services are.
    pub source: Source,
    /// `[guests.lbaas]`: who decides.
    pub guest: Guest,
    /// `[adapter.lbaas]`: what becomes of a Service. Required: `cluster` and `load_balancers`.
    pub adapter: adapter::Settings,
    /// `[backend.lbaas]`: who is asked and acts.
    pub backend: LbaasBackend,
    /// `[sim.lbaas]`: a simulated Engine that the host starts, and that the backend speaks HTTP to.
    pub sim: Option<LbaasSim>,
}

/// `[backend.lbaas]`: who is asked and acts.
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
    /// No `url` was given, but there is a `[sim.lbaas]`.
    at_sim: bool,
}

impl Lbaas {
    /// Takes the simulated Engine of the host that runs in place of an own one. False where its port is not known.
    pub(super) fn use_running_sim(&mut self) -> bool {
        let Some(sim) = self.sim.take_if(|sim| sim.listen.port() != 0) else {
            return self.sim.is_none();
        };
        if let LbaasBackend::Anexia(backend) = &mut self.backend {
            backend.use_sim(sim.listen);
        }
        true
    }
}

impl AnexiaBackend {
    /// The settings, where `[sim.lbaas]` (if there is one) listens on `sim`: without a `url` of its own, the backend
    /// speaks to that.
    pub fn settings(&self, sim: Option<SocketAddr>) -> Settings {
        let mut settings = self.settings.clone();
        if let (true, Some(address)) = (self.at_sim, sim) {
            settings.url = format!("http://{address}");
        }
        settings
    }

    fn use_sim(&mut self, address: SocketAddr) {
        self.settings = self.settings(Some(address));
        self.at_sim = false;
    }

    /// Where its token is.
    pub fn token(&self) -> TokenAt {
        match (&self.settings.token_file, &self.settings.token_env) {
            (Some(file), _) => TokenAt::File(file.clone()),
            (None, Some(name)) => TokenAt::Variable(name.clone()),
            (None, None) => TokenAt::Variable(TOKEN_ENV_DEFAULT.to_owned()),
        }
    }
}

/// Where a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenAt {
    /// `token_file`: in this file, blanks around it not counted.
    File(PathBuf),
    /// `token_env`: in this variable of the environment.
    Variable(String),
}

impl fmt::Display for TokenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file `{}`", path.display()),
            Self::Variable(name) => write!(f, "the variable `{name}`"),
        }
    }
}

/// `[sim.lbaas]`: a simulated Engine that the host starts.
#[derive(Debug, Clone)]
pub struct LbaasSim {
    /// Where it listens: loopback alone. Port 0 takes a free one. Default: `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Where the token is that it lets in. Default: where `[backend.lbaas]` has its.
    pub token: TokenAt,
    server: ServerConfig,
}

impl LbaasSim {
    /// How it behaves, with the token it lets in. Its load balancers are by default those of `[adapter.lbaas]`, its seed
    /// the host's.
    pub fn server(&self, token: impl Into<String>) -> ServerConfig {
        ServerConfig {
            token: token.into().into(),
            ..self.server.clone()
        }
    }
}

/// What is told the operator who has none of these sections.
pub(super) const ADAPTER: &str = "`[adapter.lbaas]` with `cluster = \"c1\"` and `load_balancers = [\"lb-1\"]`";
pub(super) const GUEST: &str = "`[guests.lbaas]` with `use = \"builtin:lbaas@1\"` and \
     `grants = { lbaas = { read = [\"lb-1\"], write = [\"lb-1\"] } }`";
pub(super) const BACKEND: &str = "`[backend.lbaas]` with `kind = \"anexia\"` and `token_file = \"token\"`, \
     or with `kind = \"simulated\"`";

/// The sections that are about load balancers, but for `[source]`.
pub(super) struct Sections<'d> {
    pub(super) guest: Section<'d>,
    pub(super) adapter: Section<'d>,
    pub(super) backend: Section<'d>,
    pub(super) sim: Section<'d>,
}

impl Sections<'_> {
    /// Whether any of them is given.
    pub(super) fn is_any_present(&self) -> bool {
        [&self.guest, &self.adapter, &self.backend, &self.sim]
            .iter()
            .any(|section| section.is_present())
    }

    /// Says which sections to add, with what they hold.
    fn say_what_is_missing(&self) {
        let Self {
            guest,
            adapter,
            backend,
            sim,
        } = self;
        if !adapter.is_present() {
            let others = [("guests", guest), ("backend", backend), ("sim", sim)];
            if let Some((name, section)) = others.iter().find(|(_, section)| section.is_present()) {
                section.wrong_without(
                    "adapter.lbaas",
                    format_args!("[{name}.lbaas] needs an adapter: add {ADAPTER}"),
                );
            }
            return;
        }
        if !guest.is_present() {
            adapter.wrong_without(
                "guests.lbaas",
                format_args!("[adapter.lbaas] needs a guest that decides: add {GUEST}"),
            );
        }
        if !backend.is_present() {
            adapter.wrong_without(
                "backend.lbaas",
                format_args!("[adapter.lbaas] needs a backend that acts: add {BACKEND}"),
            );
        }
    }
}

impl Lbaas {
    /// `None` where none of the sections is given, or a problem was found.
    pub(super) fn read<'d>(
        document: &'d Document<'d>,
        source: (bool, Option<Source>),
        sections: Sections<'d>,
        folder: &Path,
        seed: u64,
    ) -> Option<Self> {
        let (has_source, source) = source;
        if !has_source && sections.is_any_present() {
            Source::say_it_is_missing(document);
        }
        sections.say_what_is_missing();
        let Sections {
            guest,
            adapter,
            backend,
            sim,
        } = sections;
        let (has_adapter, has_sim) = (adapter.is_present(), sim.is_present());

        let guest = Guest::read(guest, folder);
        let adapter = read_adapter(adapter);
        let (backend, url) = read_backend(backend, folder, &sim)?;
        let sim = LbaasSim::read(sim, folder, seed, adapter.as_ref(), &backend, url.as_deref());
        if !has_adapter {
            return None;
        }
        // A backend in this process makes the other one idle: a variable chose it over what the file says.
        let sim = if has_sim && backend != LbaasBackend::Simulated {
            Some(sim?)
        } else {
            None
        };
        Some(Self {
            source: source?,
            guest: guest?,
            adapter: adapter?,
            backend,
            sim,
        })
    }
}

fn read_adapter(mut section: Section<'_>) -> Option<adapter::Settings> {
    /// A look a second for three hours; who waits longer has mistaken the unit.
    const BACKOFF_STEPS: RangeInclusive<u32> = 1..=10_000;
    // A cluster's name ends every resource's name.
    let cluster = section.required("cluster", LABEL, |given| given.text().filter(|text| is_label(text)));
    let load_balancers = section.filled_list(
        "load_balancers",
        "be an identifier",
        "at least one identifier",
        identifier,
    );
    let must = "be an IP address that is not the unspecified one";
    let addresses = section.list("addresses", must, external_address).unwrap_or_default();
    let backoff_steps = section.whole("backoff_steps", adapter::BACKOFF_STEPS_DEFAULT, BACKOFF_STEPS);
    section.end();
    Some(adapter::Settings {
        cluster: cluster?.to_owned(),
        load_balancers,
        addresses: addresses.iter().map(IpAddr::to_string).collect(),
        backoff_steps,
    })
}

fn identifier(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// An IPv4 address that is written as an IPv6 one is the IPv4 address.
fn external_address(text: &str) -> Option<IpAddr> {
    let address = text.parse::<IpAddr>().ok()?.to_canonical();
    (!address.is_unspecified()).then_some(address)
}

/// The backend, and its `url` where the file gives one.
fn read_backend(mut section: Section<'_>, folder: &Path, sim: &Section<'_>) -> Option<(LbaasBackend, Option<String>)> {
    /// More connections than this to one Engine would be an attack on it.
    const CONCURRENT_REQUESTS: RangeInclusive<u16> = 1..=1000;
    /// What the backend takes: each entry of a page is read on its own, so that longer pages save nothing.
    const PAGE_SIZE: RangeInclusive<u32> = 1..=1_000;
    /// Up to an hour: who waits longer for one answer has mistaken the unit.
    const TIMEOUT_MS: RangeInclusive<u64> = 1..=3_600_000;
    const KINDS: [(&str, bool); 2] = [("anexia", false), ("simulated", true)];

    let kind = section.required("kind", format_args!("be {}", words(&KINDS)), |given| {
        Some((chosen(given, &KINDS)?, given.place()))
    });
    let default = Settings::default();
    let url = section
        .given("url")
        .and_then(|given| Some((base_url(&section, &given)?, given.place())));
    let (token_file, token_env) = read_token(&mut section, folder).map_or((None, None), |token| match token {
        TokenAt::File(path) => (Some(path), None),
        TokenAt::Variable(name) => (None, Some(name)),
    });
    let settings = Settings {
        url: url.as_ref().map_or(default.url, |(url, _)| url.clone()),
        token_file,
        token_env,
        max_concurrent_requests: section.whole(
            "max_concurrent_requests",
            default.max_concurrent_requests,
            CONCURRENT_REQUESTS,
        ),
        page_size: section.whole("page_size", default.page_size, PAGE_SIZE),
        request_timeout_ms: section.whole("request_timeout_ms", default.request_timeout_ms, TIMEOUT_MS),
        connect_timeout_ms: section.whole("connect_timeout_ms", default.connect_timeout_ms, TIMEOUT_MS),
        allow_http: section.truth("allow_http", default.allow_http),
        adopt_orphans: section.truth("adopt_orphans", default.adopt_orphans),
    };
    let backend = match kind {
        Some((true, place)) => {
            if place == Place::File {
                only_anexia(&section, sim);
            }
            LbaasBackend::Simulated
        }
        _ => LbaasBackend::Anexia(AnexiaBackend {
            at_sim: url.is_none() && sim.is_present(),
            settings,
        }),
    };
    section.end();
    let url = url.and_then(|(url, place)| (place == Place::File).then_some(url));
    Some((backend, url))
}

/// Says what a simulation in this process has no use for. A variable that chooses it for once leaves the file as it is.
fn only_anexia(section: &Section<'_>, sim: &Section<'_>) {
    for key in section.given_in_file().filter(|key| *key != "kind") {
        section.wrong_key(key, "goes with `kind = \"anexia\"` alone");
    }
    if sim.is_present() {
        sim.wrong("[sim.lbaas] speaks HTTP, which goes with `backend.lbaas.kind = \"anexia\"` alone");
    }
}

/// The base URL, without a slash at its end. It is not shown where it may hold a password.
pub(super) fn base_url(section: &Section<'_>, given: &Given<'_>) -> Option<String> {
    let Some(url) = given.text() else {
        section.wrong_value(given, "must be a URL");
        return None;
    };
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))
        .unwrap_or_default();
    if url.contains('@') {
        section.wrong_given(
            given,
            "must hold no user name and no password: the token stands in `token_file`",
        );
    } else if rest.is_empty() || rest.starts_with(['/', ':']) || rest.contains(['?', '#', ' ']) {
        section.wrong_value(
            given,
            "must be `http://HOST` or `https://HOST`, without query and fragment",
        );
    } else {
        return Some(url.trim_end_matches('/').to_owned());
    }
    None
}

/// Where the token is, if it says so. Of a file and a variable given in one place, neither is the right one.
pub(super) fn read_token(section: &mut Section<'_>, folder: &Path) -> Option<TokenAt> {
    section.refuse(
        "token",
        "a token does not stand here: put it into a file, and the file's path into `token_file`",
    );
    let file = section.placed("token_file", "be a path", |given| {
        given.filled().map(|path| folder.join(path))
    });
    let variable = section.given("token_env").and_then(|given| {
        let name = given.text().filter(|name| is_variable(name));
        if name.is_none() {
            // Whoever takes this key for the token itself must not find it in a log.
            section.wrong_given(&given, "must be the name of a variable");
        }
        Some((name?.to_owned(), given.place()))
    });
    if let Some((name, _)) = &variable {
        section.leave_variable(name);
    }
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

fn is_variable(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(allowed)
}

impl LbaasSim {
    fn read(
        mut section: Section<'_>,
        folder: &Path,
        seed: u64,
        adapter: Option<&adapter::Settings>,
        backend: &LbaasBackend,
        url: Option<&str>,
    ) -> Option<Self> {
        /// Up to a minute: the backend's own timeouts are shorter by default.
        const PAUSE_MS: RangeInclusive<u64> = 0..=60_000;
        /// Up to what a simulation on one machine can answer anyway.
        const REQUESTS_PER_SECOND: RangeInclusive<u32> = 1..=1_000_000;

        let must = "be a loopback address with a port, such as `127.0.0.1:9480`";
        let listen = section.placed("listen", must, |given| {
            given
                .text()?
                .parse()
                .ok()
                .filter(|listen: &SocketAddr| listen.ip().is_loopback())
        });
        if let (Some((listen, Place::File)), Some(url)) = (&listen, url)
            && !reaches(url, *listen)
        {
            section.wrong_key(
                "listen",
                format_args!(
                    "was {listen}, must be where `backend.lbaas.url` is, {url}; or leave `url` out, and it follows"
                ),
            );
        }
        let state_file = section.path("state_file").map(|path| folder.join(path));
        let token = read_token(&mut section, folder);
        let default = ServerConfig::default();
        let load_balancers = section.items("load_balancers");
        let server = ServerConfig {
            settle_ms: section.whole("settle_ms", default.settle_ms, PAUSE_MS),
            latency_ms: section.whole("latency_ms", default.latency_ms, PAUSE_MS),
            rate_limit_per_second: section
                .optional_whole("rate_limit_per_second", REQUESTS_PER_SECOND)
                .and_then(NonZeroU32::new),
            retry_after: section
                .value("retry_after", "be true, false or a number of seconds", |given| {
                    let seconds = given.whole().map(RetryAfter::Seconds);
                    given.truth().map(RetryAfter::WhenOver).or(seconds)
                })
                .unwrap_or(default.retry_after),
            seed: section.whole("seed", seed, 0..=u64::MAX),
            state_file,
            resource_type_in_lists: section.truth("resource_type_in_lists", default.resource_type_in_lists),
            lose_overlapping_taggings: section.truth("lose_overlapping_taggings", default.lose_overlapping_taggings),
            faults: section.items("faults").unwrap_or_default(),
            load_balancers: load_balancers
                .or_else(|| {
                    Some(
                        adapter?
                            .load_balancers
                            .iter()
                            .map(|name| name.as_str().into())
                            .collect(),
                    )
                })
                .unwrap_or_default(),
            token: default.token,
        };
        section.end();
        let token = token.or_else(|| match backend {
            LbaasBackend::Anexia(backend) => Some(backend.token()),
            LbaasBackend::Simulated => None,
        });
        let listen = listen.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |(listen, _)| listen);
        Some(Self {
            listen,
            token: token?,
            server,
        })
    }
}

/// Whether a request for this URL comes to this address.
pub(super) fn reaches(url: &str, listen: SocketAddr) -> bool {
    let place = url.strip_prefix("http://").unwrap_or_default();
    place == listen.to_string() || place == format!("localhost:{}", listen.port())
}
