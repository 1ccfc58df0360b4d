//! `[adapter.neg]`: which Services have NEGs, and how the NEGs are named. It must fit together with `[source]`,
//! `[guests.neg]`, `[backend.neg]` and `[sim.compute]`; otherwise an error names the lines to add. `compute.rs` reads
//! the last two.

use std::path::Path;

use trueup_sources::Source;

use super::compute::{ComputeSim, NegBackend, read_backend};
use super::document::Document;
use super::guest::Guest;
use super::section::{LABEL, Section, is_label};
use super::source::report_missing_source;
use crate::guests::neg::adapter::{self, NEG_NAMES, ZONES, is_resource_name};

/// What [`is_resource_name`] requires.
pub(super) const RESOURCE: &str = "be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";

/// Everything about network endpoint groups.
#[derive(Debug, Clone)]
pub struct Neg {
    /// `[source]`: the source of the Services.
    pub source: Source,
    /// `[guests.neg]`: the guest that decides. The adapter, not its settings, names NEGs and zones.
    pub guest: Guest,
    /// `[adapter.neg]`: how Services map to NEGs. Required: `cluster`, and one of `subnet` and `subnet_label`.
    pub adapter: adapter::Settings,
    /// `[backend.neg]`: the Compute Engine that the host reads from and writes to.
    pub backend: NegBackend,
    /// `[sim.compute]`: a simulated Compute Engine that the host starts, and that the backend uses over HTTP.
    pub sim: Option<ComputeSim>,
}

impl Neg {
    /// Uses the simulated Compute Engine of the running host instead of starting one. False if its port is unknown.
    pub(super) fn use_running_sim(&mut self) -> bool {
        let Some(sim) = self.sim.take_if(|sim| sim.listen.port() != 0) else {
            return self.sim.is_none();
        };
        if let NegBackend::Compute(backend) = &mut self.backend {
            backend.use_sim(sim.listen);
        }
        true
    }
}

/// The text for an operator who has none of these sections.
pub(super) const ADAPTER: &str = "`[adapter.neg]` with `cluster = \"c1\"` and `subnet = \"default\"`";
pub(super) const GUEST: &str = "`[guests.neg]` with `use = \"builtin:neg@1\"` and \
     `grants = { neg = { read = [\"*\"], write = [\"*\"] } }`";
pub(super) const BACKEND: &str = "`[backend.neg]` with `kind = \"compute\"` and `project = \"my-project\"`, or with \
     `kind = \"simulated\"`";

/// The sections about NEGs, except `[source]`.
pub(super) struct Sections<'d> {
    pub(super) guest: Section<'d>,
    pub(super) adapter: Section<'d>,
    pub(super) backend: Section<'d>,
    pub(super) sim: Section<'d>,
}

impl Sections<'_> {
    pub(super) fn is_any_present(&self) -> bool {
        [&self.guest, &self.adapter, &self.backend, &self.sim]
            .iter()
            .any(|section| section.is_present())
    }

    /// Reports which sections to add, with their contents.
    fn say_what_is_missing(&self) {
        let Self {
            guest,
            adapter,
            backend,
            sim,
        } = self;
        if !adapter.is_present() {
            let others = [("guests.neg", guest), ("backend.neg", backend), ("sim.compute", sim)];
            if let Some((name, section)) = others.iter().find(|(_, section)| section.is_present()) {
                section.wrong_without("adapter.neg", format_args!("[{name}] needs an adapter: add {ADAPTER}"));
            }
            return;
        }
        if !guest.is_present() {
            adapter.wrong_without(
                "guests.neg",
                format_args!("[adapter.neg] needs a guest that decides: add {GUEST}"),
            );
        }
        if !backend.is_present() {
            adapter.wrong_without(
                "backend.neg",
                format_args!("[adapter.neg] needs a backend that acts: add {BACKEND}"),
            );
        }
    }
}

impl Neg {
    /// `None` if none of the sections is present, or a problem was found.
    pub(super) fn read<'d>(
        document: &'d Document<'d>,
        source: (bool, Option<Source>),
        sections: Sections<'d>,
        folder: &Path,
        seed: u64,
    ) -> Option<Self> {
        let (has_source, source) = source;
        if !has_source && sections.is_any_present() {
            report_missing_source(document);
        }
        sections.say_what_is_missing();
        let Sections {
            guest,
            adapter,
            backend,
            sim,
        } = sections;
        let (has_adapter, has_sim) = (adapter.is_present(), sim.is_present());
        for setting in [NEG_NAMES, ZONES] {
            let text = "is what [adapter.neg] says of each Service and cluster: leave it out";
            guest.refuse_below("settings", setting, text);
        }
        let guest = Guest::read(guest, folder);
        let adapter = read_adapter(adapter);
        let (backend, url) = read_backend(backend, folder, &sim).unzip();
        let url = url.flatten();
        let sim = ComputeSim::read(sim, folder, seed, backend.as_ref(), url.as_deref());
        if !has_adapter {
            return None;
        }
        let backend = backend?;
        // An in-process backend makes the server unused: a variable selected it over the file.
        let sim = (has_sim && backend != NegBackend::Simulated).then_some(sim);
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
    // It is part of the generated names of NEGs.
    let cluster = section.required("cluster", LABEL, |given| given.text().filter(|text| is_label(text)));
    let subnet = section.value("subnet", RESOURCE, |given| {
        given.text().filter(|text| is_resource_name(text))
    });
    let label = "be the name of a label of Nodes, such as `example.com/subnet`";
    let subnet_label = section.value("subnet_label", label, |given| {
        given.filled().filter(|text| is_label_name(text))
    });
    if subnet.is_none() && subnet_label.is_none() && !section.has("subnet") && !section.has("subnet_label") {
        section.missing(
            "subnet",
            format_args!("must {RESOURCE}; or `subnet_label` says which Node is in which"),
        );
    }
    let zones = section.list("zones", RESOURCE, |text| {
        is_resource_name(text).then(|| text.to_owned())
    });
    section.end();
    Some(adapter::Settings {
        cluster: cluster?.to_owned(),
        subnet: subnet.map(str::to_owned),
        subnet_label: subnet_label.map(str::to_owned),
        zones: zones.unwrap_or_default(),
    })
}

/// `[PREFIX/]NAME`, as in Kubernetes. Checks each character; the API server checks the lengths.
fn is_label_name(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("a", text));
    is_label(name) && !prefix.is_empty() && prefix.split('.').all(is_label)
}
