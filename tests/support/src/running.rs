//! The quickstart with a running host, and with an Engine in another process.

use super::{Engine, Site, Started, wait_until};

/// How long resources take to appear: long enough that the guest has to wait.
pub const SETTLE: [&str; 2] = ["--settle-ms", "20"];

/// The Services of the quickstart: each with its manifest and its key.
const SERVICES: [(&str, &str); 3] = [
    ("api.yaml", "default/api"),
    ("web.yaml", "default/web"),
    ("dns.yaml", "kube-system/dns"),
];

/// Dropping the value kills both.
pub struct Running {
    pub engine: Engine,
    pub site: Site,
    pub host: Started,
}

impl Running {
    /// Starts the host, and waits until everything is in sync.
    #[track_caller]
    pub fn start(engine: Engine, site: Site) -> Self {
        let mut host = site.start("run", &[]);
        let is_there = |(manifest, _): &(&str, &str)| site.path("manifests").join(manifest).exists();
        for (_, key) in SERVICES.into_iter().filter(is_there) {
            host.wait_for(&true_line(key));
        }
        Self { engine, site, host }
    }

    /// Ends this host like the system does, and starts another one.
    #[track_caller]
    pub fn restarted(self, prepare: impl FnOnce(&Site)) -> Self {
        let Self { engine, site, host } = self;
        host.terminate().0.exits(0);
        prepare(&site);
        Self::start(engine, site)
    }

    /// How often the host reported a key as in sync.
    pub fn truths(&self, key: &str) -> usize {
        self.host.stdout().matches(&true_line(key)).count()
    }

    /// Edits a manifest and waits until these keys are in sync again. Call it while none of them is being reconciled,
    /// as all are after a swap: the line of that turn would end the wait.
    #[track_caller]
    pub fn edit(&self, file: &str, from: &str, to: &str, keys: &[&str]) {
        let before: Vec<usize> = keys.iter().map(|key| self.truths(key)).collect();
        self.site.edit(&format!("manifests/{file}"), from, to);
        wait_until("the changed keys", || {
            keys.iter().zip(&before).all(|(key, before)| self.truths(key) > *before)
        });
    }

    /// Changes the node port of the Service `web`, and waits until it is in sync.
    #[track_caller]
    pub fn change_web(&self, from: &str, to: &str) {
        let port = |number: &str| format!("nodePort: {number}");
        self.edit("web.yaml", &port(from), &port(to), &["default/web"]);
    }
}

fn true_line(key: &str) -> String {
    format!("{key:<24} true ")
}
