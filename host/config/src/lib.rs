//! The operator's configuration: flags, environment variables and a TOML file, in this order of precedence.
//!
//! This crate checks everything: what [`Config::load_with`] returns has every default filled in, every path resolved
//! and every number in its range. Whether a folder, a token or a guest's file exists is checked by the code that opens
//! it. This crate never reads tokens, only their locations.
//!
//! ```text
//! flags > TRUEUP_... variables > trueup.toml -> Config, or every problem, one a line
//! ```
#![forbid(unsafe_code)]

mod admin;
mod compute;
mod document;
mod election;
mod etcd;
mod guest;
pub mod interfaces;
mod ipam;
mod keyed;
mod kubernetes;
mod lbaas;
mod neg;
mod nftables;
mod node;
mod section;
mod shown;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use trueup_base::regular;
use trueup_capabilities::lbaas::anexia::TOKEN_ENV_DEFAULT;
use trueup_journal::{Keep, Options, Sync};

pub use self::admin::{Admin, AdminAt};
pub use self::compute::{ComputeBackend, ComputeSim, CredentialsAt, NegBackend, SIM_TOKEN};
pub use self::document::Override;
pub use self::election::{Election, LEASE_NAME_DEFAULT};
pub use self::etcd::{EtcdBackend, EtcdCluster};
pub use self::guest::{FailurePolicy, GATE_CALLS, Guest, Mode, OnFailure, Proof};
pub use self::ipam::{CheckpointAt, EnisFrom, Ipam, SOCKET, Settings, WarmTargets};
pub use self::lbaas::{AnexiaBackend, Lbaas, LbaasAdapter, LbaasBackend, LbaasSim, TokenAt};
pub use self::neg::{NEG_NAMES, Neg, NegAdapter, RESOURCE_NAME_MAX, ZONES, is_resource_name};
pub use self::nftables::{NftablesBackend, NftablesProgram};
pub use self::node::{Address, InterfacesFrom, NODE_NAME, NodeContext, OnService, ThisNode};
pub use self::telemetry::{LogFormat, Telemetry};
pub use trueup_sources::Source;

use trueup_sources::Kind;

use self::document::Document;
use self::section::Section;

/// The configuration file in a folder.
pub const FILE_NAME: &str = "trueup.toml";

/// A configuration has some hundred lines. A larger file is the wrong file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Variables with our prefix that set no key: another part of the program reads them.
pub const VARIABLES_ELSEWHERE: [&str; 2] = [TOKEN_ENV_DEFAULT, "TRUEUP_LOG"];

/// Where the VPC CNI's node agent keeps its checkpoint, unless it uses the default. This is the agent's own variable,
/// so that both use the same file.
pub const JSON_FILE_ENV: &str = "AWS_VPC_K8S_CNI_BACKING_STORE";

/// Everything that `trueup run` and `trueup plan` need.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file of this configuration.
    pub file: PathBuf,
    /// Journals, snapshots, known keys, status and caches. Default: `.trueup` beside the file.
    pub state_dir: PathBuf,
    /// The seed of the host's random choices. Default: 1.
    pub seed: u64,
    /// Load balancers at an Anexia Engine. `None` if this host handles none. At least one of `lbaas`, `ipam`, `neg` and
    /// `node` is present.
    pub lbaas: Option<Lbaas>,
    /// Pod addresses of this node. `None` if this host assigns none.
    pub ipam: Option<Ipam>,
    /// Network endpoint groups at Compute Engine. `None` if this host handles none. Its source is that of `lbaas`.
    pub neg: Option<Neg>,
    /// The number of this node, and its Services. `None` if this host handles neither. Its source is that of the
    /// others.
    pub node: Option<ThisNode>,
    /// Where guests' etcd data is kept. Default: the host's own store.
    pub etcd: EtcdBackend,
    /// The packet filter that guests program. Default: that of the host's own network.
    pub nftables: NftablesBackend,
    /// How calls are recorded.
    pub journal: Recording,
    /// Retention of the audit log.
    pub audit: AuditKept,
    /// How keys are reconciled.
    pub run: Run,
    /// The admin addresses.
    pub admin: Admin,
    /// The format of the log, and the destination of traces.
    pub telemetry: Telemetry,
    /// How several hosts elect a leader. `None`: this host always acts.
    pub election: Option<Election>,
}

/// The key of the state folder; its variable; its default, relative to the file.
const STATE_DIR: &str = "state_dir";
const STATE_DIR_ENV: &str = "TRUEUP_STATE_DIR";
const STATE_DIR_DEFAULT: &str = ".trueup";

/// `[journal]`: how calls are recorded. Keys and defaults: `record` (true), `sync` (`"write"`, `"fsync"` or
/// `"interval"`; the first), `interval_ms` (1000, for the last), `segment_bytes` (1 MiB), `segment_entries` (1000),
/// `keep_bytes` (256 MiB for each instance), `keep_total_bytes` (2 GiB) and `keep_gone_days` (30).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Whether calls are recorded for later inspection. The data needed to rebuild an instance is kept in any case.
    pub record: bool,
    /// How journals are kept. Without `record`, only the last segment is kept.
    pub options: Options,
    /// The total size in bytes of all recordings and explanations.
    pub keep_total_bytes: u64,
    /// Days for which the recording of a deleted key is kept.
    pub keep_gone_days: u64,
}

/// `[audit]`: retention of the audit log. Keys and defaults: `keep_bytes` (512 MiB) and `keep_days` (365).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditKept {
    /// The total size in bytes of all its files. The newest file is always kept.
    pub keep_bytes: u64,
    /// Days after which a closed file is deleted.
    pub keep_days: u64,
}

/// `[run]`: how keys are reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How many keys are reconciled at once. Default: 4.
    pub workers: u32,
    /// Milliseconds until the next resync of an unchanged key. Default: 300,000.
    pub resync_ms: u64,
    /// Milliseconds until the first retry of a failed key. Default: 1000.
    pub backoff_initial_ms: u64,
    /// The maximum backoff of a failed key, in milliseconds. Default: 300,000.
    pub backoff_max_ms: u64,
}

/// The problems of a configuration, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub struct ConfigError {
    problems: Vec<String>,
}

impl ConfigError {
    /// Each problem on one line: where it is, the given value, the valid values.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl Config {
    /// Reads the configuration in `path` (a file, or a folder with `trueup.toml`) with this process's environment and
    /// the flags.
    ///
    /// # Errors
    /// As [`Config::load_with`].
    pub fn load_under(path: &Path, overrides: &[Override]) -> Result<Self, ConfigError> {
        Self::load_with(path, &environment()?, overrides)
    }

    /// The same with a given environment and flags. If several flags set one key, the last one wins.
    ///
    /// A variable `TRUEUP_A_B` sets the key `b` in `[a]`, as if the file contained it: a relative path in it is
    /// relative to the file too. Of the variables without that prefix only [`JSON_FILE_ENV`] is read.
    pub fn load_with(
        path: &Path,
        environment: &BTreeMap<String, String>,
        overrides: &[Override],
    ) -> Result<Self, ConfigError> {
        let file = file_of(path);
        let text = read(&file).map_err(|problem| one(format!("{}: {problem}", file.display())))?;
        let document = Document::new(file.display().to_string(), &text, environment, overrides);
        let table = match DeTable::parse(&text) {
            Ok(table) => table,
            Err(error) => return Err(one(document.not_toml(&error))),
        };
        let config = Self::from_document(&document, Section::outermost(&document, table.get_ref()), &file);
        let problems = document.problems(&VARIABLES_ELSEWHERE);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError { problems }),
        }
    }

    /// The state folder that a configuration names, even if the rest of the file is invalid: then with the errors. This
    /// serves commands about a host that keeps running with its previous configuration.
    ///
    /// # Errors
    /// If the file cannot be read at all.
    pub fn state_dir_of(path: &Path) -> Result<(PathBuf, Option<ConfigError>), ConfigError> {
        let environment = environment()?;
        let error = match Self::load_with(path, &environment, &[]) {
            Ok(config) => return Ok((config.state_dir, None)),
            Err(error) => error,
        };
        let file = file_of(path);
        let Ok(text) = read(&file) else { return Err(error) };
        let (table, _) = DeTable::parse_recoverable(&text);
        let in_file = table
            .get_ref()
            .get(STATE_DIR)
            .and_then(|value| value.get_ref().as_str());
        let named = environment.get(STATE_DIR_ENV).map(String::as_str).or(in_file);
        let folder = file.parent().unwrap_or(Path::new(""));
        Ok((folder.join(named.unwrap_or(STATE_DIR_DEFAULT)), Some(error)))
    }

    /// Uses the simulated servers of the running host instead of starting new ones. False if only that host knows the
    /// port of one of them.
    pub fn use_running_servers(&mut self) -> bool {
        let of_lbaas = self.lbaas.as_mut().is_none_or(Lbaas::use_running_sim);
        let of_neg = self.neg.as_mut().is_none_or(Neg::use_running_sim);
        of_lbaas && of_neg
    }

    /// The configuration of the document. `None` only if it has a problem.
    fn from_document<'d>(document: &'d Document<'d>, mut root: Section<'d>, file: &Path) -> Option<Self> {
        let folder = file.parent().unwrap_or(Path::new(""));
        let state_dir = folder.join(root.path(STATE_DIR).unwrap_or_else(|| PathBuf::from(STATE_DIR_DEFAULT)));
        let seed = root.whole("seed", 1, 0..=u64::MAX);
        let Apart {
            source,
            lbaas: for_lbaas,
            ipam: for_ipam,
            neg: for_neg,
            node: for_node,
            renderers,
            etcd: for_etcd,
            nftables: for_nftables,
        } = sections(&mut root);
        let (has_lbaas, has_ipam) = (for_lbaas.is_any_present(), for_ipam.is_any_present());
        let (has_neg, has_node) = (for_neg.is_any_present(), for_node.is_any_present());
        let has_source = source.is_present();
        let takes_from_source = has_lbaas || has_neg || has_node;
        if !takes_from_source && !has_ipam {
            say_what_there_is_to_do(document, has_source);
        } else if !takes_from_source && has_source {
            say_what_takes_from(&source);
        }
        // The source's reader does the same: variables alone can select a cluster.
        let has_kubernetes = source.has("kubernetes") || document.has_outside("source.kubernetes");
        let election = read_election(&mut root, has_kubernetes, has_lbaas || has_neg, has_node);
        let source = source::read(source, folder, &needed(has_lbaas, has_neg, has_node));
        let lbaas = Lbaas::read(document, (has_source, source.clone()), for_lbaas, folder, seed);
        let neg = Neg::read(document, (has_source, source.clone()), for_neg, folder, seed);
        let node = ThisNode::read(document, (has_source, source), for_node, renderers, folder);
        let ipam = Ipam::read(document, for_ipam, folder, &state_dir);
        let etcd = EtcdBackend::read(for_etcd, folder, &state_dir);
        let nftables = NftablesBackend::read(for_nftables, folder);
        let journal = Recording::read(root.section("journal"));
        let audit = AuditKept::read(root.section("audit"));
        let run = Run::read(root.section("run"));
        let admin = Admin::read(root.section("admin"), folder);
        let telemetry = Telemetry::read(root.section("telemetry"));
        root.end();
        let mut config = Self {
            file: file.to_owned(),
            state_dir,
            seed,
            lbaas: if has_lbaas { Some(lbaas?) } else { None },
            ipam: if has_ipam { Some(ipam?) } else { None },
            neg: if has_neg { Some(neg?) } else { None },
            node: if has_node { Some(node?) } else { None },
            etcd,
            nftables,
            journal,
            audit,
            run,
            admin,
            telemetry,
            election,
        };
        config.watch_pods_of_this_node();
        Some(config)
    }

    /// The cluster is watched once for everything, but Pods matter only for this node.
    fn watch_pods_of_this_node(&mut self) {
        let Some(node) = &mut self.node else { return };
        let lbaas = self.lbaas.as_mut().map(|lbaas| &mut lbaas.source);
        let neg = self.neg.as_mut().map(|neg| &mut neg.source);
        for source in lbaas.into_iter().chain(neg).chain([&mut node.source]) {
            if let Source::Kubernetes(cluster) = source {
                cluster.pods_of = Some(node.name.clone());
            }
        }
    }
}

/// How hosts elect the one that acts for the cluster. `None` if this host acts for its own node alone.
fn read_election(root: &mut Section<'_>, has_kubernetes: bool, is_acted_for: bool, has_node: bool) -> Option<Election> {
    let election = Election::read(root.section("election"), has_kubernetes);
    // A node's host always acts for its node. The hosts of a cluster's nodes do not wait for each other, and none
    // may hold the lease of the hosts that act for the cluster.
    if has_node && election.is_some() && !is_acted_for && root.has("election") {
        let text =
            "is about load balancers and network endpoint groups: a host acts for its node whatever other hosts run";
        root.wrong_key("election", text);
    }
    election.filter(|_| is_acted_for)
}

/// Reports a source that nothing reads.
fn say_what_takes_from(source: &Section<'_>) {
    source.wrong(format_args!(
        "[source] needs an adapter that takes from it: add {}, or {}, or {}",
        lbaas::ADAPTER,
        neg::ADAPTER,
        node::ADAPTER,
    ));
}

/// The sections grouped by subject.
struct Apart<'d> {
    source: Section<'d>,
    lbaas: keyed::Sections<'d>,
    ipam: ipam::Sections<'d>,
    neg: keyed::Sections<'d>,
    node: node::Sections<'d>,
    renderers: node::Renderers<'d>,
    etcd: Section<'d>,
    nftables: Section<'d>,
}

/// Takes the sections out of their tables.
fn sections<'d>(root: &mut Section<'d>) -> Apart<'d> {
    let mut guests = root.section("guests");
    let mut adapters = root.section("adapter");
    let mut backends = root.section("backend");
    let mut sims = root.section("sim");
    let for_lbaas = keyed::Sections {
        guest: guests.section("lbaas"),
        adapter: adapters.section("lbaas"),
        backend: backends.section("lbaas"),
        sim: sims.section("lbaas"),
    };
    let for_ipam = ipam::Sections {
        guest: guests.section("ipam"),
        adapter: adapters.section("ipam"),
        checkpoint: backends.section("checkpoint"),
        cri: backends.section("cri"),
    };
    let for_neg = keyed::Sections {
        guest: guests.section("neg"),
        adapter: adapters.section("neg"),
        backend: backends.section("neg"),
        sim: sims.section("compute"),
    };
    let mut for_node = node::Sections {
        nodesync: guests.section("nodesync"),
        service: guests.section("service"),
        node: adapters.section("node"),
        adapter: adapters.section("service"),
    };
    let serves = for_node.service.is_present();
    let renderers = node::Renderers::find(&mut guests, &mut for_node.adapter, serves);
    let (for_etcd, for_nftables) = (backends.section("etcd"), backends.section("nftables"));
    guests.end_as(
        "guest",
        "; a guest is named as its adapter, a renderer as `renderers` of [adapter.service] lists it",
    );
    for parent in [adapters, backends, sims] {
        parent.end();
    }
    Apart {
        source: root.section("source"),
        lbaas: for_lbaas,
        ipam: for_ipam,
        neg: for_neg,
        node: for_node,
        renderers,
        etcd: for_etcd,
        nftables: for_nftables,
    }
}

/// The required kinds of objects, and what is made from each.
fn needed(has_lbaas: bool, has_neg: bool, has_node: bool) -> Vec<(Kind, &'static str)> {
    const NEGS: &str = "network endpoint groups";
    const NODE: &str = "the Services of a node";
    let made = match (has_lbaas, has_neg) {
        (true, _) => "load balancers",
        (false, true) => NEGS,
        (false, false) => NODE,
    };
    let mut needed = vec![(Kind::Service, made), (Kind::Node, made)];
    if has_neg || has_node {
        needed.push((Kind::EndpointSlice, if has_neg { NEGS } else { NODE }));
    }
    if has_node {
        needed.push((Kind::Pod, NODE));
    }
    needed
}

/// Reports which sections to add, for each subject, if there is nothing to do.
fn say_what_there_is_to_do(document: &Document<'_>, has_source: bool) {
    let source = if has_source {
        String::new()
    } else {
        format!("{}, ", source::SECTION)
    };
    document.wrong(format_args!(
        "nothing to do: for load balancers add {source}{}, {}, and {}; for pod addresses add {}, and {}; for \
         network endpoint groups add {source}{}, {}, and {}; for the number of a node, or its Services, add {source}{}, \
         and {} or {}",
        lbaas::ADAPTER,
        lbaas::GUEST,
        lbaas::BACKEND,
        ipam::ADAPTER,
        ipam::GUEST,
        neg::ADAPTER,
        neg::GUEST,
        neg::BACKEND,
        node::ADAPTER,
        node::NODESYNC,
        node::SERVICE,
    ));
}

impl Config {
    /// `[source]`, if any part uses it.
    pub fn source(&self) -> Option<&Source> {
        let lbaas = self.lbaas.as_ref().map(|lbaas| &lbaas.source);
        let neg = self.neg.as_ref().map(|neg| &neg.source);
        let node = self.node.as_ref().map(|node| &node.source);
        lbaas.or(neg).or(node)
    }
}

impl Recording {
    fn read(mut section: Section<'_>) -> Self {
        /// Up to a minute: a busy host writes thousands of entries in a second, and beyond a minute `write` is the
        /// better choice.
        const INTERVAL_MS: RangeInclusive<u64> = 1..=60_000;
        /// From a few entries to the size that a pager can open.
        const SEGMENT_BYTES: RangeInclusive<u64> = 1 << 12..=1 << 30;
        /// An instance is rebuilt from a segment: a million entries take minutes.
        const SEGMENT_ENTRIES: RangeInclusive<u64> = 1..=1_000_000;
        /// The newest segment is always kept, so any number is valid; more than a pebibyte is a typing error.
        const KEEP_BYTES: RangeInclusive<u64> = 0..=1 << 50;
        /// With less than a few segments, only the required data could be kept.
        const KEEP_TOTAL_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 50;
        let default = Options::default();
        let keep_total_bytes = section.whole("keep_total_bytes", 2 << 30, KEEP_TOTAL_BYTES);
        let keep_gone_days = section.whole("keep_gone_days", 30, KEEP_DAYS);
        let record = section.truth("record", true);
        let ms = section.whole("interval_ms", 1000, INTERVAL_MS);
        let syncs = [
            ("write", Sync::Write),
            ("fsync", Sync::Fsync),
            ("interval", Sync::Interval { ms }),
        ];
        let keep_bytes = section.whole("keep_bytes", 256 << 20, KEEP_BYTES);
        let options = Options {
            sync: section.choice("sync", default.sync, &syncs),
            segment_bytes: section.whole("segment_bytes", default.segment_bytes, SEGMENT_BYTES),
            segment_entries: section.whole("segment_entries", default.segment_entries, SEGMENT_ENTRIES),
            keep: if record {
                Keep::Bytes(keep_bytes)
            } else {
                Keep::LastSegment
            },
        };
        section.end();
        Self {
            record,
            options,
            keep_total_bytes,
            keep_gone_days,
        }
    }
}

/// From today only to a hundred years.
const KEEP_DAYS: RangeInclusive<u64> = 0..=36_500;

impl AuditKept {
    fn read(mut section: Section<'_>) -> Self {
        /// The newest file, of up to 16 MiB, is always kept.
        const KEEP_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 50;
        let kept = Self {
            keep_bytes: section.whole("keep_bytes", 512 << 20, KEEP_BYTES),
            keep_days: section.whole("keep_days", 365, KEEP_DAYS),
        };
        section.end();
        kept
    }
}

impl Run {
    fn read(mut section: Section<'_>) -> Self {
        /// Each worker holds an instance: at the default memory limit, 256 of them may use 16 GiB.
        const WORKERS: RangeInclusive<u32> = 1..=256;
        /// A day: a longer pause is in effect no resync and no retry.
        const PAUSE_MS: RangeInclusive<u64> = 1..=86_400_000;
        let workers = section.whole("workers", 4, WORKERS);
        let resync_ms = section.whole("resync_ms", 300_000, PAUSE_MS);
        let backoff_initial_ms = section.whole("backoff_initial_ms", 1000, PAUSE_MS);
        let backoff_max_ms = section.whole("backoff_max_ms", 300_000, PAUSE_MS);
        if backoff_max_ms < backoff_initial_ms {
            section.wrong_key(
                "backoff_max_ms",
                format_args!("was {backoff_max_ms}, must be at least `backoff_initial_ms`, {backoff_initial_ms}"),
            );
        }
        section.end();
        Self {
            workers,
            resync_ms,
            backoff_initial_ms,
            backoff_max_ms,
        }
    }
}

/// The configuration file that `path` refers to.
fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE_NAME)
    } else {
        path.to_owned()
    }
}

fn environment() -> Result<BTreeMap<String, String>, ConfigError> {
    let ours = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = ours.filter(|(name, _)| name.starts_with(document::PREFIX) || name == JSON_FILE_ENV);
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(one(format!("{name}: is not UTF-8"))),
    })
    .collect()
}

fn read(file: &Path) -> Result<String, String> {
    let hint = format!("give a TOML file, or a folder with `{FILE_NAME}`");
    let unreadable = |cause: io::Error| {
        format!(
            "can't read the configuration: {}; {hint}",
            trueup_base::text::cause(&cause)
        )
    };
    regular::read_text(file, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("longer than {FILE_BYTES_MAX} bytes, so no configuration; {hint}"),
        _ => unreadable(error),
    })
}

fn one(problem: String) -> ConfigError {
    ConfigError {
        problems: vec![problem],
    }
}
