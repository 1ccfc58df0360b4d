//! Guests are swapped while the host runs, with the real binary and its commands: under load, through the gate, in shadow,
//! and over restarts.
//!
//! What the gate and shadow say of a candidate is tested beside them, with guests in one process; here is what an operator
//! sees of it, and that nothing of what is applied is lost or done twice.

mod candidates;
mod gate;
mod load;
mod recorded;
mod refusals;
mod shadow;
mod start;

use serde_json::Value;

use support::{Engine, Ran, Site, Started};

/// Resources are there after this; long enough to be waited for.
const SETTLE: [&str; 2] = ["--settle-ms", "20"];

/// The Services of the quickstart: the manifest of each, and its key.
const SERVICES: [(&str, &str); 3] = [
    ("api.yaml", "default/api"),
    ("web.yaml", "default/web"),
    ("dns.yaml", "kube-system/dns"),
];

/// The quickstart, true, with a host that goes on.
struct Running {
    engine: Engine,
    site: Site,
    host: Started,
}

impl Running {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// `prepare`: what is done to the site before the host starts.
    fn with(prepare: impl FnOnce(&Site)) -> Self {
        let engine = Engine::start(&SETTLE);
        let site = Site::against(&engine);
        // A version that decides worse destroys more than half: that it is refused is not for the approval to see.
        site.edit(
            "trueup.toml",
            "\n[guests.lbaas]\n",
            "\n[guests.lbaas]\napprove_above_percent = 100\n",
        );
        prepare(&site);
        let host = started(&site);
        Self { engine, site, host }
    }

    /// After the end of this host as the system ends it, another one.
    fn restarted(self, prepare: impl FnOnce(&Site)) -> Self {
        let Self { engine, site, host } = self;
        host.terminate().0.exits(0);
        prepare(&site);
        let host = started(&site);
        Self { engine, site, host }
    }

    /// Changes the node port of the Service `web`, and waits until that is true.
    fn change_web(&mut self, from: &str, to: &str) {
        let is_true = |host: &Started| host.stdout().matches("default/web              true ").count();
        let before = is_true(&self.host);
        self.site.edit(
            "manifests/web.yaml",
            &format!("nodePort: {from}"),
            &format!("nodePort: {to}"),
        );
        support::wait_until("the changed Service", || is_true(&self.host) > before);
    }
}

/// A host, once all is true.
fn started(site: &Site) -> Started {
    let mut host = site.start("run", &[]);
    let is_there = |(manifest, _): &(&str, &str)| site.path("manifests").join(manifest).exists();
    for (_, key) in SERVICES.into_iter().filter(is_there) {
        host.wait_for(&format!("{key:<24} true "));
    }
    host
}

/// Leaves the Service `web` alone: it has two ports.
fn only_web(site: &Site) {
    site.remove_manifest("api.yaml");
    site.remove_manifest("dns.yaml");
}

/// Adds keys to `[guests.lbaas]`.
fn configure(site: &Site, more: &str) {
    let shipped = "use = \"builtin:lbaas@1\"\n";
    site.edit("trueup.toml", shipped, &format!("{shipped}{more}"));
}

/// The active revision of the guest `lbaas`, as the host that runs tells it: its number, name and version.
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

/// Every revision, as it came to be: its number, name and version, and why.
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

/// The one line that a command says when it did not do what was asked.
#[track_caller]
fn error(ran: &Ran) -> &str {
    let [line] = ran.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("one line must say it: {ran}")
    };
    assert_eq!(ran.stdout, "", "{ran}");
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{ran}"))
}
