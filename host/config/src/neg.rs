//! `[adapter.neg]`: which Services have NEGs, and how the NEGs are named. It must fit together with `[source]`,
//! `[guests.neg]`, `[backend.neg]` and `[sim.compute]`; otherwise an error names the lines to add. `compute.rs` reads
//! the last two.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trueup_sources::{Kind, Source};

use super::compute::{ComputeSim, NegBackend, read_backend};
use super::guest::Guest;
use super::keyed::{Keyed, Sections};
use super::section::{LABEL, Section, is_label};
use super::world::{self, Reading, World};

/// The setting of the guest that names NEGs by subnet. The adapter sets it, and the configuration must not.
pub const NEG_NAMES: &str = "neg_names";

/// The setting of the guest that lists zones. The same rule applies.
pub const ZONES: &str = "zones";

/// The maximum length of a resource's name in Compute Engine (RFC 1035).
pub const RESOURCE_NAME_MAX: usize = 63;

/// What [`is_resource_name`] requires.
pub(super) const RESOURCE: &str = "be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";

/// How Services become desired NEGs: `[adapter.neg]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Everything about network endpoint groups.
#[derive(Debug, Clone)]
pub struct Neg {
    /// `[source]`: the source of the Services.
    pub source: Source,
    /// `[guests.neg]`: the guest that decides. The adapter, not its settings, names NEGs and zones.
    pub guest: Guest,
    /// `[adapter.neg]`: how Services map to NEGs. Required: `cluster`, and one of `subnet` and `subnet_label`.
    pub adapter: NegAdapter,
    /// `[backend.neg]`: the Compute Engine that the host reads from and writes to.
    pub backend: NegBackend,
    /// `[sim.compute]`: a simulated Compute Engine that the host starts, and that the backend uses over HTTP.
    pub sim: Option<ComputeSim>,
}

impl world::Settings for Neg {
    fn guests(&self) -> Vec<(&'static str, &Guest)> {
        vec![(NAME, &self.guest)]
    }

    fn source(&self) -> Option<&Source> {
        Some(&self.source)
    }

    fn source_mut(&mut self) -> Option<&mut Source> {
        Some(&mut self.source)
    }

    fn shown(&self) -> Vec<(&'static str, &'static str, Value)> {
        let sim = self.sim.as_ref();
        let mut all = vec![
            ("guests", NAME, self.guest.shown()),
            ("adapter", NAME, json!(self.adapter)),
            ("backend", NAME, self.backend.shown(sim.map(|sim| sim.listen))),
        ];
        all.extend(sim.map(|sim| {
            let token = sim.token.as_ref().map(ToString::to_string);
            ("sim", SIM, json!({ "listen": sim.listen, "token": token }))
        }));
        all
    }

    fn approve(&mut self) {
        self.guest.approve_above.percent = 100;
    }

    fn has_own_server(&self) -> bool {
        self.sim.is_some()
    }

    fn use_running_server(&mut self) -> bool {
        let Some(sim) = self.sim.take_if(|sim| sim.listen.port() != 0) else {
            return self.sim.is_none();
        };
        if let NegBackend::Compute(backend) = &mut self.backend {
            backend.use_sim(sim.listen);
        }
        true
    }
}

const NAME: &str = "neg";
const SIM: &str = "compute";

/// The sections about NEGs.
pub const NEG: &dyn World = &Keyed {
    name: NAME,
    sim: SIM,
    subject: "network endpoint groups",
    needs: &[Kind::Service, Kind::Node, Kind::EndpointSlice],
    adapter: "`[adapter.neg]` with `cluster = \"c1\"` and `subnet = \"default\"`",
    guest: "`[guests.neg]` with `use = \"builtin:neg@1\"` and `grants = { neg = { read = [\"*\"], write = [\"*\"] } }`",
    backend: "`[backend.neg]` with `kind = \"compute\"` and `project = \"my-project\"`, or with \
              `kind = \"simulated\"`",
    read: Neg::read,
};

impl Neg {
    /// `None` if its adapter's section is missing, or a problem was found.
    fn read<'d>(sections: Sections<'d>, reading: &Reading<'d>) -> Option<Self> {
        let (has_adapter, has_sim) = (sections.adapter.is_present(), sections.sim.is_present());
        let folder = reading.folder;
        for setting in [NEG_NAMES, ZONES] {
            let text = "is what [adapter.neg] says of each Service and cluster: leave it out";
            sections.guest.refuse_below("settings", setting, text);
        }
        let guest = Guest::read(sections.guest, folder);
        let adapter = read_adapter(sections.adapter);
        let (backend, url) = read_backend(sections.backend, folder, &sections.sim).unzip();
        let url = url.flatten();
        let sim = ComputeSim::read(sections.sim, reading, backend.as_ref(), url.as_deref());
        if !has_adapter {
            return None;
        }
        let backend = backend?;
        // An in-process backend makes the server unused: a variable selected it over the file.
        let sim = (has_sim && backend != NegBackend::Simulated).then_some(sim);
        Some(Self {
            source: reading.source.clone()?,
            guest: guest?,
            adapter: adapter?,
            backend,
            sim,
        })
    }
}

fn read_adapter(mut section: Section<'_>) -> Option<NegAdapter> {
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
    Some(NegAdapter {
        cluster: cluster?.to_owned(),
        subnet: subnet.map(str::to_owned),
        subnet_label: subnet_label.map(str::to_owned),
        zones: zones.unwrap_or_default(),
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

/// `[PREFIX/]NAME`, as in Kubernetes. Checks each character; the API server checks the lengths.
fn is_label_name(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("a", text));
    is_label(name) && !prefix.is_empty() && prefix.split('.').all(is_label)
}
