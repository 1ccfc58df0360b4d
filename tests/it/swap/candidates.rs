//! Guests that should not become active, and one that may, as files for an operator's command.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use support::Site;

use crate::guests::{forgetful, misbehaving, renumbered};

/// Decides worse: it forgets the last port of every Service.
static FORGETFUL: LazyLock<Vec<u8>> = LazyLock::new(forgetful::built);
/// Panics in each call.
static PANICS: LazyLock<Vec<u8>> = LazyLock::new(|| misbehaving("panics"));
/// Never answers a call.
static SILENT: LazyLock<Vec<u8>> = LazyLock::new(|| misbehaving("never-answers"));

fn misbehaving(feature: &'static str) -> Vec<u8> {
    forgetful::build(&misbehaving::guests::Source {
        name: "misbehaving",
        version: feature,
        features: match feature {
            "panics" => &["panics"],
            _ => &["never-answers"],
        },
        world: "trueup:lbaas/lbaas-reconciler@0.1.0",
    })
}

/// Writes a file into the site; returns the reference to it.
fn put(site: &Site, name: &str, bytes: &[u8]) -> String {
    let file = site.path(name);
    fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Calls itself `lbaas@forgetful`.
pub(crate) fn forgetful(site: &Site) -> String {
    put(site, "forgetful.wasm", &FORGETFUL)
}

/// Calls itself `misbehaving@panics`.
pub(crate) fn panics(site: &Site) -> String {
    put(site, "panics.wasm", &PANICS)
}

/// Calls itself `misbehaving@never-answers`.
pub(crate) fn silent(site: &Site) -> String {
    put(site, "never-answers.wasm", &SILENT)
}

/// `lbaas@1` with another name for its setting `backoff_initial_ms`, so it refuses those of the quickstart.
pub(crate) fn of_other_settings(site: &Site) -> String {
    put(
        site,
        "other-settings.wasm",
        &with_other_settings(renumbered::renumbered("lbaas", "1", "1.2")),
    )
}

/// The same of `lbaas@forgetful`.
pub(crate) fn forgetful_of_other_settings(site: &Site) -> String {
    put(site, "other-settings.wasm", &with_other_settings(FORGETFUL.clone()))
}

fn with_other_settings(mut bytes: Vec<u8>) -> Vec<u8> {
    let (old, new) = (b"backoff_initial_ms", b"backoff_initial_us");
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// `lbaas@1` with another number, in a file of the site.
pub(crate) fn renumbered_in(site: &Site, name: &str, number: &str) -> PathBuf {
    put(site, name, &renumbered::renumbered("lbaas", "1", number)).into()
}
