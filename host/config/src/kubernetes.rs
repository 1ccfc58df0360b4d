//! `[source.kubernetes]`: the cluster, and the objects to read from it.
//!
//! This module opens no kubeconfig: the client of the cluster checks that it exists and has that context.

use std::ops::RangeInclusive;

use trueup_sources::Kind;
use trueup_sources::kubernetes::{PAGE_SIZE_DEFAULT, REQUEST_TIMEOUT_MS_DEFAULT, Settings};

use super::section::{Section, is_filled, is_name};

/// Reads the section. `needed` are the required kinds, each with what is made from it. Only the Pods of the node
/// `pods_of` are read. An invalid value is reported, and a placeholder replaces it.
pub(super) fn read(mut section: Section<'_>, needed: &[(Kind, &str)], pods_of: Option<String>) -> Settings {
    /// From a size that passes every proxy to one that makes paging pointless.
    const PAGE_SIZE: RangeInclusive<u32> = 1..=100_000;
    /// Up to ten minutes: a longer timeout for one answer is a wrong unit.
    const REQUEST_TIMEOUT_MS: RangeInclusive<u64> = 1..=600_000;

    let kubeconfig = section.path("kubeconfig");
    let context = section.text("context", "be the name of a context", is_filled);
    let must = "be at most 63 lower case letters, digits and `-`, with a letter or digit at each end";
    let namespaces = section.texts("namespaces", must, |text| is_name(text, 63, false));
    let named: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| format!("\"{}\"", kind.resource()))
        .collect();
    let must = format!("be {}", named.join(" or "));
    let kinds = section.list("watch", &must, |text| {
        Kind::ALL.into_iter().find(|kind| kind.resource() == text)
    });
    if let Some(kinds) = &kinds {
        for (kind, made) in needed.iter().filter(|(kind, _)| !kinds.contains(kind)) {
            let text = format!("must hold \"{}\", which {made} are made from", kind.resource());
            section.wrong_key("watch", text);
        }
    }
    if section.length("namespaces") == Some(0) {
        section.wrong_key(
            "namespaces",
            "was [], must hold at least one namespace; leave it out for all",
        );
    }
    let page_size = section.whole("page_size", PAGE_SIZE_DEFAULT, PAGE_SIZE);
    let request_timeout_ms = section.whole("request_timeout_ms", REQUEST_TIMEOUT_MS_DEFAULT, REQUEST_TIMEOUT_MS);
    let mut watch = kinds.unwrap_or_else(|| Kind::ALL.to_vec());
    watch.sort_unstable();
    Settings {
        kubeconfig,
        context,
        namespaces,
        pods_of,
        watch,
        needed: needed.iter().map(|(kind, _)| *kind).collect(),
        page_size,
        request_timeout_ms,
    }
}
