//! The operator's configuration: environment variables and a TOML file, in this order of precedence.
//!
//! This crate checks everything: what [`Config::load_with`] returns has every default filled in, every path resolved
//! and every number in its range. Whether a folder, a token or a guest's file exists is checked by the code that opens
//! it. This crate never reads tokens, only their locations.
//!
//! ```text
//! TRUEUP_... variables > trueup.toml -> Config, or every problem, one a line
//! ```
#![forbid(unsafe_code)]

mod document;
mod election;
mod etcd;
mod guest;
pub mod interfaces;
mod ipam;
mod keyed;
mod lbaas;
mod neg;
mod nftables;
mod node;
mod section;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod world;

use std::any::Any;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use trueup_base::component::Digest;
use trueup_base::regular;
use trueup_base::text::cause;
use trueup_capabilities::lbaas::anexia::TOKEN_ENV_DEFAULT;
use trueup_journal::{Options, Sync};
use trueup_registry::{Reference, Verify};

pub use self::document::Environment;
pub use self::election::{Election, LEASE_NAME_DEFAULT};
pub use self::etcd::{EtcdBackend, EtcdCluster};
pub use self::guest::{FailurePolicy, GATE_CALLS, Guest, Mode, OnFailure, Proof};
pub use self::ipam::{CheckpointAt, EnisFrom, IPAM, Ipam, IpamAdapter, JSON_FILE_ENV, SOCKET, WarmTargets};
pub use self::keyed::{Backend, Calls, Data, Keyed, Plain, PlainWorld, Remote, Served, Shared, SimServer, sim_address};
pub use self::lbaas::{AnexiaBackend, LBAAS, Lbaas, LbaasAdapter, LbaasBackend, LbaasSim};
pub use self::neg::{
    ComputeBackend, ComputeSim, CredentialsAt, NEG, NEG_NAMES, Neg, NegAdapter, NegBackend, RESOURCE_NAME_MAX,
    SIM_TOKEN, ZONES, is_resource_name,
};
pub use self::nftables::{NftablesBackend, NftablesProgram};
pub use self::node::{Address, InterfacesFrom, NODE, NODE_NAME, NodeContext, OnService, ThisNode};
pub use self::telemetry::{Admin, AdminAt, LogFormat, Telemetry};
pub use self::world::{About, Reading, Sections, Settings, Tables, World};
pub use trueup_capabilities::lbaas::anexia::TokenAt;
pub use trueup_sources::Source;

use self::document::Document;
use self::section::Section;

/// The configuration file in a folder.
pub const FILE_NAME: &str = "trueup.toml";

/// A configuration has some hundred lines. A larger file is the wrong file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Variables with our prefix that set no key: another part of the program reads them.
pub const VARIABLES_ELSEWHERE: [&str; 3] = [CONFIG_ENV, TOKEN_ENV_DEFAULT, "TRUEUP_LOG"];

/// The variable that names the configuration itself.
pub const CONFIG_ENV: &str = "TRUEUP_CONFIG";

/// The worlds whose sections a configuration may hold.
pub type Worlds<'w> = &'w [&'static dyn World];

/// Everything that `trueup run` and `trueup plan` need.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file of this configuration.
    pub file: PathBuf,
    /// The digest of the file's text.
    pub digest: Digest,
    /// Journals, snapshots, known keys, status and caches. Default: `.trueup` beside the file.
    pub state_dir: PathBuf,
    /// The seed of the host's random choices. Default: 1.
    pub seed: u64,
    /// What the sections of each world say, for the worlds with a section: at least one.
    pub worlds: Vec<Box<dyn Settings>>,
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
    /// How journals are kept. Without `record`, an instance keeps only the last segment.
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
    /// Each problem on one line: where it is, the given value, the valid values.
    pub problems: Vec<String>,
}

impl Config {
    /// Reads the configuration in `path` (a file, or a folder with `trueup.toml`) with this process's environment.
    /// `worlds` are those whose sections it may hold.
    ///
    /// # Errors
    /// As [`Config::load_with`].
    pub fn load(path: &Path, worlds: Worlds<'_>) -> Result<Self, ConfigError> {
        Self::load_with(path, &environment()?, worlds)
    }

    /// The same with a given environment.
    ///
    /// A variable `TRUEUP_A_B` sets the key `b` in `[a]`, as if the file contained it: a relative path in it is
    /// relative to the file too. Of the variables without that prefix only [`JSON_FILE_ENV`] is read.
    pub fn load_with(path: &Path, environment: &Environment, worlds: Worlds<'_>) -> Result<Self, ConfigError> {
        let file = file_of(path);
        let text = read(&file).map_err(|problem| one(format!("{}: {problem}", file.display())))?;
        let document = Document::new(&file, &text, environment);
        let table = DeTable::parse(&text).map_err(|error| one(document.not_toml(&error)))?;
        let root = Section::outermost(&document, table.get_ref());
        let config = Self::of(&document, root, &file, worlds);
        let problems = document.problems(&VARIABLES_ELSEWHERE);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(ConfigError { problems }),
        }
    }

    /// Whether its file holds another text now, or can't be read any more.
    pub fn file_differs(file: &Path, digest: &Digest) -> bool {
        read(file).map_or(true, |text| Digest::of(text.as_bytes()) != *digest)
    }

    /// The state folder that a configuration names, even if the rest of the file is invalid: then with the errors. This
    /// serves commands about a host that keeps running with its previous configuration.
    ///
    /// # Errors
    /// If the file cannot be read at all.
    pub fn state_dir_of(path: &Path, worlds: Worlds<'_>) -> Result<(PathBuf, Option<ConfigError>), ConfigError> {
        let environment = environment()?;
        let error = match Self::load_with(path, &environment, worlds) {
            Ok(config) => return Ok((config.state_dir, None)),
            Err(error) => error,
        };
        let file = file_of(path);
        let Ok(text) = read(&file) else { return Err(error) };
        let (table, _) = DeTable::parse_recoverable(&text);
        let in_file = table.get_ref().get(STATE_DIR);
        let in_file = in_file.and_then(|value| value.get_ref().as_str());
        let named = environment.get(STATE_DIR_ENV).map(String::as_str).or(in_file);
        let folder = file.parent().unwrap_or(Path::new(""));
        Ok((folder.join(named.unwrap_or(STATE_DIR_DEFAULT)), Some(error)))
    }

    /// What the sections of one world say, such as `config.world::<Lbaas>()`. `None` if none of them is present.
    pub fn world<T: 'static>(&self) -> Option<&T> {
        let mut worlds = self.worlds.iter().map(|world| world.as_ref() as &dyn Any);
        worlds.find_map(|world| world.downcast_ref())
    }

    /// `[source]`, if any world reads it.
    pub fn source(&self) -> Option<&Source> {
        self.worlds.iter().find_map(|world| world.source())
    }

    /// Every guest of the configuration, by the name of its section.
    pub fn guests(&self) -> Vec<(&'static str, &Guest)> {
        self.worlds.iter().flat_map(|world| world.guests()).collect()
    }

    /// Each component of its guests that may decide at some point, with its required signatures.
    pub fn references(&self) -> Vec<(Reference, &Verify)> {
        let guests = self.guests().into_iter();
        let references =
            guests.flat_map(|(_, guest)| guest.references().map(|reference| (reference.clone(), &guest.verify)));
        references.collect()
    }

    /// Lets every guest destroy anything without an approval.
    pub fn approve(&mut self) {
        self.worlds.iter_mut().for_each(|world| world.approve());
    }

    /// Whether the host starts a simulated server.
    pub fn has_own_server(&self) -> bool {
        self.worlds.iter().any(|world| world.has_own_server())
    }

    /// Uses the simulated servers of the running host instead of starting new ones. False if that host has not noted
    /// the port of one of them.
    pub fn use_running_servers(&mut self) -> bool {
        let mut worlds = self.worlds.iter_mut();
        worlds.all(|world| world.use_running_server(&self.state_dir))
    }

    /// The configuration of the document. `None` only if it has a problem.
    fn of<'d>(document: &'d Document<'d>, mut root: Section<'d>, file: &Path, worlds: Worlds<'_>) -> Option<Self> {
        let state_dir = root.path(STATE_DIR);
        let state_dir = state_dir.unwrap_or_else(|| document.folder.join(STATE_DIR_DEFAULT));
        let seed = root.whole("seed", 1, 0..=u64::MAX);
        let source = root.section("source");
        let all: Vec<About> = worlds.iter().map(|world| world.about()).collect();
        let mut tables = world::tables(&mut root, &all);
        let sections: Vec<Sections<'d>> = worlds.iter().map(|world| world.sections(&mut tables)).collect();
        let etcd = etcd::read(tables.backends.section("etcd"), &state_dir);
        let nftables = nftables::read(tables.backends.section("nftables"));
        // Reports the keys that no world took.
        drop(tables);
        let present = all.iter().zip(&sections);
        let present = present.filter(|(_, sections)| sections.is_any_present);
        let present: Vec<&About> = present.map(|(about, _)| about).collect();
        world::check_fit(document, &source, &all, &present);
        // The source's reader does the same: variables alone can select a cluster.
        let has_kubernetes = source.has("kubernetes") || document.has_outside("source.kubernetes");
        let election = Election::read(root.section("election"), has_kubernetes);
        let is_elected = world::check_election(&root, election.is_some(), &all, &present);
        let pods_of = sections.iter().find_map(|sections| sections.pods_of.clone());
        let reading = Reading {
            document,
            state_dir: state_dir.clone(),
            seed,
            source: source::read(source, &world::needed(&present), pods_of),
        };
        let worlds = world::read(sections, &reading);
        Some(Self {
            file: file.to_owned(),
            digest: Digest::of(document.text.as_bytes()),
            state_dir,
            seed,
            etcd,
            nftables,
            journal: read_recording(root.section("journal")),
            audit: read_audit(root.section("audit")),
            run: read_run(root.section("run")),
            admin: telemetry::read_admin(root.section("admin")),
            telemetry: telemetry::read(root.section("telemetry")),
            election: election.filter(|_| is_elected),
            // The last: what is wrong with the other sections is reported in any case.
            worlds: worlds?,
        })
    }
}

fn read_recording(mut section: Section<'_>) -> Recording {
    /// The newest segment is always kept, so any number is valid; more than a pebibyte is a typing error.
    const KEEP_BYTES: RangeInclusive<u64> = 0..=1 << 50;
    let default = Options::default();
    // Up to a minute: a busy host writes thousands of entries in a second, and beyond a minute `write` is the
    // better choice.
    let ms = section.whole("interval_ms", 1000, 1..=60_000);
    let syncs = [
        ("write", Sync::Write),
        ("fsync", Sync::Fsync),
        ("interval", Sync::Interval { ms }),
    ];
    Recording {
        record: section.truth("record", true),
        options: Options {
            sync: section.choice("sync", default.sync, &syncs),
            // From a few entries to the size that a pager can open.
            segment_bytes: section.whole("segment_bytes", default.segment_bytes, 1 << 12..=1 << 30),
            // An instance is rebuilt from a segment: a million entries take minutes.
            segment_entries: section.whole("segment_entries", default.segment_entries, 1..=1_000_000),
            keep_bytes: section.whole("keep_bytes", default.keep_bytes, KEEP_BYTES),
        },
        // With less than a few segments, only the required data could be kept.
        keep_total_bytes: section.whole("keep_total_bytes", 2 << 30, 1 << 20..=1 << 50),
        keep_gone_days: section.whole("keep_gone_days", 30, KEEP_DAYS),
    }
}

/// From today only to a hundred years.
const KEEP_DAYS: RangeInclusive<u64> = 0..=36_500;

fn read_audit(mut section: Section<'_>) -> AuditKept {
    /// The newest file, of up to 16 MiB, is always kept.
    const KEEP_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 50;
    AuditKept {
        keep_bytes: section.whole("keep_bytes", 512 << 20, KEEP_BYTES),
        keep_days: section.whole("keep_days", 365, KEEP_DAYS),
    }
}

fn read_run(mut section: Section<'_>) -> Run {
    /// A day: a longer pause is in effect no resync and no retry.
    const PAUSE_MS: RangeInclusive<u64> = 1..=86_400_000;
    let run = Run {
        // Each worker holds an instance: at the default memory limit, 256 of them may use 16 GiB.
        workers: section.whole("workers", 4, 1..=256),
        resync_ms: section.whole("resync_ms", 300_000, PAUSE_MS),
        backoff_initial_ms: section.whole("backoff_initial_ms", 1000, PAUSE_MS),
        backoff_max_ms: section.whole("backoff_max_ms", 300_000, PAUSE_MS),
    };
    let least = run.backoff_initial_ms;
    let most = run.backoff_max_ms;
    if most < least {
        let text = format_args!("was {most}, must be at least `backoff_initial_ms`, {least}");
        section.wrong_key("backoff_max_ms", text);
    }
    run
}

/// The configuration file that `path` refers to.
fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE_NAME)
    } else {
        path.to_owned()
    }
}

fn environment() -> Result<Environment, ConfigError> {
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
    let unreadable = |error: io::Error| format!("can't read the configuration: {}; {hint}", cause(&error));
    regular::read_text(file, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("longer than {FILE_BYTES_MAX} bytes, so no configuration; {hint}"),
        io::ErrorKind::NotFound => format!("{}, which `trueup init` writes", unreadable(error)),
        _ => unreadable(error),
    })
}

fn one(problem: String) -> ConfigError {
    let problems = vec![problem];
    ConfigError { problems }
}
