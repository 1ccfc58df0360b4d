//! CNI IPAM plugins as a main plugin runs them: a process for each command, its configuration on stdin.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wait4::Wait4 as _;

/// Where Debian's `containernetworking-plugins` puts them.
const PLUGINS: &str = "/usr/lib/cni";

/// One plugin and its network.
pub struct Plugin {
    binary: PathBuf,
    configuration: String,
}

/// What one command took.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// From the start of the process to its end.
    pub time: Duration,
    /// The largest part of it that was in memory at once.
    pub resident_bytes: u64,
}

impl Plugin {
    /// The `trueup-cni` that is built beside this program, for the host that listens on `socket`.
    ///
    /// # Errors
    /// Where it is not built.
    pub fn trueup(socket: &Path) -> anyhow::Result<Self> {
        let folder = std::env::current_exe()?;
        // TARGET/PROFILE/deps/pods-HASH
        let folder = folder
            .ancestors()
            .nth(2)
            .context("this program is in no target folder")?;
        let binary = folder.join("trueup-cni");
        ensure!(
            binary.exists(),
            "`{}` is not built: run `cargo build -p trueup-cni` with the same profile",
            binary.display()
        );
        Ok(Self::new(
            binary,
            &json!({ "type": "trueup-cni", "socket": socket, "spoolDir": null }),
        ))
    }

    /// Debian's `host-local`, with its state in `folder`; none where it is not installed.
    #[must_use]
    pub fn host_local(folder: &Path) -> Option<Self> {
        let binary = Path::new(PLUGINS).join("host-local");
        let ipam = json!({
            "type": "host-local", "dataDir": folder.join("host-local"), "ranges": [[{ "subnet": "10.200.0.0/16" }]],
        });
        binary.exists().then(|| Self::new(binary, &ipam))
    }

    fn new(binary: PathBuf, ipam: &Value) -> Self {
        let configuration = json!({ "cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": ipam });
        Self {
            binary,
            configuration: configuration.to_string(),
        }
    }

    /// Runs one command for a container to its end.
    ///
    /// # Errors
    /// Where it fails.
    pub fn run(&self, command: &str, container: &str) -> anyhow::Result<Cost> {
        let began = Instant::now();
        let mut child = Command::new(&self.binary)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/proc/self/ns/net")
            .env("CNI_PATH", PLUGINS)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(self.configuration.as_bytes())?;
        }
        let used = child.wait4()?;
        let time = began.elapsed();
        ensure!(
            used.status.success(),
            "{command} of `{}`: {}",
            self.binary.display(),
            used.status
        );
        Ok(Cost {
            time,
            resident_bytes: used.rusage.maxrss,
        })
    }
}
