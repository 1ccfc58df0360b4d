//! What the sections of load balancers and of network endpoint groups share: a guest, an adapter, a backend, and
//! perhaps a simulated server that the backend reaches.

use std::net::{Ipv4Addr, SocketAddr};

use super::document::Document;
use super::section::{Place, Section};
use super::source::report_missing_source;

/// The sections, except `[source]`.
pub(super) struct Sections<'d> {
    pub(super) guest: Section<'d>,
    pub(super) adapter: Section<'d>,
    pub(super) backend: Section<'d>,
    pub(super) sim: Section<'d>,
}

/// The names of the sections, and the texts for an operator who has none of them.
pub(super) struct Names {
    /// `NAME` in `[guests.NAME]`, `[adapter.NAME]` and `[backend.NAME]`.
    pub(super) name: &'static str,
    /// The section of the simulated server.
    pub(super) sim: &'static str,
    pub(super) adapter: &'static str,
    pub(super) guest: &'static str,
    pub(super) backend: &'static str,
}

impl Sections<'_> {
    /// Whether any of them is present.
    pub(super) fn is_any_present(&self) -> bool {
        [&self.guest, &self.adapter, &self.backend, &self.sim]
            .iter()
            .any(|section| section.is_present())
    }

    /// Reports which sections to add, with their contents.
    pub(super) fn say_what_is_missing(&self, document: &Document<'_>, has_source: bool, names: &Names) {
        if !has_source && self.is_any_present() {
            report_missing_source(document);
        }
        let Names { name, sim, .. } = names;
        let of = |kind: &str| format!("{kind}.{name}");
        if !self.adapter.is_present() {
            let others = [
                (of("guests"), &self.guest),
                (of("backend"), &self.backend),
                ((*sim).to_owned(), &self.sim),
            ];
            if let Some((other, section)) = others.iter().find(|(_, section)| section.is_present()) {
                let text = format_args!("[{other}] needs an adapter: add {}", names.adapter);
                section.wrong_without(&of("adapter"), text);
            }
            return;
        }
        if !self.guest.is_present() {
            let text = format_args!("[adapter.{name}] needs a guest that decides: add {}", names.guest);
            self.adapter.wrong_without(&of("guests"), text);
        }
        if !self.backend.is_present() {
            let text = format_args!("[adapter.{name}] needs a backend that acts: add {}", names.backend);
            self.adapter.wrong_without(&of("backend"), text);
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
