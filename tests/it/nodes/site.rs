//! The host of one node: its configuration, its state folder, and its process, which may come and go.
//!
//! The guests are compiled once for all hosts of this binary: each gets the first one's compiled code, as if it had run
//! before.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::entries::{Call, Entries};
use super::manifests::Manifests;
use support::{Ran, Site, Started, ran};

/// Many processes start at once here, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(300);

/// The compiled code of every built-in guest, for this machine.
static COMPILED: LazyLock<Site> = LazyLock::new(|| {
    let manifests = Manifests::new();
    manifests.put_node("warm", "172.30.1.99");
    let config = Config::new("warm", &manifests)
        .numbered()
        .serving(&["nftables", "nat44"]);
    let site = Site::of(&config.text());
    site.run_once().exits(0);
    site
});

/// Waits long, and checks repeatedly until the condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {} s for {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A configuration, built section by section.
pub(crate) struct Config {
    node: String,
    manifests: PathBuf,
    /// The members' URLs; if empty, the host's own store.
    etcd: Vec<String>,
    /// `None` means the default.
    request_timeout_ms: Option<u32>,
    addresses: Vec<String>,
    is_numbered: bool,
    /// If empty, there is no service processor.
    renderers: Vec<&'static str>,
    /// The packet filter's program; `None` means a simulated packet filter.
    nft: Option<PathBuf>,
}

impl Config {
    /// Without any guest.
    pub(crate) fn new(node: &str, manifests: &Manifests) -> Self {
        Self {
            node: node.to_owned(),
            manifests: manifests.folder().to_owned(),
            etcd: Vec::new(),
            request_timeout_ms: Some(1_000),
            addresses: Vec::new(),
            is_numbered: false,
            renderers: Vec::new(),
            nft: None,
        }
    }

    /// Adds one more member, in the order in which the host tries them.
    pub(crate) fn against(mut self, etcd: &str) -> Self {
        self.etcd.push(etcd.to_owned());
        self
    }

    /// Sets the longest time of a question to etcd.
    pub(crate) fn patient(mut self, request_timeout_ms: u32) -> Self {
        self.request_timeout_ms = Some(request_timeout_ms);
        self
    }

    /// Uses the default timeout.
    pub(crate) fn patient_by_default(mut self) -> Self {
        self.request_timeout_ms = None;
        self
    }

    /// With the guest `nodesync`.
    pub(crate) fn numbered(mut self) -> Self {
        self.is_numbered = true;
        self
    }

    pub(crate) fn publishing(mut self, addresses: &[&str]) -> Self {
        self.addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        self
    }

    /// With the guest `service`, and these renderers: `nftables`, simulated; `nat44`; or `other`, which is `nat44` for
    /// another agent and may ask only one question in a call, although it needs more.
    pub(crate) fn serving(mut self, renderers: &[&'static str]) -> Self {
        self.renderers = renderers.to_vec();
        self
    }

    /// With a kernel's packet filter, which this program changes.
    pub(crate) fn filtering(mut self, nft: PathBuf) -> Self {
        self.nft = Some(nft);
        self
    }

    fn text(&self) -> String {
        let Self { node, addresses, .. } = self;
        let simulated = || "kind = \"simulated\"".to_owned();
        let filter = self.nft.as_ref().map_or_else(simulated, |nft| format!("nft = {nft:?}"));
        let manifests = self.manifests.display();
        let mut text = format!(
            "[source]\nmanifests = \"{manifests}\"\n\
             [run]\nbackoff_initial_ms = 20\nbackoff_max_ms = 400\n\
             [backend.nftables]\n{filter}\n\
             [adapter.node]\nname = \"{node}\"\naddresses = {addresses:?}\n"
        );
        if !self.renderers.is_empty() {
            text += "pod_subnet_this_node = \"10.1.1.0/24\"\npod_subnet_all_nodes = \"10.1.0.0/16\"\nmain_interface = \"GbE\"\n";
        }
        // Writing to a String can't fail.
        if !self.etcd.is_empty() {
            _ = write!(text, "[backend.etcd]\nkind = \"etcd\"\nendpoints = {:?}\n", self.etcd);
            if let Some(timeout) = self.request_timeout_ms {
                _ = writeln!(text, "request_timeout_ms = {timeout}");
            }
        }
        if self.is_numbered {
            text += "[guests.nodesync]\nuse = \"builtin:nodesync@1\"\n\
                     grants = { etcd = { read = [\"/vnf-agent/contiv-ksr/\"], write = [\"/vnf-agent/contiv-ksr/\"] } }\n";
        }
        if !self.renderers.is_empty() {
            let names = &self.renderers;
            _ = write!(
                text,
                "[guests.service]\nuse = \"builtin:service@1\"\n\
                 [adapter.service]\nrenderers = {names:?}\npod_interfaces = \"tap-{{name}}\"\n"
            );
        }
        for renderer in &self.renderers {
            text += &match *renderer {
                "nftables" => {
                    "[guests.nftables]\nuse = \"builtin:nftables@1\"\nsettings = { pod_subnets = [\"10.1.0.0/16\"] }\n\
                               grants = { nftables = { write = [\"ip trueup\", \"ip6 trueup\"] } }\n"
                        .to_owned()
                }
                "nat44" => nat44("nat44", node),
                _ => {
                    nat44(renderer, &format!("{renderer}-{node}"))
                        + "limits = { imports_per_call = 1 }\nquarantine_after = 3\n"
                }
            };
        }
        text
    }
}

fn nat44(name: &str, agent: &str) -> String {
    format!(
        "[guests.{name}]\nuse = \"builtin:nat44@1\"\n\
         settings = {{ agent_label = \"{agent}\", nat_loopback_ip = \"10.1.1.254\", pod_subnet_this_node = \"10.1.1.0/24\" }}\n\
         grants = {{ etcd = {{ read = [\"/vnf-agent/{agent}/\"], write = [\"/vnf-agent/{agent}/\"] }} }}\n"
    )
}

/// A host; see the module.
pub(crate) struct Host {
    pub(crate) node: String,
    pub(crate) site: Site,
    config: Config,
    started: Option<Started>,
}

impl Host {
    /// Not started yet.
    pub(crate) fn new(config: Config) -> Self {
        let site = Site::of(&config.text());
        warm(&site);
        Self {
            node: config.node.clone(),
            site,
            config,
            started: None,
        }
    }

    /// The same, started.
    pub(crate) fn start_new(config: Config) -> Self {
        let mut host = Self::new(config);
        host.start();
        host
    }

    pub(crate) fn start(&mut self) {
        self.started = Some(self.site.start("run", &[]));
    }

    /// From its next start on it publishes these.
    pub(crate) fn publishes(&mut self, addresses: &[&str]) {
        self.config.addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        fs::write(self.site.path("trueup.toml"), self.config.text()).unwrap();
    }

    pub(crate) fn process(&mut self) -> &mut Started {
        self.started.as_mut().unwrap()
    }

    fn said(&self) -> (String, String) {
        let started = self.started.as_ref().unwrap();
        (started.stdout(), started.stderr())
    }

    pub(crate) fn stdout(&self) -> String {
        self.said().0
    }

    pub(crate) fn stderr(&self) -> String {
        self.said().1
    }

    /// Waits until a line of stdout or stderr contains this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let node = self.node.clone();
        wait_until(&format!("`{text}` of {node}"), || {
            let (stdout, stderr) = self.said();
            assert!(self.process().ended().is_none(), "{node} ended:\n{stdout}\n{stderr}");
            stdout.contains(text) || stderr.contains(text)
        });
    }

    /// Waits until it answers status requests: it has loaded its guests and started.
    #[track_caller]
    pub(crate) fn wait_until_up(&mut self) {
        let (node, socket) = (self.node.clone(), self.site.state_dir().join("control.sock"));
        wait_until(&format!("{node} to be up"), || {
            let (stdout, stderr) = self.said();
            assert!(self.process().ended().is_none(), "{node} ended:\n{stdout}\n{stderr}");
            // A killed host leaves its socket behind.
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// The number that it printed; `None` if it has not yet. A process prints it once.
    pub(crate) fn number(&self) -> Option<u32> {
        let stdout = self.stdout();
        let mut numbers = stdout.lines().filter_map(|line| {
            let (node, number) = line.split_once(" numbered ")?;
            assert_eq!(node.trim(), self.node);
            Some(number.trim().parse().unwrap())
        });
        let number = numbers.next();
        assert_eq!(numbers.next(), None, "{stdout}");
        number
    }

    #[track_caller]
    pub(crate) fn wait_for_number(&mut self) -> u32 {
        let mut number = None;
        let node = self.node.clone();
        wait_until(&format!("the number of {node}"), || {
            number = self.number();
            let (stdout, stderr) = self.said();
            assert!(self.process().ended().is_none(), "{node} ended:\n{stdout}\n{stderr}");
            number.is_some()
        });
        number.unwrap()
    }

    /// Ends it in order, like a service manager.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> Ran {
        self.ask_to_end();
        self.wait_for_end()
    }

    pub(crate) fn ask_to_end(&self) {
        self.started.as_ref().unwrap().signal(Signal::TERM);
    }

    /// How it ended, after a request to end.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> Ran {
        let mut started = self.started.take().unwrap();
        let mut status = None;
        wait_until(&format!("the end of {}", self.node), || {
            status = started.ended();
            status.is_some()
        });
        Ran {
            code: status.and_then(|status| status.code()),
            stdout: started.stdout(),
            stderr: started.stderr(),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.started.take().unwrap().kill();
    }

    /// Removes its recordings and its state.
    pub(crate) fn lose_state(&self) {
        fs::remove_dir_all(self.site.state_dir()).unwrap();
        warm(&self.site);
    }

    pub(crate) fn entries(&self, guest: &str) -> Entries {
        Entries::read(&self.site.state_dir(), guest, &self.node)
    }

    /// Calls of a guest, in order.
    pub(crate) fn calls(&self, guest: &str) -> Vec<Call> {
        self.entries(guest).calls()
    }

    /// The last nodes that `nodesync` reported: name to number and addresses.
    pub(crate) fn nodes(&self) -> Vec<(String, u64, Vec<String>)> {
        let calls = self.entries("nodesync").calls_of("node-sync.get-all-nodes");
        let told = calls.into_iter().rev().find_map(|call| call.result);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |node: &Value| {
            let addresses = node["vpp_ip_addresses"].as_array().unwrap().iter();
            (
                text(&node["name"]),
                node["id"].as_u64().unwrap(),
                addresses.map(text).collect(),
            )
        };
        let told = told.unwrap_or_default();
        told.as_array().into_iter().flatten().map(of).collect()
    }

    /// `trueup status`, in the operator's view.
    pub(crate) fn status(&self) -> Ran {
        let mut program = support::program();
        ran(program.args(["status", "--config"]).arg(self.site.folder()))
    }
}

/// Puts the compiled code into the site.
fn warm(site: &Site) {
    let (from, to) = (COMPILED.state_dir().join("cache"), site.state_dir().join("cache"));
    let mut folder = fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        link(&entry.path(), &to.join(entry.file_name()));
    }
}

fn link(from: &Path, to: &Path) {
    fs::hard_link(from, to).unwrap();
}
