//! `[adapter.ipam]`, `[backend.checkpoint]` and `[backend.cri]`: the node's addresses, the socket that serves them, the
//! checkpoint with the assignments, and the container runtime. They and `[guests.ipam]` must fit together.
//!
//! This module reads no other file: `trueup_sources::enis` checks the interfaces' file.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trueup_capabilities::checkpoint::json_file::PATH_OF_THE_ORIGINAL;
use trueup_capabilities::checkpoint::{KEEP_GENERATIONS, file};
use trueup_sources::enis::{Eni, Enis, mistakes};

use super::guest::Guest;
use super::keyed::say_what_is_missing;
use super::section::{Given, LABEL, Layer, Section, is_label};
use super::world::{self, About, Reading, Sections, Tables, World};
use trueup_registry::Reference;

/// The name of the world, of its guest and, by default, of its instance.
const NAME: &str = "ipam";

/// The text for an operator who has none of these sections.
const ADAPTER: &str = "`[adapter.ipam]` with `enis_file = \"enis.json\"`";
const GUEST: &str = "`[guests.ipam]` with `use = \"builtin:ipam@1\"` and \
     `grants = { checkpoint = { read = [\"own\"], write = [\"own\"] } }`";

/// Where the VPC CNI's node agent keeps its checkpoint, unless it uses the default. This is the agent's own variable,
/// so that both use the same file.
pub const JSON_FILE_ENV: &str = "AWS_VPC_K8S_CNI_BACKING_STORE";

/// The default socket, where the CNI plugin expects the host.
pub const SOCKET: &str = "/run/trueup/cni.sock";

/// The default folder in which the CNI plugin leaves releases.
const SPOOL_DIR: &str = "/var/lib/trueup/cni-spool";

/// Linux's `sun_path` holds 108 bytes, the last of them 0 (`unix(7)`).
const SOCKET_BYTES_MAX: usize = 107;

/// The setting that selects what the guest reads at its start.
const PHASE: &str = "checkpoint_migration_phase";

/// The phase that migrates from the VPC CNI.
const PHASE_FROM_RUNTIME: u64 = 1;

/// The setting for how many entries may follow a checkpoint.
const COMPACT_AFTER: &str = "compact_after";

/// Everything about pod addresses of this node.
#[derive(Debug, Clone)]
pub struct Ipam {
    /// `[guests.ipam]`: the guest that decides. If its settings name no phase, the adapter sets it.
    pub guest: Guest,
    /// `[adapter.ipam]`: whom the host serves, and where.
    pub adapter: IpamAdapter,
    /// `enis` or `enis_file`: the interfaces of the node.
    pub enis: EnisFrom,
    /// `[backend.checkpoint]`: where the assignments of addresses are kept.
    pub checkpoint: CheckpointAt,
    /// `[backend.cri]`, `socket`: the container runtime. `None`: the first of the usual places that exists.
    pub runtime_socket: Option<PathBuf>,
}

/// The adapter's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamAdapter {
    /// The instance's name. A network configuration may name it, and it is the key of its journal.
    pub instance: String,
    /// The socket for pod requests.
    pub socket: PathBuf,
    /// Where the CNI plugin leaves releases while the host is down. `None` if it leaves none.
    pub spool_dir: Option<PathBuf>,
    /// The file of interfaces that were given up and can be detached.
    pub released_file: PathBuf,
    /// When to give up interfaces. `None` if never.
    pub warm: Option<WarmTargets>,
}

/// What must remain when an unused interface is given up. 0 sets no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmTargets {
    /// Unassigned addresses on the other interfaces.
    pub warm_ip_target: u32,
    /// Addresses on the other interfaces, assigned or not.
    pub minimum_ip_target: u32,
}

/// Where the list of this node's network interfaces comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnisFrom {
    /// `enis`: in the configuration, fixed while the host runs.
    Given(Enis),
    /// `enis_file`: in a JSON file that the host watches.
    File(PathBuf),
}

/// `[backend.checkpoint]`: where the guest's checkpoint is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointAt {
    /// `kind = "file"`: in a file in our own format. Defaults: `checkpoints/INSTANCE` in the state folder, a shared
    /// sync of concurrent requests, and 3 old checkpoints beside it.
    File(file::Settings),
    /// `kind = "json-file"`: in the file that the VPC CNI's node agent reads and writes.
    JsonFile {
        /// Default: the value of [`JSON_FILE_ENV`], else `/var/run/aws-node/ipam.json`.
        path: PathBuf,
        /// As for a file.
        keep_generations: u32,
    },
    /// `kind = "simulated"`: in memory; the data is lost when the process ends.
    Simulated,
}

/// The sections about pod addresses.
pub const IPAM: &dyn World = &OfPods;

struct OfPods;

impl World for OfPods {
    fn about(&self) -> About {
        About {
            name: NAME,
            subject: "pod addresses",
            made: "pod addresses",
            needs: &[],
            acts_for_cluster: false,
            guests: vec![NAME],
            adapter: ADAPTER,
        }
    }

    fn sections<'d>(&'static self, tables: &mut Tables<'d>) -> Sections<'d> {
        let guest = tables.guests.section(NAME);
        let adapter = tables.adapters.section(NAME);
        let checkpoint = tables.backends.section("checkpoint");
        let mut cri = tables.backends.section("cri");
        // The backends have defaults, so their sections may be missing.
        let others = [
            (&guest, Some(("guest that decides", GUEST))),
            (&checkpoint, None),
            (&cri, None),
        ];
        let is_any_present = say_what_is_missing(&adapter, ADAPTER, &others);
        Sections::new(is_any_present, move |reading| {
            let guest = Guest::read(guest);
            let (adapter, enis) = read_adapter(adapter, &reading.state_dir);
            Some(Ipam {
                checkpoint: read_checkpoint(checkpoint, reading, &adapter.instance, guest.as_ref()),
                adapter,
                runtime_socket: read_socket(&mut cri),
                // These are the last: what is wrong with the other keys is reported in any case.
                guest: guest?,
                enis: enis?,
            })
        })
    }
}

impl world::Settings for Ipam {
    fn guests(&self) -> Vec<(&'static str, &Guest)> {
        vec![(NAME, &self.guest)]
    }
}

impl Ipam {
    /// Whether the guest reads the container runtime at its start instead of the store.
    pub fn reads_from_runtime(&self) -> bool {
        self.guest.settings.get(PHASE).and_then(Value::as_u64) == Some(PHASE_FROM_RUNTIME)
    }
}

fn read_adapter(mut section: Section<'_>, state_dir: &Path) -> (IpamAdapter, Option<EnisFrom>) {
    let instance = section.text("instance", LABEL, is_label);
    let spool_dir = section.value("spool_dir", "be a path, or false for none", |given| {
        match given.truth() {
            Some(false) => Some(None),
            _ => given.path().map(Some),
        }
    });
    let released_file = section.path("released_file");
    let settings = IpamAdapter {
        instance: instance.unwrap_or_else(|| NAME.to_owned()),
        socket: read_socket(&mut section).unwrap_or_else(|| PathBuf::from(SOCKET)),
        spool_dir: spool_dir.unwrap_or_else(|| Some(PathBuf::from(SPOOL_DIR))),
        released_file: released_file.unwrap_or_else(|| state_dir.join("released.json")),
        warm: read_warm(&mut section),
    };
    (settings, read_enis(&mut section))
}

fn read_socket(section: &mut Section<'_>) -> Option<PathBuf> {
    let given = section.given("socket")?;
    let Some(path) = given.path() else {
        section.wrong_value(&given, "must be a path");
        return None;
    };
    let shown = path.display();
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_BYTES_MAX {
        let must = format_args!("must be a path of at most {SOCKET_BYTES_MAX} bytes");
        let text = format_args!("{must}, which is what the address of a socket holds: {shown} has {bytes}");
        section.wrong_value(&given, text);
        return None;
    }
    Some(path)
}

/// Setting either one enables the release of unused interfaces.
fn read_warm(section: &mut Section<'_>) -> Option<WarmTargets> {
    /// No node has more addresses than this. More is a typing error that would keep every interface forever.
    const TARGET: RangeInclusive<u32> = 0..=1_000_000;
    let warm_ip_target = section.optional_whole("warm_ip_target", TARGET);
    let minimum_ip_target = section.optional_whole("minimum_ip_target", TARGET);
    warm_ip_target.or(minimum_ip_target).map(|_| WarmTargets {
        warm_ip_target: warm_ip_target.unwrap_or(0),
        minimum_ip_target: minimum_ip_target.unwrap_or(0),
    })
}

/// The interfaces, or where they are. If both are given in the same layer, that is an error.
fn read_enis(section: &mut Section<'_>) -> Option<EnisFrom> {
    let file = section.value("enis_file", "be a path", Given::layered_path);
    let count = section.length("enis");
    let is_given = section.has("enis");
    // The position in the list matters, so an unreadable item invalidates the list.
    let enis = section.items::<Eni>("enis").filter(|enis| Some(enis.len()) == count);
    match (file, is_given) {
        (Some((_, Layer::File)), true) => {
            section.wrong_key("enis", "goes without `enis_file`: leave one of them out");
            None
        }
        (Some((file, _)), _) => Some(EnisFrom::File(file)),
        (None, true) => {
            let enis = Enis { enis: enis? };
            if enis.enis.is_empty() {
                section.wrong_key("enis", "was [], must hold at least one network interface");
            }
            for (eni, mistake) in mistakes(&enis) {
                section.wrong_item("enis", eni, &mistake);
            }
            Some(EnisFrom::Given(enis))
        }
        (None, false) => {
            let must = "must be the path of a JSON file with this node's network interfaces; or they stand in `enis`";
            section.missing("enis_file", must);
            None
        }
    }
}

fn read_checkpoint(mut section: Section<'_>, reading: &Reading<'_>, name: &str, guest: Option<&Guest>) -> CheckpointAt {
    let (kind, in_file) = section.kind(&["file", "json-file", "simulated"], Some("file"));
    let path = section.path("path");
    let shared_sync = section.truth("shared_sync", true);
    // Zero is valid. Each is as large as a checkpoint, so a hundred may fill a disk.
    let keep_generations = section.whole("keep_generations", KEEP_GENERATIONS, 0..=100);
    if in_file {
        let is_file = kind == "file";
        let on_disk = kind != "simulated";
        for (key, goes, words) in [
            ("path", on_disk, "every kind but \"simulated\""),
            ("keep_generations", on_disk, "every kind but \"simulated\""),
            ("shared_sync", is_file, "`kind = \"file\"` alone"),
        ] {
            if section.has(key) && !goes {
                section.wrong_key(key, format_args!("goes with {words}"));
            }
        }
    }
    if kind == "json-file" && !writes_whole_checkpoints(guest) {
        let set = format_args!("set `{COMPACT_AFTER} = 0` in `guests.ipam.settings`");
        let text = format_args!("was \"json-file\", which keeps no entries after a checkpoint: {set}");
        section.wrong_key("kind", text);
    }
    match kind {
        "json-file" => CheckpointAt::JsonFile {
            path: path.unwrap_or_else(|| {
                let named = reading.document.environment.get(JSON_FILE_ENV);
                let named = named.filter(|path| !path.is_empty());
                PathBuf::from(named.map_or(PATH_OF_THE_ORIGINAL, String::as_str))
            }),
            keep_generations,
        },
        "simulated" => CheckpointAt::Simulated,
        _ => CheckpointAt::File(file::Settings {
            path: path.unwrap_or_else(|| reading.state_dir.join("checkpoints").join(name)),
            shared_sync,
            keep_generations,
        }),
    }
}

/// Whether the guest never appends entries to a checkpoint. The host knows the settings of the shipped guest only; for
/// another one, the store reports the problem.
fn writes_whole_checkpoints(guest: Option<&Guest>) -> bool {
    guest.is_none_or(|guest| match &guest.reference {
        Reference::Builtin { .. } => guest.settings.get(COMPACT_AFTER).and_then(Value::as_u64) == Some(0),
        Reference::File(_) | Reference::Oci(_) => true,
    })
}
