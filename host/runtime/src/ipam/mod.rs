//! Pod addresses: what the IPAM guest is told of this node's network interfaces, and whom it serves.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the adapter is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The instance's name: what a network configuration may name, and the key of its journal.
    pub instance: String,
    /// Where pod requests are served.
    pub socket: PathBuf,
    /// Where the CNI plugin leaves releases while the host is down; none: it leaves none.
    pub spool_dir: Option<PathBuf>,
    /// Where the interfaces are written down that were given up and can be detached.
    pub released_file: PathBuf,
    /// When interfaces are given up; none: never.
    pub warm: Option<WarmTargets>,
}

/// What must stay when an unused interface is given up. 0 is no target: any number will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmTargets {
    /// Unassigned addresses on the other interfaces.
    pub warm_ip_target: u32,
    /// Addresses on the other interfaces, assigned or not.
    pub minimum_ip_target: u32,
}

/// This node's network interfaces, as the configuration or the watched file gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enis {
    /// In any order.
    pub enis: Vec<Eni>,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eni {
    /// Its id: any text, each once.
    pub id: String,
    /// Its device number.
    pub device_number: i32,
    /// Whether it is the node's first interface. Absent: no.
    #[serde(default)]
    pub is_primary: bool,
    /// Whether it carries branch interfaces. Absent: no.
    #[serde(default)]
    pub is_trunk: bool,
    /// Dotted IPv4, in any order, each once on the node.
    pub addresses: Vec<String>,
}
