//! Swaps of guests while the host runs, with the real binary and its commands: under load, through the gate, in shadow,
//! and over restarts.
//!
//! Tests beside the gate and the shadow cover their results, with guests in one process. These tests cover the
//! operator's view, and that no effect is lost or repeated.

mod candidates;
mod gate;
mod load;
mod recorded;
mod refusals;
mod shadow;
mod start;

use serde_json::Value;

use support::{Engine, Ran, Running, SETTLE, Site};

/// The quickstart in sync, with a running host.
fn running() -> Running {
    running_with(|_| {})
}

/// `prepare` changes the site before the host starts.
fn running_with(prepare: impl FnOnce(&Site)) -> Running {
    let engine = Engine::start(&SETTLE);
    let site = Site::against(&engine);
    // A worse version destroys more than half: the gate must refuse it, not the approval.
    site.edit(
        "trueup.toml",
        "\n[guests.lbaas]\n",
        "\n[guests.lbaas]\napprove_above_percent = 100\n",
    );
    prepare(&site);
    Running::start(engine, site)
}

/// Keeps only the Service `web`, which has two ports.
fn only_web(site: &Site) {
    site.remove_manifest("api.yaml");
    site.remove_manifest("dns.yaml");
}

/// Adds keys to `[guests.lbaas]`.
fn configure(site: &Site, more: &str) {
    let shipped = "use = \"builtin:lbaas@1\"\n";
    site.edit("trueup.toml", shipped, &format!("{shipped}{more}"));
}

/// The active revision of the guest `lbaas`, from the running host: its number, name and version.
#[track_caller]
fn active(site: &Site) -> (u64, String) {
    let standing = site.guest(&["status", "lbaas", "--output", "json"]).exits(0).json();
    told(&standing[0]["active"])
}

fn told(revision: &Value) -> (u64, String) {
    let text = |field: &str| revision[field].as_str().unwrap();
    (
        revision["revision"].as_u64().unwrap(),
        format!("{}@{}", text("name"), text("version")),
    )
}

/// Every revision in order: its number, name and version, and its cause.
#[track_caller]
fn revisions(site: &Site) -> Vec<(u64, String, String)> {
    let told = |revision: &Value| {
        let (number, version) = told(revision);
        (number, version, revision["by"].as_str().unwrap().to_owned())
    };
    site.history("lbaas").iter().map(told).collect()
}

fn revision(number: u64, version: &str, by: &str) -> (u64, String, String) {
    (number, version.to_owned(), by.to_owned())
}

/// The single line of a command that failed.
#[track_caller]
fn error(ran: &Ran) -> &str {
    let [line] = ran.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("one line must say it: {ran}")
    };
    assert_eq!(ran.stdout, "", "{ran}");
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{ran}"))
}
