//! `[source]`: where the desired state comes from. `[source.kubernetes]`: the cluster, and the objects to read from it.
//!
//! This module opens no kubeconfig: the client of the cluster checks that it exists and has that context.

use trueup_sources::kubernetes::{PAGE_SIZE_DEFAULT, REQUEST_TIMEOUT_MS_DEFAULT, Settings};
use trueup_sources::{Kind, Source};

use super::section::{Given, Section, chosen, is_filled, is_name, words};

/// The report for an operator who has no such section.
pub(super) const MISSING: &str = "[source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of \
     Kubernetes YAML, or with `kubernetes = {}`, a cluster";

/// `None` only if a problem was found.
pub(super) fn read(mut section: Section<'_>, needed: &[(Kind, &str)], pods_of: Option<String>) -> Option<Source> {
    let cluster = section.section("kubernetes");
    if cluster.is_present {
        if section.has("manifests") {
            section.wrong_key("manifests", "goes without `kubernetes`: leave one of them out");
        }
        // Read the key to mark it as known.
        _ = section.path("manifests");
        return Some(Source::Kubernetes(read_cluster(cluster, needed, pods_of)));
    }
    let must = "be a folder of Kubernetes YAML; or in its place `kubernetes = {}`, a cluster";
    let manifests = section.needs("manifests", must, Given::path);
    manifests.map(Source::Manifests)
}

/// Reads the section. `needed` are the required kinds, each with what is made from it. Only the Pods of the node
/// `pods_of` are read. An invalid value is reported, and a placeholder replaces it.
fn read_cluster(mut section: Section<'_>, needed: &[(Kind, &str)], pods_of: Option<String>) -> Settings {
    let must = "be at most 63 lower case letters, digits and `-`, with a letter or digit at each end";
    let namespaces = section.texts("namespaces", must, |text| is_name(text, 63, false));
    let choices = Kind::ALL.map(|kind| (kind.resource(), kind));
    let must = format!("be {}", words(&choices));
    let kinds = section.list("watch", &must, |text| chosen(text, &choices));
    if let Some(kinds) = &kinds {
        for (kind, made) in needed.iter().filter(|(kind, _)| !kinds.contains(kind)) {
            let text = format!("must hold \"{}\", which {made} are made from", kind.resource());
            section.wrong_key("watch", text);
        }
    }
    if section.length("namespaces") == Some(0) {
        let text = "was [], must hold at least one namespace; leave it out for all";
        section.wrong_key("namespaces", text);
    }
    let mut watch = kinds.unwrap_or_else(|| Kind::ALL.to_vec());
    watch.sort_unstable();
    Settings {
        kubeconfig: section.path("kubeconfig"),
        context: section.text("context", "be the name of a context", is_filled),
        namespaces,
        pods_of,
        watch,
        needed: needed.iter().map(|(kind, _)| *kind).collect(),
        // From a size that passes every proxy to one that makes paging pointless.
        page_size: section.whole("page_size", PAGE_SIZE_DEFAULT, 1..=100_000),
        // Up to ten minutes: a longer timeout for one answer is a wrong unit.
        request_timeout_ms: section.whole("request_timeout_ms", REQUEST_TIMEOUT_MS_DEFAULT, 1..=600_000),
    }
}
