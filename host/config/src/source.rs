//! `[source]`: where the desired state comes from.

use trueup_sources::{Kind, Source};

use super::kubernetes;
use super::section::{Given, Section};

/// The report for an operator who has no such section.
pub(super) const MISSING: &str = "[source] is missing: add `[source]` with `manifests = \"manifests\"`, a folder of \
     Kubernetes YAML, or with `kubernetes = {}`, a cluster";

/// `None` only if a problem was found.
pub(super) fn read(mut section: Section<'_>, needed: &[(Kind, &str)], pods_of: Option<String>) -> Option<Source> {
    let cluster = section.section("kubernetes");
    if cluster.is_present() {
        if section.has("manifests") {
            section.wrong_key("manifests", "goes without `kubernetes`: leave one of them out");
        }
        // Read the key to mark it as known.
        _ = section.path("manifests");
        return Some(Source::Kubernetes(kubernetes::read(cluster, needed, pods_of)));
    }
    let must = "be a folder of Kubernetes YAML; or in its place `kubernetes = {}`, a cluster";
    let manifests = section.required("manifests", must, Given::path);
    manifests.map(Source::Manifests)
}
