//! `[backend.nftables]`: which packet filter the guests program. By default it is that of the host's own network.
//!
//! This module checks neither the program nor the namespace: both may appear after the host starts.

use std::path::PathBuf;
use std::time::Duration;

use trueup_capabilities::nftables::nft::{PROGRAM, TIMEOUT};

use super::section::Section;

/// `[backend.nftables]`: what executes the guests' transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NftablesBackend {
    /// `kind = "nft"`, the default: the kernel.
    Nft(NftablesProgram),
    /// `kind = "simulated"`: no packet filter; every transaction succeeds.
    Simulated,
}

/// `[backend.nftables]` of the kind `nft`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftablesProgram {
    /// `namespace`: a network namespace, by its name in `ip netns`. `None`: the host's own.
    pub namespace: Option<String>,
    /// `nft`: the program, as a path or as a name in `PATH`. Default: `nft`.
    pub program: PathBuf,
    /// `timeout_ms`: how long one transaction may take. Default: 5 minutes.
    pub timeout: Duration,
}

impl Default for NftablesProgram {
    fn default() -> Self {
        Self {
            namespace: None,
            program: PathBuf::from(PROGRAM),
            timeout: TIMEOUT,
        }
    }
}

/// The value of the section; a placeholder if it has a problem.
pub(super) fn read(mut section: Section<'_>) -> NftablesBackend {
    let (kind, in_file) = section.kind(&["nft", "simulated"], Some("nft"));
    // What `ip netns` accepts: a single file name of at most the kernel's `NAME_MAX`.
    let is_namespace =
        |name: &str| (1..=255).contains(&name.len()) && !name.contains(['/', '\0']) && name != "." && name != "..";
    let must = "be the name of a network namespace, as `ip netns` lists it";
    let namespace = section.text("namespace", must, is_namespace);
    // A path is relative to the configuration; a bare name stays as it is.
    let program = section.value("nft", "be a program's name or path", |given| match given.filled()? {
        text if text.contains('/') => given.path(),
        name => Some(PathBuf::from(name)),
    });
    let default = NftablesProgram::default();
    // From the time of one change on a busy machine to an hour. A resync of 10,000 services with 10 endpoints each
    // took two minutes, and the time grows faster than the number of services.
    let timeout = section.duration("timeout_ms", default.timeout, 100..=3_600_000);
    if in_file && kind != "nft" {
        section.go_alone("nft", &["kind"]);
    }
    match kind {
        "simulated" => NftablesBackend::Simulated,
        _ => NftablesBackend::Nft(NftablesProgram {
            namespace,
            program: program.unwrap_or(default.program),
            timeout,
        }),
    }
}
