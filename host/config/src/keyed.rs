//! What the sections of load balancers and of network endpoint groups share: a guest, an adapter, a backend, and
//! perhaps a simulated server that the backend reaches.

use std::net::{Ipv4Addr, SocketAddr};

use trueup_sources::Kind;

use super::section::{Place, Section};
use super::world::{self, About, Reading, Settings, Tables, World};

/// Such a world: the names of its sections, and how an operator may write them.
pub(super) struct Keyed<S> {
    /// `NAME` in `[guests.NAME]`, `[adapter.NAME]` and `[backend.NAME]`.
    pub(super) name: &'static str,
    /// `SIM` in `[sim.SIM]`.
    pub(super) sim: &'static str,
    pub(super) subject: &'static str,
    pub(super) needs: &'static [Kind],
    pub(super) adapter: &'static str,
    pub(super) guest: &'static str,
    pub(super) backend: &'static str,
    /// `None` if the adapter's section is missing, or a problem was found.
    pub(super) read: for<'d> fn(Sections<'d>, &Reading<'d>) -> Option<S>,
}

/// The sections, except `[source]`.
pub(super) struct Sections<'d> {
    pub(super) guest: Section<'d>,
    pub(super) adapter: Section<'d>,
    pub(super) backend: Section<'d>,
    pub(super) sim: Section<'d>,
}

impl<S: Settings> World for Keyed<S> {
    fn about(&self) -> About {
        About {
            subject: self.subject,
            made: self.subject,
            needs: self.needs,
            acts_for_cluster: true,
            guests: vec![self.name],
            adapter: self.adapter,
            others: format!("{}, and {}", self.guest, self.backend),
        }
    }

    fn sections<'d>(&self, tables: &mut Tables<'d>) -> world::Sections<'d> {
        let sections = Sections {
            guest: tables.guests.section(self.name),
            adapter: tables.adapters.section(self.name),
            backend: tables.backends.section(self.name),
            sim: tables.sims.section(self.sim),
        };
        let Sections {
            guest,
            adapter,
            backend,
            sim,
        } = &sections;
        let is_any_present = [guest, adapter, backend, sim]
            .iter()
            .any(|section| section.is_present());
        let required = [
            (guest, Some(("guest that decides", self.guest))),
            (backend, Some(("backend that acts", self.backend))),
            (sim, None),
        ];
        say_what_is_missing(adapter, self.adapter, &required);
        let read = self.read;
        world::Sections::new(is_any_present, move |reading| read(sections, reading))
    }
}

/// Reports which sections to add, with their contents: the adapter's if one of `others` is present, and those of
/// `others` that it requires. Each of these has what the adapter needs it for, and its contents.
pub(super) fn say_what_is_missing(
    adapter: &Section<'_>,
    contents: &str,
    others: &[(&Section<'_>, Option<(&str, &str)>)],
) {
    let name = adapter.name();
    if !adapter.is_present() {
        if let Some((other, _)) = others.iter().find(|(other, _)| other.is_present()) {
            let text = format_args!("[{}] needs an adapter: add {contents}", other.name());
            other.wrong_without(name, text);
        }
        return;
    }
    for (other, required) in others {
        if let (false, Some((what, contents))) = (other.is_present(), required) {
            adapter.wrong_without(other.name(), format_args!("[{name}] needs a {what}: add {contents}"));
        }
    }
}

/// `listen` of a simulated server: on loopback. Reports an address in the file that the backend's `url` does not reach;
/// `origin` is the part of that URL to compare. Without the key, any free port.
pub(super) fn read_listen(
    section: &mut Section<'_>,
    must: &str,
    backend: &str,
    url: Option<&str>,
    origin: fn(&str) -> &str,
) -> SocketAddr {
    let listen = section.placed("listen", must, |given| {
        let listen: SocketAddr = given.text()?.parse().ok()?;
        listen.ip().is_loopback().then_some(listen)
    });
    if let (Some((listen, Place::File)), Some(url)) = (&listen, url)
        && !reaches(origin(url), *listen)
    {
        section.wrong_key(
            "listen",
            format_args!("was {listen}, must be where `{backend}.url` is, {url}; or leave `url` out, and it follows"),
        );
    }
    listen.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |(listen, _)| listen)
}

/// Whether a request to this URL reaches this address.
fn reaches(url: &str, listen: SocketAddr) -> bool {
    let place = url.strip_prefix("http://").unwrap_or_default();
    place == listen.to_string() || place == format!("localhost:{}", listen.port())
}
