//! A host, its manifests, and its Compute Engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::FEW;
use super::cluster::{Cluster, Stack};
use super::compute::{Compute, Contents, Does, Operation, now_ms};
use super::judge::{CLOCKS_APART_MS, Judged, Rules, judge};
use support::{Site, Started, TOKEN, trueup};

/// Anything slower counts as a hang.
const PATIENCE: Duration = Duration::from_secs(240);

/// The pause between two looks at the server, which must not keep the machine busy.
const LOOK: Duration = Duration::from_millis(50);

/// The time of an operation unless a test sets another.
pub(crate) const OPERATION_MS: u64 = 50;

/// The pause after a detachment: more than twice the time of an operation, so that attachments mostly end within it on
/// a machine with other work.
pub(crate) const WAIT_MS: u64 = 300;

/// An operation that takes this long does not end by itself.
pub(crate) const HELD_MS: u64 = 600_000;

pub(crate) struct Stage {
    pub(crate) compute: Compute,
    pub(crate) site: Site,
    pub(crate) cluster: Cluster,
    wait_ms: u64,
    host: Option<Started>,
}

impl Stage {
    /// With the usual wait.
    pub(crate) fn new(cluster: Cluster, compute: Compute) -> Self {
        Self::waiting(WAIT_MS, cluster, compute)
    }

    /// Only the server runs yet; the manifests exist.
    pub(crate) fn waiting(wait_ms: u64, cluster: Cluster, compute: Compute) -> Self {
        let sections = sections(&compute, wait_ms);
        let config = format!("[source]\nmanifests = \"manifests\"\n\n[run]\nbackoff_initial_ms = 10\n{sections}");
        let site = Site::of(&config);
        fs::create_dir(site.path("manifests")).unwrap();
        fs::write(site.path("token"), TOKEN).unwrap();
        cluster.write(&site);
        Self {
            compute,
            site,
            cluster,
            wait_ms,
            host: None,
        }
    }

    /// All endpoints were there; then one is being detached, by this operation, which does not end.
    pub(crate) fn detaching(wait_ms: u64) -> (Self, u64) {
        let cluster = Cluster::of(FEW, Stack::Single);
        let mut stage = Self::waiting(wait_ms, cluster, Compute::start(OPERATION_MS, &[]));
        stage.start();
        stage.comes_true();
        stage.hold();
        stage.change(|cluster| cluster.set_stack(Stack::Dual));
        let operation = stage.in_flight(Does::Detach);
        // The host shows it once the turn that asked for it has ended.
        let shown = format!("in flight shop/web/80: operation {operation} ");
        stage.wait_until("the status to show it", |stage| {
            let status = support::ran(&mut stage.site.command_of(&["status", "--keys", "--config"], &[]));
            status.stdout.contains(&shown)
        });
        (stage, operation)
    }

    pub(crate) fn start(&mut self) {
        assert!(self.host.is_none(), "one host is enough");
        self.host = Some(self.site.start("run", &[]));
    }

    /// Like `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.host.take().unwrap().kill();
    }

    /// Like the system at a shutdown; the host must end well.
    pub(crate) fn terminate(&mut self) {
        let (ran, _) = self.host.take().unwrap().terminate();
        ran.exits(0);
    }

    /// The host's output so far.
    pub(crate) fn said(&self) -> String {
        self.host
            .as_ref()
            .map_or_else(String::new, |host| host.stdout() + &host.stderr())
    }

    /// Changes the cluster.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        self.cluster.write(&self.site);
    }

    /// Waits, while the host runs, until the condition holds.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            let ended = self.host.as_mut().and_then(Started::ended);
            assert!(ended.is_none(), "the host ended, {ended:?}: {}", self.said());
            assert!(
                began.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for {what}\n{}\n{}",
                self.difference(),
                self.said()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// True if the NEGs hold what the cluster wants, and nothing is in flight.
    pub(crate) fn is_true(&self) -> bool {
        self.compute.at_rest() == Some(self.cluster.contents())
    }

    #[track_caller]
    pub(crate) fn comes_true(&mut self) {
        self.wait_until("the NEGs to be as they should be", Self::is_true);
    }

    /// From here on, no operation ends by itself.
    pub(crate) fn hold(&self) {
        self.compute.operations_take(HELD_MS);
    }

    /// Waits for an operation of this kind while none ends by itself; returns its number.
    #[track_caller]
    pub(crate) fn in_flight(&mut self, does: Does) -> u64 {
        let mut number = 0;
        self.wait_until("an operation in flight", |stage| {
            let held = stage.held();
            let found = held.iter().find(|operation| operation.does == does);
            number = found.map_or(0, |operation| operation.id);
            // The attachment comes after the end of the detachment; until then the host requests nothing.
            if found.is_none() && held.iter().any(|operation| operation.does == Does::Detach) {
                stage.compute.end_operations();
            }
            found.is_some()
        });
        number
    }

    /// Operations that do not end by themselves. Once these appear, all earlier ones have ended.
    fn held(&self) -> Vec<Operation> {
        let before_ms = now_ms() - OPERATION_MS - CLOCKS_APART_MS;
        let mut held = self.compute.operations();
        held.retain(|operation| operation.done_ms.is_none() && operation.received_ms < before_ms);
        held
    }

    /// Ends the held operations; from here on all end. A detachment must be about to come: while that is in flight, the
    /// host requests nothing.
    #[track_caller]
    pub(crate) fn let_go(&mut self) {
        self.in_flight(Does::Detach);
        self.compute.operations_take(OPERATION_MS);
        self.compute.end_operations();
    }

    /// The actual and the desired contents of the NEGs, for the messages of assertions.
    fn difference(&self) -> String {
        let counts = |contents: Contents| -> BTreeMap<_, _> {
            contents
                .into_iter()
                .map(|(place, there)| (place, there.len()))
                .collect()
        };
        let (is, shall) = (self.compute.at_rest(), self.cluster.contents());
        format!("there: {:?}\nwanted: {:?}", is.map(counts), counts(shall))
    }

    /// Checks that all work followed the rules, and that the guest learnt how every operation ended; the host may need
    /// a moment for that.
    #[track_caller]
    pub(crate) fn judge(&mut self) -> Judged {
        let judged = judge(
            &self.compute.operations(),
            Rules::new(self.cluster.pods(), self.wait_ms),
        );
        let changes = self.compute.changes();
        let mut told = self.told();
        if self.host.is_some() {
            self.wait_until("the guest to be told of every end", |stage| {
                told = stage.told();
                changes.iter().all(|change| told.contains_key(&change.id))
            });
        }
        for change in changes {
            let said = told
                .get(&change.id)
                .unwrap_or_else(|| panic!("no client was told of {change:?}"));
            assert_eq!(*said, BTreeSet::from([change.failure.is_some()]), "{change:?}");
        }
        judged
    }

    /// The ends of operations that the guest received, and whether these were failures.
    fn told(&self) -> BTreeMap<u64, BTreeSet<bool>> {
        let mut told: BTreeMap<u64, BTreeSet<bool>> = BTreeMap::new();
        for entry in self
            .entries()
            .iter()
            .filter(|entry| entry["call"] == "syncer.on-operation")
        {
            let operation = entry["args"]["operation"].as_u64().unwrap();
            let failed = !entry["args"]["failure"].is_null();
            told.entry(operation).or_default().insert(failed);
        }
        told
    }

    /// All recorded entries; the last line of a file may be cut.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let files = self.site.journals().into_iter();
        let lines = files.flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let lines: Vec<Value> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
            lines
        });
        lines.collect()
    }

    /// Checks that every recording replays with the guest that made it; returns how many there are of each version.
    /// `other` is the file of any version but the built-in one.
    #[track_caller]
    pub(crate) fn replays(&self, other: Option<&Path>) -> BTreeMap<String, usize> {
        let mut by_version: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in self.site.journals() {
            let text = fs::read_to_string(&file).unwrap();
            let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let version = header["header"]["version"].as_str().unwrap().to_owned();
            by_version
                .entry(version)
                .or_default()
                .push(file.to_str().unwrap().to_owned());
        }
        let replay = |(version, files): (String, Vec<String>)| {
            let count = files.len();
            let mut words = vec!["replay".to_owned()];
            if let Some(other) = other.filter(|_| version != "1") {
                words.extend(["--guest".to_owned(), other.to_str().unwrap().to_owned()]);
            }
            words.extend(files);
            let ran = trueup(words).exits(0);
            assert_eq!(ran.said("recorded by another guest"), Vec::<&str>::new(), "{ran}");
            assert_eq!(ran.stdout.matches(": identical").count(), count, "{ran}");
            (version, count)
        };
        by_version.into_iter().map(replay).collect()
    }

    /// Keys that the host will handle after its restart.
    pub(crate) fn known_keys(&self) -> Vec<String> {
        let files = support::files_under(&self.site.state_dir().join("keys").join("neg"));
        // The host may have replaced or removed a file since it was listed.
        let read = files.iter().filter_map(|file| fs::read(file).ok());
        let key = |bytes: Vec<u8>| {
            let known: Value = serde_json::from_slice(&bytes).unwrap();
            known["key"].as_str().unwrap().to_owned()
        };
        read.map(key).collect()
    }
}

/// The configuration for NEGs: early retries, and requests without a rate limit.
pub(crate) fn sections(compute: &Compute, wait_ms: u64) -> String {
    let url = compute.url();
    format!(
        r#"
[guests.neg]
use = "builtin:neg@1"
settings = {{ migration_wait_ms = {wait_ms}, min_retry_delay_ms = 20, max_retry_delay_ms = 500 }}
grants = {{ neg = {{ read = ["*"], write = ["*"] }} }}

[adapter.neg]
cluster = "c1"
subnet = "default"

[backend.neg]
kind = "compute"
project = "p1"
url = "{url}/compute/v1"
token_file = "token"
requests_per_second = 1000
concurrent = 16
poll_min_ms = 20
poll_max_ms = 100
"#
    )
}
