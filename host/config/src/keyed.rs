//! What worlds share whose guest decides about one key at a time: a guest, an adapter, and mostly a backend of their
//! own, with a simulated server that it reaches.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use trueup_base::regular;
use trueup_sources::{Kind, Source};

use super::guest::Guest;
use super::section::{Layer, Section};
use super::world::{About, Sections, Settings, Tables, World};

/// What the sections of such a world say.
#[derive(Debug, Clone)]
pub struct Keyed<A, B, S> {
    pub(super) name: &'static str,
    /// `[source]`: the source of the objects that it reads.
    pub source: Source,
    /// `[guests.NAME]`: the guest that decides.
    pub guest: Guest,
    /// `[adapter.NAME]`: how the objects become keys and desired state.
    pub adapter: A,
    /// `[backend.NAME]`: what the host reads from and writes to.
    pub backend: B,
    /// `[sim.SIM]`: a simulated server that the host starts, and that the backend uses over HTTP.
    pub sim: Option<S>,
}

/// `[backend.NAME]` of one world.
pub trait Backend: Data {
    /// `SIM` in `[sim.SIM]`.
    const SIM: &'static str;

    /// Whether it is simulated in this process, so that it needs no server.
    fn is_simulated(&self) -> bool;

    /// Uses the simulated server at this address from now on.
    fn use_sim(&mut self, address: SocketAddr);
}

/// `[backend.NAME]` whose server has an address. `S` are its settings, `C` says where its credentials are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served<S, C> {
    /// A server over HTTP.
    Remote(Box<Remote<S, C>>),
    /// `kind = "simulated"`: a server in this process, empty at every start.
    Simulated,
}

/// A server that the host calls over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote<S, C> {
    /// The address in it is valid only as [`Remote::settings`] describes.
    pub(super) settings: S,
    /// The file has no `url`, but a `[sim.SIM]`.
    pub(super) at_sim: bool,
    /// Where the host's credentials are, unless the settings say so.
    pub credentials: C,
}

/// How the host calls a server over HTTP.
pub trait Calls: Data {
    /// `SIM` in `[sim.SIM]`.
    const SIM: &'static str;

    /// Calls the simulated server at this address from now on.
    fn use_sim(&mut self, address: SocketAddr);
}

impl<S: Calls, C> Remote<S, C> {
    /// The settings. `sim` is the address of `[sim.SIM]`, if there is one; without its own `url`, the backend uses that
    /// address.
    pub fn settings(&self, sim: Option<SocketAddr>) -> S {
        let mut settings = self.settings.clone();
        if let (true, Some(address)) = (self.at_sim, sim) {
            settings.use_sim(address);
        }
        settings
    }
}

impl<S: Calls, C: Data> Backend for Served<S, C> {
    const SIM: &'static str = S::SIM;

    fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated)
    }

    fn use_sim(&mut self, address: SocketAddr) {
        if let Self::Remote(remote) = self {
            remote.settings = remote.settings(Some(address));
        }
    }
}

/// `[sim.SIM]`: a simulated server that the host starts.
#[derive(Debug, Clone)]
pub struct SimServer<T, C> {
    /// The address it listens on: loopback only. Port 0 takes a free port. Default: `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Where the token is that it accepts. Default: that of the backend.
    pub token: T,
    pub(super) server: C,
}

/// Where a host notes the address of its simulated server, which a `listen` with port 0 does not say.
pub fn sim_address(state_dir: &Path, sim: &str) -> PathBuf {
    state_dir.join("sim").join(sim)
}

/// How the sections of such a world are read.
pub(super) struct KeyedWorld<A, S, C, T, K> {
    pub(super) plain: PlainWorld<A>,
    /// Its backend's section as an operator may write it.
    pub(super) backend: &'static str,
    /// `kind` of its backend if that is a server over HTTP.
    pub(super) kind: &'static str,
    /// An address that the simulated server may have.
    pub(super) listen: &'static str,
    /// The guest's settings that the adapter sets: no operator may.
    pub(super) settings_of_adapter: &'static [&'static str],
    pub(super) read_adapter: fn(Section<'_>) -> Option<A>,
    pub(super) read_backend: fn(&mut Section<'_>, At<'_>) -> (S, C),
    pub(super) read_sim: ReadSim<A, Served<S, C>, T, K>,
}

/// Where a backend's server is.
#[derive(Clone, Copy)]
pub(super) struct At<'u> {
    /// Whether `kind` says that it is one over HTTP.
    pub(super) is_remote: bool,
    pub(super) url: Option<&'u str>,
    /// Whether it is the simulated one.
    pub(super) at_sim: bool,
}

/// Reads the simulated server's section: its token, and its other settings.
type ReadSim<A, B, T, K> = fn(&mut Section<'_>, Beside<'_, A, B>) -> Option<(T, K)>;

/// What a simulated server follows: the host's seed, the adapter and the backend.
pub(super) type Beside<'b, A, B> = (u64, Option<&'b A>, &'b B);

/// A URL, and which layer gives it.
type Url = (String, Layer);

/// What a world's settings consist of.
pub trait Data: Debug + Clone + Send + Sync + 'static {}

impl<T: Debug + Clone + Send + Sync + 'static> Data for T {}

impl<A: Data, B: Backend, T: Data, C: Data> Settings for Keyed<A, B, SimServer<T, C>> {
    fn guests(&self) -> Vec<(&'static str, &Guest)> {
        vec![(self.name, &self.guest)]
    }

    fn source(&self) -> Option<&Source> {
        Some(&self.source)
    }

    fn approve(&mut self) {
        self.guest.approve_above.percent = 100;
    }

    fn has_own_server(&self) -> bool {
        self.sim.is_some()
    }

    fn use_running_server(&mut self, state_dir: &Path) -> bool {
        let Some(sim) = &self.sim else { return true };
        let noted = || regular::read_text(&sim_address(state_dir, B::SIM), regular::SMALL).ok();
        let address = match sim.listen.port() {
            0 => noted().and_then(|text| text.trim().parse().ok()),
            _ => Some(sim.listen),
        };
        let Some(address) = address else { return false };
        self.backend.use_sim(address);
        self.sim = None;
        true
    }
}

impl<A: DeserializeOwned + Data, S: Calls, C: Data, T: Data, K: Data> World for KeyedWorld<A, S, C, T, K> {
    fn about(&self) -> About {
        self.plain.about()
    }

    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d> {
        let name = self.plain.name;
        let guest = tables.guests.section(name);
        let adapter = tables.adapters.section(name);
        let mut backend = tables.backends.section(name);
        let mut sim = tables.sims.section(S::SIM);
        let others = [
            (&guest, Some(("guest that decides", self.plain.guest))),
            (&backend, Some(("backend that acts", self.backend))),
            (&sim, None),
        ];
        let is_any_present = say_what_is_missing(&adapter, self.plain.adapter, &others);
        for setting in self.settings_of_adapter {
            let adapter = &adapter.name;
            let text = format_args!("is what [{adapter}] says of each Service and cluster: leave it out");
            guest.refuse_below("settings", setting, text);
        }
        Sections::new(is_any_present, move |reading| {
            let guest = Guest::read(guest);
            let adapter = (self.read_adapter)(adapter);
            let (kind, in_file) = backend.kind(&[self.kind, "simulated"], None);
            let url = read_url(&mut backend);
            let at_sim = url.is_none() && sim.is_present;
            let at = At {
                is_remote: kind == self.kind,
                url: url.as_ref().map(|(url, _)| url.as_str()),
                at_sim,
            };
            let (settings, credentials) = (self.read_backend)(&mut backend, at);
            if kind == "simulated" && in_file {
                goes_alone(&backend, &sim, self.kind);
            }
            let served = match kind {
                "simulated" => Served::Simulated,
                _ => Served::Remote(Box::new(Remote {
                    settings,
                    at_sim,
                    credentials,
                })),
            };
            let listen = read_listen(&mut sim, self.listen, &backend.name, url.as_ref());
            let server = (self.read_sim)(&mut sim, (reading.seed, adapter.as_ref(), &served));
            // A variable may select another server over the file, or a backend in this process: this one is unused.
            let is_its = url.as_ref().is_none_or(|(url, _)| reaches(url, listen));
            let server = server.filter(|_| sim.is_present && !served.is_simulated() && is_its);
            Some(Keyed {
                name,
                source: reading.source.clone()?,
                guest: guest?,
                adapter: adapter?,
                backend: served,
                sim: server.map(|(token, server)| SimServer { listen, token, server }),
            })
        })
    }
}

/// A section beside an adapter's. If the adapter requires it: what for, and its contents.
type Other<'s, 'd> = (&'s Section<'d>, Option<(&'s str, &'s str)>);

/// Reports which sections to add, with their contents: the adapter's if one of `others` is present, and those of
/// `others` that it requires. Returns whether any section is present.
pub(super) fn say_what_is_missing(adapter: &Section<'_>, contents: &str, others: &[Other<'_, '_>]) -> bool {
    let name = &adapter.name;
    let other = others.iter().find(|(other, _)| other.is_present);
    if !adapter.is_present {
        if let Some((other, _)) = other {
            let text = format_args!("[{}] needs an adapter: add {contents}", other.name);
            other.wrong_without(name, text);
        }
        return other.is_some();
    }
    for (other, required) in others {
        if let (false, Some((what, contents))) = (other.is_present, required) {
            adapter.wrong_without(&other.name, format_args!("[{name}] needs a {what}: add {contents}"));
        }
    }
    true
}

/// Reports keys of a backend that an in-process simulation does not use, but the other `kind` does. If a variable
/// selects the simulation, the file may keep them.
fn goes_alone(backend: &Section<'_>, sim: &Section<'_>, kind: &str) {
    backend.go_alone(kind, &["kind"]);
    if sim.is_present {
        let name = &sim.name;
        let backend = &backend.name;
        let text = format_args!("[{name}] speaks HTTP, which goes with `{backend}.kind = \"{kind}\"` alone");
        sim.wrong(text);
    }
}

/// `url`: the base URL without its trailing slash, and its layer. An error does not show it if it may contain a
/// password.
fn read_url(section: &mut Section<'_>) -> Option<Url> {
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

/// `listen` of a simulated server: on loopback. Reports an address that the backend's `url` does not reach, unless a
/// later layer gives that. Without the key, any free port.
fn read_listen(section: &mut Section<'_>, example: &str, backend: &str, url: Option<&Url>) -> SocketAddr {
    let must = format!("be a loopback address with a port, such as `{example}`");
    let listen = section.value("listen", &must, |given| {
        let listen: SocketAddr = given.text()?.parse().ok()?;
        listen.ip().is_loopback().then_some((listen, given.layer()))
    });
    if let (Some((listen, of_listen)), Some((url, of_url))) = (&listen, url)
        && of_url <= of_listen
        && !reaches(url, *listen)
    {
        let must = format_args!("must be where `{backend}.url` is, {url}; or leave `url` out, and it follows");
        section.wrong_key("listen", format_args!("was {listen}, {must}"));
    }
    listen.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |(listen, _)| listen)
}

/// `rate_limit_per_second` of a simulated server: up to what a simulation on one machine can answer.
pub(super) fn read_rate_limit(section: &mut Section<'_>) -> Option<NonZeroU32> {
    NonZeroU32::new(section.optional_whole("rate_limit_per_second", 1..=1_000_000)?)
}

/// Whether a request to this URL reaches this address.
fn reaches(url: &str, listen: SocketAddr) -> bool {
    let authority = url.strip_prefix("http://").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    authority == listen.to_string() || authority == format!("localhost:{}", listen.port())
}

/// A world of keys that keeps everything in backends which worlds share, such as etcd: its sections are
/// `[adapter.NAME]` and `[guests.NAME]` alone, and serde reads the first. It acts for a whole cluster, so the hosts of
/// a cluster elect one.
pub struct PlainWorld<A> {
    /// `NAME`: what the operator calls it, its guest and its adapter.
    pub name: &'static str,
    /// What it makes from the objects of `[source]`, in the plural: `etcd keys of Services`.
    pub subject: &'static str,
    /// Its adapter's section as an operator may write it: `` `[adapter.NAME]` with `cluster = "c1"` ``.
    pub adapter: &'static str,
    /// Its guest's section, in the same way.
    pub guest: &'static str,
    /// The kinds of objects of `[source]` that it needs.
    pub needs: &'static [Kind],
    /// Its adapter.
    pub of: PhantomData<fn() -> A>,
}

/// What the sections of such a world say. `A` are the keys of `[adapter.NAME]`. Only the file sets them: variables do
/// not.
pub type Plain<A> = Keyed<A, Shared, SimServer<(), ()>>;

/// The backends that worlds share.
#[derive(Debug, Clone, Copy)]
pub struct Shared;

impl Backend for Shared {
    const SIM: &'static str = "";

    fn is_simulated(&self) -> bool {
        false
    }

    fn use_sim(&mut self, _address: SocketAddr) {}
}

impl<A: DeserializeOwned + Data> World for PlainWorld<A> {
    fn about(&self) -> About {
        About {
            name: self.name,
            subject: self.subject,
            made: self.subject,
            needs: self.needs,
            acts_for_cluster: true,
            guests: vec![self.name],
            adapter: self.adapter,
        }
    }

    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d> {
        let guest = tables.guests.section(self.name);
        let adapter = tables.adapters.section(self.name);
        let others = [(&guest, Some(("guest that decides", self.guest)))];
        let is_any_present = say_what_is_missing(&adapter, self.adapter, &others);
        Sections::new(is_any_present, move |reading| {
            let guest = Guest::read(guest);
            let adapter = adapter.typed();
            Some(Plain::<A> {
                name: self.name,
                source: reading.source.clone()?,
                guest: guest?,
                adapter: adapter?,
                backend: Shared,
                sim: None,
            })
        })
    }
}
