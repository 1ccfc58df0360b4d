//! `[adapter.neg]`: which Services have NEGs, and how the NEGs are named. It must fit together with `[source]`,
//! `[guests.neg]`, `[backend.neg]` and `[sim.compute]`; otherwise an error names the lines to add. `compute.rs` reads
//! the last two.

use std::marker::PhantomData;

use serde::Deserialize;
use trueup_sources::Kind;

use super::compute::{ComputeSim, NegBackend, read_backend, read_sim};
use super::keyed::{Keyed, KeyedWorld};
use super::plain::PlainWorld;
use super::section::{LABEL, Section, is_label};
use super::world::World;

/// The setting of the guest that names NEGs by subnet. The adapter sets it, and the configuration must not.
pub const NEG_NAMES: &str = "neg_names";

/// The setting of the guest that lists zones. The same rule applies.
pub const ZONES: &str = "zones";

/// The maximum length of a resource's name in Compute Engine (RFC 1035).
pub const RESOURCE_NAME_MAX: usize = 63;

/// What [`is_resource_name`] requires.
pub(super) const RESOURCE: &str = "be 1 to 63 lower case letters, digits and `-`, with a letter first and no `-` last";

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
    settings_of_adapter: &[NEG_NAMES, ZONES],
    read_adapter,
    read_backend,
    read_sim,
};

fn read_adapter(mut section: Section<'_>) -> Option<NegAdapter> {
    // It is part of the generated names of NEGs.
    let cluster = section.required_text("cluster", LABEL, is_label);
    let subnet = section.text("subnet", RESOURCE, is_resource_name);
    let label = "be the name of a label of Nodes, such as `example.com/subnet`";
    let subnet_label = section.text("subnet_label", label, is_label_name);
    if subnet.is_none() && subnet_label.is_none() && !section.has("subnet") && !section.has("subnet_label") {
        section.missing(
            "subnet",
            format_args!("must {RESOURCE}; or `subnet_label` says which Node is in which"),
        );
    }
    let zones = section.texts("zones", RESOURCE, is_resource_name);
    Some(NegAdapter {
        cluster: cluster?,
        subnet,
        subnet_label,
        zones,
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
